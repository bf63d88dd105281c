//! Follows one job to its end.
//!
//! Returns are taken from the event socket. Who is not waited for any more is the word of the master's
//! tracker where there is one (`tracked`); a stock master has none, so there the client asks which
//! minions still run the job, as `LocalClient.get_iter_returns` does (`asking`).

mod asking;
mod tracked;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use saltern_base::exit::Exit;
use saltern_wire::msgpack::Value;
use tokio::time::{Instant, timeout_at};

use crate::event::ReceivedEvent;
use crate::publish::{Published, strings};
use crate::{ClientConfig, ClientError, EventListener, LocalClient, PublishRequest};
use asking::Rounds;
pub use tracked::Absence;
use tracked::Verdicts;
pub(crate) use tracked::not_returned;

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
    /// It did not return, and nothing says that it is running the job.
    NoResponse {
        /// The minion.
        id: String,
        /// The verdict of the master's tracker; `None` under a stock master, and for ids that the
        /// master does not know.
        absence: Option<Absence>,
    },
}

/// A job being followed. Give up by dropping it: the job itself goes on.
pub struct Job<'a> {
    client: &'a LocalClient,
    events: EventListener,
    jid: String,
    begun: Instant,
    timeout: Duration,
    /// How long masters below this one may take to name minions of theirs; `None` where none does.
    syndics: Option<Duration>,
    expected: BTreeSet<String>,
    /// Expected minions that have not returned.
    awaited: BTreeSet<String>,
    found: BTreeSet<String>,
    missing: BTreeSet<String>,
    patience: Patience,
    ready: VecDeque<MinionOutcome>,
    over: bool,
}

/// Source of the decision how long minions are waited for.
enum Patience {
    /// The tracker of a master of ours.
    Tracked(Verdicts),
    /// The minions, when they are asked.
    Asking(Rounds),
}

