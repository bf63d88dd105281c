//! The reactor: a table of configurations and events, each row with the reactions that follow. The
//! same rows run under stock's master and under ours, so what stands in the table is what stock
//! does; where ours does something else, the row says what and why.
//!
//! All rows of one table share a master, each with tags and a directory of its own. The reactor of
//! stock runs functions of the master in threads; with one thread their order is that of the
//! events. Jobs for minions have an order of their own. After each row a marker goes the same ways,
//! so that what comes before it is all that came of the row.

mod panic;
mod reactions;
mod rendering;
mod row;
mod rules;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use saltern_tests::session::Session;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

use row::{Row, Step};

#[test]
fn reactions_under_stock_3008() -> TestResult {
    check_tables(Server::Stock(Release::V3008))
}

#[test]
fn reactions_by_a_file_of_rules_under_stock() -> TestResult {
    check(
        Server::Stock(Release::V3008),
        rules::rows_of_a_file(),
        Form::File,
    )
}

#[test]
fn reactions_under_ours() -> TestResult {
    check_tables(Server::Saltern(Release::V3008))
}

#[test]
fn reactions_under_ours_for_3006() -> TestResult {
    check_tables(Server::Saltern(Release::V3006))
}

#[test]
fn reactions_by_a_file_of_rules_under_ours() -> TestResult {
    let server = Server::Saltern(Release::V3008);
    check(server, rules::rows_of_a_file(), Form::File)
}

#[test]
fn reactions_under_stock_3007() -> TestResult {
    check_tables(Server::Stock(Release::V3007))
}

#[test]
fn reactions_under_stock_3006() -> TestResult {
    check_tables(Server::Stock(Release::V3006))
}

/// The file with rules that a configuration names.
const RULES: &str = "rules.yml";

/// The minion that is there; jobs are for it.
const MINION: &str = "m1";

/// A reaction of each kind to the marker of a row.
const MARKER: &str = "
marker_job:
  local.test.echo:
    - tgt: m1
    - args:
      - text: {{ tag }}
marker_call:
  runner.test.arg:
    - args:
      - marker: {{ tag }}
";

fn check_tables(server: Server) -> TestResult {
    let tables = [rules::rows(), rendering::rows(), reactions::rows()];
    check(server, tables.into_iter().flatten().collect(), Form::List)
}

/// Source of the rules.
#[derive(Clone, Copy)]
enum Form {
    /// In the configuration.
    List,
    /// In a file that it names.
    File,
}

fn check(server: Server, mut rows: Vec<Row>, form: Form) -> TestResult {
    for (number, row) in rows.iter_mut().enumerate() {
        row.number = number;
    }
    Site::prepared(
        server,
        |config| configure(server, config),
        |site| {
            lay_out(site, &rows, form)?;
            // What is wrong with rows is said in the log, too.
            for text in [
                "a reaction failed",
                "is passed over",
                "without the master's key",
            ] {
                site.announce(text);
            }
            if !server.is_ours() {
                // On a busy machine stock takes its time.
                site.announce("a return was not taken");
            }
            site.start_master()?;
            site.bring_up(&[(MINION, MinionKind::Native)])?;
            let user = site.config().get("user").unwrap_or_default().to_owned();
            let mut scene = Scene {
                site,
                client: site.client()?,
                minion: site.session_of(MINION)?,
                user,
            };
            let mut differences = Vec::new();
            for row in &rows {
                let name = format!("row {}: {}", row.number, row.name);
                site.step(&name);
                let wrong = scene.play(row).with_context(|| name.clone())?;
                differences.extend(wrong.map(|wrong| format!("{name}\n{wrong}")));
            }
            ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
            Ok(())
        },
    )
}

fn configure(server: Server, config: &mut Config) {
    if server.is_ours() {
        let python = server.release().program("python3");
        config.set("python_bridge", python.display());
    }
    config
        .set("reactor_worker_threads", 1)
        // Loading its functions anew takes stock seconds, and it forgets them after a minute.
        .set("reactor_refresh_interval", 600)
        // A reaction of the kind `caller` is for a minion without a master.
        .set("file_client", "local");
}

/// Writes the files of all rows and the rules of all of them into the configuration.
fn lay_out(site: &mut Site, rows: &[Row], form: Form) -> Result<()> {
    let root = root_of(site);
    let root = root.as_str();
    let mut rules = format!("\n  - 'marker/*': {root}/marker.sls");
    std::fs::write(format!("{root}/marker.sls"), MARKER)?;
    for row in rows {
        std::fs::create_dir_all(format!("{root}/{}/out", row.place()))?;
        for (name, text) in &row.files {
            let name = row.filled(name, root);
            write(&name, &row.filled(text, root))?;
        }
        for rule in &row.rules {
            rules += "\n  - ";
            rules += &row.filled(rule, root);
        }
    }
    let pki = format!("{root}/pki");
    if Path::new(&pki).exists() {
        std::fs::set_permissions(&pki, Permissions::from_mode(0o700))?;
    }
    let rules = match form {
        Form::List => rules,
        Form::File => {
            let path = format!("{root}/{RULES}");
            std::fs::write(&path, rules)?;
            path
        }
    };
    site.config()
        .set("reactor", rules)
        .set("file_roots", format!("{{base: [{root}/files]}}"));
    site.write_config()
}

