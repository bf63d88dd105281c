//! Returns without pause and without end, each sent again until the master has acknowledged it:
//! what minions do while a master comes and goes.
//!
//! The jobs are made up, a jid for each round of the swarm. What is returned follows from the jid
//! and the minion, so that a reader can verify it later.

use std::time::Duration;

use futures_util::future::join_all;
use saltern_wire::msgpack::Value;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::Swarm;
use super::load::{Rounds, return_fields};
use crate::stats::Channel;
use saltern_channel::between;

/// How the swarm returns.
#[derive(Debug, Clone, Copy)]
pub struct SteadyReturns {
    /// How many returns are under way at a time; at most one for each minion.
    pub in_flight: usize,
    /// Returns a second, all minions together; `None` for as many as the master acknowledges.
    pub per_second: Option<u32>,
    /// How long the returned text is, in bytes.
    pub bytes: usize,
}

/// The function that the made-up jobs are of.
const FUNCTION: &str = "test.echo";

/// The pause before a return is sent again.
const RETRY: Duration = Duration::from_millis(100);

impl Swarm {
    /// Returns until `stop`; what is under way then is given one more chance.
    pub async fn return_steadily(&self, steady: &SteadyReturns, stop: &CancellationToken) {
        let rounds = Rounds::new();
        let shares = self.shares(steady.in_flight);
        let count = shares.len();
        let workers = shares.into_iter().map(|share| {
            let rounds = &rounds;
            async move {
                let mut pace = pace(steady.per_second, count);
                for round in 0.. {
                    for member in &share {
                        if let Some(pace) = &mut pace {
                            pace.tick().await;
                        }
                        if stop.is_cancelled() {
                            return;
                        }
                        self.return_until_acknowledged(member, &rounds.jid(round), steady, stop)
                            .await;
                    }
                }
            }
        });
        join_all(workers).await;
    }

    async fn return_until_acknowledged(
        &self,
        member: &Channel,
        jid: &str,
        steady: &SteadyReturns,
        stop: &CancellationToken,
    ) {
        let value = Value::from(text(jid, member.id(), steady.bytes));
        let fields = return_fields(member, jid, FUNCTION, value);
        loop {
            let begin = Instant::now();
            match member.send(&fields, self.config.request_timeout).await {
                Ok(_) => return self.stats.note_return(begin.elapsed(), &fields),
                Err(error) if stop.is_cancelled() => {
                    return tracing::debug!("a return is not sent again: {error}");
                }
                Err(error) => tracing::debug!("a return is sent again: {error}"),
            }
            sleep(between(RETRY / 2, RETRY)).await;
        }
    }
}

/// The interval between the requests of one worker.
fn pace(per_second: Option<u32>, workers: usize) -> Option<Interval> {
    let all = f64::from(per_second?.max(1));
    let mut pace = interval(Duration::from_secs_f64(workers as f64 / all));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(pace)
}

/// The jid and the minion, over and over.
fn text(jid: &str, id: &str, bytes: usize) -> String {
    let words = format!("{jid} {id} ");
    words.chars().cycle().take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_return_names_its_minion_and_has_its_length() {
        assert_eq!(text("2026", "m1", 12), "2026 m1 2026");
        assert_eq!(text("2026", "m1", 0), "");
    }
}
