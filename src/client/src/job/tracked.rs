//! How long minions are waited for under a master of ours: its tracker says on the event socket which of
//! them it gave up and why (`saltern/job/<jid>/verdict`), and when the job is over (`finished`). Nobody is
//! asked, unless events were lost.

use std::collections::{BTreeMap, BTreeSet};

use saltern_model::Jid;
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::{Job, MinionReturn, Patience, Step, retcode};
use crate::event::SILENCE;
use crate::{ClientError, RunnerRequest};

/// Why a minion is not waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Whether it may have got the job; false when it had no connection.
    pub is_connected: bool,
    /// The tracker's evidence, for people; may be empty.
    pub reason: String,
}

/// Verdicts of the tracker on one job.
pub(super) struct Verdicts {
    /// Minions that have not returned and are given up.
    lost: BTreeMap<String, Absence>,
    is_over: bool,
    /// Time of the last event of the job.
    heard: Instant,
    /// Whether events were lost.
    is_unsure: bool,
}

impl Verdicts {
    pub(super) const fn new(begun: Instant) -> Self {
        Self {
            lost: BTreeMap::new(),
            is_over: false,
            heard: begun,
            is_unsure: false,
        }
    }

    /// An event of the job came.
    pub(super) fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// Events were lost.
    pub(super) const fn doubt(&mut self) {
        self.is_unsure = true;
    }

    pub(super) fn returned(&mut self, id: &str) {
        self.lost.remove(id);
    }

    pub(super) fn absence(&self, id: &str) -> Option<Absence> {
        self.lost.get(id).cloned()
    }

    /// Minions that are given up may still return until `patience`; masters below this one may bring
    /// minions until the job is over.
    pub(super) fn step(
        &self,
        awaited: usize,
        has_syndics: bool,
        patience: Instant,
        now: Instant,
    ) -> Step {
        if awaited == 0 && (self.is_over || !has_syndics) {
            return Step::Close;
        }
        if self.is_unsure || now >= self.heard + SILENCE {
            return Step::Recover;
        }
        let is_settled = self.is_over || (awaited > 0 && self.lost.len() == awaited);
        match is_settled {
            true if now >= patience => Step::Close,
            true => Step::Wait(patience),
            false => Step::Wait(self.heard + SILENCE),
        }
    }

    /// Takes an event of the tracker; `what` is the rest of its tag.
    pub(super) fn take(&mut self, what: &str, data: &Value, awaited: &BTreeSet<String>) {
        self.heard();
        match what {
            "/verdict" => {
                let changes = named(data.get("minions"));
                for (id, change) in changes.filter(|(id, _)| awaited.contains(*id)) {
                    let text = |name: &str| change.get(name).and_then(Value::as_str);
                    match text("verdict") {
                        Some(verdict @ ("unreachable" | "unknown")) => {
                            self.lose(id, verdict, text("reason").unwrap_or_default());
                        }
                        _ => _ = self.lost.remove(id),
                    }
                }
            }
            "/finished" => {
                self.is_over = true;
                let lost = not_returned(data).filter(|(_, id, _)| awaited.contains(*id));
                lost.for_each(|(state, id, reason)| self.lose(id, state, reason));
            }
            _ => {}
        }
    }

    fn lose(&mut self, id: &str, state: &str, reason: &str) {
        let absence = Absence {
            is_connected: state != "unreachable",
            reason: reason.to_owned(),
        };
        self.lost.insert(id.to_owned(), absence);
    }
}

/// The minions that did not return, in the event of a job's end: state, id and evidence of each.
pub(crate) fn not_returned(data: &Value) -> impl Iterator<Item = (&'static str, &str, &str)> {
    let states = ["unreachable", "unknown", "awaited"].into_iter();
    states.flat_map(|state| {
        let minions = named(data.get(state));
        minions.map(move |(id, why)| (state, id, why.as_str().unwrap_or_default()))
    })
}

/// The entries of a map by minion.
fn named(minions: Option<&Value>) -> impl Iterator<Item = (&str, &Value)> {
    let entries = minions.and_then(Value::as_map).unwrap_or_default();
    entries
        .iter()
        .filter_map(|(id, value)| Some((id.as_str()?, value)))
}

