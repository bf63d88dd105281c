//! Mirror of the job database in the files of stock's job cache, for tools that read them.
//!
//! Runs on a thread of its own with low priority, and rests while the store is busy: it may lag
//! behind, and never delays an answer. Its lag is a metric. Its cursor in the database is durable,
//! so a restart skips nothing.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Message};
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::metrics::{IntCounter, IntGauge, Registry, counter, gauge};
use saltern_store::Mirror;
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::messages::{CleanJobFiles, MaintenanceTask, RemoveJobFiles, RowsCommitted};
use crate::shared::priority::give_way;
use crate::upkeep::maintenance_tasks::{MaintenanceTasks, Running, TaskError};

/// Seed of a mirror.
#[derive(Clone)]
pub(crate) struct Seed {
    /// Only this actor locks it.
    pub(crate) mirror: Arc<Mutex<Mirror>>,
    /// `keep_jobs_seconds`; `None` keeps for ever.
    pub(crate) keep: Option<Duration>,
    pub(crate) clock: Clock,
    pub(crate) maintenance_tasks: Arc<MaintenanceTasks>,
    /// Writes of the store so far: the rate shows how busy it is.
    pub(crate) store_writes: IntCounter,
    pub(crate) metrics: MirrorMetrics,
}

/// Metrics of the mirror.
#[derive(Clone)]
pub(crate) struct MirrorMetrics {
    lag: IntGauge,
    rows: IntCounter,
}

impl MirrorMetrics {
    /// Rows that are not in the files yet.
    pub(crate) fn lag(&self) -> &IntGauge {
        &self.lag
    }

    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            lag: gauge(
                registry,
                "saltern_mirror_lag_rows",
                "Jobs and returns that are stored but not yet written as job-cache files.",
            ),
            rows: counter(
                registry,
                "saltern_mirror_rows_total",
                "Jobs and returns written as job-cache files.",
            ),
        }
    }
}

/// Rows per step; other messages are handled between two steps.
const STEP: usize = 50;
/// Longest time of a step: a stopping master waits for it, which on a loaded machine, at the
/// lowest priority, takes its time.
const STEP_TIME: Duration = Duration::from_millis(200);
/// Interval at which the cursor is made durable.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// Writes a second above which the store counts as busy.
const BUSY: f64 = 2_000.0;
/// While the store is busy, the mirror rests this many times as long as it worked.
const REST: u32 = 100;
/// Longest rest, so that the lag depends on speed and not on waiting.
const MAX_REST: Duration = Duration::from_secs(2);
/// Retry delay.
const RETRY: Duration = Duration::from_secs(5);
/// Below all who answer, but with about a tenth of a core that others want too: at 19 it had next to
/// nothing on a busy machine, and the stop of the master waited for its last step.
const NICENESS: i32 = 10;

/// Actor that writes the mirror.
pub(crate) struct JobMirror {
    seed: Seed,
    is_working: bool,
    /// Set while old files are being removed.
    cleaning: Option<Cleaning>,
    /// When the store's writes were last counted, and how many there were.
    counted: (Instant, u64),
}

/// Old files are being removed.
struct Cleaning {
    running: Running,
    /// Its result so far.
    result: Result<(), TaskError>,
}

/// Take the next step.
#[derive(Message)]
#[rtype(result = "()")]
struct Step;

/// Clean the next part of the job files.
#[derive(Message)]
#[rtype(result = "()")]
struct CleanPart(u8);

impl Child for JobMirror {
    type Seed = Seed;

    const NAME: &'static str = "job_mirror";
    const MAILBOX: usize = 16;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            is_working: false,
            cleaning: None,
            counted: (Instant::now(), seed.store_writes.get()),
        }
    }

    fn drain(&mut self, _: &mut Context<Self>) -> Option<actix::ResponseActFuture<Self, ()>> {
        self.save();
        None
    }
}

impl Actor for JobMirror {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        give_way(NICENESS);
        context.run_interval(SAVE_EVERY, |mirror, _| mirror.save());
        context.notify(RowsCommitted);
    }
}

impl Handler<RowsCommitted> for JobMirror {
    type Result = ();

    fn handle(&mut self, _: RowsCommitted, context: &mut Self::Context) {
        if !self.is_working {
            self.is_working = true;
            context.notify(Step);
        }
    }
}

