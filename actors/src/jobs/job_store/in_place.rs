//! Restores a displaced job database to its path, and imports the jobs of stock's job cache.
//!
//! Recovering a displaced database takes as long as the disk takes for all of it. Commits wait for
//! [`PATIENCE`], by which an ordinary database is restored, and are refused after that.

use std::future::ready;
use std::pin::Pin;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{
    ActorFuture, ActorFutureExt, AsyncContext, AtomicResponse, Context, Handler, ResponseActFuture,
};
use saltern_base::chain;
use saltern_store::jobs::Condition;
use saltern_store::{Imported, StoreError};
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
    /// It was begun since the actor's last restart, and has not ended.
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
    type Result = AtomicResponse<Self, Result<Imported, StoreError>>;

    fn handle(
        &mut self,
        ImportJobs(slice): ImportJobs,
        context: &mut Self::Context,
    ) -> Self::Result {
        if let Err(error) = self.takes_import(slice.is_empty(), context) {
            return AtomicResponse::new(Box::pin(wrap_future(ready(Err(error)))));
        }
        let log = self.seed.engine.log.clone();
        AtomicResponse::new(Box::pin(wrap_future(async move {
            match slice.is_empty() {
                true => log.finish_import().await.map(|()| Imported::default()),
                false => log.import(slice).await,
            }
        })))
    }
}

impl JobStore {
    /// The reserve is not for imported jobs.
    fn takes_import(
        &mut self,
        is_end: bool,
        context: &mut Context<Self>,
    ) -> Result<(), StoreError> {
        if self.keep_in_place(context)? != Place::Right {
            return Err(self.displaced());
        }
        if !is_end && self.disk.state() != State::Roomy {
            let path = self.seed.engine.housekeeping.place().to_owned();
            return Err(StoreError::Full { path });
        }
        Ok(())
    }

    fn condition(&self) -> Result<Condition, StoreError> {
        let now = self.seed.clock.unix();
        self.seed.engine.housekeeping.condition(now)
    }

    pub(super) fn displaced(&self) -> StoreError {
        StoreError::Displaced {
            path: self.seed.engine.housekeeping.place().to_owned(),
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
        match self.condition()? {
            Condition::Ready => {
                self.restored();
                return Ok(Place::Right);
            }
            Condition::Displaced { is_due } if !self.restoring.is_ours => {
                if !is_due {
                    self.restored();
                    return Err(self.displaced());
                }
                self.restore(context);
            }
            Condition::Displaced { .. } | Condition::Recovering => {}
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
        let recovered = self
            .seed
            .engine
            .housekeeping
            .recover(self.seed.clock.unix());
        let restored = wrap_future::<_, Self>(recovered);
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
        match self.condition() {
            Ok(Condition::Ready) => return None,
            // That waits for the end of a recovery that an earlier life of this actor began, too.
            _ if !self.restoring.is_ours => {
                self.restore(context);
                self.awaited(context);
            }
            _ => {}
        }
        Some(Box::pin(Restored))
    }
}

/// Ends when no recovery of this actor is under way.
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
