//! The last check of the audit trail: up to which row the chain was as it was written, by whom.
//!
//! It stands in a file beside the master's other data, so that a check by the command line shows in the
//! console, and a restart forgets none. The file is a note and no proof: whoever can write it can write
//! the trail, too.

use std::path::PathBuf;

use parking_lot::Mutex;
use saltern_config::MasterConfig;
use saltern_model::query::AuditVerification;
use saltern_store::files::{self, Create};
use saltern_store::{AuditCheck, JobQueries, StoreError, StoreOptions};

/// The largest file that is read, in bytes.
const MAX_FILE: usize = 16 << 10;

/// The checks of one master's trail.
pub struct AuditChecks {
    path: PathBuf,
    /// Held by the one check that may run at a time.
    running: Mutex<()>,
}

impl AuditChecks {
    /// Those of the master with this configuration.
    pub fn of_site(config: &MasterConfig) -> Self {
        let options = StoreOptions::from(config);
        Self {
            path: options.private_dir().join("audit_check.json"),
            running: Mutex::new(()),
        }
    }

    /// The last one; nothing when there was none, or its note cannot be read.
    pub fn last(&self) -> Option<AuditVerification> {
        let read = files::read(&self.path, MAX_FILE);
        let read = read.inspect_err(|error| {
            tracing::warn!(%error, "the note of the last check of the audit trail cannot be read");
        });
        serde_json::from_slice(&read.ok()??).ok()
    }

    /// Recomputes the chain and keeps a note of it. Nothing when another check is running.
    pub(crate) fn run(
        &self,
        reader: &dyn JobQueries,
        by: &str,
        now: impl Fn() -> i64,
    ) -> Result<Option<AuditVerification>, StoreError> {
        let Some(_running) = self.running.try_lock() else {
            return Ok(None);
        };
        let check = reader.check_audit(None)?;
        Ok(Some(self.note(&check, by, now())?))
    }

    /// Keeps a note of a check that has ended at `at`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note(
        &self,
        check: &AuditCheck,
        by: &str,
        at: i64,
    ) -> Result<AuditVerification, StoreError> {
        let fault = check.broken.map(|broken| {
            let (number, fault) = (broken.number, broken.fault);
            format!("row {number}: {fault}")
        });
        let verification = AuditVerification {
            at,
            by: by.to_owned(),
            rows: check.rows,
            head: check.head.to_string(),
            fault,
        };
        if let Some(dir) = self.path.parent() {
            files::ensure_dir(dir, 0o700)?;
        }
        if let Ok(note) = serde_json::to_vec(&verification) {
            // Readable where root wrote it: the directory is private.
            files::write_atomic(&self.path, &note, Create::PRIVATE.mode(0o644).derived())?;
        }
        Ok(verification)
    }
}
