//! Dependencies of the tracker on the rest of the master, so that its tests need no whole master.

use std::sync::Arc;
use std::time::Duration;

use saltern_model::{Absence, Event, Jid, JobRecord, MinionId, Packed, Standing, Tag, stamp};
use saltern_requests::{
    Publication, Services, absence_below, announced_again, minions_below, minions_moved, probe,
    publication_again,
};
use saltern_wire::msgpack::{Dialect, Limits, RawValue, Value, pack};
use serde::Serialize;

use super::machine::{JobEnvironment, Rules};
use crate::events::batch_feed::BatchFeed;

/// Weight of all open jobs, and of remembered ended ones: their minions, plus one for each job.
const MAX_REMEMBERED: (usize, usize) = (2_000_000, 20_000);

/// Dependencies of the tracker.
pub(crate) trait TrackerDeps: Send + Sync {
    /// Why a minion certainly receives nothing at this moment; `None` when it may.
    fn absence(&self, minion: &MinionId) -> Option<Arc<str>>;
    /// Whether it can be asked what it runs: a resource of a minion (3008) cannot.
    fn is_asked(&self, minion: &MinionId) -> bool;
    /// Those among these minions that are below this syndic.
    fn below(&self, syndic: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId>;
    /// Those among these minions that are certainly not below this syndic any more.
    fn moved(&self, syndic: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId>;
    /// The syndics below this master.
    fn syndics(&self) -> Vec<MinionId>;
    /// A new jid.
    fn mint(&self) -> Jid;
    /// Microseconds since 1970.
    fn micros(&self) -> i64;
    /// Now, as `_stamp` of an event.
    fn stamp(&self) -> String;
    /// Parameters of the machine, from the options.
    fn rules(&self) -> Rules;
    /// The probe for these minions.
    fn probe(&self, probe: &Jid, minions: Vec<MinionId>) -> Publication;
    /// The load of a stored job once more; `None` when it cannot be made.
    fn again(&self, job: &JobRecord) -> Option<Publication>;
    /// How many of the youngest jobs and returns a syndic beside this master may have missed while
    /// the master was down; 0 where there is none.
    fn replayed(&self) -> usize;
    /// The events with which a stored job began.
    fn announced(&self, job: &JobRecord) -> Vec<Event>;
}

/// The rest of the master, and the batches.
pub(super) struct LiveEnvironment<'a> {
    pub(super) deps: &'a dyn TrackerDeps,
    pub(super) batches: &'a BatchFeed,
}

impl JobEnvironment for LiveEnvironment<'_> {
    fn absence(&self, minion: &MinionId) -> Option<Arc<str>> {
        self.deps.absence(minion)
    }

    fn is_asked(&self, minion: &MinionId) -> bool {
        self.deps.is_asked(minion)
    }

    fn unreachable_syndics(&self) -> Vec<(MinionId, Arc<str>)> {
        let syndics = self.deps.syndics().into_iter();
        let unreachable = syndics.map(|id| self.deps.absence(&id).map(|why| (id, why)));
        unreachable.collect::<Option<_>>().unwrap_or_default()
    }

