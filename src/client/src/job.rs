//! Follows one job to its end, as stock's `LocalClient.get_iter_returns` does: take returns from
//! the bus; when the timeout passes, ask which minions still run the job; wait on while any does.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use saltern_base::exit::Exit;
use saltern_wire::msgpack::Value;
use tokio::time::{Instant, timeout_at};

use crate::event::ReceivedEvent;
use crate::publish::{Published, strings};
use crate::{ClientError, EventListener, LocalClient, PublishRequest};

/// Return of a minion.
#[derive(Debug, Clone)]
pub struct MinionReturn {
    /// The minion, or the resource it answered for (3008's `resource_id`).
    pub id: String,
    /// The function's result.
    pub value: Value,
    /// The outputter that the minion asks for.
    pub out: Option<String>,
    /// The return code; the highest one for several functions.
    pub retcode: i64,
}

/// Outcome of one targeted minion.
#[derive(Debug, Clone)]
pub enum MinionOutcome {
    /// It returned.
    Returned(MinionReturn),
    /// It did not return, and does not say that it is running the job.
    NoResponse {
        /// The minion.
        id: String,
    },
}

/// A job being followed. Give up by dropping it: the job itself goes on.
pub struct Job<'a> {
    client: &'a LocalClient,
    events: EventListener,
    jid: String,
    timeout: Duration,
    expected: BTreeSet<String>,
    found: BTreeSet<String>,
    missing: BTreeSet<String>,
    patience: HashMap<String, Instant>,
    round_ends: Instant,
    syndics_until: Instant,
    /// Whether a minion reported the job as running; true at first, so that all are asked once.
    running: bool,
    find_job: Option<String>,
    ready: VecDeque<MinionOutcome>,
    over: bool,
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        client: &'a LocalClient,
        events: EventListener,
        published: Published,
        timeout: Duration,
    ) -> Self {
        let now = Instant::now();
        Self {
            client,
            events,
            jid: published.jid,
            timeout,
            expected: published.minions.into_iter().collect(),
            found: BTreeSet::new(),
            missing: published.missing.into_iter().collect(),
            patience: HashMap::new(),
            round_ends: now + timeout,
            syndics_until: now + client.config().syndic_wait,
            running: true,
            find_job: None,
            ready: VecDeque::new(),
            over: false,
        }
    }

    /// The job's id.
    #[must_use]
    pub fn jid(&self) -> &str {
        &self.jid
    }

    /// The minions that are to answer, as far as known by now.
    #[must_use]
    pub const fn expected(&self) -> &BTreeSet<String> {
        &self.expected
    }

    /// The next answer; `None` when every minion is accounted for. Minions that did not answer
    /// come last, sorted. A dropped future loses no answer.
    pub async fn next(&mut self) -> Result<Option<MinionOutcome>, ClientError> {
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Ok(Some(answer));
            }
            if self.over {
                return Ok(None);
            }
            if self.is_complete() {
                self.close();
                continue;
            }
            let now = Instant::now();
            for id in self.expected.difference(&self.found) {
                self.patience
                    .entry(id.clone())
                    .or_insert(now + self.timeout);
            }
            if now >= self.round_ends {
                if self.running {
                    self.ask_who_runs_it().await?;
                } else if now >= self.last_patience() {
                    self.close();
                    continue;
                }
            }
            match timeout_at(self.wakes_at(), self.events.next()).await {
                Err(_) => {}
                Ok(Ok(Some(event))) => self.take(&event)?,
                Ok(Ok(None)) => return Err(ClientError::EventsEnded),
                Ok(Err(error)) => return Err(error),
            }
        }
    }

    fn is_complete(&self) -> bool {
        let all = self.expected.is_subset(&self.found);
        if self.client.config().order_masters {
            return all && !self.expected.is_empty() && Instant::now() >= self.syndics_until;
        }
        all
    }

    fn last_patience(&self) -> Instant {
        let waiting = self.expected.difference(&self.found);
        let deadlines = waiting.filter_map(|id| self.patience.get(id).copied());
        deadlines
            .max()
            .unwrap_or(self.round_ends)
            .max(self.round_ends)
    }

    /// When to look at the state again if no event comes.
    fn wakes_at(&self) -> Instant {
        let now = Instant::now();
        if self.client.config().order_masters && self.syndics_until > now {
            return self.syndics_until.min(self.round_ends.max(now));
        }
        if self.round_ends > now {
            self.round_ends
        } else {
            self.last_patience()
        }
    }

    /// Publishes `saltutil.find_job` to the minions whose returns are missing.
    async fn ask_who_runs_it(&mut self) -> Result<(), ClientError> {
        let waiting: Vec<Value> = self
            .expected
            .difference(&self.found)
            .map(|id| Value::from(id.as_str()))
            .collect();
        let jid = vec![Value::from(self.jid.as_str())];
        let request = PublishRequest::new(Value::from(waiting), "list", "saltutil.find_job", jid);
        self.running = false;
        self.find_job = match self.client.publish(&request).await {
            Ok(published) => Some(published.jid),
            // None of the missing ones is an accepted minion, so none can run the job.
            Err(ClientError::NoMinions) => None,
            Err(error) => return Err(error),
        };
        self.round_ends = Instant::now() + self.client.config().gather_job_timeout;
        if self.find_job.is_none() {
            self.round_ends = Instant::now();
        }
        Ok(())
    }

    fn take(&mut self, event: &ReceivedEvent) -> Result<(), ClientError> {
        let tag = event.tag.as_str();
        if let Some(rest) = self.of_job(tag, &self.jid) {
            let is_return = rest.starts_with("/ret/");
            let data = event.value()?;
            return self.take_own(is_return, &data);
        }
        let asked = self.find_job.as_deref();
        if asked.is_some_and(|jid| {
            self.of_job(tag, jid)
                .is_some_and(|rest| rest.starts_with("/ret/"))
        }) {
            self.take_find_job(&event.value()?);
        }
        Ok(())
    }

    /// Suffix behind the jid in a tag of this job: of `salt/job/JID…`, of the bare `JID` (3006 and
    /// 3007) and, below other masters, of `syndic/…/JID…`.
    fn of_job<'t>(&self, tag: &'t str, jid: &str) -> Option<&'t str> {
        let rest = match tag.strip_prefix("salt/job/") {
            Some(rest) => rest.strip_prefix(jid)?,
            None if self.client.config().order_masters && tag.starts_with("syndic/") => {
                tag.split_once(jid)?.1
            }
            None => tag.strip_prefix(jid)?,
        };
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    fn take_own(&mut self, is_return: bool, data: &Value) -> Result<(), ClientError> {
        if data.get("error").is_some() {
            return Err(ClientError::Authorization {
                user: crate::user::publishing_user(),
                message: "the job was refused".to_owned(),
            });
        }
        if data.get("minions").is_some() {
            self.expected.extend(strings(data.get("minions")));
            self.missing.extend(strings(data.get("missing")));
            return Ok(());
        }
        if !is_return {
            return Ok(());
        }
        if let Some(answer) = minion_return(data)
            && self.found.insert(answer.id.clone())
        {
            self.ready.push_back(MinionOutcome::Returned(answer));
        }
        Ok(())
    }

    fn take_find_job(&mut self, data: &Value) {
        let Some(id) = data.get("id").and_then(Value::as_str) else {
            return;
        };
        if data
            .get("retcode")
            .and_then(Value::as_i64)
            .is_some_and(|code| code > 0)
        {
            // It cannot say; stock stops waiting for it.
            self.expected.remove(id);
            return;
        }
        let found = data.get("return").and_then(Value::as_map);
        if found.is_none_or(|found| found.is_empty()) {
            return;
        }
        self.expected.insert(id.to_owned());
        self.patience
            .insert(id.to_owned(), Instant::now() + self.timeout);
        self.running = true;
    }

    fn close(&mut self) {
        self.over = true;
        let absent: BTreeSet<&String> = self
            .expected
            .union(&self.missing)
            .filter(|id| !self.found.contains(*id))
            .collect();
        self.ready.extend(
            absent
                .into_iter()
                .map(|id| MinionOutcome::NoResponse { id: id.clone() }),
        );
    }
}

