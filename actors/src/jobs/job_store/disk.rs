//! Watches the disk of the job database: warns when it is low, and makes the store read-only before
//! it is full.
//!
//! Read-only means: no job is begun and no return acknowledged; minions keep their returns and send
//! them again. Reads, events and the removal of old jobs go on. Writing resumes by itself as soon
//! as there is space.

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message};
use saltern_base::metrics::{IntCounter, IntGauge, Registry, counter, gauge};
use saltern_model::{Event, Packed, Tag, stamp};
use saltern_store::{FreeSpace, StoreError};
use saltern_wire::msgpack::{Dialect, pack};
use serde::Serialize;

use super::JobStore;
use crate::messages::Fire;

/// Check the disk. Sent by the store itself.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct LookAtDisk;

/// State of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Enough free space.
    #[default]
    Roomy,
    /// Less than `saltern_disk_low`: a warning.
    Low,
    /// So little that nothing is written.
    Full,
}

impl State {
    /// The last part of the tag of the event.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Roomy => "roomy",
            Self::Low => "low",
            Self::Full => "full",
        }
    }
}

/// Below this part of the bound for "low", nothing is written.
const FULL: u64 = 16;

/// Of a small disk, "low" is at most this part.
const OF_SMALL: u64 = 20;

/// State machine with hysteresis, so that the state does not flap around a bound.
pub(super) struct DiskWatch {
    /// `saltern_disk_low`, in bytes; 0 disables the watch.
    low: u64,
    state: State,
    /// Bytes of the reserve that were given up: they are not for what is refused.
    owed: u64,
}

impl DiskWatch {
    pub(super) fn new(low: u64) -> Self {
        Self {
            low,
            state: State::default(),
            owed: 0,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// The new state, if it is a new one.
    pub(super) fn judge(&mut self, room: FreeSpace) -> Option<State> {
        let low = self.low.min(room.total / OF_SMALL);
        let full = low / FULL;
        let free = room.free.saturating_sub(self.owed);
        // Hysteresis: to improve takes a little more than the bound.
        let better = |bound: u64, than: State| match self.state >= than {
            true => bound.saturating_add(bound / 4),
            false => bound,
        };
        let state = if free < better(full, State::Full) {
            State::Full
        } else if free < better(low, State::Low) {
            State::Low
        } else {
            State::Roomy
        };
        (std::mem::replace(&mut self.state, state) != state).then_some(state)
    }
}

/// Gauges of the disk.
#[derive(Clone)]
pub(crate) struct DiskMetrics {
    pub(super) room: IntGauge,
    pub(super) is_full: IntGauge,
    pub(super) refused: IntCounter,
}

impl DiskMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            room: gauge(
                registry,
                "saltern_store_free_bytes",
                "Bytes that the job database can still take: free on its disk and within its file.",
            ),
            is_full: gauge(
                registry,
                "saltern_store_read_only",
                "1 while nothing is written because the disk of the job database is full.",
            ),
            refused: counter(
                registry,
                "saltern_store_refused_total",
                "Requests that could not be stored, and were refused.",
            ),
        }
    }
}

impl Handler<LookAtDisk> for JobStore {
    type Result = ();

    fn handle(&mut self, _: LookAtDisk, context: &mut Self::Context) {
        self.look_at_place(context);
        self.look_at_doubtful();
        self.look_at_disk(false, context);
    }
}

impl JobStore {
    /// `found_full`: a commit has just found that there is no room.
    pub(super) fn look_at_disk(&mut self, found_full: bool, context: &mut Context<Self>) {
        let room = wrap_future::<_, Self>(self.seed.engine.housekeeping.room());
        context.wait(room.map(move |room, store, context| match room {
            Ok(Some(room)) => store.judge_room(room, found_full, context),
            // The engine has no disk, or is recovering, which takes space, or frees some.
            Ok(None) | Err(StoreError::Displaced { .. }) => {}
            Err(error) => {
                tracing::error!(%error, "the free space of the job database cannot be measured");
            }
        }));
    }

