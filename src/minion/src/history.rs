//! A history of what the minions of a swarm did, so that a checker can verify afterwards that a cluster
//! kept its promises (`tests/bench/chaos_history.py`).
//!
//! A JSON object a line: `at` is seconds of `CLOCK_MONOTONIC`, which all processes of a machine share, `what` one
//! of [`What`], `minion`, and where there is one `jid`; an acknowledged return has its function and the SHA-256
//! of its value, packed as in [`crate::acknowledged`]. Each line is written at once and whole, and the file
//! is not made durable: what is killed is masters and databases, never the swarm.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use saltern_wire::msgpack::Value;
use serde_json::json;

use crate::acknowledged::{digest, text};

/// The file.
pub struct History(Mutex<File>);

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It has a new session.
    Authenticated,
    /// A publication was dropped because its serial was not a new one.
    Refused,
    /// A job came for it; one that is remembered and comes again is not counted.
    Received,
    /// It has run a job to its end.
    Executed,
    /// The master acknowledged its return.
    Acknowledged,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Authenticated => "authenticated",
            Self::Refused => "refused",
            Self::Received => "received",
            Self::Executed => "executed",
            Self::Acknowledged => "acknowledged",
        }
    }
}

impl History {
    /// A new file; one that is there is emptied.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        File::create(path).map(Mutex::new).map(Self)
    }

    /// Appends what a minion did; `jid` is absent where there is no job.
    pub(crate) fn note(&self, what: What, minion: &str, jid: Option<&str>) {
        self.append(&json!({"at": now(), "what": what.name(), "minion": minion, "jid": jid}));
    }

    /// Appends an acknowledged return.
    pub(crate) fn note_return(&self, fields: &[(&str, Value)]) {
        self.append(&json!({
            "at": now(),
            "what": What::Acknowledged.name(),
            "minion": text(fields, "id"),
            "jid": text(fields, "jid"),
            "fun": text(fields, "fun"),
            "digest": digest(fields),
        }));
    }

    fn append(&self, line: &serde_json::Value) {
        let line = format!("{line}\n");
        if let Err(error) = self.0.lock().write_all(line.as_bytes()) {
            tracing::error!("the history cannot be written: {error}");
        }
    }
}

/// Seconds of the machine's monotonic clock.
fn now() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_has_a_json_object_a_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("history");
        let history = History::create(&path).expect("a file");
        history.note(What::Received, "m\"1", Some("20261129000000000000"));
        history.note(What::Authenticated, "m2", None);
        let fields = [
            ("id", Value::from("m1")),
            ("jid", Value::from("20261121120000000000")),
            ("fun", Value::from("test.echo")),
            ("return", Value::from("abc")),
        ];
        history.note_return(&fields);
        let written = std::fs::read_to_string(&path).expect("a file");
        let lines: Vec<serde_json::Value> = written
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let [received, authenticated, acknowledged] = lines.as_slice() else {
            panic!("{written}");
        };
        assert_eq!(received["minion"], "m\"1");
        assert_eq!(received["what"], "received");
        assert!(authenticated["jid"].is_null());
        assert!(authenticated["at"].as_f64() >= received["at"].as_f64());
        assert_eq!(acknowledged["fun"], "test.echo");
        // printf '\xa3abc' | sha256sum
        let digest = "0c4a44e90bc687970dbc25eb6304a2c1f375ee76c2d09e448d3b4611302aa593";
        assert_eq!(acknowledged["digest"], digest);
    }
}
