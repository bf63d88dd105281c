//! A batch that the client drives, as stock's `salt -b` does: under a stock master, which cannot.
//!
//! All minions are pinged first; those that answer are sent the job a few at a time, each part as a job
//! of its own. It ends with this process.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::select_all;
use saltern_model::BatchSize;
use saltern_wire::msgpack::Value;
use tokio::time::{Instant, sleep_until};

use crate::job::MinionReturn;
use crate::{ClientError, Job, LocalClient, MinionOutcome, PublishRequest};

/// Something that happened to a batch.
#[derive(Debug)]
pub enum BatchStep {
    /// These minions were sent their part.
    Part(Vec<String>),
    /// A minion has returned, to the job with this id.
    Returned(String, MinionReturn),
    /// A minion did not return.
    GivenUp(String),
}

/// A batch under way.
pub struct ClientBatch<'a> {
    client: &'a LocalClient,
    request: PublishRequest,
    /// Minions that did not answer the ping.
    pub down: Vec<String>,
    pending: VecDeque<String>,
    jobs: Vec<Job<'a>>,
    /// Minions that have the job.
    active: usize,
    size: usize,
    wait: Duration,
    /// When the places of minions that are done become free.
    resting: Vec<Instant>,
}

impl LocalClient {
    /// Pings the minions of the job's target and makes a batch of those that answer; `None` when none
    /// does.
    ///
    /// # Errors
    /// When the master does not publish the ping.
    pub async fn client_batch(
        &self,
        request: PublishRequest,
        size: BatchSize,
        wait: Duration,
    ) -> Result<Option<ClientBatch<'_>>, ClientError> {
        let mut ping = request.clone();
        ping.fun = "test.ping".into();
        ping.arg = Vec::new();
        ping.ret = String::new();
        let mut job = self.run(&ping).await?;
        let (mut there, mut down) = (VecDeque::new(), Vec::new());
        while let Some(outcome) = job.next().await? {
            match outcome {
                MinionOutcome::Returned(minion) => there.push_back(minion.id),
                MinionOutcome::NoResponse { id, .. } => down.push(id),
            }
        }
        Ok((!there.is_empty()).then(|| ClientBatch {
            client: self,
            size: size.of(there.len()),
            request,
            down,
            pending: there,
            jobs: Vec::new(),
            active: 0,
            wait,
            resting: Vec::new(),
        }))
    }
}

impl ClientBatch<'_> {
    /// How many minions have not returned yet, those that had no turn among them.
    #[must_use]
    pub fn minions(&self) -> usize {
        self.pending.len() + self.active
    }

    /// The next thing that happens; `None` once every minion had its turn.
    ///
    /// # Errors
    /// When a part cannot be published, or the event socket is closed.
    pub async fn next(&mut self) -> Result<Option<BatchStep>, ClientError> {
        loop {
            let now = Instant::now();
            self.resting.retain(|until| *until > now);
            let places = self.size.saturating_sub(self.active + self.resting.len());
            if places > 0 && !self.pending.is_empty() {
                return self.send_part(places).await.map(Some);
            }
            let first = self.resting.iter().min().copied();
            if self.jobs.is_empty() {
                match first.filter(|_| !self.pending.is_empty()) {
                    Some(until) => sleep_until(until).await,
                    None => return Ok(None),
                }
                continue;
            }
            let nexts = self.jobs.iter_mut().map(|job| Box::pin(job.next()));
            let rested = async {
                match first {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let (outcome, at) = tokio::select! {
                (outcome, at, _) = select_all(nexts) => (outcome?, at),
                () = rested => continue,
            };
            if let Some(step) = self.take(outcome, at) {
                return Ok(Some(step));
            }
        }
    }

    async fn send_part(&mut self, places: usize) -> Result<BatchStep, ClientError> {
        let part: Vec<String> = self
            .pending
            .drain(..places.min(self.pending.len()))
            .collect();
        let mut request = self.request.clone();
        request.tgt = Value::Array(part.iter().map(|id| id.as_str().into()).collect());
        "list".clone_into(&mut request.tgt_type);
        match self.client.run(&request).await {
            Ok(job) => {
                self.active += part.len();
                self.jobs.push(job);
            }
            // Their keys were deleted meanwhile.
            Err(ClientError::NoMinions) => {}
            Err(error) => return Err(error),
        }
        Ok(BatchStep::Part(part))
    }

    fn take(&mut self, outcome: Option<MinionOutcome>, at: usize) -> Option<BatchStep> {
        let Some(outcome) = outcome else {
            self.jobs.swap_remove(at);
            return None;
        };
        self.active = self.active.saturating_sub(1);
        if !self.wait.is_zero() {
            self.resting.push(Instant::now() + self.wait);
        }
        let jid = self.jobs.get(at).map(|job| job.jid().to_owned());
        Some(match outcome {
            MinionOutcome::Returned(minion) => BatchStep::Returned(jid.unwrap_or_default(), minion),
            MinionOutcome::NoResponse { id, .. } => BatchStep::GivenUp(id),
        })
    }
}
