//! Restores a displaced job database to its path, and imports the jobs of stock's job cache.
//!
//! Writing a displaced database to its place takes as long as the disk takes for all of it, so that
//! is done on a thread of its own. It holds the database's lock meanwhile: a locked database is
//! being restored, also after a restart of the actor. Commits wait for [`PATIENCE`], by which an
//! ordinary database is restored, and are refused after that.

use std::pin::Pin;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use actix::{ActorFuture, ActorFutureExt, AsyncContext, Context, Handler, ResponseActFuture};
use parking_lot::{Mutex, MutexGuard};
use saltern_base::chain;
use saltern_store::sqlite::{JobDatabase, note_incident};
use saltern_store::{Imported, StoreError};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::{JobStore, State};
use crate::messages::ImportJobs;

/// Maximum wait of changes for a database that is being restored.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// State of a restore.
#[derive(Default)]
pub(super) struct Restoring {
    /// Since when it is known.
    since: Option<Instant>,
    /// The thread that does it was started since the actor's last restart, and has not ended.
    is_ours: bool,
    /// Notified at the end of the restore.
    waker: Option<Waker>,
}

/// Whether changes can be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Changes can be stored.
    Right,
    /// They can be stored in a moment.
    Awaited,
}

impl Handler<ImportJobs> for JobStore {
    type Result = Result<Imported, StoreError>;

    fn handle(
        &mut self,
        ImportJobs(slice): ImportJobs,
        context: &mut Self::Context,
    ) -> Self::Result {
        let place = self.keep_in_place(context)?;
        let database = self.database().filter(|_| place == Place::Right);
        let mut database = database.ok_or_else(|| self.displaced())?;
        if slice.is_empty() {
            database.finish_import()?;
            return Ok(Imported::default());
        }
        // The reserve is not for imported jobs.
        if self.disk.state() != State::Roomy {
            return Err(StoreError::Full {
                path: database.path().to_owned(),
            });
        }
        database.import(&slice)
    }
}

impl JobStore {
    /// The database, unless it is being written to its place.
    pub(super) fn database(&self) -> Option<MutexGuard<'_, JobDatabase>> {
        self.seed.database.try_lock()
    }

    pub(super) fn displaced(&self) -> StoreError {
        StoreError::Displaced {
            path: self.seed.path.clone(),
        }
    }

    /// Has a database that was removed or replaced written to its place.
    ///
    /// # Errors
    /// When that has failed, or takes long: nothing may be committed, for it would be lost with
    /// this process.
    pub(super) fn keep_in_place(
        &mut self,
        context: &mut Context<Self>,
    ) -> Result<Place, StoreError> {
        let displaced = self.database().map(|database| database.is_displaced());
        match displaced.transpose()? {
            Some(false) => {
                self.restored();
                return Ok(Place::Right);
            }
            Some(true) if !self.restoring.is_ours => {
                let now = self.seed.clock.unix();
                let is_due = self
                    .database()
                    .is_some_and(|database| database.restore_is_due(now));
                if !is_due {
                    self.restored();
                    return Err(self.displaced());
                }
                self.restore(context);
            }
            _ => {}
        }
        let since = self.awaited(context);
        match since.elapsed() < PATIENCE {
            true => Ok(Place::Awaited),
            false => Err(self.displaced()),
        }
    }

    /// Since when it is being written to its place; what waits for it does not wait for longer than
    /// it should.
    fn awaited(&mut self, context: &mut Context<Self>) -> Instant {
        if let Some(since) = self.restoring.since {
            return since;
        }
        let since = Instant::now();
        self.restoring.since = Some(since);
        self.seed.metrics.restoring.set(1);
        context.run_later(PATIENCE, |store, context| store.commit(context));
        since
    }

    fn restored(&mut self) {
        if self.restoring.since.take().is_some() {
            self.seed.metrics.restoring.set(0);
        }
        if let Some(waker) = self.restoring.waker.take() {
            waker.wake();
        }
    }

    /// Begins to write it to its place.
    fn restore(&mut self, context: &mut Context<Self>) {
        self.restoring.is_ours = true;
        let (database, now) = (self.seed.database.clone(), self.seed.clock.unix());
        let restored = spawn_blocking(move || restore(&database, now));
        let restored = actix::fut::wrap_future::<_, Self>(restored);
        context.spawn(restored.map(|ended, store: &mut Self, context| {
            store.restoring.is_ours = false;
            store.restored();
            if ended.is_ok_and(|is_back| is_back) {
                store.seed.metrics.failing.set(0);
            }
            store.commit(context);
        }));
    }

    /// The same at times when nothing is committed.
    pub(super) fn look_at_place(&mut self, context: &mut Context<Self>) {
        match self.keep_in_place(context) {
            Ok(Place::Right) if !self.commit_is_due => self.commit(context),
            Ok(_) => {}
            Err(error) => {
                if let Some(times) = self.failures.record() {
                    let error = chain(&error);
                    tracing::error!(
                        error,
                        times,
                        "nothing is stored until the job database is back"
                    );
                }
            }
        }
    }

    /// The restore that a stopping process waits for: otherwise the committed rows would be lost
    /// with the open file.
    pub(super) fn last_restore(
        &mut self,
        context: &mut Context<Self>,
    ) -> Option<ResponseActFuture<Self, ()>> {
        let displaced = self.database().map(|database| database.is_displaced());
        match displaced {
            Some(Ok(false)) => return None,
            // That waits for the lock too, which a thread of an earlier life of this actor may have.
            _ if !self.restoring.is_ours => {
                self.restore(context);
                self.awaited(context);
            }
            _ => {}
        }
        Some(Box::pin(Restored))
    }
}

/// Ends when no thread of this actor writes the database to its place.
struct Restored;

impl ActorFuture<JobStore> for Restored {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        store: &mut JobStore,
        _: &mut Context<JobStore>,
        task: &mut Task<'_>,
    ) -> Poll<()> {
        if !store.restoring.is_ours {
            return Poll::Ready(());
        }
        store.restoring.waker = Some(task.waker().clone());
        Poll::Pending
    }
}

/// Writes the database to its place and says so; whether it is there now.
fn restore(database: &Mutex<JobDatabase>, now: i64) -> bool {
    let mut database = database.lock();
    let path = database.path().to_owned();
    let path = path.display();
    let began = Instant::now();
    let restored = match database.restore_if_displaced(now) {
        Ok(Some(restored)) => restored,
        Ok(None) => return true,
        Err(error) => {
            let error = chain(&error);
            tracing::error!(
                error,
                "the job database \"{path}\" was removed or replaced while the master runs, and \
                 cannot be written to its place: nothing is stored until it can"
            );
            return false;
        }
    };
    let mut what = format!(
        "the job database \"{path}\", or its log, was removed or replaced while the master ran; \
         what the master had open is written to its place: nothing is lost"
    );
    if let Some(aside) = restored.set_aside {
        what += &format!(", and what was in its place is \"{}\"", aside.display());
    }
    tracing::error!(seconds = began.elapsed().as_secs_f64(), "{what}");
    if let Err(error) = note_incident(database.path(), now, &what) {
        tracing::warn!(
            error = chain(&error),
            "the incident cannot be recorded for saltern doctor"
        );
    }
    true
}
