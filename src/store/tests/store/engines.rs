//! The engines of the job database, each against what all have to do.

use saltern_model::MinionId;
use saltern_store::jobs::{Engine, LastReturns};
use saltern_store::{DatabaseLimits, JobDatabase, Write};
use tempfile::TempDir;

use crate::common::{jid, job};
use crate::conformance::memory::Memory;
use crate::conformance::{Site, append, conformance, returned};

conformance!(sqlite, crate::engines::SqliteSite::new);
conformance!(memory, crate::conformance::memory::Memory::default);

impl Site for Memory {
    fn open(&self) -> Engine {
        self.process()
    }
}

/// A SQLite database in a directory of its own.
pub(crate) struct SqliteSite(TempDir);

impl SqliteSite {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory for the test"))
    }
}

impl Site for SqliteSite {
    fn open(&self) -> Engine {
        let path = self.0.path().join("jobs.sqlite");
        let opened = JobDatabase::open(&path, DatabaseLimits::default());
        opened.and_then(JobDatabase::into_engine).expect("opened")
    }
}

/// The numbers are those of other returns when a server takes the place of one that had more.
#[test]
fn last_returns_of_another_history_are_read_anew() {
    let sites = [SqliteSite::new(), SqliteSite::new()];
    let [lost, kept] = sites.each_ref().map(|site| {
        let engine = site.open();
        let jobs = vec![Write::Job(job(1, &[])), Write::Job(job(2, &[]))];
        append(&engine, jobs);
        append(&engine, vec![returned(1, "a")]);
        engine
    });
    append(&lost, vec![returned(2, "a")]);
    append(&kept, vec![returned(1, "b"), returned(2, "b")]);
    let last = LastReturns::default();
    let ids = ["a", "b"].map(|id| MinionId::parse(id).expect("an id"));
    let jids = |engine: &Engine| {
        let found = last.of(&*engine.queries, &ids).expect("read").into_iter();
        let jids = found.map(|one| Some(one?.jid.to_string()));
        jids.collect::<Vec<_>>()
    };
    assert_eq!(jids(&lost), [Some(jid(2).to_string()), None]);
    let expected = [jid(1), jid(2)].map(|jid| Some(jid.to_string()));
    assert_eq!(jids(&kept), expected);
}
