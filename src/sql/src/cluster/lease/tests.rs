//! Simulation of three members over one database: requests and answers that are late, lost and out of
//! order, members that freeze, die and release, clocks that drift, clocks of the day that jump. Every run
//! follows from its seed; `SALTERN_SEED=<number>` runs it alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const SEEDS: u64 = 5_000;
const MEMBERS: usize = 3;
const STEPS: u64 = 400;

/// Length of a lease, and of a step, in microseconds of the database's clock.
const LEASE: u64 = 6_000_000;
const STEP: u64 = 250_000;

/// A fault of the protocol that the simulation has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Writes of owners do not compare the epoch.
    NoEpochCheck,
    /// The deadline is one of the clock of the day.
    WallClock,
    /// A renewal that was sent before the release counts after it.
    RenewalAfterRelease,
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

struct Member {
    holder: LeaseHolder,
    /// Its clock runs so many thousandths as fast as the database's.
    rate: u64,
    /// The clock of the day is so much ahead.
    jumped: u64,
    frozen_until: u64,
}

/// A message that arrives.
#[derive(Clone, Copy)]
enum Message {
    Request(usize, u64, LeaseRequest),
    Answer(usize, u64, u64, Option<i64>),
    /// A write of an owner.
    Write(i64),
}

/// The row of the lease.
#[derive(Default)]
struct Row {
    owner: Option<usize>,
    epoch: i64,
    until: u64,
}

impl Row {
    /// The statements of [`super::super::lease_table`].
    fn carry_out(&mut self, now: u64, owner: usize, action: LeaseAction) -> Option<i64> {
        match action {
            LeaseAction::Take if self.until <= now => {
                (self.owner, self.epoch) = (Some(owner), self.epoch + 1);
                self.until = now + LEASE;
                Some(self.epoch)
            }
            LeaseAction::Renew(epoch) if (self.owner, self.epoch) == (Some(owner), epoch) => {
                self.until = now + LEASE;
                Some(epoch)
            }
            LeaseAction::Release(epoch) if (self.owner, self.epoch) == (Some(owner), epoch) => {
                (self.owner, self.epoch, self.until) = (None, self.epoch + 1, now);
                None
            }
            _ => None,
        }
    }
}

struct Simulation {
    chance: Chance,
    flaw: Flaw,
    now: u64,
    members: Vec<Member>,
    /// Restarts of each member: messages of a life before are nobody's.
    lives: [u64; MEMBERS],
    messages: BTreeMap<(u64, u64), Message>,
    sent: u64,
    row: Row,
    /// The epoch of the last write that was accepted.
    written: i64,
    writes: u64,
}

