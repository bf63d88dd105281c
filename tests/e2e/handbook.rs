//! The handbook: every block of shell (`sh`) of its pages, in the order of reading, on one site with a
//! stock minion. The pages themselves say when the master is started, stopped or replaced, and when a
//! minion comes, in comments that readers do not see: `<!-- handbook: start master -->`.
//!
//! Not run are blocks of other languages: `console` asks for root or a service manager, `text` is output.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use saltern_tests::port::free_port;
use saltern_tests::process::run;
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

const RELEASE: Release = Release::V3008;

/// The commands that the program is called as, beside its own name.
const NAMES: [&str; 5] = ["salt", "salt-cp", "salt-key", "salt-master", "salt-run"];

/// Part of a page.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A change of the site that a comment asks for.
    Site(String),
    /// A block of shell, with the exit codes that it may have.
    Block { script: String, codes: Vec<i32> },
    /// Output of the block before.
    Output(String),
    /// A block that is not run, with its language.
    LeftOut(String),
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The pages in the order of the navigation, with their names.
fn pages() -> Result<Vec<(String, String)>> {
    let navigation = fs::read_to_string(docs().join("mkdocs.yml"))?;
    let (_, navigation) = navigation.split_once("\nnav:").context("a navigation")?;
    let words = navigation.split_whitespace();
    let names = words.filter(|word| word.ends_with(".md"));
    let pages = names.filter_map(|name| {
        let text = fs::read_to_string(docs().join(name)).ok()?;
        Some((name.to_owned(), text))
    });
    Ok(pages.collect())
}

/// The exit codes that a title names, `exit code 0 or 1`; else 0 alone.
fn codes(info: &str) -> Vec<i32> {
    let words = info.split(|c: char| !c.is_ascii_digit());
    let named: Vec<i32> = words.filter_map(|word| word.parse().ok()).collect();
    match named.is_empty() {
        true => vec![0],
        false => named,
    }
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let comment = line.strip_prefix("<!-- handbook: ");
        if let Some(order) = comment.and_then(|rest| rest.strip_suffix(" -->")) {
            steps.push(Step::Site(order.to_owned()));
        }
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let body = body.join("\n");
        let language = info.split(' ').next().unwrap_or_default();
        steps.push(match language {
            "sh" => Step::Block {
                script: body,
                codes: codes(info),
            },
            "text" if info.contains("title=\"output\"") => Step::Output(body),
            _ => Step::LeftOut(language.to_owned()),
        });
    }
    steps
}

/// Whether a line is that of a pattern, in which `…` stands for anything.
fn is_line(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        if is_last {
            return rest.ends_with(part);
        }
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        rest = behind;
    }
    true
}

/// Whether an output is that of a page, in which a line `…` stands for any lines.
fn is_output(pattern: &str, output: &str) -> bool {
    let mut lines = output.trim_end().lines().map(str::trim_end);
    let mut may_skip = false;
    for expected in pattern.trim_end().lines().map(str::trim_end) {
        if expected == "…" {
            may_skip = true;
            continue;
        }
        let found = match may_skip {
            true => lines.any(|line| is_line(expected, line)),
            false => lines.next().is_some_and(|line| is_line(expected, line)),
        };
        if !found {
            return false;
        }
        may_skip = false;
    }
    may_skip || lines.next().is_none()
}

/// A site on which the blocks are run.
struct Reader<'a> {
    site: &'a mut Site,
    metrics_port: u16,
    api_port: u16,
    /// Standard output of the last block.
    output: String,
}

