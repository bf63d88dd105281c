//! A Prometheus beside a site, with our alert rules in compressed time: a minute is a second, an
//! hour five seconds, and thresholds that take a site hours to reach are lower. The rules are
//! otherwise unchanged.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::Value;

use crate::port::free_port;
use crate::process::{Daemon, run, wait_until};
use crate::site::SOON;

/// The alert rules, in the repository.
const RULES: &str = "grafana/alerts.yml";

/// Pause between two looks at the metrics of the master.
const GLANCE: Duration = Duration::from_millis(400);

/// A running Prometheus; it ends when this is dropped.
pub struct Prometheus {
    port: u16,
    _daemon: Daemon,
}

impl Prometheus {
    /// Starts one in a directory, which watches the master at `target` (address and port), and
    /// waits until it has seen it.
    ///
    /// # Errors
    /// When it does not start, or does not see the master.
    pub fn start(directory: &Path, target: &str) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let rules = std::fs::read_to_string(repository().join(RULES)).context(RULES)?;
        std::fs::write(directory.join("alerts.yml"), hastened(&rules)?)?;
        let relay = relay(target)?;
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 200ms}}\n\
             rule_files: [alerts.yml]\n\
             scrape_configs:\n- job_name: saltern\n  static_configs:\n  - targets: ['127.0.0.1:{relay}']\n"
        );
        let path = directory.join("prometheus.yml");
        std::fs::write(&path, config)?;
        let port = free_port();
        let mut command = Command::new(program("prometheus")?);
        command
            .arg(format!("--config.file={}", path.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let output = directory.join("prometheus.out");
        let daemon = Daemon::start("prometheus", &mut command, &output)?;
        let prometheus = Self {
            port,
            _daemon: daemon,
        };
        wait_until("Prometheus to see the master", SOON, || {
            let seen = prometheus.ask("up%7Bjob=%22saltern%22%7D==1").ok()?;
            (!seen.is_empty()).then_some(())
        })?;
        Ok(prometheus)
    }

    /// Waits until an alert does not fire, whatever its labels.
    ///
    /// # Errors
    /// When it goes on.
    pub fn wait_quiet(&self, alert: &str) -> Result<()> {
        let mut last = Vec::new();
        let waited = wait_until(&format!("{alert} to clear"), SOON * 2, || {
            last = self.firing().ok()?;
            let quiet = !last.iter().any(|firing| firing.is(alert, &[]));
            quiet.then_some(())
        });
        waited.with_context(|| format!("firing: {last:?}"))
    }

    /// The alerts that fire now.
    ///
    /// # Errors
    /// When Prometheus does not answer.
    pub fn firing(&self) -> Result<Vec<Firing>> {
        let series = self.ask("ALERTS%7Balertstate=%22firing%22%7D")?;
        let labels = series.into_iter().map(|mut series| series["metric"].take());
        Ok(labels.map(Firing).collect())
    }

    /// The series that a query gives now; the query is written as in an address.
    fn ask(&self, query: &str) -> Result<Vec<Value>> {
        let path = format!("/api/v1/query?query={query}");
        let answer = get(&format!("127.0.0.1:{}", self.port), &path)?;
        let answer: Value = serde_json::from_str(&answer.body)?;
        let result = answer["data"]["result"].as_array();
        Ok(result.context("an answer without a result")?.clone())
    }
}

/// Serves the last page of metrics of a master at a port, as long as this process lives, and an error when it cannot
/// be reached. A scrape that takes longer than the interval between two is a gap, after which an alert that waits starts
/// anew, and on a busy machine a master takes its time. A master that is frozen, and has not ended, is up here until
/// [`get`] gives up.
fn relay(target: &str) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let page = Arc::new(Mutex::new(None));
    let (target, last) = (target.to_owned(), Arc::clone(&page));
    thread::spawn(move || {
        loop {
            let answer = get(&target, "/metrics").ok();
            let answer = answer.filter(|answer| answer.status == 200);
            *last.lock() = answer.map(|answer| answer.body);
            thread::sleep(GLANCE);
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let page = page.lock().clone();
            // Who has gone asks again.
            serve(stream, page.as_deref()).ok();
        }
    });
    Ok(port)
}

