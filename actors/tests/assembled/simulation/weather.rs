//! The network's faults of a run, planned from its seed. None begins after `CALM`.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use saltern_base::clock::Clock;
use saltern_wire::net::simulated::{Conditions, Direction, Fate};

use super::random::{Random, address};
use super::world::{CALM, PEERS, START};

/// A peer cannot be reached from one time to another.
#[derive(Clone, Copy)]
struct Partition {
    peer: IpAddr,
    from: Duration,
    to: Duration,
}

/// The weather of one life of the master.
pub(super) struct Weather {
    random: Random,
    clock: Clock,
    partitions: Vec<Partition>,
}

impl Weather {
    /// `life` only keeps the lives of a run apart.
    pub(super) fn new(seed: u64, life: u64, clock: Clock) -> Self {
        let mut plan = Random::new(seed, 1);
        let partitions = (0..plan.within(0..5)).map(|_| {
            let from = plan.millis(0..80_000);
            let peer = address(usize::try_from(plan.within(0..PEERS as u64)).unwrap());
            let to = from + plan.millis(500..70_000);
            Partition { peer, from, to }
        });
        Self {
            partitions: partitions.collect(),
            random: Random::new(seed, 100 + life),
            clock,
        }
    }

    fn now(&self) -> Duration {
        let start = SystemTime::UNIX_EPOCH + START;
        self.clock.now().duration_since(start).unwrap_or_default()
    }

    /// How long nothing gets through to this peer from now on.
    fn blocked(&self, peer: IpAddr) -> Duration {
        let now = self.now();
        let of_peer = self.partitions.iter().filter(|one| one.peer == peer);
        let holding = of_peer.filter(|one| one.from <= now && now < one.to);
        holding.map(|one| one.to - now).max().unwrap_or_default()
    }

    fn latency(&mut self) -> Duration {
        match self.now() < CALM && self.random.one_in(50) {
            true => self.random.millis(100..3_000),
            false => self.random.millis(1..15),
        }
    }
}

impl Conditions for Weather {
    fn connection(&mut self, peer: IpAddr, _: u16) -> Fate {
        let delay = self.blocked(peer) + self.latency();
        if self.now() >= CALM {
            return Fate {
                delay,
                is_refused: false,
                cut: None,
                ends_silently: false,
            };
        }
        let cut = self.random.one_in(5).then(|| {
            let direction = match self.random.one_in(2) {
                true => Direction::ToMaster,
                false => Direction::FromMaster,
            };
            (direction, self.random.within(0..6_000))
        });
        Fate {
            delay,
            is_refused: self.random.one_in(20),
            cut,
            ends_silently: self.random.one_in(4),
        }
    }

    fn delay(&mut self, peer: IpAddr, _: Direction) -> Duration {
        self.blocked(peer) + self.latency()
    }
}