impl Job<'_> {
    /// Asks the master where the job stands, after lost events or a long silence.
    pub(super) async fn recover(&mut self) -> Result<(), ClientError> {
        let Patience::Tracked(verdicts) = &mut self.patience else {
            return Ok(());
        };
        verdicts.heard();
        verdicts.is_unsure = false;
        let Ok(jid) = Jid::parse(&self.jid) else {
            return Ok(());
        };
        // Who may not ask goes on listening.
        let Ok(account) = self.client.link().account(jid).await else {
            return Ok(());
        };
        verdicts.is_over = account.is_none();
        let mut open = BTreeSet::new();
        for missing in account.into_iter().flat_map(|account| account.missing) {
            let id = missing.minion.to_string();
            if let "unreachable" | "unknown" = missing.state.as_str()
                && self.awaited.contains(&id)
            {
                verdicts.lose(&id, &missing.state, &missing.why);
            }
            open.insert(id);
        }
        match self.awaited.is_subset(&open) {
            true => Ok(()),
            false => self.take_stored_returns().await,
        }
    }

    /// Takes returns whose events were missed from the job database.
    async fn take_stored_returns(&mut self) -> Result<(), ClientError> {
        let request = RunnerRequest {
            fun: "jobs.list_job".to_owned(),
            arg: vec![self.jid.as_str().into()],
            kwarg: Vec::new(),
            timeout: Some(SILENCE),
        };
        let stored = match self.client.call(&request).await {
            Ok(stored) => stored.value,
            // Who may not ask goes on listening.
            Err(
                ClientError::Run(_)
                | ClientError::Refused { .. }
                | ClientError::Authentication { .. },
            ) => return Ok(()),
            Err(error) => return Err(error),
        };
        let results = stored.get("Result").and_then(Value::as_map);
        for (id, result) in results.unwrap_or_default() {
            if let Some(id) = id.as_str() {
                self.take_return(MinionReturn {
                    id: id.to_owned(),
                    value: result.get("return").cloned().unwrap_or(Value::Nil),
                    out: None,
                    retcode: retcode(result.get("retcode")),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn step(verdicts: &Verdicts, awaited: usize, patience: Instant) -> &'static str {
        match verdicts.step(awaited, false, patience, Instant::now()) {
            Step::Close => "close",
            Step::Ask => "ask",
            Step::Recover => "recover",
            Step::Wait(_) => "wait",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn minions_given_up_end_the_wait_after_the_timeout() {
        let begun = Instant::now();
        let patience = begun + SILENCE / 2;
        let mut verdicts = Verdicts::new(begun);
        let awaited = ids(&["a", "b"]);
        assert_eq!(step(&verdicts, 2, patience), "wait");
        let said =
            |word: &str| Value::map([("verdict", Value::from(word)), ("reason", "x".into())]);
        let lost = Value::map([("a", said("unreachable")), ("b", said("unknown"))]);
        let event = Value::map([("minions", lost)]);
        verdicts.take("/verdict", &event, &awaited);
        assert_eq!(step(&verdicts, 2, patience), "wait");
        assert_eq!(step(&verdicts, 2, begun), "close");
        assert!(verdicts.absence("a").is_some_and(|it| !it.is_connected));
        assert!(verdicts.absence("b").is_some_and(|it| it.is_connected));
        let back = Value::map([("minions", Value::map([("b", said("back"))]))]);
        verdicts.take("/verdict", &back, &awaited);
        assert_eq!(step(&verdicts, 2, begun), "wait");
    }

    #[tokio::test(start_paused = true)]
    async fn finished_job_ends_the_wait_and_lost_events_ask_the_master() {
        let begun = Instant::now();
        let mut verdicts = Verdicts::new(begun);
        verdicts.doubt();
        assert_eq!(step(&verdicts, 1, begun), "recover");
        assert_eq!(step(&verdicts, 0, begun), "close");
        let mut verdicts = Verdicts::new(begun);
        tokio::time::advance(SILENCE).await;
        assert_eq!(step(&verdicts, 1, begun), "recover");
        let mut ended = Verdicts::new(begun);
        let event = Value::map([("unknown", Value::map([("a", "no answer")]))]);
        ended.take("/finished", &event, &ids(&["a"]));
        assert_eq!(step(&ended, 1, begun), "close");
        assert_eq!(
            ended.absence("a").map(|it| it.reason).as_deref(),
            Some("no answer")
        );
        verdicts.heard();
        assert_eq!(step(&verdicts, 1, begun), "wait");
    }
}