/// Answers a request, whatever it is.
fn serve(mut stream: TcpStream, page: Option<&str>) -> io::Result<()> {
    stream.set_read_timeout(Some(SOON))?;
    let mut request = [0; 4096];
    let length = stream.read(&mut request)?;
    match page {
        _ if length == 0 => Ok(()),
        Some(page) => write!(
            stream,
            "HTTP/1.0 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n\r\n{page}"
        ),
        None => write!(stream, "HTTP/1.0 503 Service Unavailable\r\n\r\n"),
    }
}

/// An alert that fires: its labels, its name among them.
#[derive(Debug)]
pub struct Firing(Value);

impl Firing {
    /// Whether it is the alert of this name, and has these labels.
    pub fn is(&self, alert: &str, labels: &[(&str, &str)]) -> bool {
        let name = ("alertname", alert);
        let mut wanted = std::iter::once(&name).chain(labels);
        wanted.all(|(label, value)| self.0[*label] == *value)
    }
}

/// The names of all alerts that there are rules for.
///
/// # Errors
/// When the rules cannot be read.
pub fn alerts() -> Result<BTreeSet<String>> {
    let rules = std::fs::read_to_string(repository().join(RULES)).context(RULES)?;
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    Ok(names.map(str::to_owned).collect())
}

/// Response of an HTTP server.
#[derive(Debug)]
pub struct Answer {
    /// The status, 200 for instance.
    pub status: u16,
    /// The headers as they came.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Asks for a page over plain HTTP.
///
/// # Errors
/// No connection, or no answer of HTTP.
pub fn get(address: &str, path: &str) -> Result<Answer> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SOON))?;
    get_over(stream, path)
}

/// The same over a stream that is there.
///
/// # Errors
/// It breaks, or there is no answer of HTTP.
pub fn get_over(mut stream: impl Read + Write, path: &str) -> Result<Answer> {
    // Of the old version, so that the answer comes in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("no answer of HTTP came")?;
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    Ok(Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// Fails unless `promtool` finds nothing to say about a page of metrics.
///
/// # Errors
/// Its complaints are the error.
pub fn check_metrics(page: &str, scratch: &Path) -> Result<()> {
    std::fs::write(scratch, page)?;
    let mut command = Command::new(program("promtool")?);
    command
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(scratch)?);
    let checked = run(&mut command, SOON)?;
    ensure!(checked.code == Some(0), "{checked}");
    Ok(())
}

/// A program of Prometheus, where `tests/install-stock.sh` puts it.
fn program(name: &str) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    let directory = Path::new(&home).join(".cache/saltern/tools/prometheus/usr/bin");
    let program = directory.join(name);
    if !program.exists() {
        bail!(
            "\"{}\" is missing: run tests/install-stock.sh",
            program.display()
        );
    }
    Ok(program)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Figures of the rules that only time brings about, with what stands for them here: a day in
/// seconds, the rows that a job cache may be behind, and the age of keys.
const LESS: [(&str, &str); 4] = [
    ("86400)", "960)"),
    ("> 100000", "> 500"),
    ("> 10000", "> 50"),
    ("keys_age_seconds > 30", "keys_age_seconds > 5"),
];

/// The rules with a second for a minute, `[15m]` becomes `[15s]`, and five for an hour; and with
/// [`LESS`].
fn hastened(rules: &str) -> Result<String> {
    let mut hastened = String::with_capacity(rules.len());
    for line in rules.lines() {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('[') {
            let (window, after) = after.split_once(']').context("a window without an end")?;
            hastened.push_str(&format!("{before}[{}]", in_seconds(window)?));
            rest = after;
        }
        match rest.split_once("for: ") {
            Some((before, time)) if before.trim().is_empty() => {
                hastened.push_str(&format!("{before}for: {}", in_seconds(time)?));
            }
            _ => hastened.push_str(rest),
        }
        hastened.push('\n');
    }
    for (much, less) in LESS {
        ensure!(rules.contains(much), "no rule has {much:?} any more");
        hastened = hastened.replace(much, less);
    }
    Ok(hastened)
}

fn in_seconds(time: &str) -> Result<String> {
    let (number, seconds) = match (time.strip_suffix('m'), time.strip_suffix('h')) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 5),
        _ => bail!("{time:?} is neither minutes nor hours"),
    };
    let number: u32 = number.parse().with_context(|| time.to_owned())?;
    Ok(format!("{}s", number * seconds))
}

/// Address of the status port in a site's configuration: a free port, since the site must know it.
pub fn metrics_address() -> String {
    format!("127.0.0.1:{}", free_port())
}
