//! Asks of every place that reads an option which SIGHUP takes over how it follows. `MasterConfig` has
//! such options in `followed()` only, which gives what holds now; what is made of it, and kept, needs
//! somebody who makes it anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How a place follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// It keeps nothing: it reads the value each time, and in no constructor.
    ReadsEachTime,
    /// The named function makes what it keeps anew, and is called with each reload.
    MadeAnewBy(&'static str),
    /// It belongs to the start of a master, and the reload says what needs a restart.
    OnlyAtTheStart,
}

/// The files that read such options, by the end of their path.
const READERS: &[(&str, How)] = &[
    ("requests/src/rules.rs", How::MadeAnewBy("Services::follow")),
    ("store/src/options.rs", How::MadeAnewBy("Services::follow")),
    ("schedule.rs", How::MadeAnewBy("Master::follow")),
    (
        "reactor/rules.rs",
        How::MadeAnewBy("Master::follow_reactor"),
    ),
    ("saltern/src/reload.rs", How::MadeAnewBy("Reloader::take")),
    ("netapi/src/events.rs", How::ReadsEachTime),
    ("netapi/src/log_in.rs", How::ReadsEachTime),
    ("console/src/backend.rs", How::ReadsEachTime),
    ("netapi/src/permissions.rs", How::ReadsEachTime),
    ("commands/master.rs", How::OnlyAtTheStart),
    ("listeners.rs", How::OnlyAtTheStart),
];

/// The functions that bring up to date, with the text that their file has.
const MAKERS: &[(&str, &str, &str)] = &[
    (
        "Services::follow",
        "requests/src/services.rs",
        "SiteRules::read(config",
    ),
    (
        "Master::follow",
        "actors/src/tree/mod.rs",
        "become_like(schedule)",
    ),
    (
        "Master::follow_reactor",
        "reaction_queue.rs",
        "Reading::of(config)",
    ),
    (
        "Reloader::take",
        "saltern/src/reload.rs",
        "self.set_levels(&config)",
    ),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The sources of the program but for the crate that has the options, by their paths.
fn program() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    for directory in ["src", "actors"] {
        sources(&root.join(directory), &mut paths);
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source is text");
        let path = path.strip_prefix(&root).expect("it is below the root");
        (format!("/{}", path.display()), text)
    };
    let files = paths.into_iter().map(read);
    files
        .filter(|(path, _)| !path.contains("/src/config/") && !path.contains("/tests/"))
        .collect()
}

fn is_file(path: &str, end: &str) -> bool {
    path.ends_with(&format!("/{end}"))
}

/// The constructors of a source in which such options are read: what they make keeps the value of the
/// start.
fn constructors_that_read(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices(".followed()") {
        let before = &source[..at];
        let Some(start) = before.rfind("fn ") else {
            continue;
        };
        let signature = before[start..].split('{').next().unwrap_or_default();
        let result = signature.split_once("->").map_or("", |(_, result)| result);
        if result.contains("Self") {
            let name = signature.split('(').next().unwrap_or_default();
            found.push(name.trim_start_matches("fn "));
        }
    }
    found
}

#[test]
fn constructor_that_reads_a_followed_option_is_found() {
    let source = "fn most(&self) -> usize { self.config.followed().most }\n\
                  fn new(config: &MasterConfig) -> Self {\n Self { most: config.followed().most } }\n\
                  fn open(config: &MasterConfig)\n -> Result<Self> {\n let now = config.followed();";
    assert_eq!(constructors_that_read(source), ["new", "open"]);
}

#[test]
fn every_reader_of_a_followed_option_says_how_it_follows() {
    let files = program();
    let readers: Vec<&str> = files
        .iter()
        .filter(|(_, text)| text.contains(".followed()"))
        .map(|(path, _)| path.as_str())
        .collect();
    let is_known = |path: &&&str| READERS.iter().any(|(end, _)| is_file(path, end));
    let unknown: Vec<_> = readers.iter().filter(|path| !is_known(path)).collect();
    assert!(
        unknown.is_empty(),
        "these read an option that SIGHUP takes over; say in READERS how they follow: {unknown:?}"
    );
    for (end, how) in READERS {
        let is_read = readers.iter().any(|path| is_file(path, end));
        assert!(is_read, "{end} reads no such option any more");
        if *how == How::ReadsEachTime {
            let read_once = files.iter().filter(|(path, _)| is_file(path, end));
            let read_once: Vec<_> = read_once
                .flat_map(|(_, source)| constructors_that_read(source))
                .collect();
            assert!(
                read_once.is_empty(),
                "{end} reads the value of the start in {read_once:?}: read it where it is used"
            );
        }
        let How::MadeAnewBy(maker) = how else {
            continue;
        };
        let made = MAKERS.iter().find(|(name, _, _)| name == maker);
        let (_, file, text) = made.unwrap_or_else(|| panic!("{maker} is in MAKERS"));
        let mut files = files.iter().filter(|(path, _)| is_file(path, file));
        assert!(
            files.any(|(_, source)| source.contains(text)),
            "{maker} ({file}) has no \"{text}\""
        );
    }
    let ends: BTreeSet<&str> = READERS.iter().map(|(end, _)| *end).collect();
    assert_eq!(ends.len(), READERS.len(), "a file is listed twice");
}
