//! Load on purpose: as many sign-ins or returns as a master can take, measured. Every run is
//! bounded in count and in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use saltern_base::clock::{Clock, civil};
use saltern_model::{Compat, stamp};
use saltern_wire::client::ReqClient;
use saltern_wire::msgpack::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::Swarm;
use crate::stats::{Channel, Latencies};
use saltern_channel::RequestError;
use saltern_channel::channel::transport;
use saltern_channel::envelope::{nonce, open, seal};
use saltern_channel::{SignInError, SignInRequest};

/// How much of an answer to a sign-in is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthCheck {
    /// Everything, as a minion does: three private RSA operations on this side.
    Full,
    /// The master's signature and the nonce: no private operation on this side, so that the
    /// master is measured and not this process.
    Signature,
}

/// A storm of sign-ins.
#[derive(Debug, Clone, Copy)]
pub struct AuthStorm {
    /// How many.
    pub total: usize,
    /// How many at a time; at most one for each minion.
    pub in_flight: usize,
    /// Whether each has a connection of its own, as a stock minion's has.
    pub fresh_connection: bool,
    /// How much of the answers is checked.
    pub check: AuthCheck,
    /// When it is over at the latest.
    pub limit: Duration,
}

/// A flood of returns.
#[derive(Debug, Clone)]
pub struct ReturnFlood {
    /// How many.
    pub total: usize,
    /// How many at a time; at most one for each minion.
    pub in_flight: usize,
    /// Whether each has a connection of its own, as a stock minion's has.
    pub fresh_connection: bool,
    /// The job they are for. When absent, every round of the swarm is a job of its own, with a
    /// jid that nobody published.
    pub jid: Option<String>,
    /// The function they are of.
    pub fun: String,
    /// Value of their returns.
    pub value: Value,
    /// When it is over at the latest.
    pub limit: Duration,
}

/// Totals of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// How many succeeded.
    pub done: u64,
    /// How many failed.
    pub failed: u64,
    /// From the first to the last.
    pub elapsed: Duration,
    /// Successes a second.
    pub per_second: f64,
    /// Half of them were at least as quick.
    pub p50: Duration,
    /// Nine tenths were.
    pub p90: Duration,
    /// Ninety-nine hundredths were.
    pub p99: Duration,
    /// The slowest.
    pub longest: Duration,
}

impl LoadReport {
    pub(super) fn new(latencies: &Latencies, failed: usize, elapsed: Duration) -> Self {
        let done = latencies.count();
        Self {
            done,
            failed: failed as u64,
            elapsed,
            per_second: done as f64 / elapsed.as_secs_f64().max(1e-9),
            p50: latencies.percentile(0.50),
            p90: latencies.percentile(0.90),
            p99: latencies.percentile(0.99),
            longest: latencies.longest(),
        }
    }
}

/// The numbers from 0 to `total`, each handed to one worker.
pub(super) struct Tickets {
    next: AtomicUsize,
    total: usize,
    end: Instant,
}

impl Tickets {
    pub(super) fn new(total: usize, limit: Duration) -> Self {
        Self {
            next: AtomicUsize::new(0),
            total,
            end: Instant::now() + limit,
        }
    }

    pub(super) fn take(&self) -> Option<usize> {
        if Instant::now() >= self.end {
            return None;
        }
        let ticket = self.next.fetch_add(1, Relaxed);
        (ticket < self.total).then_some(ticket)
    }

    /// When the time is up.
    pub(super) const fn end(&self) -> Instant {
        self.end
    }
}

impl Swarm {
    /// Signs in again and again. The sessions of the minions stay as they are: what a sign-in
    /// brings is checked and dropped, and the master gives the same keys again.
    pub async fn auth_storm(&self, storm: &AuthStorm) -> LoadReport {
        let (tickets, latencies) = (Tickets::new(storm.total, storm.limit), Latencies::default());
        let failed = AtomicUsize::new(0);
        let begin = Instant::now();
        let workers = self.shares(storm.in_flight).into_iter().map(|mine| {
            let (tickets, latencies, failed) = (&tickets, &latencies, &failed);
            async move {
                let mut kept: Option<ReqClient> = None;
                let mut mine = mine.iter().cycle();
                while let (Some(member), Some(_)) = (mine.next(), tickets.take()) {
                    let connection = if storm.fresh_connection {
                        None
                    } else {
                        kept.take()
                    };
                    let begin = Instant::now();
                    let work = sign_in_once(member, connection, storm.check);
                    match timeout_at(tickets.end, work).await {
                        Ok(Ok(connection)) => {
                            latencies.record(begin.elapsed());
                            kept = Some(connection);
                        }
                        Ok(Err(_)) => {
                            failed.fetch_add(1, Relaxed);
                        }
                        // The time is up; what was under way counts neither way.
                        Err(_) => return,
                    }
                }
            }
        });
        join_all(workers).await;
        LoadReport::new(&latencies, failed.load(Relaxed), begin.elapsed())
    }

