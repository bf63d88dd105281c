//! The target phase: the latency of `publish` on a master of many minions.
//!
//! Each sample is a whole request as the `salt` command makes it, over a connection of its own,
//! and its answer is compared with what the fleet makes it. Beside compound targets stand lists of
//! ten ids, for which nothing has to be found: what they take is everything but the matching.

use std::time::Duration;

use saltern_client::{ClientError, LocalClient, PublishRequest};
use saltern_minion::swarm::Latencies;
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::fleet::{self, CompoundTarget, KINDS};
use super::progress::{Progress, millis};

/// Maximum number of samples.
const ENOUGH: u64 = 1000;
/// Minimum number of samples, for which the phase is extended on a slow master, …
const AT_LEAST: u64 = KINDS as u64;
/// … up to this duration, after which [`AT_THE_VERY_LEAST`] samples are enough.
const MAX_DURATION: Duration = Duration::from_secs(60);
const AT_THE_VERY_LEAST: u64 = 2;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetsError {
    #[error("the target \"{0}\" cannot be asked for")]
    Client(String, #[source] ClientError),
    #[error("the target \"{}\" means {} minions, but the master found {found}", .asked.target,
            .asked.minions.len())]
    Wrong {
        asked: Box<CompoundTarget>,
        found: usize,
    },
}

/// The load of this phase.
pub(crate) struct Targets<'a> {
    /// Its `publish_timeout` is the longest that one answer is waited for.
    pub(crate) client: LocalClient,
    /// How many minions the fleet has.
    pub(crate) minions: usize,
    /// How long a quick master is asked.
    pub(crate) limit: Duration,
    pub(crate) progress: &'a Progress,
}

/// Result of the requests.
struct QueryTotals {
    latencies: Latencies,
    /// The answer that was given up waiting for.
    is_capped: bool,
}

impl Targets<'_> {
    /// Asks and prints the figures.
    pub(crate) async fn run(&self) -> Result<(), TargetsError> {
        self.progress.begin("targets_first");
        let first = self.first().await?;
        self.progress.end("targets_first", &[("ms", millis(first))]);
        self.progress.begin("targets");
        let asked = self.ask("compound", self.limit).await?;
        self.end("targets", &asked);
        if !asked.is_capped {
            self.progress.begin("targets_list");
            let asked = self.ask("list", self.limit / 2).await?;
            self.end("targets_list", &asked);
        }
        Ok(())
    }

    /// The first target after the start, for which the whole cache may have to be read.
    async fn first(&self) -> Result<Duration, TargetsError> {
        let begin = Instant::now();
        self.one("compound", 0).await?;
        Ok(begin.elapsed())
    }

    async fn ask(&self, kind: &str, limit: Duration) -> Result<QueryTotals, TargetsError> {
        let (latencies, begin) = (Latencies::default(), Instant::now());
        // Round 0 was the first target of all.
        for round in 1.. {
            if is_enough(latencies.count(), begin.elapsed(), limit) {
                break;
            }
            match self.one(kind, round).await? {
                Some(took) => latencies.record(took),
                None => {
                    latencies.record(self.client.config().publish_timeout);
                    let is_capped = true;
                    return Ok(QueryTotals {
                        latencies,
                        is_capped,
                    });
                }
            }
        }
        Ok(QueryTotals {
            latencies,
            is_capped: false,
        })
    }

    /// One answer; `None` when it did not come in time.
    async fn one(&self, kind: &str, round: usize) -> Result<Option<Duration>, TargetsError> {
        let asked = fleet::question(round, self.minions);
        let target = match kind {
            "list" => asked
                .minions
                .iter()
                .map(Value::from)
                .collect::<Vec<_>>()
                .into(),
            _ => Value::from(asked.target.as_str()),
        };
        let request = PublishRequest::new(target, kind, "test.ping", Vec::new());
        let begin = Instant::now();
        let published = match self.client.publish(&request).await {
            Ok(published) => published,
            Err(ClientError::Timeout(_)) => return Ok(None),
            Err(ClientError::NoMinions) => {
                let asked = Box::new(asked);
                return Err(TargetsError::Wrong { asked, found: 0 });
            }
            Err(error) => return Err(TargetsError::Client(asked.target, error)),
        };
        let took = begin.elapsed();
        let mut found = published.minions;
        found.sort_unstable();
        if found == asked.minions {
            return Ok(Some(took));
        }
        Err(TargetsError::Wrong {
            asked: Box::new(asked),
            found: found.len(),
        })
    }

    fn end(&self, phase: &str, asked: &QueryTotals) {
        let latencies = &asked.latencies;
        self.progress.end(
            phase,
            &[
                ("done", latencies.count() as f64),
                ("p50_ms", millis(latencies.percentile(0.5))),
                ("p99_ms", millis(latencies.percentile(0.99))),
                ("capped", f64::from(u8::from(asked.is_capped))),
            ],
        );
    }
}

fn is_enough(done: u64, elapsed: Duration, limit: Duration) -> bool {
    done >= ENOUGH
        || (done >= AT_LEAST && elapsed >= limit)
        || (done >= AT_THE_VERY_LEAST && elapsed >= MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_master_extends_the_phase_up_to_a_limit() {
        let limit = Duration::from_secs(10);
        let cases = [
            (999, 9, false),
            (999, 10, true),
            (1000, 1, true),
            (4, 11, false),
            (5, 11, true),
            (1, 100, false),
            (2, 59, false),
            (2, 60, true),
        ];
        for (done, seconds, enough) in cases {
            let elapsed = Duration::from_secs(seconds);
            assert_eq!(
                is_enough(done, elapsed, limit),
                enough,
                "{done} in {seconds} s"
            );
        }
    }
}
