//! The owner of a schema: numbered batches, each one transaction, and the look for one whose answer was
//! lost.
//!
//! One transaction is in flight. It locks the writer's row first, so another one that a lost connection
//! left behind has ended before its rows are looked for.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::fail_point::PanicPoint;
use saltern_base::log_throttle::LogThrottle;
use saltern_store::jobs::{
    Batch, Committed, Imported, Removed, Retention, Write, Written, genesis,
};
use saltern_store::{AuditHead, CachedJob, Result, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::decide::{Numbers, decide};
use super::engine::{EngineSigns, Target};
use super::layout::{self, LayoutError, VERSION, WRITER};
use super::lease_table::Fence;
use super::session::{Session, Values};
use super::{changes, import, retention};
use crate::connection::within;
use crate::error::SqlError;

/// Longest time of a transaction, and of a look for one.
const TRANSACTION: Duration = Duration::from_secs(60);

/// First and longest time between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A site that has switched it off loses what was acknowledged; stronger settings stay.
pub(super) const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') IN ('off', 'local')";

/// The columns of [`state_of`].
const STATE: &str = "epoch, head, last_job, last_return, last_event, lowest_job, lowest_return, \
     audit_head";

/// Moves the head, and only that of the owner that reads what this batch depends on.
const FENCE: &str = "UPDATE writer SET head = $3 + 1, last_job = $4, last_return = $5, \
     last_event = $6, lowest_job = $7, lowest_return = $8, audit_head = $9 \
     WHERE writer = $1 AND epoch = $2 AND head = $3";

/// Something to do in a transaction.
pub(super) enum Work {
    Append(Arc<Batch>),
    Import(Vec<CachedJob>),
    FinishImport,
    Remove(Retention, usize),
}

/// Outcome of a transaction.
pub(super) enum Done {
    Committed(Committed),
    Imported(Imported),
    Noted,
    /// With how many jobs are still in excess.
    Removed(Option<Removed>, u64),
}

/// Work, and who waits for it.
pub(super) struct Task {
    pub(super) work: Work,
    pub(super) reply: oneshot::Sender<Result<Done>>,
}

/// State of the writer's row.
struct State {
    epoch: i64,
    head: i64,
    numbers: Numbers,
}

/// A transaction that may be committed.
struct Doubt {
    head: i64,
    numbers: Numbers,
    /// Nothing when its caller has had its reply.
    done: Option<Done>,
}

/// Why a transaction did not end.
enum Failure {
    Sql(SqlError),
    NotOwner,
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

/// The owner.
pub(super) struct Writer {
    target: Arc<Target>,
    session: Option<Session>,
    state: State,
    /// For those who ask between two batches.
    shared: Arc<Mutex<Numbers>>,
    /// The row must be looked at before the next transaction.
    must_look: bool,
    doubt: Option<Doubt>,
    /// That another process owns the jobs; whoever renews the lease looks at it.
    signs: Arc<EngineSigns>,
    /// Jobs above the bound that is kept, as counted last.
    excess: u64,
    failures: LogThrottle,
}

impl Writer {
    /// Makes the tables that are missing and becomes the owner: whoever was it before is not any more.
    /// Under a lease only while it lasts.
    pub(super) async fn open(
        target: Arc<Target>,
        fence: Option<Fence>,
        signs: Arc<EngineSigns>,
    ) -> Result<Self> {
        let began = Instant::now();
        // A lock of a lost owner ends by its time, and the lease is renewed meanwhile.
        let patience = |error: &SqlError| match error.has_code(&SqlState::LOCK_NOT_AVAILABLE) {
            true => target.options.patience_for_locks(),
            false => target.options.patience,
        };
        let mut pause = FIRST_PAUSE;
        let (session, state) = loop {
            match Self::try_open(&target, fence.as_ref()).await {
                Ok(opened) => break opened,
                Err(LayoutError::Newer(found)) => {
                    let path = target.place.clone();
                    return Err(StoreError::Schema {
                        path,
                        found,
                        known: VERSION,
                    });
                }
                Err(LayoutError::NotOwner) => return Err(target.not_owner()),
                Err(LayoutError::Sql(error))
                    if error.asks_for_another_connection()
                        && began.elapsed() < patience(&error) =>
                {
                    tracing::debug!(%error, "the database of the cluster cannot be opened yet");
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Err(LayoutError::Sql(error)) => return Err(target.error("open", error)),
            }
        };
        Ok(Self {
            target,
            session: Some(session),
            shared: Arc::new(Mutex::new(state.numbers)),
            state,
            must_look: false,
            doubt: None,
            signs,
            excess: 0,
            failures: LogThrottle::new(LOG_INTERVAL),
        })
    }

    async fn try_open(
        target: &Target,
        fence: Option<&Fence>,
    ) -> Result<(Session, State), LayoutError> {
        let mut session = target.open(DURABLE).await?;
        layout::make(&mut session, &target.options.name).await?;
        let sql = format!(
            "UPDATE writer SET epoch = epoch + 1 WHERE writer = $1 RETURNING {STATE}, \
             (SELECT value FROM meta WHERE name = 'identity')"
        );
        let wait = (target.options.idle_limit / 4).as_millis().max(1);
        let begin = format!("BEGIN; SET LOCAL lock_timeout = {wait}");
        let own = async {
            session.run(&begin).await?;
            // The lease first: whoever takes or renews it has no other lock. The wait for the writer's
            // row is shorter than a renewal, which this lock keeps waiting, may take.
            let is_held = match fence {
                Some(fence) => fence.holds(&mut session).await?,
                None => true,
            };
            let rows = match is_held {
                true => session.rows(&sql, &[&WRITER]).await?,
                false => Vec::new(),
            };
            session.commit().await?;
            Ok(is_held.then_some(rows))
        };
        let rows = within(TRANSACTION, SqlError::Timeout, own).await?;
        let rows = rows.ok_or(LayoutError::NotOwner)?;
        let mut state = state_of(rows.first())?;
        if state.numbers.audit.number == 0 {
            let identity: Option<&str> = rows.first().and_then(|row| row.try_get(8).ok());
            state.numbers.audit = genesis(identity.unwrap_or_default());
        }
        Ok((session, state))
    }

    pub(super) fn shared(&self) -> Arc<Mutex<Numbers>> {
        self.shared.clone()
    }

    /// Does one task after the other, until nobody can give any more.
    pub(super) async fn run(mut self, mut tasks: mpsc::Receiver<Task>) {
        while let Some(Task { work, reply }) = tasks.recv().await {
            let done = self.carry_out(&work, &tasks).await;
            // Nobody may wait for it any more.
            let _ = reply.send(done);
        }
    }

    async fn carry_out(&mut self, work: &Work, tasks: &mpsc::Receiver<Task>) -> Result<Done> {
        PanicPoint::ClusterWriter.pass();
        let deadline = Instant::now() + self.target.options.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            if self.signs.has_lost.load(Ordering::Acquire) {
                return Err(self.target.not_owner());
            }
            let error = match self.attempt(work).await {
                Ok(done) => return Ok(done),
                Err(Failure::NotOwner) => {
                    self.signs.has_lost.store(true, Ordering::Release);
                    tracing::error!(place = %self.target.place.display(), "another process owns the jobs");
                    continue;
                }
                Err(Failure::Sql(error)) => error,
            };
            if !error.asks_for_another_connection() {
                return Err(self.failed(error));
            }
            self.session = None;
            self.must_look = true;
            if Instant::now() >= deadline || tasks.is_closed() {
                return Err(self.failed(error));
            }
            tracing::debug!(%error, "the database of the cluster is tried again");
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// The error of a task that is given up.
    fn failed(&mut self, error: SqlError) -> StoreError {
        if let Some(times) = self.failures.record() {
            let place = self.target.place.display();
            tracing::error!(%error, times, %place, "job database");
        }
        match &mut self.doubt {
            Some(doubt) => {
                // The next task is not this one.
                doubt.done = None;
                let path = self.target.place.clone();
                StoreError::Interrupted { path }
            }
            None => self.target.error("commit", error),
        }
    }

    async fn attempt(&mut self, work: &Work) -> Result<Done, Failure> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.target.open(DURABLE).await?,
        };
        let attempted = self.attempt_on(&mut session, work).await;
        let is_usable = match &attempted {
            Ok(_) => true,
            Err(Failure::Sql(error)) => !self.must_look && !error.asks_for_another_connection(),
            Err(Failure::NotOwner) => false,
        };
        self.session = is_usable.then_some(session);
        attempted
    }

    async fn attempt_on(&mut self, session: &mut Session, work: &Work) -> Result<Done, Failure> {
        if self.must_look
            && let ControlFlow::Break(done) = self.look(session).await?
        {
            return Ok(done);
        }
        let transaction = self.transact(session, work);
        let limited = tokio::time::timeout(TRANSACTION, transaction).await;
        limited.unwrap_or(Err(SqlError::Timeout(TRANSACTION.as_secs()).into()))
    }

    /// Learns from the row whether the last transaction is committed. The look is a commit of its own:
    /// when a standby has confirmed it, it has everything before it, too.
    async fn look(&mut self, session: &mut Session) -> Result<ControlFlow<Done>, Failure> {
        let sql =
            format!("UPDATE writer SET looks = looks + 1 WHERE writer = $1 RETURNING {STATE}");
        let look = async {
            session.run("BEGIN").await?;
            let rows = session.rows(&sql, &[&WRITER]).await?;
            session.commit().await?;
            state_of(rows.first())
        };
        let found = within(TRANSACTION, SqlError::Timeout, look).await?;
        if found.epoch != self.state.epoch {
            return Err(Failure::NotOwner);
        }
        self.must_look = false;
        let doubt = self.doubt.take();
        match doubt {
            Some(doubt) if found.head == doubt.head => {
                self.adopt(doubt.head, doubt.numbers);
                Ok(match doubt.done {
                    Some(done) => ControlFlow::Break(self.noted(done)),
                    None => ControlFlow::Continue(()),
                })
            }
            _ if found.head == self.state.head => Ok(ControlFlow::Continue(())),
            // The database is an older one than was written.
            _ => Err(Failure::NotOwner),
        }
    }

    fn adopt(&mut self, head: i64, numbers: Numbers) {
        self.state.head = head;
        self.state.numbers = numbers;
        *self.shared.lock() = numbers;
    }

    fn noted(&mut self, done: Done) -> Done {
        if let Done::Removed(_, excess) = &done {
            self.excess = *excess;
        }
        done
    }

    async fn transact(&mut self, session: &mut Session, work: &Work) -> Result<Done, Failure> {
        let done = self.try_transact(session, work).await;
        if matches!(&done, Err(Failure::Sql(error)) if error.keeps_connection()) {
            session.run("ROLLBACK").await?;
        }
        done
    }

    async fn try_transact(&mut self, session: &mut Session, work: &Work) -> Result<Done, Failure> {
        let lock =
            format!("BEGIN; SELECT epoch, head FROM writer WHERE writer = {WRITER} FOR UPDATE");
        let locked = session.texts(&lock).await?;
        let owned = [self.state.epoch, self.state.head].map(|number| number.to_string());
        if locked.first().map(Vec::as_slice) != Some(&owned) {
            session.run("ROLLBACK").await?;
            return Err(Failure::NotOwner);
        }
        let mut numbers = self.state.numbers;
        let Some(done) = self.change(session, &mut numbers, work).await? else {
            session.run("ROLLBACK").await?;
            return Ok(self.noted(Done::Removed(None, 0)));
        };
        let head = self.state.head + 1;
        let audit = numbers.audit.to_string();
        let values: Values<'_> = &[
            &WRITER,
            &self.state.epoch,
            &self.state.head,
            &numbers.job,
            &numbers.returned,
            &numbers.event,
            &numbers.lowest_job,
            &numbers.lowest_return,
            &audit,
        ];
        if session.execute(FENCE, values).await? != 1 {
            session.run("ROLLBACK").await?;
            return Err(Failure::NotOwner);
        }
        // Set before it is sent: this future may be dropped for its time while the answer is awaited.
        self.doubt = Some(Doubt {
            head,
            numbers,
            done: Some(done),
        });
        let committed = session.commit().await;
        if let Err(error) = committed {
            if error.keeps_connection() {
                self.doubt = None;
            }
            return Err(error.into());
        }
        self.adopt(head, numbers);
        let done = self.doubt.take().and_then(|doubt| doubt.done);
        Ok(self.noted(done.unwrap_or(Done::Noted)))
    }

    /// Makes the changes of a task; nothing when there are none to make.
    async fn change(
        &mut self,
        session: &mut Session,
        numbers: &mut Numbers,
        work: &Work,
    ) -> Result<Option<Done>, SqlError> {
        Ok(Some(match work {
            Work::Append(batch) => Done::Committed(append(session, numbers, batch).await?),
            Work::Import(slice) => Done::Imported(import::import(session, numbers, slice).await?),
            Work::FinishImport => {
                import::finish(session).await?;
                Done::Noted
            }
            Work::Remove(bounds, slice) => {
                let mut excess = self.excess;
                let removed = retention::remove_slice(session, bounds, *slice, &mut excess).await?;
                let Some(removed) = removed else {
                    return Ok(None);
                };
                Done::Removed(Some(removed), excess)
            }
        }))
    }
}

/// Appends a batch; jobs that it removes divide it.
async fn append(
    session: &mut Session,
    numbers: &mut Numbers,
    batch: &Batch,
) -> Result<Committed, SqlError> {
    let mut committed = Committed::default();
    let mut begin = 0;
    let is_removal = |write: &Write| matches!(write, Write::DeleteJob { .. });
    for part in batch
        .writes
        .chunk_by(|one, other| is_removal(one) == is_removal(other))
    {
        let caused = |index: usize| {
            let caused = batch.caused.get(begin + index).map(Vec::as_slice);
            caused.unwrap_or_default()
        };
        let writes = part.iter().enumerate();
        let writes = writes.map(|(index, write)| (write, caused(index)));
        let first = committed.written.len();
        let picture = changes::picture_of(session, part).await?;
        let decided = decide(picture, numbers, writes, &mut committed);
        changes::write(session, &decided).await?;
        for (index, write) in part.iter().enumerate() {
            if let Write::DeleteJob { jid } = write {
                let deleted = retention::delete_job(session, jid.as_str(), i64::MAX).await?;
                if let Some(written) = committed.written.get_mut(first + index) {
                    *written = Written::Deleted { rows: deleted.rows };
                }
            }
        }
        begin += part.len();
    }
    Ok(committed)
}

/// The tables of the cluster lack the row of the writer.
pub(super) fn no_row() -> SqlError {
    SqlError::Database {
        code: String::new(),
        text: "the row of the writer is missing".to_owned(),
    }
}

fn state_of(row: Option<&Row>) -> Result<State, SqlError> {
    let row = row.ok_or_else(no_row)?;
    let number = |at: usize| row.try_get::<_, i64>(at);
    let audit: &str = row.try_get(7)?;
    Ok(State {
        epoch: number(0)?,
        head: number(1)?,
        numbers: Numbers {
            job: number(2)?,
            returned: number(3)?,
            event: number(4)?,
            lowest_job: number(5)?,
            lowest_return: number(6)?,
            audit: audit.parse().unwrap_or_else(|_| AuditHead::default()),
            sent_event: 0,
        },
    })
}
