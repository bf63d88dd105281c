//! Keeps the job database where its path says, and takes in the jobs of stock's job cache.

use actix::Handler;
use saltern_base::chain;
use saltern_store::jobs::{JobDatabase, note_incident};
use saltern_store::{Imported, StoreError};

use super::{JobStore, State};
use crate::messages::ImportJobs;

impl Handler<ImportJobs> for JobStore {
    type Result = Result<Imported, StoreError>;

    fn handle(&mut self, ImportJobs(slice): ImportJobs, _: &mut Self::Context) -> Self::Result {
        let mut database = self.seed.database.lock();
        self.keep_in_place(&mut database)?;
        if slice.is_empty() {
            database.finish_import()?;
            return Ok(Imported::default());
        }
        // What is kept free is not for jobs of before.
        if self.disk.state() != State::Roomy {
            return Err(StoreError::Full {
                path: database.path().to_owned(),
            });
        }
        database.import(&slice)
    }
}

impl JobStore {
    /// A database that was removed or replaced is written to its place again.
    ///
    /// # Errors
    /// When that fails: nothing may be committed, for it would be lost with this process.
    pub(super) fn keep_in_place(&self, database: &mut JobDatabase) -> Result<(), StoreError> {
        let now = self.seed.clock.unix();
        let Some(restored) = database.restore_if_displaced(now)? else {
            return Ok(());
        };
        let path = database.path().display();
        let mut what = format!(
            "the job database \"{path}\", or its log, was removed or replaced while the master ran; \
             what the master had open is written to its place: nothing is lost"
        );
        if let Some(aside) = restored.set_aside {
            what += &format!(", and what was in its place is \"{}\"", aside.display());
        }
        tracing::error!("{what}");
        if let Err(error) = note_incident(database.path(), now, &what) {
            tracing::warn!(error = chain(&error), "saltern doctor will not know of it");
        }
        Ok(())
    }

    /// The same at times when nothing is committed.
    pub(super) fn look_at_place(&self) {
        let kept = self.keep_in_place(&mut self.seed.database.lock());
        if let Err(error) = kept
            && let Some(times) = self.failures.happened()
        {
            let error = chain(&error);
            tracing::error!(
                error,
                times,
                "nothing is stored until the job database is back"
            );
        }
    }
}
