//! Duties that come round: the dropfile that asks for a new shared key, and the expiry of jobs.
//!
//! Each duty is idempotent and takes no input, so that its timer, a signal or a restart may
//! trigger it at any time.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context};
use saltern_model::{Event, Packed, Tag, stamp};
use saltern_requests::{Publication, Services, Topics};
use saltern_store::dropfile::{self, Dropfile};
use saltern_supervise::Child;
use saltern_wire::msgpack::{Dialect, Encoder, Value, encode};

use crate::event_publisher::EventPublisher;
use crate::job_mirror::JobMirror;
use crate::job_store::JobStore;
use crate::job_tracker::JobTracker;
use crate::messages::{CleanJobFiles, CloseOlderThan, ExpireJobs, Fire, Publish};
use crate::publisher::Publisher;
use crate::send::push;

/// What maintenance is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) bus: Addr<EventPublisher>,
    pub(crate) publisher: Addr<Publisher>,
    pub(crate) tracker: Addr<JobTracker>,
    pub(crate) store: Addr<JobStore>,
    pub(crate) mirror: Option<Addr<JobMirror>>,
}

/// The dropfile is looked for more often than stock's `loop_interval` of a minute: it is one
/// `stat`, and it revokes keys.
const DROPFILE_INTERVAL: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Maintenance {
    seed: Seed,
}

impl Child for Maintenance {
    type Seed = Seed;

    const NAME: &'static str = "maintenance";
    const MAILBOX: usize = 16;

    fn build(seed: &Seed) -> Self {
        Self { seed: seed.clone() }
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
        context.run_interval(DROPFILE_INTERVAL.min(round), |duties, context| {
            duties.look_for_dropfile(context);
        });
        context.run_interval(round, |duties, context| duties.expire_jobs(context));
    }
}

impl Maintenance {
    fn look_for_dropfile(&self, context: &mut Context<Self>) {
        match dropfile::take(&self.seed.services.config) {
            Ok(Dropfile::None) => {}
            Ok(Dropfile::Ignored(reason)) => {
                tracing::debug!(reason, "a dropfile does not count");
            }
            Ok(Dropfile::Rotate) => self.rotate(context),
            Err(error) => tracing::error!(%error, "the dropfile cannot be looked at"),
        }
    }

    fn rotate(&self, context: &mut Context<Self>) {
        let services = &self.seed.services;
        if let Err(error) = services.shared.rotate() {
            tracing::error!(%error, "the shared key cannot be rotated");
            return;
        }
        tracing::info!("the shared key was rotated, as the dropfile asked");
        let now = stamp(services.config.salt_compat, services.clock.unix_micros());
        let data = Value::map([
            ("rotate_aes_key", Value::Bool(true)),
            ("_stamp", Value::from(now.as_str())),
        ]);
        let data = Packed::new(encode(&data, Dialect::Bin));
        push(
            context,
            &self.seed.bus,
            Fire(vec![Event {
                tag: Tag::key_rotated(),
                data,
            }]),
        );
        if services.config.ping_on_rotate {
            self.ping_everybody(context);
        }
    }

    /// Minions learn of a new key from the first load that they cannot read.
    fn ping_everybody(&self, context: &mut Context<Self>) {
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
        push(context, &self.seed.publisher, Publish { jid, publication });
    }

    fn expire_jobs(&self, context: &mut Context<Self>) {
        let services = &self.seed.services;
        let Some(keep) = services.config.keep_jobs else {
            return;
        };
        let keep = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
        let oldest = services.clock.unix_micros().saturating_sub(keep);
        push(context, &self.seed.tracker, CloseOlderThan(oldest));
        push(context, &self.seed.store, ExpireJobs(oldest));
        if let Some(mirror) = &self.seed.mirror {
            push(context, mirror, CleanJobFiles);
        }
    }
}