impl Handler<Step> for JobMirror {
    type Result = ();

    fn handle(&mut self, _: Step, context: &mut Self::Context) {
        let began = Instant::now();
        let goes_on = || began.elapsed() < STEP_TIME;
        let step = self.seed.mirror.lock().step_while(STEP, goes_on);
        match step {
            Ok(0) => self.is_working = false,
            Ok(rows) => {
                self.seed.metrics.rows.inc_by(rows as u64);
                if self.store_is_busy() {
                    context.notify_later(Step, (began.elapsed() * REST).min(MAX_REST));
                } else {
                    later(context, Step);
                }
            }
            Err(error) => {
                tracing::error!(%error, "job-cache files cannot be written; trying again");
                context.notify_later(Step, RETRY);
            }
        }
        self.measure();
    }
}

impl Handler<CleanJobFiles> for JobMirror {
    type Result = ();

    fn handle(&mut self, _: CleanJobFiles, context: &mut Self::Context) {
        if self.cleaning.is_none() {
            let running = self.seed.maintenance_tasks.begin(MaintenanceTask::JobFiles);
            let result = self.clean_publishers();
            self.cleaning = Some(Cleaning { running, result });
            later(context, CleanPart(0));
        }
    }
}

impl Handler<RemoveJobFiles> for JobMirror {
    type Result = ();

    fn handle(&mut self, RemoveJobFiles(jobs): RemoveJobFiles, _: &mut Self::Context) {
        for jid in jobs {
            if let Err(error) = self.seed.mirror.lock().files().remove(&jid) {
                tracing::error!(%error, %jid, "job-cache files cannot be removed");
            }
        }
    }
}

impl Handler<CleanPart> for JobMirror {
    type Result = ();

    fn handle(&mut self, CleanPart(part): CleanPart, context: &mut Self::Context) {
        let Some(mut cleaning) = self.cleaning.take() else {
            return;
        };
        match (self.clean(part), part.checked_add(1)) {
            (Ok(()), Some(next)) => {
                self.cleaning = Some(cleaning);
                later(context, CleanPart(next));
            }
            (result, _) => {
                cleaning.result = cleaning.result.and(result);
                cleaning.running.ended(cleaning.result);
            }
        }
    }
}

/// Sends `message` to the actor itself after other messages had a turn: a long task must still see
/// a stop. `notify` alone would handle it in the same turn.
fn later<M>(context: &mut Context<JobMirror>, message: M)
where
    JobMirror: Handler<M>,
    M: Message<Result = ()> + 'static,
{
    let turn = actix::fut::wrap_future::<_, JobMirror>(tokio::task::yield_now());
    context.spawn(turn.map(move |(), _, context| context.notify(message)));
}

impl JobMirror {
    /// Whether the store was busy since the last call.
    fn store_is_busy(&mut self) -> bool {
        let (then, before) = self.counted;
        let (now, count) = (Instant::now(), self.seed.store_writes.get());
        self.counted = (now, count);
        let seconds = now.duration_since(then).as_secs_f64();
        count.saturating_sub(before) as f64 > BUSY * seconds
    }

    fn clean(&self, part: u8) -> Result<(), TaskError> {
        let Some(keep) = self.seed.keep else {
            return Ok(());
        };
        let now = self.seed.clock.unix();
        let cleaned = self.seed.mirror.lock().files().clean_part(part, keep, now);
        cleaned.map(|_| ()).map_err(TaskError::of)
    }

    fn clean_publishers(&self) -> Result<(), TaskError> {
        let Some(keep) = self.seed.keep else {
            return Ok(());
        };
        let now = self.seed.clock.unix();
        let cleaned = self.seed.mirror.lock().files().clean_publishers(keep, now);
        cleaned.map(|_| ()).map_err(TaskError::of)
    }

    fn save(&self) {
        if let Err(error) = self.seed.mirror.lock().save() {
            tracing::error!(%error, "the mirror's cursor cannot be saved");
        }
        self.measure();
    }

    fn measure(&self) {
        if let Ok(lag) = self.seed.mirror.lock().lag() {
            self.seed.metrics.lag.set((lag.jobs + lag.returns) as i64);
        }
    }
}
