//! Timer of the maintenance tasks: runs the quick ones itself (the dropfile, what presence asks
//! for) and triggers those of other actors.
//!
//! Each task is idempotent and takes no input, so that its timer, the control socket or a restart
//! may trigger it at any time. A task whose actor is busy is left for the next round: nothing here
//! waits, because the dropfile revokes keys. Results are kept by [`MaintenanceTasks`].

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Recipient, ResponseActFuture};
use saltern_base::clock::Clock;
use saltern_crypto::public_random;
use saltern_model::{Event, Jid, JidMinter, Tag};
use saltern_requests::events::{KeyRotated, PresenceChange, Present};
use saltern_requests::{Publication, Services, Topics, master_event, rotation_ping};
use saltern_store::Retention;
use saltern_supervise::Child;
use saltern_wire::msgpack::Value;
use saltern_wire::port::{KnownNetworks, PubHandle};

use crate::events::presence::{Change, Presence};
use crate::events::rotation::Rotation;
use crate::messages::MaintenanceTask;
use crate::messages::{
    Ask, BeginJob, CleanJobFiles, CloseOlderThan, ExpireJobs, FetchRemotes, Fire, Look, LookOver,
    RunMaintenanceTask,
};
use crate::shared::answer::PendingReply;
use crate::shared::send::{Outbox, SendsThroughOutbox};
use crate::upkeep::maintenance_tasks::{MaintenanceTasks, TaskError};
use crate::upkeep::sql_purge::SqlPurge;

/// Gives the time from which on jobs are kept for masters above this one.
pub(crate) type HeldFrom = Arc<dyn Fn(Duration, Option<i64>) -> Option<i64> + Send + Sync>;

/// Seed of maintenance.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) maintenance_tasks: Arc<MaintenanceTasks>,
    pub(crate) services: Arc<Services>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) begin_job: Recipient<BeginJob>,
    pub(crate) questions: Recipient<Ask>,
    pub(crate) subscribers: PubHandle,
    /// A load to one subscriber may reach minions behind it (`order_masters`).
    pub(crate) feeds_syndics: bool,
    pub(crate) tracker: Recipient<CloseOlderThan>,
    pub(crate) store: Recipient<ExpireJobs>,
    pub(crate) mirror: Option<Recipient<CleanJobFiles>>,
    pub(crate) sql_purge: Option<Arc<SqlPurge>>,
    pub(crate) upkeep: Recipient<LookOver>,
    pub(crate) remotes: Recipient<FetchRemotes>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) known_networks: KnownNetworks,
    pub(crate) rotation: Rotation,
    /// From when on jobs are kept for masters above, where they are kept for this long, in microseconds since 1970. Of
    /// what was received before the second argument, none goes up any more.
    pub(crate) held_from: HeldFrom,
}

/// Poll interval of the dropfile and the accepted keys, below stock's `loop_interval` of a minute:
/// it is one `stat` each, and they revoke keys. The publisher looks for a dropfile too, before
/// everything that it sends.
const KEYS_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for a job, however long jobs are kept.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Actor that triggers the maintenance tasks.
pub(crate) struct Maintenance {
    seed: Seed,
    outbox: Outbox,
}

impl SendsThroughOutbox for Maintenance {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Child for Maintenance {
    type Seed = Seed;

    const NAME: &'static str = "maintenance";
    const MAILBOX: usize = 16;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
        }
    }

    /// The minions are still connected: their addresses are saved for the next master.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.seed.presence.write_down();
        None
    }
}

impl Actor for Maintenance {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let round = round(&self.seed.services);
        let often = KEYS_INTERVAL.min(round);
        self.expect(round, often);
        self.look_for_dropfile(context);
        self.look_at_subscribers(context);
        context.run_interval(often, |maintenance_tasks, context| {
            maintenance_tasks.look_for_dropfile(context);
            maintenance_tasks.look_at_subscribers(context);
        });
        if let Some(purge) = &self.seed.sql_purge {
            context.run_interval(purge.interval(), |maintenance_tasks, _| {
                maintenance_tasks.purge_sql();
            });
        }
        context.run_interval(round, |maintenance_tasks, context| {
            maintenance_tasks.expire_jobs();
            maintenance_tasks.clean_job_files();
            maintenance_tasks.fire_presence(context);
            // A look that is still in progress covers this one.
            let _ = maintenance_tasks.seed.upkeep.try_send(LookOver(Look::Due));
            let _ = maintenance_tasks.seed.remotes.try_send(FetchRemotes);
        });
    }
}

