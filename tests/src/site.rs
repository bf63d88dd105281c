//! One master with its minions, command line and event listener, all in one temporary directory.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::config::Config;
use crate::events::Listener;
use crate::logs::{self, Expected};
use crate::minions::Minion;
pub use crate::minions::MinionKind;
use crate::port::free_port;
use crate::process::{Daemon, wait_until};
use crate::readiness::Readiness;
use crate::release::{Server, saltern_program};

/// Return type of a test.
pub type TestResult = Result<(), Failure>;

/// Why a test failed: its message without a backtrace, which only ever shows the harness.
pub struct Failure(anyhow::Error);

impl std::fmt::Debug for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:#}", self.0)
    }
}

impl Failure {
    /// The failure as an ordinary error.
    pub fn into_error(self) -> anyhow::Error {
        self.0
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// For anything a healthy system does within a second or two, even on one core with ten others that
/// want it: only a test that fails waits so long.
pub const SOON: Duration = Duration::from_secs(180);

/// Lines of a log shown when a test fails.
const TAIL: usize = 60;

/// A master and everything around it. Made by [`Site::run`].
pub struct Site {
    pub(crate) server: Server,
    master: Option<Daemon>,
    /// Of the master started last, if it is ours.
    readiness: Option<Readiness>,
    listener: Option<Listener>,
    pub(crate) minions: BTreeMap<String, Minion>,
    /// How often stock minions had lost their master when it ended last.
    pub(crate) losses_before: BTreeMap<String, usize>,
    /// How many ready-made keys its minions have.
    pub(crate) keys_given: usize,
    config: Config,
    expected: Expected,
    master_prefix: Vec<String>,
    publish_port: u16,
    pub(crate) ret_port: u16,
    dir: TempDir,
}

impl Site {
    /// Runs a scenario on a fresh site whose master is up; `configure` may set master options.
    ///
    /// # Errors
    /// Those of the scenario, with all logs shown; or our own unannounced WARN and ERROR lines.
    pub fn run(
        server: Server,
        configure: impl FnOnce(&mut Config),
        scenario: impl FnOnce(&mut Site) -> Result<()>,
    ) -> TestResult {
        Self::prepared(server, configure, |site| {
            site.start_master()?;
            scenario(site)
        })
    }

    /// As [`Site::run`], but the master has not been started.
    ///
    /// # Errors
    /// As [`Site::run`].
    pub fn prepared(
        server: Server,
        configure: impl FnOnce(&mut Config),
        scenario: impl FnOnce(&mut Site) -> Result<()>,
    ) -> TestResult {
        let mut site = Self::new(server)?;
        configure(&mut site.config);
        site.write_config()?;
        let result = scenario(&mut site).and_then(|()| site.finish());
        if result.is_err() {
            site.show_logs();
        }
        Ok(result?)
    }

    fn new(server: Server) -> Result<Self> {
        // Short, because the path of a unix socket must fit into 107 bytes.
        let dir = tempfile::Builder::new().prefix("slt-").tempdir_in("/tmp")?;
        for name in ["conf", "log", "run", "cache"] {
            std::fs::create_dir(dir.path().join(name))?;
        }
        let root = dir.path().display().to_string();
        let (publish_port, ret_port) = (free_port(), free_port());
        let mut config = Config::default();
        config
            .set("interface", "127.0.0.1")
            .set("publish_port", publish_port)
            .set("ret_port", ret_port)
            .set("user", user())
            .set("root_dir", &root)
            .set("pki_dir", format!("{root}/pki"))
            .set("cachedir", format!("{root}/cache"))
            .set("sock_dir", format!("{root}/run"))
            .set("pidfile", format!("{root}/run/master.pid"))
            .set("log_file", format!("{root}/log/master"))
            .set("key_logfile", format!("{root}/log/key"))
            .set("log_level", "warning")
            .set("log_level_logfile", "warning")
            .set("worker_threads", 2)
            .set("loop_interval", 1);
        set_own_options(&mut config, server);
        Ok(Self {
            server,
            master: None,
            readiness: None,
            listener: None,
            minions: BTreeMap::new(),
            losses_before: BTreeMap::new(),
            keys_given: 0,
            config,
            expected: Expected::default(),
            master_prefix: Vec::new(),
            publish_port,
            ret_port,
            dir,
        })
    }

    /// The master under test.
    pub fn server(&self) -> Server {
        self.server
    }

    /// The master's options; [`Site::write_config`] puts changes into the file.
    pub fn config(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Writes the master's configuration file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_config(&self) -> Result<()> {
        Ok(self.config.write(&self.path("conf/master"))?)
    }

    /// Has another master take the place of the one that was stopped: the same keys, caches and
    /// ports.
    ///
    /// # Errors
    /// When the configuration cannot be written.
    pub fn switch_to(&mut self, server: Server) -> Result<()> {
        ensure!(self.master.is_none(), "a master is running");
        self.server = server;
        set_own_options(&mut self.config, server);
        self.write_config()
    }

    /// A path below the site's directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The port minions send requests to.
    pub fn ret_port(&self) -> u16 {
        self.ret_port
    }

    /// The port minions receive publications from.
    pub fn publish_port(&self) -> u16 {
        self.publish_port
    }

    /// Announces WARN or ERROR lines of our own processes that contain `text`.
    pub fn announce(&mut self, text: &str) {
        self.expected.announce(text);
    }

    /// Says in the captured output which step the scenario is at.
    pub fn step(&self, name: &str) {
        eprintln!("step: {name}");
    }

    // --- the master

    /// The command that starts the master in the foreground.
    pub fn master_command(&self) -> Command {
        let (program, arguments): (PathBuf, &[&str]) = match self.server {
            Server::Stock(release) => (release.program("salt-master"), &[]),
            Server::Saltern(_) => (saltern_program(), &["master"]),
        };
        let mut command = match self.master_prefix.split_first() {
            Some((first, others)) => {
                let mut command = Command::new(first);
                command.args(others).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(arguments).arg("-c").arg(self.path("conf"));
        command
    }

    /// From the next start on, the master is started by a program that takes its place: `sh -c`
    /// with an `exec`, for instance.
    pub fn start_master_by(&mut self, prefix: &[&str]) {
        self.master_prefix = prefix.iter().map(|word| (*word).to_owned()).collect();
    }

    /// Starts the master, waits until it serves, and starts a fresh event listener on it.
    ///
    /// # Errors
    /// When it does not serve in time, or ends.
    pub fn start_master(&mut self) -> Result<()> {
        self.start_master_only()?;
        self.listen()
    }

    /// Starts the master and waits until it serves; without a listener.
    ///
    /// # Errors
    /// When it does not serve in time, or ends.
    pub fn start_master_only(&mut self) -> Result<()> {
        ensure!(self.master.is_none(), "the master is running already");
        self.wait_ports_free()?;
        let mut command = self.master_command();
        self.readiness = None;
        if self.server.is_ours() {
            let readiness = Readiness::listen(self.path("notify"))?;
            command.env("NOTIFY_SOCKET", readiness.path());
            self.readiness = Some(readiness);
        }
        let output = self.path("log/master.out");
        let mut daemon = Daemon::start("master", &mut command, &output)?;
        wait_until("the master to serve", SOON, || {
            if daemon.ended().is_some() {
                return Some(false);
            }
            self.serves().then_some(true)
        })?
        .then_some(())
        .context("the master ended instead of serving")?;
        self.master = Some(daemon);
        Ok(())
    }

    /// Waits until nothing listens on the master's ports: a master that was killed holds them until
    /// the last of its processes is gone.
    fn wait_ports_free(&self) -> Result<()> {
        wait_until("the master's ports to be free", SOON, || {
            let addresses = self.addresses();
            let is_free = |address: &String| TcpStream::connect(address).is_err();
            addresses.iter().all(is_free).then_some(())
        })
    }

    /// Where the master listens for minions.
    fn addresses(&self) -> [String; 2] {
        let interface = self.config.get("interface").unwrap_or("127.0.0.1");
        [self.publish_port, self.ret_port].map(|port| format!("{interface}:{port}"))
    }

    fn serves(&self) -> bool {
        let is_open = |address: &String| TcpStream::connect(address).is_ok();
        self.readiness.as_ref().is_none_or(Readiness::is_ready)
            && self.addresses().iter().all(is_open)
            && UnixStream::connect(self.path("run/master_event_pub.ipc")).is_ok()
            && self.path("run/publish_pull.ipc").exists()
    }

    /// Starts a fresh event listener.
    ///
    /// # Errors
    /// When it cannot connect.
    pub fn listen(&mut self) -> Result<()> {
        self.listener = None;
        self.listener = Some(Listener::start(
            self.server.release(),
            &self.path("run"),
            &self.path("conf/master"),
            &self.path("log/listener"),
        )?);
        Ok(())
    }

    /// The event listener.
    ///
    /// # Panics
    /// When no master was started.
    pub fn events(&self) -> &Listener {
        self.listener
            .as_ref()
            .expect("the scenario started a master and so a listener")
    }

    /// The running master.
    ///
    /// # Panics
    /// When no master was started.
    pub fn master(&mut self) -> &mut Daemon {
        self.master.as_mut().expect("the scenario started a master")
    }

    /// Asks the master to stop and waits for that.
    ///
    /// # Errors
    /// When it takes too long.
    pub fn stop_master(&mut self) -> Result<ExitStatus> {
        self.listener = None;
        self.losses_before = self.all_losses();
        self.master
            .take()
            .context("no master is running")?
            .stop(SOON)
    }

    /// Ends the master as a power cut would, all its processes at once. A minion whose return is stored may
    /// not have been answered yet.
    pub fn kill_master(&mut self) {
        self.announce("a return was not taken");
        self.listener = None;
        self.losses_before = self.all_losses();
        self.master = None;
    }

    // --- the end

    /// Stops the minions and the master and reads their logs.
    fn finish(&mut self) -> Result<()> {
        self.minions
            .values_mut()
            .for_each(|minion| minion.daemon = None);
        self.listener = None;
        if let Some(master) = self.master.take() {
            if self.server.is_ours() {
                let status = master.stop(SOON)?;
                ensure!(
                    status.success(),
                    "the master's exit after SIGTERM was: {status}"
                );
            } else {
                // Stock takes seconds to stop; nothing is learnt from that.
                master.signal(Signal::KILL)?;
            }
        }
        self.check_logs()
    }

    /// Fails if one of our own processes logged an unannounced WARN or ERROR line.
    ///
    /// # Errors
    /// Lists the lines.
    pub fn check_logs(&self) -> Result<()> {
        let mut logs = Vec::new();
        if self.server.is_ours() {
            // Not its log file: stock's salt-run writes there too.
            logs.push(self.path("log/master.out"));
        }
        for (id, minion) in &self.minions {
            if minion.kind == MinionKind::Native {
                logs.push(self.path(format!("log/{id}.out")));
            }
        }
        let lines: Vec<String> = logs
            .iter()
            .flat_map(|log| self.expected.unexpected(log))
            .collect();
        if !lines.is_empty() {
            bail!("unexpected lines in our logs:\n{}", lines.join("\n"));
        }
        Ok(())
    }

    fn show_logs(&self) {
        let Ok(entries) = std::fs::read_dir(self.path("log")) else {
            return;
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let text = logs::read(&path);
            let mut lines: Vec<&str> = text.lines().collect();
            lines.dedup();
            if lines.is_empty() {
                continue;
            }
            let skipped = lines.len().saturating_sub(TAIL);
            eprintln!("=== {} ({skipped} lines not shown)", path.display());
            eprintln!("{}", lines[skipped..].join("\n"));
        }
    }
}

/// Options that only our master has.
fn set_own_options(config: &mut Config, server: Server) {
    if server.is_ours() {
        config
            .set("salt_compat", server.release().compat())
            // Others may be running on this machine, and want its processors too.
            .set("saltern_metrics_address", "127.0.0.1:0")
            // A busy machine may need longer than the default to end what is at work.
            .set("saltern_stop_timeout", 60)
            .set("saltern_render_timeout", SOON.as_secs())
            .set("saltern_pillar_timeout", SOON.as_secs())
            .set("python_bridge_timeout", SOON.as_secs());
    }
}

/// The user the tests run as, by name; stock insists on one that exists.
pub(crate) fn user() -> String {
    let id = rustix::process::getuid().as_raw().to_string();
    std::fs::read_to_string("/etc/passwd")
        .unwrap_or_default()
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&id.as_str()))
        .and_then(|fields| fields.first().map(|name| (*name).to_owned()))
        .unwrap_or_else(|| "root".to_owned())
}
