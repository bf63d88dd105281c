//! Data sources of the screen: the event bus, the control socket and the job database, as for every
//! other command.
//!
//! One thread makes the blocking requests, one after the other; a master that does not answer
//! blocks this thread and nothing else. Queues are bounded and apply backpressure: the master sees
//! a slow listener and reports how much it has dropped.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use saltern_base::chain;
use saltern_client::control;
use saltern_client::{ClientError, EventListener};
use saltern_config::MasterConfig;
use saltern_model::Jid;
use saltern_sql::open_reader;
use saltern_store::StoreError;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::numbers::Sample;
use super::state::Update;
use super::view::ViewedData;
use crate::commands::explain;

/// Interval at which the master is polled.
const EVERY: Duration = Duration::from_secs(1);

/// Jobs of the database that are shown at the start.
const JOBS: usize = 200;

/// Minions that an explanation names in each list.
const NAMED: usize = 1_000;

/// Commands for the asking thread: only the latest one holds, so the state is bounded.
#[derive(Default)]
struct Asks {
    wanted: Mutex<Wanted>,
    is_new: Condvar,
}

#[derive(Default)]
struct Wanted {
    /// The viewed data to request, if it has changed.
    sight: Option<ViewedData>,
    /// A bus is there, or has lost events: the jobs of its master are wanted.
    jobs: bool,
}

impl Asks {
    fn look(&self, sight: ViewedData) {
        self.wanted.lock().sight = Some(sight);
        self.is_new.notify_one();
    }

    fn want_jobs(&self) {
        self.wanted.lock().jobs = true;
        self.is_new.notify_one();
    }

    /// Waits for a command, at most for this time.
    fn wait(&self, longest: Duration) -> Wanted {
        let mut wanted = self.wanted.lock();
        let is_nothing = |wanted: &mut Wanted| wanted.sight.is_none() && !wanted.jobs;
        self.is_new.wait_while_for(&mut wanted, is_nothing, longest);
        std::mem::take(&mut *wanted)
    }
}

/// The asking thread and the task that listens; they end with the channel of the updates.
pub(super) struct Sources {
    asks: Arc<Asks>,
    asker: JoinHandle<()>,
    listener: actix_rt::task::JoinHandle<()>,
    sight: ViewedData,
}

impl Sources {
    /// Starts them, on the runtime of the caller.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(
        config: Arc<MasterConfig>,
        updates: mpsc::Sender<Update>,
    ) -> io::Result<Self> {
        let asks = Arc::<Asks>::default();
        let asker = Asker {
            asks: asks.clone(),
            config: config.clone(),
            updates: updates.clone(),
        };
        let asker = std::thread::Builder::new()
            .name("top-asker".to_owned())
            .spawn(move || asker.run())?;
        let listener = actix_rt::spawn(listen(config, asks.clone(), updates));
        Ok(Self {
            asks,
            asker,
            listener,
            sight: ViewedData::default(),
        })
    }

    /// Requests the viewed data.
    pub(super) fn look(&mut self, sight: ViewedData) {
        if self.sight != sight {
            self.sight = sight.clone();
            self.asks.look(sight);
        }
    }

    /// Whether both still work; they end before their time only by a panic.
    pub(super) fn are_well(&self) -> bool {
        !self.asker.is_finished() && !self.listener.is_finished()
    }
}

/// Receives events from the bus, and waits for one when there is none.
async fn listen(config: Arc<MasterConfig>, asks: Arc<Asks>, updates: mpsc::Sender<Update>) {
    loop {
        let away = match EventListener::connect(&config.sock_dir).await {
            Ok(mut events) => {
                // Asked for after the subscription: so no job falls in between.
                asks.want_jobs();
                if updates.send(Update::BusThere).await.is_err() {
                    return;
                }
                match forward(&mut events, &asks, &updates).await {
                    Ok(()) => "the master has closed the event bus".to_owned(),
                    Err(error) => chain(&error),
                }
            }
            Err(error) => chain(&error),
        };
        if updates.send(Update::BusAway(away)).await.is_err() {
            return;
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn forward(
    events: &mut EventListener,
    asks: &Asks,
    updates: &mpsc::Sender<Update>,
) -> Result<(), ClientError> {
    while let Some(event) = events.next().await? {
        if event.is_gap() {
            // What was lost may have been the end of a job.
            asks.want_jobs();
        }
        if updates.send(Update::Event(event)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

struct Asker {
    asks: Arc<Asks>,
    config: Arc<MasterConfig>,
    updates: mpsc::Sender<Update>,
}

impl Asker {
    fn run(&self) {
        let mut sight = ViewedData::default();
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let wanted = self.asks.wait(wait);
            let is_due = Instant::now() >= next;
            let is_moved = wanted.sight.is_some();
            sight = wanted.sight.unwrap_or(sight);
            let mut updates = Vec::new();
            if wanted.jobs {
                updates.push(self.jobs());
            }
            if is_due {
                next = Instant::now() + EVERY;
                updates.push(self.numbers());
            }
            if is_due || is_moved {
                updates.extend(self.of_sight(&sight));
            }
            for update in updates {
                if self.updates.blocking_send(update).is_err() {
                    return;
                }
            }
        }
    }

    fn numbers(&self) -> Update {
        match control::metrics(&self.config.sock_dir) {
            Ok(text) => Update::Numbers(Sample::parse(&text, Instant::now())),
            Err(error) => Update::NoNumbers(chain(&error)),
        }
    }

    fn of_sight(&self, sight: &ViewedData) -> Vec<Update> {
        let mut updates = Vec::new();
        if sight.minions {
            // An unreachable master is reported with the metrics.
            updates.extend(
                control::minions(&self.config.sock_dir)
                    .ok()
                    .map(Update::Minions),
            );
        }
        updates.extend(sight.job.as_ref().map(|jid| self.explanation(jid)));
        updates
    }

    fn explanation(&self, jid: &Jid) -> Update {
        let text = match explain::explain(&self.config, jid, NAMED) {
            Ok(Some(text)) => text,
            Ok(None) => "the job is not in the database (yet)".to_owned(),
            Err(error) => chain(&error),
        };
        Update::Explained(jid.clone(), text)
    }

    fn jobs(&self) -> Update {
        match self.latest_jobs() {
            Ok(update) => update,
            Err(error) => Update::Said(chain(&error)),
        }
    }

    fn latest_jobs(&self) -> Result<Update, StoreError> {
        Ok(Update::Jobs(open_reader(&self.config)?.latest_jobs(JOBS)?))
    }
}
