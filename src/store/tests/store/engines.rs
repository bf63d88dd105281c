//! The engines of the job database, each against what all have to do.

use saltern_store::jobs::Engine;
use saltern_store::{DatabaseLimits, JobDatabase};
use tempfile::TempDir;

use crate::conformance::memory::Memory;
use crate::conformance::{Site, conformance};

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