impl Handler<RunMaintenanceTask> for Maintenance {
    type Result = ();

    fn handle(
        &mut self,
        RunMaintenanceTask(task): RunMaintenanceTask,
        context: &mut Self::Context,
    ) {
        match task {
            MaintenanceTask::SharedKey => self.look_for_dropfile(context),
            MaintenanceTask::Subscribers => self.look_at_subscribers(context),
            MaintenanceTask::Presence => self.fire_presence(context),
            MaintenanceTask::JobExpiry => self.expire_jobs(),
            MaintenanceTask::SqlJobs => self.purge_sql(),
            MaintenanceTask::JobFiles => self.clean_job_files(),
            MaintenanceTask::Remotes => _ = self.seed.remotes.try_send(FetchRemotes),
            MaintenanceTask::OrphanedData
            | MaintenanceTask::MinionData
            | MaintenanceTask::Tokens
            | MaintenanceTask::Nonces
            | MaintenanceTask::FileLists
            | MaintenanceTask::FileEvents
            | MaintenanceTask::KeyCache
            | MaintenanceTask::MasterKey
            | MaintenanceTask::OpenFiles
            | MaintenanceTask::DatabaseCheck
            | MaintenanceTask::Highstates => {
                let _ = self.seed.upkeep.try_send(LookOver(Look::Only(task)));
            }
        }
    }
}

/// The interval of a round.
pub(crate) fn round(services: &Services) -> Duration {
    services.config.loop_interval.max(Duration::from_secs(1))
}

impl Maintenance {
    /// Registers the tasks that are triggered here.
    fn expect(&self, round: Duration, often: Duration) {
        let seed = &self.seed;
        seed.maintenance_tasks
            .expect(MaintenanceTask::SharedKey, often);
        seed.maintenance_tasks
            .expect(MaintenanceTask::Subscribers, often);
        seed.maintenance_tasks
            .expect(MaintenanceTask::Presence, round);
        seed.maintenance_tasks
            .expect(MaintenanceTask::JobExpiry, round);
        seed.maintenance_tasks
            .expect(MaintenanceTask::Remotes, round);
        if let Some(purge) = &seed.sql_purge {
            seed.maintenance_tasks
                .expect(MaintenanceTask::SqlJobs, purge.interval());
        }
        if seed.mirror.is_some() && seed.services.config.keep_jobs.is_some() {
            seed.maintenance_tasks
                .expect(MaintenanceTask::JobFiles, round);
        }
    }

    fn look_for_dropfile(&mut self, context: &mut Context<Self>) {
        let services = self.seed.services.clone();
        let rotation = self.seed.rotation.clone();
        self.seed
            .maintenance_tasks
            .run(MaintenanceTask::SharedKey, || {
                if !rotation.look(&services) {
                    return Err(TaskError::SharedKey);
                }
                rotation.look_at_age(&services).map_err(TaskError::of)
            });
        if !self.seed.rotation.take_news() {
            return;
        }
        let rotated = KeyRotated {
            rotate_aes_key: true,
        };
        let event = master_event(&services, Tag::key_rotated(), &rotated);
        self.outbox.push(context, &self.seed.bus, Fire(vec![event]));
        if services.config.ping_on_rotate
            && let Some(start) = rotation_ping(&services)
        {
            let start = Box::new(start);
            // The reply goes nowhere.
            let (answer, _) = PendingReply::inside();
            let begin = BeginJob { start, answer };
            self.outbox.push(context, &self.seed.begin_job, begin);
        }
    }

    /// A load for every minion that gets it.
    fn to_all(&self, jid: &Jid, fun: &str, arg: Vec<Value>) -> Publication {
        let services = &self.seed.services;
        let load = [
            ("fun", Value::from(fun)),
            ("arg", Value::Array(arg)),
            ("tgt", Value::from("*")),
            ("jid", Value::from(jid.as_str())),
            ("ret", Value::from("")),
            ("tgt_type", Value::from("glob")),
            ("user", Value::from(services.config.user.as_str())),
        ];
        Publication::of_master(&load, Topics::Broadcast)
    }