    fn judge_room(&mut self, room: FreeSpace, found_full: bool, context: &mut Context<Self>) {
        let metrics = &self.seed.metrics.disk;
        metrics
            .room
            .set(i64::try_from(room.free).unwrap_or(i64::MAX));
        let was = self.disk.state();
        let change = self.disk.judge(room);
        let state = self.disk.state();
        metrics.is_full.set(i64::from(state == State::Full));
        if found_full {
            // Whatever was measured: a quota, or space within the database but none for its log.
            self.keep_reserve(State::Full, room, context);
        } else if state == State::Full || state == State::Roomy || was == State::Full {
            self.keep_reserve(state, room, context);
        }
        let Some(state) = change else { return };
        let free = room.free;
        match state {
            State::Full => tracing::error!(
                free,
                "the disk of the job database is full: jobs are refused, returns not acknowledged"
            ),
            State::Low => tracing::warn!(free, "the disk of the job database is nearly full"),
            State::Roomy => tracing::info!(free, "the disk of the job database has room"),
        }
        let event = self.disk_event(state, free);
        self.outbox.push(context, &self.seed.bus, Fire(vec![event]));
    }

    /// Gives up what is kept back while the disk is full, and takes it again.
    fn keep_reserve(&self, state: State, room: FreeSpace, context: &mut Context<Self>) {
        let housekeeping = &self.seed.engine.housekeeping;
        if state == State::Full {
            let released = wrap_future::<_, Self>(housekeeping.release_reserve());
            context.wait(released.map(|released, store, _| match released {
                Ok(bytes) => store.disk.owed += bytes,
                Err(error) => tracing::debug!(%error, "the reserve of the job database"),
            }));
        } else {
            let held = wrap_future::<_, Self>(housekeeping.hold_reserve(room.total));
            context.wait(held.map(|held, store, _| match held {
                Ok(()) => store.disk.owed = 0,
                Err(error) => tracing::debug!(%error, "the reserve of the job database"),
            }));
        }
    }

    fn disk_event(&self, state: State, free: u64) -> Event {
        let now = stamp(self.seed.compat, self.seed.clock.unix_micros());
        let data = DiskData {
            path: self.seed.engine.housekeeping.place().display().to_string(),
            free,
            low: self.seed.disk_low,
            _stamp: now,
        };
        Event {
            tag: Tag::store(state.word()),
            data: Packed::new(pack(&data, Dialect::Bin)),
        }
    }
}

/// Data of `saltern/store/…`: the disk of the job database.
#[derive(Serialize)]
struct DiskData {
    path: String,
    /// Bytes that are free.
    free: u64,
    /// Bytes below which the disk counts as full.
    low: u64,
    _stamp: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_state_follows_free_space_with_hysteresis() {
        let mut watch = DiskWatch::new(1_600);
        let mut judge = |free| {
            watch.judge(FreeSpace {
                free,
                total: 1_000_000,
            })
        };
        assert_eq!(judge(5_000), None);
        assert_eq!(judge(1_599), Some(State::Low));
        assert_eq!(judge(1_601), None);
        assert_eq!(judge(99), Some(State::Full));
        assert_eq!(judge(101), None);
        assert_eq!(judge(125), Some(State::Low));
        assert_eq!(judge(1_999), None);
        assert_eq!(judge(2_000), Some(State::Roomy));
        assert_eq!(judge(0), Some(State::Full));
    }

    #[test]
    fn released_reserve_does_not_count_as_free() {
        let mut watch = DiskWatch::new(1_600);
        let room = |free| FreeSpace {
            free,
            total: 1_000_000,
        };
        assert_eq!(watch.judge(room(0)), Some(State::Full));
        watch.owed = 500;
        assert_eq!(watch.judge(room(500)), None);
        assert_eq!(watch.judge(room(625)), Some(State::Low));
    }

    #[test]
    fn low_bound_is_a_share_of_a_small_disk() {
        let mut watch = DiskWatch::new(512 << 20);
        let room = |free| FreeSpace {
            free,
            total: 16 << 20,
        };
        assert_eq!(watch.judge(room(1 << 20)), None);
        assert_eq!(watch.judge(room(512 << 10)), Some(State::Low));
        assert_eq!(watch.judge(room(1 << 10)), Some(State::Full));
    }

    #[test]
    fn zero_disk_low_disables_the_watch() {
        let mut watch = DiskWatch::new(0);
        assert_eq!(watch.judge(FreeSpace { free: 0, total: 9 }), None);
    }
}