    fn below(&self, syndic: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId> {
        self.deps.below(syndic, minions)
    }

    fn moved(&self, syndic: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId> {
        self.deps.moved(syndic, minions)
    }

    fn mint(&self) -> Jid {
        self.deps.mint()
    }

    fn is_held(&self, jid: &Jid) -> bool {
        self.batches.follows(jid)
    }
}

impl TrackerDeps for Services {
    fn absence(&self, minion: &MinionId) -> Option<Arc<str>> {
        let state = |minion: &MinionId| self.minions.presence.state(minion);
        let standing = state(minion);
        let Standing::Away(absence) = standing else {
            return None;
        };
        if absence == Absence::NoKey {
            // A resource is reached through any of its owners.
            let owners = self.minions.resources.owners_of(minion).unwrap_or_default();
            let is_heard = |owner: &MinionId| !matches!(state(owner), Standing::Away(_));
            if owners.iter().any(is_heard) {
                return None;
            }
            if owners.is_empty()
                && let Some(below) = absence_below(minion, self)
            {
                return below;
            }
            if owners.is_empty() && self.site.order_masters {
                // It is below a syndic, and it is not known below which.
                let is_any_heard = self.minions.syndics.any(is_heard);
                return (!is_any_heard).then(|| "no syndic is connected".into());
            }
            let standing = owners.first().map_or(standing, state);
            return Some(standing.to_string().into());
        }
        Some(standing.to_string().into())
    }

    fn is_asked(&self, minion: &MinionId) -> bool {
        if self.minions.presence.state(minion) != Standing::Away(Absence::NoKey) {
            return true;
        }
        let is_resource = || {
            !self
                .minions
                .resources
                .owners_of(minion)
                .unwrap_or_default()
                .is_empty()
        };
        self.site.order_masters && !is_resource()
    }

    fn below(&self, syndic: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId> {
        minions_below(minions, syndic, self)
    }

    fn moved(&self, syndic: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId> {
        minions_moved(minions, syndic, self)
    }

    fn syndics(&self) -> Vec<MinionId> {
        match self.site.order_masters {
            true => self.minions.syndics.ids(),
            false => Vec::new(),
        }
    }

    fn mint(&self) -> Jid {
        self.minter.mint()
    }

    fn micros(&self) -> i64 {
        self.clock.unix_micros()
    }

    fn stamp(&self) -> String {
        stamp(self.config.salt_compat, self.clock.unix_micros())
    }

    fn rules(&self) -> Rules {
        // Minimum interval: back-to-back probes are never meant.
        const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);
        let config = &self.config;
        Rules {
            timeout: config.timeout.max(MIN_PROBE_INTERVAL),
            gather: config.gather_job_timeout.max(MIN_PROBE_INTERVAL),
            interval: config.saltern_probe_interval,
            patience: config.saltern_job_timeout,
            leaves_wait: self.site.leaves_wait,
            probe_rate: config.saltern_probe_rate,
            most: MAX_REMEMBERED,
        }
    }

    fn probe(&self, jid: &Jid, minions: Vec<MinionId>) -> Publication {
        probe::publication(jid, minions, &self.config.user)
    }

    fn again(&self, job: &JobRecord) -> Option<Publication> {
        publication_again(job, self)
    }

    fn replayed(&self) -> usize {
        match self.site.has_syndic {
            true => self.config.saltern_event_queue_length,
            false => 0,
        }
    }

    fn announced(&self, job: &JobRecord) -> Vec<Event> {
        announced_again(job, self)
    }
}

/// Data of a return.
#[derive(Serialize)]
struct ReturnData<'a> {
    cmd: &'static str,
    id: &'a MinionId,
    success: bool,
    #[serde(rename = "return")]
    value: RawValue,
    retcode: i64,
    jid: &'a Jid,
    fun: &'static str,
    fun_args: [&'a Jid; 1],
    _stamp: &'a str,
}

/// The event of a minion's return of a client's `saltutil.find_job`, as stock's minion would have
/// returned it (`_prepare_return_pub` in `salt/minion.py`).
pub(super) fn find_job_return(
    question: &Jid,
    about: &Jid,
    minion: &MinionId,
    running: Option<&Packed>,
    stamp: &str,
) -> Event {
    let running = running.map(|job| RawValue::parse(job.bytes().clone(), &Limits::WIRE));
    let nothing = || RawValue::pack(&Value::Map(Vec::new()), Dialect::Bin);
    let data = ReturnData {
        cmd: "_return",
        id: minion,
        success: true,
        value: running.and_then(Result::ok).unwrap_or_else(nothing),
        retcode: 0,
        jid: question,
        fun: "saltutil.find_job",
        fun_args: [about],
        _stamp: stamp,
    };
    Event {
        tag: Tag::job_return(question, minion),
        data: Packed::new(pack(&data, Dialect::Bin)),
    }
}