impl Reader<'_> {
    /// The places of a page as those of this site.
    fn placed(&self, text: &str) -> String {
        let place = |name: &str| self.site.path(name).display().to_string();
        let port = format!("127.0.0.1:{}", self.metrics_port);
        [
            // The longer ones first.
            ("/etc/salt/pki/master", place("pki")),
            ("-C /etc/salt ", format!("-C {} ", place(""))),
            ("/etc/salt", place("conf")),
            ("/srv/salt", place("srv/salt")),
            ("/var/cache/salt/master", place("cache")),
            ("/tmp/hello-from-saltern", place("hello")),
            ("127.0.0.1:4507", port),
            ("port: 8000", format!("port: {}", self.api_port)),
            ("localhost:8000", format!("127.0.0.1:{}", self.api_port)),
        ]
        .iter()
        .fold(text.to_owned(), |text, (page, here)| {
            text.replace(page, here)
        })
    }

    /// Our commands under our master, stock's under stock's; `saltern` itself is always there.
    fn path(&self) -> Result<OsString> {
        let ours = match self.site.server().is_ours() {
            true => vec![self.site.path("commands")],
            false => {
                let stock = RELEASE.program("salt");
                let stock = stock.parent().context("a directory")?.to_owned();
                vec![stock, self.site.path("command")]
            }
        };
        let system = std::env::var_os("PATH").unwrap_or_default();
        let dirs = ours.into_iter().chain(std::env::split_paths(&system));
        Ok(std::env::join_paths(dirs)?)
    }

    fn block(&mut self, script: &str, codes: &[i32]) -> Result<()> {
        let script = self.placed(script);
        let mut command = Command::new("bash");
        command
            .args(["-eu", "-o", "pipefail", "-c", &script])
            .current_dir(self.site.path("home"))
            .env("PATH", self.path()?)
            .env("HOME", self.site.path("home"))
            .env("SALT_CONFIG_DIR", self.site.path("conf"));
        let ran = run(&mut command, SOON * 2)?;
        let is_fine = ran.code.is_some_and(|code| codes.contains(&code));
        ensure!(is_fine, "expected exit code {codes:?}\n{ran}");
        self.output = ran.stdout;
        Ok(())
    }

    /// Has the master serve its metrics where the pages look for them.
    fn serve_metrics(&mut self) -> Result<()> {
        let address = format!("127.0.0.1:{}", self.metrics_port);
        self.site.config().set("saltern_metrics_address", address);
        self.site.write_config()
    }

    /// Waits until a minion answers: it may have to connect anew first. A job that is published before is lost, and
    /// its command waits for minutes.
    fn wait_reconnected(&self, id: &str) -> Result<()> {
        if self.site.server().is_ours() {
            wait_until(&format!("{id} to be present"), SOON, || {
                let present = self.site.saltern(&["minions", "-w", "present", id]);
                present.is_ok_and(|ran| ran.code == Some(0)).then_some(())
            })?;
        }
        wait_until(&format!("{id} to answer"), SOON * 2, || {
            let ping = self.site.salt(&[id, "test.ping"]).ok()?;
            ping.stdout.contains("True").then_some(())
        })
    }

    /// Waits until the master has noticed that a minion has no connection.
    fn wait_away(&self, id: &str) -> Result<()> {
        wait_until(&format!("{id} to be away"), SOON, || {
            let away = self.site.saltern(&["minions", "-w", "not present", id]);
            away.is_ok_and(|ran| ran.code == Some(0)).then_some(())
        })
    }

    fn change(&mut self, order: &str) -> Result<()> {
        let words: Vec<&str> = order.split(' ').collect();
        match words.as_slice() {
            ["start", "master"] => self.site.start_master(),
            ["stop", "master"] => self.stop(),
            ["restart", "master"] => {
                self.stop()?;
                self.site.start_master()
            }
            ["switch", "to", "stock"] => self.site.switch_to(Server::Stock(RELEASE)),
            ["switch", "to", "saltern"] => {
                self.site.switch_to(Server::Saltern(RELEASE))?;
                self.serve_metrics()
            }
            ["minion", id] => {
                self.site.start_minion(id, MinionKind::Stock(RELEASE))?;
                self.site.wait_pending(id)
            }
            ["started", id] => self.site.wait_started(id),
            ["kill", id] => {
                self.site.kill_minion(id);
                self.wait_away(id)
            }
            ["back", id] => {
                self.site.start_prepared_minion(id)?;
                self.wait_reconnected(id)
            }
            ["reconnected", id] => {
                self.site.wait_until_ready_again()?;
                self.wait_reconnected(id)
            }
            _ => bail!("no such order: {order}"),
        }
    }

    fn stop(&mut self) -> Result<()> {
        if self.site.server().is_ours() {
            let status = self.site.stop_master()?;
            ensure!(status.success(), "the master's exit was: {status}");
        } else {
            // Stock takes seconds to stop; nothing is learnt from that.
            self.site.kill_master();
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Site(order) => self.change(order),
            Step::Block { script, codes } => self.block(script, codes),
            Step::Output(pattern) => {
                let pattern = self.placed(pattern);
                let is_it = is_output(&pattern, &self.output);
                ensure!(
                    is_it,
                    "the page says:\n{pattern}\nand it was:\n{}",
                    self.output
                );
                Ok(())
            }
            Step::LeftOut(_) => Ok(()),
        }
    }
}