/// Next step in following a job.
enum Step {
    /// No minion is waited for any more.
    Close,
    /// The minions have to be asked what they run.
    Ask,
    /// The master has to be asked where the job stands.
    Recover,
    /// An event, until this time.
    Wait(Instant),
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        client: &'a LocalClient,
        events: EventListener,
        published: Published,
        timeout: Duration,
    ) -> Self {
        let begun = Instant::now();
        let syndics = wait_for_syndics(&published, client.config());
        let patience = match client.has_tracker() {
            true => Patience::Tracked(Verdicts::new(begun)),
            false => Patience::Asking(Rounds::new(begun, timeout, syndics)),
        };
        let mut job = Self {
            client,
            events,
            jid: published.jid,
            begun,
            timeout,
            syndics,
            expected: BTreeSet::new(),
            awaited: BTreeSet::new(),
            found: BTreeSet::new(),
            missing: published.missing.into_iter().collect(),
            patience,
            ready: VecDeque::new(),
            over: false,
        };
        job.expect(published.minions);
        job
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

    /// The expected minions that have not returned.
    #[must_use]
    pub const fn awaited(&self) -> &BTreeSet<String> {
        &self.awaited
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
            match self.step(Instant::now()) {
                Step::Close => self.close(),
                Step::Ask => self.ask_who_runs_it().await?,
                Step::Recover => self.recover().await?,
                Step::Wait(until) => match timeout_at(until, self.events.next()).await {
                    Err(_) => {}
                    Ok(Ok(Some(event))) => self.take(&event)?,
                    Ok(Ok(None)) => return Err(ClientError::EventsEnded),
                    Ok(Err(error)) => return Err(error),
                },
            }
        }
    }

    fn step(&self, now: Instant) -> Step {
        match &self.patience {
            Patience::Tracked(verdicts) => {
                let waits = self.timeout.max(self.syndics.unwrap_or_default());
                let awaited = self.awaited.len();
                verdicts.step(awaited, self.syndics.is_some(), self.begun + waits, now)
            }
            Patience::Asking(rounds) => {
                let is_complete = self.awaited.is_empty()
                    && (self.syndics.is_none() || !self.expected.is_empty());
                rounds.step(&self.awaited, is_complete, now)
            }
        }
    }

    fn expect(&mut self, minions: Vec<String>) {
        for id in minions {
            if self.found.contains(&id) {
                self.expected.insert(id);
            } else if self.expected.insert(id.clone()) {
                if let Patience::Asking(rounds) = &mut self.patience {
                    rounds.await_minion(&id);
                }
                self.awaited.insert(id);
            }
        }
    }

    /// Publishes `saltutil.find_job` to the minions whose returns are missing.
    async fn ask_who_runs_it(&mut self) -> Result<(), ClientError> {
        let waiting = self.awaited.iter().map(|id| Value::from(id.as_str()));
        let waiting = Value::Array(waiting.collect());
        let jid = vec![Value::from(self.jid.as_str())];
        let request = PublishRequest::new(waiting, "list", "saltutil.find_job", jid);
        let asked = match self.client.publish(&request).await {
            Ok(published) => Some(published.jid),
            // None of the missing ones is an accepted minion, so none can run the job.
            Err(ClientError::NoMinions) => None,
            Err(error) => return Err(error),
        };
        if let Patience::Asking(rounds) = &mut self.patience {
            rounds.begin(asked, self.client.config().gather_job_timeout);
        }
        Ok(())
    }

    fn take(&mut self, event: &ReceivedEvent) -> Result<(), ClientError> {
        let tag = event.tag.as_str();
        if let Patience::Tracked(verdicts) = &mut self.patience {
            if event.is_gap() {
                verdicts.doubt();
                return Ok(());
            }
            let of_tracker = tag
                .strip_prefix("saltern/job/")
                .and_then(|rest| rest.strip_prefix(self.jid.as_str()));
            if let Some(what) = of_tracker {
                verdicts.take(what, &event.value()?, &self.awaited);
                return Ok(());
            }
        }
        if let Some(rest) = self.of_job(tag, &self.jid) {
            let is_return = rest.starts_with("/ret/");
            let data = event.value()?;
            return self.take_own(is_return, &data);
        }
        if let Patience::Asking(rounds) = &self.patience
            && let Some(asked) = rounds.asked()
            && let Some(rest) = self.of_job(tag, asked)
            && rest.starts_with("/ret/")
        {
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
        if let Patience::Tracked(verdicts) = &mut self.patience {
            verdicts.heard();
        }
        if data.get("error").is_some() {
            return Err(ClientError::Authorization {
                user: crate::user::publishing_user(),
                message: "Authorization error occurred".to_owned(),
            });
        }
        if data.get("minions").is_some() {
            self.expect(strings(data.get("minions")));
            self.missing.extend(strings(data.get("missing")));
            return Ok(());
        }
        if is_return && let Some(answer) = minion_return(data) {
            self.take_return(answer);
        }
        Ok(())
    }

    fn take_return(&mut self, answer: MinionReturn) {
        if self.found.insert(answer.id.clone()) {
            self.awaited.remove(&answer.id);
            if let Patience::Tracked(verdicts) = &mut self.patience {
                verdicts.returned(&answer.id);
            }
            self.ready.push_back(MinionOutcome::Returned(answer));
        }
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
            self.awaited.remove(id);
            return;
        }
        let found = data.get("return").and_then(Value::as_map);
        if found.is_none_or(|found| found.is_empty()) {
            return;
        }
        self.expect(vec![id.to_owned()]);
        if let Patience::Asking(rounds) = &mut self.patience {
            rounds.runs_it(id);
        }
    }

    fn close(&mut self) {
        self.over = true;
        let unknown = self.missing.iter().filter(|id| {
            let is_known = self.found.contains(*id) || self.awaited.contains(*id);
            !is_known
        });
        let silent = self.awaited.iter().chain(unknown);
        let outcomes = silent.map(|id| MinionOutcome::NoResponse {
            id: id.clone(),
            absence: match &self.patience {
                Patience::Tracked(verdicts) => verdicts.absence(id),
                Patience::Asking(_) => None,
            },
        });
        self.ready.extend(outcomes);
    }
}

/// How long masters below may take to name minions of theirs (`syndic_wait`); `None` where there are none,
/// or the master knows who they are.
pub(crate) fn wait_for_syndics(published: &Published, config: &ClientConfig) -> Option<Duration> {
    (config.order_masters && !published.expects_all).then_some(config.syndic_wait)
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
            absence: None,
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
