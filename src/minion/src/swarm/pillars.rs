//! Asks for pillars, as many as a master can render, and looks whether they are the right ones.
//!
//! The caller gives the grains of each minion and the pillar that is expected.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use saltern_wire::msgpack::Value;
use tokio::time::{Instant, timeout_at};

use super::Swarm;
use super::load::{LoadReport, Tickets};

use crate::pillar;
use crate::stats::{Channel, Latencies};

/// A storm of requests for pillars.
#[derive(Clone, Copy)]
pub struct PillarStorm<'a> {
    /// How many.
    pub total: usize,
    /// How many at a time; at most one for each minion.
    pub in_flight: usize,
    /// When it is over at the latest.
    pub limit: Duration,
    /// The grains of the minion with this number and id.
    pub grains: &'a dyn Fn(usize, &str) -> Value,
    /// Compares the pillar of the minion with this number and id.
    pub check: &'a dyn Fn(usize, &str, &Value) -> Result<(), PillarDifference>,
    /// Number of first replies that are opened and checked.
    pub check_first: usize,
    /// Of the later ones every n-th is; of the rest only the envelope is checked, because
    /// opening one costs this process more than some masters need to render it.
    pub check_every: usize,
}

impl PillarStorm<'_> {
    fn checks(&self, ticket: usize) -> bool {
        ticket < self.check_first || ticket.is_multiple_of(self.check_every.max(1))
    }
}

/// How a pillar differs from the expected one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PillarDifference {
    /// A key has another value.
    #[error("\"{name}\" is {found:?} and not {expected:?}")]
    Value {
        /// The key.
        name: String,
        /// Its value.
        found: Value,
        /// The value that it should have.
        expected: Value,
    },
    /// A key is missing.
    #[error("\"{name}\" is missing; its errors are {errors:?}")]
    Missing {
        /// The key.
        name: String,
        /// `_errors` of the pillar.
        errors: Option<Value>,
    },
    /// There are keys that should not be there.
    #[error("it has {found} keys and not {expected}")]
    Keys {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
}

/// A pillar that is not the minion's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the pillar of \"{minion}\" is wrong: {reason}")]
pub struct WrongPillar {
    /// The minion of the pillar.
    pub minion: String,
    /// The first difference.
    pub reason: PillarDifference,
}

/// One minion of the storm.
struct Asking<'a> {
    number: usize,
    member: &'a Channel,
    grains: Value,
}

impl Swarm {
    /// Asks for pillars over a fresh connection each, as stock minions do.
    ///
    /// # Errors
    /// The first pillar that is not the right one ends the storm. A request that fails otherwise
    /// is counted only.
    pub async fn pillar_storm(&self, storm: &PillarStorm<'_>) -> Result<LoadReport, WrongPillar> {
        let (tickets, latencies) = (Tickets::new(storm.total, storm.limit), Latencies::default());
        let failed = AtomicUsize::new(0);
        let wrong: Mutex<Option<WrongPillar>> = Mutex::default();
        let begin = Instant::now();
        let workers = self.askers(storm).into_iter().map(|askers| {
            let (tickets, latencies, failed, wrong) = (&tickets, &latencies, &failed, &wrong);
            async move {
                for asking in askers.iter().cycle() {
                    let Some(ticket) = tickets.take().filter(|_| wrong.lock().is_none()) else {
                        return;
                    };
                    let begin = Instant::now();
                    let (member, limit) = (asking.member, self.config.request_timeout);
                    let is_opened = storm.checks(ticket);
                    let work = pillar::request(member, &asking.grains, limit, is_opened);
                    let pillar = match timeout_at(tickets.end(), work).await {
                        Ok(Ok(pillar)) => pillar,
                        Ok(Err(error)) => {
                            tracing::debug!("a pillar failed: {error}");
                            failed.fetch_add(1, Relaxed);
                            continue;
                        }
                        // The time is up; what was under way counts neither way.
                        Err(_) => return,
                    };
                    latencies.record(begin.elapsed());
                    let Some(pillar) = pillar else { continue };
                    let id = asking.member.id();
                    if let Err(reason) = (storm.check)(asking.number, id, &pillar) {
                        let minion = id.to_owned();
                        *wrong.lock() = Some(WrongPillar { minion, reason });
                        return;
                    }
                }
            }
        });
        join_all(workers).await;
        match wrong.into_inner() {
            Some(wrong) => Err(wrong),
            None => {
                let failed = failed.load(Relaxed);
                Ok(LoadReport::new(&latencies, failed, begin.elapsed()))
            }
        }
    }

    /// The minions in as many parts as there are workers. Not more than a few for each worker:
    /// their grains stay in memory.
    fn askers(&self, storm: &PillarStorm<'_>) -> Vec<Vec<Asking<'_>>> {
        const FOR_EACH_WORKER: usize = 8;
        let workers = storm.in_flight.clamp(1, self.members.len().max(1));
        let mut parts: Vec<Vec<Asking<'_>>> = (0..workers).map(|_| Vec::new()).collect();
        let members = self.members.iter().take(workers * FOR_EACH_WORKER);
        for (at, member) in members.enumerate() {
            if let Some(part) = parts.get_mut(at % workers) {
                let number = self.config.first + at;
                part.push(Asking {
                    number,
                    member,
                    grains: (storm.grains)(number, member.id()),
                });
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_pillars_are_checked_then_a_sample() {
        let storm = PillarStorm {
            total: 40,
            in_flight: 1,
            limit: Duration::ZERO,
            grains: &|_, _| Value::Nil,
            check: &|_, _, _| Ok(()),
            check_first: 3,
            check_every: 10,
        };
        let checked: Vec<usize> = (0..40).filter(|ticket| storm.checks(*ticket)).collect();
        assert_eq!(checked, [0, 1, 2, 10, 20, 30]);
    }
}