fn write(name: &str, text: &str) -> Result<()> {
    let path = Path::new(name);
    std::fs::create_dir_all(path.parent().context("a file in a directory")?)?;
    Ok(std::fs::write(path, text)?)
}

fn root_of(site: &Site) -> String {
    let root = site.path("").display().to_string();
    root.trim_end_matches('/').to_owned()
}

/// A site and those who fire events on it.
struct Scene<'a> {
    site: &'a Site,
    client: Session,
    minion: Session,
    /// User of the reactor's jobs.
    user: String,
}

impl Scene<'_> {
    /// Takes the steps of a row; says what is wrong with what came of them.
    fn play(&mut self, row: &Row) -> Result<Option<String>> {
        let root = root_of(self.site);
        let mark = self.site.events().mark();
        let mut wrong = Vec::new();
        for step in &row.steps {
            wrong.extend(self.take(step, row, &root)?);
        }
        let expected = row.expected(self.site.server());
        let expected: Vec<String> = expected.map(|line| row.filled(line, &root)).collect();
        // A row that is wrong fails below, with what came instead. A file may be there before its
        // text.
        wait_until("the reactions", SOON, || {
            (row::lanes(&self.came(row, mark)) == row::lanes(&expected)).then_some(())
        })
        .ok();
        self.settle(row)?;
        let came = self.came(row, mark);
        if row::lanes(&came) != row::lanes(&expected) {
            wrong.push(format!("expected {expected:#?}\ncame     {came:#?}"));
        }
        Ok((!wrong.is_empty()).then(|| wrong.join("\n")))
    }

    /// Takes one step; returns an answer that is not the expected one.
    fn take(&mut self, step: &Step, row: &Row, root: &str) -> Result<Option<String>> {
        let filled = |text: &str| row.filled(text, root);
        match step {
            Step::Fire(tag, data) => self.fire(&filled(tag), data)?,
            Step::Minion(load) => {
                let answer = self.minion.ask(&filled(&load.to_string()))?;
                ensure!(answer == "ok", "{load} was not acknowledged");
            }
            Step::Write(name, text) => {
                // What was fired before is rendered as it was.
                self.settle(row)?;
                write(&filled(name), &filled(text))?;
            }
            Step::Ask(low, answer) => {
                let answer: Value = serde_json::from_str(&filled(&answer.to_string()))?;
                let given = self.ask(&filled(&low.to_string()))?;
                if given != answer {
                    return Ok(Some(format!("{low} answered {given}, not {answer}")));
                }
            }
            Step::Await(low, answer) => {
                let answer: Value = serde_json::from_str(&filled(&answer.to_string()))?;
                let low = filled(&low.to_string());
                wait_until(&format!("the answer {answer} to {low}"), SOON, || {
                    let given = self.ask(&low);
                    given.is_ok_and(|given| given == answer).then_some(())
                })?;
            }
        }
        Ok(None)
    }

    /// Calls a function of the master as `salt-run` does.
    fn ask(&mut self, low: &str) -> Result<Value> {
        let low: Value = serde_json::from_str(low)?;
        self.client.call(&json!({ "own_runner": low }))
    }

    /// All reactions since a mark, without those to the markers of the row.
    fn came(&self, row: &Row, mark: usize) -> Vec<String> {
        let events = self.site.events().since(mark);
        let out = self.site.path(format!("{}/out", row.place()));
        let marker = row.tag("marker");
        let seen = row::reactions(&events, &self.user);
        seen.into_iter()
            .chain(row::files(&out))
            .filter(|reaction| !reaction.contains(&marker))
            .collect()
    }

    /// Sends a marker after what was fired so far and waits until it has gone all the ways.
    fn settle(&mut self, row: &Row) -> Result<()> {
        let marker = row.tag("marker");
        let mark = self.site.events().mark();
        self.fire(&marker, &json!({}))?;
        for (prefix, suffix) in [("salt/job/", "/new"), ("salt/run/", "/ret")] {
            let what = format!("the reaction {prefix}…{suffix} to {marker}");
            self.site.events().find_since(mark, &what, SOON, |event| {
                let is_one = event.tag.starts_with(prefix) && event.tag.ends_with(suffix);
                (is_one && event.data.to_string().contains(&marker)).then_some(())
            })?;
        }
        Ok(())
    }

    /// Fires an event and waits until the bus has it, so that no later one comes before it.
    fn fire(&mut self, tag: &str, data: &Value) -> Result<()> {
        let mark = self.site.events().mark();
        let event = json!({"tag": tag, "data": data});
        let fired = self.client.call(&json!({ "event": event }))?;
        ensure!(fired == true, "the event {tag:?} was not taken: {fired}");
        let what = format!("the event {tag:?}");
        self.site
            .events()
            .find_since(mark, &what, SOON, |event| (event.tag == tag).then_some(()))
    }
}
