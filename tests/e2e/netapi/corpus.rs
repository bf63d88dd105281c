//! The table of requests, played to stock's interfaces on stock's master and to ours.
//!
//! Status, body and the headers that clients look at are compared. What differs stands in
//! `src/netapi/DIFFERENCES.md`; a row there of which nothing differs any more fails the test.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use saltern_tests::pam::PamService;
use saltern_tests::site::Failure;
use saltern_tests::{Release, Server, Site, TestResult};
use serde_json::Value;

use super::{Dialect, Interfaces, bring_up};

#[test]
fn cherrypy_requests_of_3006_are_answered_as_by_stock() -> TestResult {
    Ok(compare(Release::V3006, Dialect::CherryPy, Extent::All)?)
}

#[test]
fn cherrypy_requests_of_3007_are_answered_as_by_stock() -> TestResult {
    Ok(compare(Release::V3007, Dialect::CherryPy, Extent::All)?)
}

#[test]
fn cherrypy_requests_of_3008_are_answered_as_by_stock() -> TestResult {
    Ok(compare(Release::V3008, Dialect::CherryPy, Extent::All)?)
}

#[test]
fn tornado_requests_of_3008_are_answered_as_by_stock() -> TestResult {
    Ok(compare(Release::V3008, Dialect::Tornado, Extent::All)?)
}

#[test]
fn wsgi_requests_of_3006_are_answered_as_by_stock() -> TestResult {
    Ok(compare(Release::V3006, Dialect::Wsgi, Extent::All)?)
}

#[test]
fn cherrypy_requests_of_each_kind_are_answered_as_by_stock_of_3006() -> TestResult {
    Ok(compare(
        Release::V3006,
        Dialect::CherryPy,
        Extent::EachKind,
    )?)
}

#[test]
fn cherrypy_requests_of_each_kind_are_answered_as_by_stock_of_3007() -> TestResult {
    Ok(compare(
        Release::V3007,
        Dialect::CherryPy,
        Extent::EachKind,
    )?)
}

#[test]
fn cherrypy_requests_of_each_kind_are_answered_as_by_stock_of_3008() -> TestResult {
    Ok(compare(
        Release::V3008,
        Dialect::CherryPy,
        Extent::EachKind,
    )?)
}

#[test]
fn tornado_requests_of_each_kind_are_answered_as_by_stock_of_3008() -> TestResult {
    Ok(compare(Release::V3008, Dialect::Tornado, Extent::EachKind)?)
}

#[test]
fn cherrypy_requests_that_need_python_are_answered_as_by_stock_of_3006() -> TestResult {
    Ok(compare(Release::V3006, Dialect::CherryPy, Extent::Python)?)
}

#[test]
fn cherrypy_requests_that_need_python_are_answered_as_by_stock_of_3007() -> TestResult {
    Ok(compare(Release::V3007, Dialect::CherryPy, Extent::Python)?)
}

#[test]
fn cherrypy_requests_of_saltgui_and_in_python_are_answered_as_by_stock_of_3008() -> TestResult {
    Ok(compare(Release::V3008, Dialect::CherryPy, Extent::Python)?)
}

/// How much of the table is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Every request that is for the dialect, but those that need the site's Salt in Python.
    All,
    /// Those that stand for their kind.
    EachKind,
    /// Those that need the site's Salt in Python, and all of SaltGUI, whose pages need it.
    Python,
}

/// How the names begin that stand in no other part.
const IN_PYTHON: &str = "python-";

impl Extent {
    /// Arguments of the player.
    pub(super) fn argument(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::EachKind => Some("--smoke"),
            Self::Python => Some("--python"),
        }
    }

    /// At least so many requests, so that a player that plays nothing is not taken for agreement.
    fn least(self, dialect: Dialect) -> usize {
        match (self, dialect) {
            (Self::EachKind, _) => 60,
            (Self::Python, _) => 90,
            (Self::All, Dialect::CherryPy) => 550,
            (Self::All, Dialect::Tornado) => 440,
            (Self::All, Dialect::Wsgi) => 60,
        }
    }
}