fn lay_out(site: &Site) -> Result<()> {
    for dir in ["home", "srv/salt", "command", "commands"] {
        fs::create_dir_all(site.path(dir))?;
    }
    for dir in ["command", "commands"] {
        symlink(saltern_program(), site.path(dir).join("saltern"))?;
    }
    for name in NAMES {
        symlink(saltern_program(), site.path("commands").join(name))?;
    }
    Ok(())
}

#[test]
fn every_shell_block_of_the_handbook_runs() -> TestResult {
    let metrics_port = free_port();
    Site::prepared(
        Server::Saltern(RELEASE),
        |config| {
            config.set(
                "saltern_metrics_address",
                format!("127.0.0.1:{metrics_port}"),
            );
        },
        |site| {
            // What a page does to its site, a restore for instance, may be worth a warning.
            site.announce("");
            lay_out(site)?;
            let roots = format!("{{base: [{}]}}", site.path("srv/salt").display());
            // On a busy machine a minion at work takes a while to say so, and one block that fails ends
            // the test.
            site.config()
                .set("file_roots", roots)
                .set("gather_job_timeout", 60);
            let mut reader = Reader {
                site,
                metrics_port: free_port(),
                api_port: free_port(),
                output: String::new(),
            };
            reader.serve_metrics()?;
            let mut blocks = 0;
            for (name, text) in pages()? {
                let mut left_out = 0;
                for step in &steps(&text) {
                    match step {
                        Step::Block { .. } => blocks += 1,
                        Step::LeftOut(language) if language == "console" => left_out += 1,
                        _ => {}
                    }
                    reader
                        .step(step)
                        .with_context(|| format!("docs/{name}: {step:?}"))?;
                }
                if left_out > 0 {
                    eprintln!(
                        "not run: {left_out} blocks of docs/{name}, which ask for root or a service manager"
                    );
                }
            }
            ensure!(blocks > 40, "only {blocks} blocks were run");
            Ok(())
        },
    )
}

#[test]
fn outputs_of_pages_are_compared_line_by_line() {
    let table = [
        ("a\nb", "a\nb\n", true),
        ("a", "a\nb", false),
        ("a\n…", "a\nb", true),
        ("…\nb", "a\nx\nb", true),
        ("…\nb", "a\nb\nc", false),
        ("a … c", "a b c", true),
        ("a … c", "a b d", false),
        ("…b…", "abc", true),
        ("a…", "ba", false),
    ];
    for (pattern, output, expected) in table {
        assert_eq!(is_output(pattern, output), expected, "{pattern:?}");
    }
}

#[test]
fn blocks_and_orders_are_read_from_a_page() {
    let page = "text\n<!-- handbook: start master -->\n```sh title=\"exit code 0 or 1\"\na\nb\n```\n\
                ```text title=\"output\"\nc\n```\n```console\n# d\n```\n";
    let block = Step::Block {
        script: "a\nb".to_owned(),
        codes: vec![0, 1],
    };
    let expected = [
        Step::Site("start master".to_owned()),
        block,
        Step::Output("c".to_owned()),
        Step::LeftOut("console".to_owned()),
    ];
    assert_eq!(steps(page), expected);
}