/// Reads the data of a `…/ret/…` event; `None` when it is no return.
#[must_use]
pub fn minion_return(data: &Value) -> Option<MinionReturn> {
    let value = data.get("return")?.clone();
    let resource = data
        .get("resource_id")
        .and_then(Value::as_str)
        .filter(|id| !id.is_empty());
    let id = resource.or_else(|| data.get("id").and_then(Value::as_str))?;
    Some(MinionReturn {
        id: id.to_owned(),
        retcode: retcode(data.get("retcode")),
        value,
        out: data.get("out").and_then(Value::as_str).map(str::to_owned),
    })
}

/// One number for a return: several functions have a map or an array of return codes.
fn retcode(code: Option<&Value>) -> i64 {
    match code {
        Some(Value::Map(codes)) => codes
            .iter()
            .filter_map(|(_, code)| code.as_i64())
            .max()
            .unwrap_or(0),
        Some(Value::Array(codes)) => codes.iter().filter_map(Value::as_i64).max().unwrap_or(0),
        Some(code) => code.as_i64().unwrap_or(0),
        None => 0,
    }
}

/// Counts answers and derives the exit code of the command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Minions that returned.
    pub returned: usize,
    /// Minions that did not.
    pub silent: usize,
    /// Minions whose return code is not 0.
    pub failed: usize,
}