fn compare(release: Release, dialect: Dialect, extent: Extent) -> Result<()> {
    let service = PamService::install()?;
    let [stock, ours] = std::thread::scope(|scope| {
        let service = &service;
        let play = move |server| answers(server, (dialect, extent), service).map(record);
        let servers = [Server::Stock(release), Server::Saltern(release)];
        let players = servers.map(|server| scope.spawn(move || play(server)));
        players.map(|player| player.join().expect("a player does not panic"))
    });
    service.remove()?;
    let (stock, ours) = (stock?, ours?);
    ensure!(
        stock.len() >= extent.least(dialect) && stock.len() == ours.len(),
        "{} answers of stock, {} of ours",
        stock.len(),
        ours.len()
    );
    let listed = Differences::read(release, dialect)?;
    let failures = failures(&stock, &ours, &listed, extent);
    ensure!(
        failures.is_empty(),
        "{} of {} answers:\n{}",
        failures.len(),
        stock.len(),
        failures.join("\n\n")
    );
    Ok(())
}

type Answers = BTreeMap<String, Value>;

/// Answers of one server, by the names of the requests.
fn answers(
    server: Server,
    (dialect, extent): (Dialect, Extent),
    service: &PamService,
) -> Result<(String, Answers)> {
    let interfaces = Interfaces::new(&[dialect]);
    let mut answers = Vec::new();
    Site::run(
        server,
        |config| {
            interfaces.configure(config, server, service);
            // The minion answers, however busy the machine is: to list its functions it loads all of its modules, and to
            // say that it does so it starts a process.
            config.set("timeout", 60).set("gather_job_timeout", 60);
            if extent == Extent::Python && server.is_ours() {
                let python = server.release().program("python3");
                config.set("python_bridge", python.display());
            }
        },
        |site| {
            bring_up(site)?;
            let _api = interfaces.start(site)?;
            answers = interfaces.play(site, extent)?;
            Ok(())
        },
    )
    .map_err(Failure::into_error)?;
    let side = if server.is_ours() { "ours" } else { "stock" };
    let name = format!("{side}-{}-{}", dialect.name(), server.release().compat());
    let by_name = answers.into_iter().map(|mut answer| {
        let fields = answer.as_object_mut().context("an object")?;
        fields.remove("took");
        let name = fields.remove("name").context("a name")?;
        Ok((name.as_str().context("a text")?.to_owned(), answer))
    });
    Ok((name, by_name.collect::<Result<_>>()?))
}

/// Leaves the answers in the directory that `SALTERN_RECORD` names, for whoever develops.
fn record((name, answers): (String, Answers)) -> Answers {
    if let Some(directory) = std::env::var_os("SALTERN_RECORD") {
        let path = Path::new(&directory).join(name + ".json");
        let text = serde_json::to_string_pretty(&answers).expect("a map of JSON is JSON");
        std::fs::write(path, text).expect("SALTERN_RECORD is a directory");
    }
    answers
}

/// Failures: answers that differ and are not listed, and lists of what does not differ.
fn failures(stock: &Answers, ours: &Answers, listed: &Differences, extent: Extent) -> Vec<String> {
    let mut failures = Vec::new();
    let mut differing = Vec::new();
    for (name, stock) in stock {
        let ours = ours.get(name).unwrap_or(&Value::Null);
        if stock == ours {
            continue;
        }
        differing.push(name.as_str());
        if !listed.has(name) {
            failures.push(format!("{name}\nstock: {stock}\nours:  {ours}"));
        }
    }
    for pattern in &listed.0 {
        // What was not played may differ; pages of SaltGUI play part of the others.
        let is_played = match extent {
            Extent::All => !pattern.starts_with(IN_PYTHON),
            Extent::EachKind => stock.keys().any(|name| matches(pattern, name)),
            Extent::Python => pattern.starts_with(IN_PYTHON),
        };
        if is_played && !differing.iter().any(|name| matches(pattern, name)) {
            failures.push(format!("DIFFERENCES.md: nothing of {pattern} differs"));
        }
    }
    failures
}

/// The rows of the table of differences that are about one interface of one release.
struct Differences(Vec<String>);

impl Differences {
    /// The first column has names of requests, `*` for any end; the second `all`, or interfaces, each
    /// perhaps with a release.
    fn read(release: Release, dialect: Dialect) -> Result<Self> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/netapi/DIFFERENCES.md");
        let text = std::fs::read_to_string(path).context(path)?;
        let interface = dialect.name();
        let with_release = format!("{interface} {}", release.compat());
        let mut patterns = Vec::new();
        for row in text.lines().filter_map(|line| line.strip_prefix("| `")) {
            let mut cells = row.split(" | ");
            let (names, place) = (cells.next(), cells.next());
            let mut places = place.context("a second column")?.split(", ");
            if places.any(|place| place == "all" || place == interface || place == with_release) {
                let names = names.unwrap_or_default().split(", ");
                patterns.extend(names.map(|name| name.trim_matches('`').to_owned()));
            }
        }
        Ok(Self(patterns))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, name))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}