    /// Closes the connections of minions whose keys went, and probes the others.
    fn look_at_subscribers(&mut self, context: &mut Context<Self>) {
        let services = self.seed.services.clone();
        let seed = &self.seed;
        seed.maintenance_tasks
            .run(MaintenanceTask::Subscribers, || {
                let accepted = services.keys.pki.accepted();
                let accepted = accepted.map_err(TaskError::of)?;
                for connection in seed.presence.accept(&accepted) {
                    seed.subscribers.dismiss(connection);
                    tracing::info!(connection, "a subscriber has no accepted key any more");
                }
                Ok(())
            });
        if self.seed.feeds_syndics {
            return;
        }
        let most = services.config.saltern_presence_probe_rate;
        for (connection, jid) in self
            .seed
            .presence
            .take_unasked(most, || unguessable(&services.clock))
        {
            // A reply about a job that does not run comes under this jid.
            let arg = vec![Value::from(jid.as_str())];
            let ask = Ask {
                connection,
                publication: self.to_all(&jid, "saltutil.find_job", arg),
                jid,
            };
            self.outbox.push(context, &self.seed.questions, ask);
        }
    }

    /// Publishes presence and its changes (`handle_presence` in `salt/master.py`).
    fn fire_presence(&mut self, context: &mut Context<Self>) {
        let mut events = Vec::new();
        self.seed
            .maintenance_tasks
            .run(MaintenanceTask::Presence, || {
                if self.seed.services.config.presence_events {
                    events = self.presence_events();
                }
                self.seed.presence.remember();
                self.seed.presence.extend(&self.seed.known_networks);
                Ok(())
            });
        if !events.is_empty() {
            self.outbox.push(context, &self.seed.bus, Fire(events));
        }
    }

    fn presence_events(&self) -> Vec<Event> {
        let services = &self.seed.services;
        let Change { new, lost, present } = &self.seed.presence.change();
        let mut events = Vec::new();
        if !(new.is_empty() && lost.is_empty()) {
            let change = PresenceChange { new, lost };
            events.push(master_event(services, Tag::presence_change(), &change));
        }
        let present = Present { present };
        events.push(master_event(services, Tag::presence_present(), &present));
        events
    }

    /// A full mailbox leaves it for the next round.
    fn expire_jobs(&self) {
        let services = &self.seed.services;
        let before = |age: Duration| {
            let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
            services.clock.unix_micros().saturating_sub(age)
        };
        let keep = services.config.keep_jobs;
        let held_from = keep.and_then(|keep| {
            let oldest = services.config.syndic.keep.map(before);
            (self.seed.held_from)(keep, oldest)
        });
        let wait = keep.map_or(MAX_WAIT, |keep| keep.min(MAX_WAIT));
        let _ = self.seed.tracker.try_send(CloseOlderThan(before(wait)));
        let bound = |number: usize| (number > 0).then_some(number as u64);
        let _ = self.seed.store.try_send(ExpireJobs(Retention {
            before: keep.map(before),
            held_from,
            most_jobs: bound(services.config.saltern_keep_jobs_count),
            most_events: bound(services.config.saltern_keep_events_count),
            audit_before: bound(services.config.saltern_audit_keep_days)
                .map(|days| before(Duration::from_secs(days * 86_400))),
            most_audit: bound(services.config.saltern_audit_keep_count),
            most_bytes: bound(services.config.saltern_keep_jobs_size),
        }));
    }

    fn purge_sql(&self) {
        if let Some(purge) = &self.seed.sql_purge {
            purge.start();
        }
    }

    fn clean_job_files(&self) {
        if self.seed.services.config.keep_jobs.is_some()
            && let Some(mirror) = &self.seed.mirror
        {
            let _ = mirror.try_send(CleanJobFiles);
        }
    }
}

/// An unguessable jid: an answer under it proves which connection it came by.
fn unguessable(clock: &Clock) -> Jid {
    let [a, b, c, d, ..] = public_random();
    JidMinter::new(clock.clone(), Some(u32::from_ne_bytes([a, b, c, d]))).mint()
}
