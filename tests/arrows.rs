//! Layout tests, which read the workspace without running it. Here: a crate uses only crates that
//! stand above it in the list, and no crate uses what its job forbids.

mod branches;
mod checkers;
mod cves;
mod errors;
mod examples;
mod followed;
mod lists;
mod memories;
mod mutants;
mod pages;
mod panels;
mod public_items;
mod reference;
mod tiers;
mod words;

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// The crates of the workspace, ground floor first; the list is that of ARCHITECTURE.md.
const FLOORS: &[&str] = &[
    "saltern-stock",
    "saltern-base",
    "saltern-python",
    "saltern-wire",
    "saltern-http",
    "saltern-crypto",
    "saltern-model",
    "saltern-config",
    "saltern-store",
    "saltern-sql",
    "saltern-bridge",
    "saltern-policy",
    "saltern-content",
    "saltern-runners",
    "saltern-requests",
    "saltern-automation",
    "saltern-supervise",
    "saltern-channel",
    "saltern-client",
    "saltern-output",
    "saltern-netapi",
    "saltern-console",
    "saltern-actors",
    "saltern-cli",
    "saltern-minion",
    "saltern-lab",
    "saltern",
    "saltern-fuzz",
];

/// Crates that may stand above in the list and still are none of this crate's business.
const NOT_FOR: &[(&str, &[&str])] = &[
    // Knows no load: only how bytes travel.
    (
        "saltern-wire",
        &[
            "saltern-crypto",
            "saltern-model",
            "actix",
            "openssl",
            "hyper",
            "ureq",
        ],
    ),
    // Knows no page and no source of data.
    ("saltern-http", &["actix", "openssl"]),
    (
        "saltern-crypto",
        &["saltern-wire", "saltern-model", "actix", "tokio"],
    ),
    (
        "saltern-model",
        &["saltern-wire", "saltern-crypto", "actix", "tokio"],
    ),
    (
        "saltern-config",
        &["saltern-wire", "saltern-crypto", "actix", "tokio"],
    ),
    ("saltern-store", &["actix", "tokio"]),
    // Starts processes and nothing else; knows no minion, key or job.
    (
        "saltern-bridge",
        &[
            "actix",
            "saltern-model",
            "saltern-store",
            "rusqlite",
            "socket2",
        ],
    ),
    ("saltern-policy", &["actix", "tokio", "rusqlite"]),
    ("saltern-content", &["actix", "socket2", "rusqlite"]),
    (
        "saltern-runners",
        &["actix", "actix-rt", "tokio", "socket2", "rusqlite"],
    ),
    // Knows neither actix nor sockets.
    (
        "saltern-requests",
        &["actix", "actix-rt", "tokio", "socket2", "rusqlite"],
    ),
    // Decides what is due or follows from an event; who may do what is decided in `requests`.
    (
        "saltern-automation",
        &["actix", "actix-rt", "tokio", "socket2", "rusqlite"],
    ),
    // Knows nothing of Salt.
    (
        "saltern-supervise",
        &[
            "saltern-wire",
            "saltern-crypto",
            "saltern-model",
            "saltern-config",
            "saltern-store",
        ],
    ),
    ("saltern-actors", &["rusqlite", "clap"]),
    (
        "saltern-output",
        &["tokio", "actix", "saltern-config", "saltern-crypto"],
    ),
    // What runs on the command line or on a minion does without the master.
    (
        "saltern-client",
        &[
            "actix",
            "saltern-store",
            "saltern-policy",
            "saltern-requests",
        ],
    ),
    (
        "saltern-channel",
        &[
            "actix",
            "saltern-store",
            "saltern-policy",
            "saltern-requests",
        ],
    ),
    (
        "saltern-minion",
        &[
            "actix",
            "saltern-store",
            "saltern-policy",
            "saltern-requests",
        ],
    ),
    // What loads a master is not built of it.
    (
        "saltern-lab",
        &["actix", "saltern-requests", "saltern-actors", "saltern"],
    ),
    // The master's program has neither minions nor load in it.
    ("saltern", &["saltern-minion", "saltern-lab"]),
];

/// Each package of the workspace with the names of the packages its code uses, tests aside.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let text = |value: &Value| value.as_str().expect("a name is a string").to_owned();
    metadata["packages"]
        .as_array()
        .expect("packages are a list")
        .iter()
        .map(|package| {
            let used = package["dependencies"]
                .as_array()
                .expect("dependencies are a list");
            let used = used.iter().filter(|used| used["kind"].is_null());
            (
                text(&package["name"]),
                used.map(|used| text(&used["name"])).collect(),
            )
        })
        .collect()
}

#[test]
fn a_crate_uses_only_crates_above_it() {
    let floor = |name: &str| FLOORS.iter().position(|floor| *floor == name);
    for (name, used) in dependencies() {
        if name == "saltern-tests" {
            assert!(
                used.iter()
                    .all(|used| !used.starts_with("saltern") || used == "saltern-stock"),
                "the end-to-end tests see the binary only, not {used:?}"
            );
            continue;
        }
        let own = floor(&name).unwrap_or_else(|| panic!("crate {name} is not in the list"));
        for used in used.iter().filter(|used| used.starts_with("saltern")) {
            let other = floor(used).unwrap_or_else(|| panic!("{used} is not in the list"));
            assert!(
                other < own,
                "{name} uses {used}, which does not stand above it"
            );
        }
    }
}

#[test]
fn a_crate_keeps_to_its_job() {
    let dependencies = dependencies();
    for (name, forbidden) in NOT_FOR {
        let Some(used) = dependencies.get(*name) else {
            continue;
        };
        for forbidden in *forbidden {
            assert!(
                !used.iter().any(|used| used == forbidden),
                "{name} must not use {forbidden}"
            );
        }
    }
}

/// The only module that knows how SQLite keeps jobs.
const SQLITE: &str = "src/store/src/sqlite/";

/// Words of SQLite. Tests may look into its file; nothing else does.
const WORDS_OF_SQLITE: &[&str] = &["rusqlite", "PRAGMA", "wal_checkpoint", "page_count"];

#[test]
fn only_its_own_module_names_what_sqlite_is_made_of() {
    let is_free = |path: &str| {
        let is_test = path.starts_with("tests/") || path.contains("/tests/");
        path.starts_with(SQLITE) || is_test || path.ends_with("tests.rs")
    };
    let sources = words::sources(&["rs"]);
    let engine = sources.iter().filter(|(path, _)| path.starts_with(SQLITE));
    assert!(engine.count() > 10, "{SQLITE} is not there any more");
    let mut faults = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| !is_free(path)) {
        for (line, text) in (1..).zip(text.lines()) {
            if WORDS_OF_SQLITE.iter().any(|word| text.contains(word)) {
                faults.push(format!("{path}:{line}: {}", text.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