impl Simulation {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let members = (0..MEMBERS).map(|_| Member {
            holder: LeaseHolder::new(Duration::from_micros(LEASE)),
            rate: 800 + chance.below(400),
            jumped: 0,
            frozen_until: 0,
        });
        Self {
            members: members.collect(),
            chance,
            flaw,
            now: 0,
            lives: [0; MEMBERS],
            messages: BTreeMap::new(),
            sent: 0,
            row: Row::default(),
            written: 0,
            writes: 0,
        }
    }

    /// The time that a member goes by.
    fn clock(&self, member: usize) -> Duration {
        let member = &self.members[member];
        let monotonic = self.now * member.rate / 1_000;
        Duration::from_micros(match self.flaw {
            Flaw::WallClock => (monotonic + 4 * LEASE).saturating_sub(member.jumped),
            _ => monotonic,
        })
    }

    /// Sends a message; it is lost, or arrives within two leases, as a rule soon.
    fn send(&mut self, message: Message) {
        let most = match self.chance.below(10) {
            0 if !self.is_calm() => return,
            1 | 2 if !self.is_calm() => 2 * LEASE,
            _ => STEP,
        };
        self.sent += 1;
        let at = self.now + self.chance.below(most);
        self.messages.insert((at, self.sent), message);
    }

    /// At the end nothing fails any more.
    fn is_calm(&self) -> bool {
        self.now > STEPS * STEP * 3 / 4
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.now += STEP;
            while let Some(entry) = self.messages.first_entry()
                && entry.key().0 <= self.now
            {
                let message = entry.remove();
                self.arrive(message)?;
            }
            for member in 0..MEMBERS {
                self.act(member);
            }
            self.check()?;
        }
        match self.owners().len() {
            1 if self.writes > 0 => Ok(()),
            _ => Err("nobody owns it in the end".to_owned()),
        }
    }

    fn arrive(&mut self, message: Message) -> Result<(), String> {
        match message {
            Message::Request(member, life, request) => {
                let granted = self.row.carry_out(self.now, member, request.action);
                self.send(Message::Answer(member, life, request.number, granted));
            }
            Message::Answer(member, life, number, granted) => {
                if self.members[member].frozen_until > self.now {
                    let at = self.members[member].frozen_until;
                    self.sent += 1;
                    self.messages.insert((at, self.sent), message);
                } else if self.lives[member] == life {
                    self.members[member].holder.answered(number, granted);
                }
            }
            Message::Write(epoch) => {
                if epoch != self.row.epoch && self.flaw != Flaw::NoEpochCheck {
                    return Ok(());
                }
                if epoch < self.written || epoch != self.row.epoch {
                    return Err(format!(
                        "a write of epoch {epoch} behind {}",
                        self.row.epoch
                    ));
                }
                self.written = epoch;
                self.writes += 1;
            }
        }
        Ok(())
    }

    fn act(&mut self, number: usize) {
        if self.members[number].frozen_until > self.now {
            return;
        }
        let now = self.clock(number);
        let life = self.lives[number];
        let fault = if self.is_calm() {
            99
        } else {
            self.chance.below(100)
        };
        match fault {
            0 => {
                self.members[number].frozen_until = self.now + self.chance.below(3 * LEASE);
                return;
            }
            1 => {
                // It forgets everything, its clock included.
                self.lives[number] += 1;
                let length = Duration::from_micros(LEASE);
                self.members[number].holder = LeaseHolder::new(length);
                return;
            }
            2 | 3 => {
                let holder = &mut self.members[number].holder;
                let sent = holder.sent;
                let request = holder.release(now);
                if self.flaw == Flaw::RenewalAfterRelease {
                    holder.sent = sent;
                }
                if let Some(request) = request {
                    self.send(Message::Request(number, life, request));
                }
                return;
            }
            4 => self.members[number].jumped = self.chance.below(3 * LEASE),
            _ => {}
        }
        if let Some(request) = self.members[number].holder.due(now) {
            self.send(Message::Request(number, life, request));
        }
        if let Some(epoch) = self.members[number].holder.epoch(now) {
            self.send(Message::Write(epoch));
        }
    }

    fn owners(&self) -> Vec<usize> {
        let owns = |member: &usize| {
            self.members[*member]
                .holder
                .epoch(self.clock(*member))
                .is_some()
        };
        (0..MEMBERS).filter(owns).collect()
    }

    fn check(&self) -> Result<(), String> {
        let owners = self.owners();
        match owners.len() {
            0 | 1 => Ok(()),
            _ => Err(format!("two owners at {}: {owners:?}", self.now)),
        }
    }
}

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn simulated_members_never_own_one_lease_together() {
    let seeds = match given("SALTERN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..given("SALTERN_SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let ran = Simulation::new(seed, Flaw::None).run();
                    assert_eq!(ran, Ok(()), "run it alone with SALTERN_SEED={seed}");
                }
            });
        }
    });
}

#[test]
fn simulation_finds_planted_flaws() {
    for flaw in [
        Flaw::NoEpochCheck,
        Flaw::WallClock,
        Flaw::RenewalAfterRelease,
    ] {
        let found = (0..SEEDS).find(|seed| Simulation::new(*seed, flaw).run().is_err());
        assert!(found.is_some(), "{flaw:?} is not found");
    }
}