impl Tally {
    /// Counts one answer.
    pub fn add(&mut self, answer: &MinionOutcome) {
        match answer {
            MinionOutcome::Returned(answer) => {
                self.returned += 1;
                self.failed += usize::from(answer.retcode != 0);
            }
            MinionOutcome::NoResponse { .. } => self.silent += 1,
        }
    }

    /// As stock `salt`: 0 when all returned without failure, 2 when there was nothing at all,
    /// else 1 (a minion that did not return counts as one with return code 1).
    #[must_use]
    pub const fn exit(&self) -> Exit {
        if self.returned + self.silent == 0 {
            Exit::NoReturn
        } else if self.silent + self.failed > 0 {
            Exit::Failure
        } else {
            Exit::Ok
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returned(retcode: i64) -> MinionOutcome {
        let value = Value::from(true);
        MinionOutcome::Returned(MinionReturn {
            id: "m1".to_owned(),
            value,
            out: None,
            retcode,
        })
    }

    #[test]
    fn exit_codes_are_those_of_stock() {
        let silent = MinionOutcome::NoResponse {
            id: "ghost".to_owned(),
        };
        let cases: [(&[MinionOutcome], Exit); 5] = [
            (&[], Exit::NoReturn),
            (&[returned(0)], Exit::Ok),
            (&[returned(0), returned(3)], Exit::Failure),
            (&[returned(0), silent.clone()], Exit::Failure),
            (&[silent], Exit::Failure),
        ];
        for (answers, exit) in cases {
            let mut tally = Tally::default();
            answers.iter().for_each(|answer| tally.add(answer));
            assert_eq!(tally.exit(), exit, "{answers:?}");
        }
    }

    #[test]
    fn returns_are_read_and_other_events_are_not() {
        let text = |text: &str| Value::from(text);
        let codes = Value::map([("a", Value::from(0_i64)), ("b", Value::from(4_i64))]);
        let several = Value::map([
            ("id", text("m1")),
            ("return", text("x")),
            ("retcode", codes),
        ]);
        let read = minion_return(&several).expect("it is a return");
        assert_eq!((read.id.as_str(), read.retcode), ("m1", 4));
        let resource = Value::map([
            ("id", text("m1")),
            ("resource_id", text("r1")),
            ("return", Value::Nil),
            ("out", text("nested")),
        ]);
        let read = minion_return(&resource).expect("it is a return");
        assert_eq!(
            (read.id.as_str(), read.out.as_deref()),
            ("r1", Some("nested"))
        );
        assert!(minion_return(&Value::map([("id", text("m1"))])).is_none());
        assert!(minion_return(&Value::map([("return", text("x"))])).is_none());
        assert!(minion_return(&text("x")).is_none());
    }
}