    /// Sends returns and waits for their acknowledgements.
    pub async fn return_flood(&self, flood: &ReturnFlood) -> LoadReport {
        let (tickets, latencies) = (Tickets::new(flood.total, flood.limit), Latencies::default());
        let failed = AtomicUsize::new(0);
        let rounds = Rounds::new();
        let begin = Instant::now();
        let workers = self.shares(flood.in_flight).into_iter().map(|mine| {
            let (tickets, latencies, failed, rounds) = (&tickets, &latencies, &failed, &rounds);
            async move {
                // A member's turns are counted by itself, so that it never sends a jid twice.
                let mut round = 0;
                let mut members = mine.iter();
                loop {
                    let member = match members.next() {
                        Some(member) => member,
                        None if mine.is_empty() => return,
                        None => {
                            round += 1;
                            members = mine.iter();
                            continue;
                        }
                    };
                    if tickets.take().is_none() {
                        return;
                    }
                    let jid = flood.jid.clone().unwrap_or_else(|| rounds.jid(round));
                    let fields = return_fields(member, &jid, &flood.fun, flood.value.clone());
                    let begin = Instant::now();
                    let sent = timeout_at(tickets.end, self.send(member, &fields, flood)).await;
                    match sent {
                        Ok(Ok(())) => {
                            latencies.record(begin.elapsed());
                            self.stats.note_return(begin.elapsed(), &fields);
                        }
                        Ok(Err(error)) => {
                            tracing::debug!("a return failed: {error}");
                            failed.fetch_add(1, Relaxed);
                        }
                        Err(_) => return,
                    }
                }
            }
        });
        join_all(workers).await;
        LoadReport::new(&latencies, failed.load(Relaxed), begin.elapsed())
    }

    async fn send(
        &self,
        member: &Channel,
        fields: &[(&str, Value)],
        flood: &ReturnFlood,
    ) -> Result<(), RequestError> {
        let limit = self.config.request_timeout;
        if !flood.fresh_connection {
            return member.send(fields, limit).await.map(|_| ());
        }
        let session = match member.session() {
            Some(session) => session,
            None => member.sign_in(None).await?,
        };
        let nonce = nonce();
        let request = seal(&session.own, fields, &nonce, &member.sealing());
        let reply = timeout(limit, ask(member, None, request))
            .await
            .map_err(|_| RequestError::Timeout(limit))??
            .1;
        open(&session.own, &reply, &nonce)
            .map(|_| ())
            .map_err(|error| RequestError::Reply(error.to_string()))
    }

    /// The minions in as many parts as there are workers; a minion has at most one request under
    /// way, as a real one.
    pub(super) fn shares(&self, workers: usize) -> Vec<Vec<Arc<Channel>>> {
        let workers = workers.clamp(1, self.members.len().max(1));
        let mut shares = vec![Vec::new(); workers];
        for (member, worker) in self.members.iter().zip((0..workers).cycle()) {
            if let Some(share) = shares.get_mut(worker) {
                share.push(Arc::clone(member));
            }
        }
        shares
    }
}

/// Jids of a job for each round: the time of the start, a microsecond apart.
pub(super) struct Rounds {
    start: i64,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self {
            start: Clock::system().unix_micros(),
        }
    }

    pub(super) fn jid(&self, round: i64) -> String {
        let time = civil(self.start + round);
        time.strftime("%Y%m%d%H%M%S%6f").to_string()
    }
}

pub(super) fn return_fields(
    member: &Channel,
    jid: &str,
    fun: &str,
    value: Value,
) -> Vec<(&'static str, Value)> {
    vec![
        ("cmd", Value::from("_return")),
        ("id", Value::from(member.id())),
        ("success", Value::from(true)),
        ("return", value),
        ("retcode", Value::from(0_i64)),
        ("jid", Value::from(jid)),
        ("fun", Value::from(fun)),
        ("fun_args", Value::from(Vec::new())),
        ("user", Value::from("root")),
        (
            "_stamp",
            Value::from(stamp(Compat::V3008, member.clock().unix_micros())),
        ),
    ]
}

async fn sign_in_once(
    member: &Channel,
    connection: Option<ReqClient>,
    check: AuthCheck,
) -> Result<ReqClient, RequestError> {
    let who = member.identity();
    let request = SignInRequest::new(who)?;
    let (connection, reply) = ask(member, connection, request.payload.clone()).await?;
    match check {
        AuthCheck::Full => {
            request.answer(&reply, who)?;
        }
        AuthCheck::Signature => {
            let master = who.store.load().map_err(SignInError::from)?;
            let master = master.ok_or_else(|| SignInError::NoAnswer(String::new()))?;
            if !request.is_answered_by(&master, &who.config, &reply)? {
                return Err(SignInError::Rejected.into());
            }
        }
    }
    Ok(connection)
}

/// Asks over `connection`, or over a new one.
pub(super) async fn ask(
    member: &Channel,
    connection: Option<ReqClient>,
    request: Bytes,
) -> Result<(ReqClient, Bytes), RequestError> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => ReqClient::connect(member.route().clone())
            .await
            .map_err(transport)?,
    };
    let reply = connection.request(request).await.map_err(transport)?;
    Ok((connection, reply))
}
