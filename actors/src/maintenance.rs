//! Duties that come round: the dropfile that asks for a new shared key, and the expiry of jobs.
//!
//! Each duty is idempotent and takes no input, so that its timer, a signal or a restart may
//! trigger it at any time. A duty whose actor is busy is left for the next round: nothing here
//! waits, because the dropfile revokes keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Recipient};
use saltern_model::{Event, Packed, Tag, stamp};
use saltern_requests::{Publication, Services, Topics};
use saltern_store::dropfile::{self, Dropfile};
use saltern_supervise::Child;
use saltern_wire::msgpack::{Dialect, Encoder, Value, encode};

use crate::messages::{
    CleanJobFiles, CloseOlderThan, ExpireJobs, FetchRemotes, Fire, LookOver, Publish,
};
use crate::presence::Presence;
use crate::send::{Outbox, Sends};

/// What maintenance is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) publisher: Recipient<Publish>,
    pub(crate) tracker: Recipient<CloseOlderThan>,
    pub(crate) store: Recipient<ExpireJobs>,
    pub(crate) mirror: Option<Recipient<CleanJobFiles>>,
    pub(crate) upkeep: Recipient<LookOver>,
    pub(crate) remotes: Recipient<FetchRemotes>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) rotation: Rotation,
}

/// The rotation of the shared key that a dropfile asks for. It is owed from the moment the
/// dropfile is taken until the new key is on the disk, also over a failure or a restart of the
/// actor.
#[derive(Clone, Default)]
pub(crate) struct Rotation(Arc<AtomicBool>);

impl Rotation {
    /// Takes the dropfile, if there is one, and makes a new shared key. Whether there is one now.
    pub(crate) fn look(&self, services: &Services) -> bool {
        match dropfile::check(&services.config) {
            Ok(Dropfile::None) => {}
            Ok(Dropfile::Ignored(reason)) => {
                tracing::debug!(reason, "a dropfile does not count");
                self.take(services);
            }
            Ok(Dropfile::Rotate) => {
                self.0.store(true, Ordering::SeqCst);
                self.take(services);
            }
            Err(error) => tracing::error!(%error, "the dropfile cannot be looked at"),
        }
        self.0.load(Ordering::SeqCst) && self.rotate(services)
    }

    /// Taken before the key is made: one that is dropped meanwhile counts again.
    fn take(&self, services: &Services) {
        if let Err(error) = dropfile::take(&services.config) {
            tracing::error!(%error, "the dropfile cannot be removed");
        }
    }

    fn rotate(&self, services: &Services) -> bool {
        match services.shared.rotate() {
            Ok(_) => {
                self.0.store(false, Ordering::SeqCst);
                tracing::info!("the shared key was rotated, as the dropfile asked");
                true
            }
            Err(error) => {
                tracing::error!(%error, "the shared key cannot be rotated; trying again");
                false
            }
        }
    }
}

/// The dropfile is looked for more often than stock's `loop_interval` of a minute: it is one
/// `stat`, and it revokes keys.
const DROPFILE_INTERVAL: Duration = Duration::from_secs(1);

/// Nobody waits for a job for longer than this, however long jobs are kept.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// See the module.
pub(crate) struct Maintenance {
    seed: Seed,
    outbox: Outbox,
}

impl Sends for Maintenance {
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
}

impl Actor for Maintenance {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let round = self
            .seed
            .services
            .config
            .loop_interval
            .max(Duration::from_secs(1));
        self.look_for_dropfile(context);
        context.run_interval(DROPFILE_INTERVAL.min(round), |duties, context| {
            duties.look_for_dropfile(context);
        });
        context.run_interval(round, |duties, _| {
            duties.expire_jobs();
            duties.forget_minions();
            // A look that is still going on sees what this one would.
            let _ = duties.seed.upkeep.try_send(LookOver);
            let _ = duties.seed.remotes.try_send(FetchRemotes);
        });
    }
}

impl Maintenance {
    fn look_for_dropfile(&mut self, context: &mut Context<Self>) {
        let services = &self.seed.services;
        if !self.seed.rotation.look(services) {
            return;
        }
        let now = stamp(services.config.salt_compat, services.clock.unix_micros());
        let data = Value::map([
            ("rotate_aes_key", Value::Bool(true)),
            ("_stamp", Value::from(now.as_str())),
        ]);
        let event = Event {
            tag: Tag::key_rotated(),
            data: Packed::new(encode(&data, Dialect::Bin)),
        };
        self.outbox.push(context, &self.seed.bus, Fire(vec![event]));
        if services.config.ping_on_rotate {
            self.ping_everybody(context);
        }
    }

    /// Minions learn of a new key from the first load that they cannot read.
    fn ping_everybody(&mut self, context: &mut Context<Self>) {
        let services = &self.seed.services;
        let jid = services.minter.mint();
        let entries = [
            ("fun", Value::from("test.ping")),
            ("arg", Value::Array(Vec::new())),
            ("tgt", Value::from("*")),
            ("jid", Value::from(jid.as_str())),
            ("ret", Value::from("")),
            ("tgt_type", Value::from("glob")),
            ("user", Value::from(services.config.user.as_str())),
        ];
        let mut packed = Vec::new();
        let mut encoder = Encoder::new(&mut packed, Dialect::Raw);
        for (name, value) in &entries {
            encoder.str(name).value(value);
        }
        let publication = Publication {
            entries: entries.len(),
            packed: packed.into(),
            topics: Topics::Broadcast,
        };
        let publish = Publish { jid, publication };
        self.outbox.push(context, &self.seed.publisher, publish);
    }

    fn expire_jobs(&self) {
        let services = &self.seed.services;
        let before = |age: Duration| {
            let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
            services.clock.unix_micros().saturating_sub(age)
        };
        let keep = services.config.keep_jobs;
        let wait = keep.map_or(LONGEST_WAIT, |keep| keep.min(LONGEST_WAIT));
        // What finds no room now is done in the next round.
        let _ = self.seed.tracker.try_send(CloseOlderThan(before(wait)));
        let Some(keep) = keep else { return };
        let _ = self.seed.store.try_send(ExpireJobs(before(keep)));
        if let Some(mirror) = &self.seed.mirror {
            let _ = mirror.try_send(CleanJobFiles);
        }
    }

    fn forget_minions(&self) {
        match self.seed.services.pki.accepted() {
            Ok(accepted) => self.seed.presence.forget_others(&accepted),
            Err(error) => tracing::error!(%error, "the accepted minions cannot be listed"),
        }
    }
}
