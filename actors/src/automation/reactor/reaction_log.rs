//! Log of the reactor for people: events by rule, reactions by file, and the latest ones that ended.
//! In memory, since the master started; failures last as dead letters.

use std::collections::{BTreeMap, HashMap, VecDeque};

use parking_lot::Mutex;
use saltern_model::Jid;
use saltern_model::query::{ReactionRow, ReactorFile};

use super::watch::Subject;

/// Latest reactions that are kept.
const MAX_LATEST: usize = 100;

/// Files, and rules, that are counted.
const MAX_COUNTED: usize = 10_000;

/// Characters of a reason.
const MAX_REASON: usize = 500;

#[derive(Default)]
pub(super) struct ReactionLog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// Events that matched, and the time of the last, by the tags of the rule.
    rules: HashMap<String, (u64, i64)>,
    files: BTreeMap<String, ReactorFile>,
    /// Newest first.
    latest: VecDeque<ReactionRow>,
}

impl ReactionLog {
    /// Counts an event for each rule that it matched.
    pub(super) fn matched(&self, rules: Vec<String>, now: i64) {
        let mut entries = self.0.lock();
        for rule in rules {
            if entries.rules.len() >= MAX_COUNTED && !entries.rules.contains_key(&rule) {
                continue;
            }
            let (events, last) = entries.rules.entry(rule).or_default();
            *events += 1;
            *last = now;
        }
    }

    /// Records the end of a reaction, or the failure of a whole file or event.
    pub(super) fn ended(
        &self,
        subject: &Subject,
        jid: Option<Jid>,
        (outcome, reason): (&str, Option<&str>),
        now: i64,
    ) {
        let row = ReactionRow {
            at: now,
            tag: subject.event.tag.as_str().to_owned(),
            sls: subject.sls.clone(),
            id: subject.id.clone(),
            kind: subject.call.as_ref().map(|call| call.kind().to_owned()),
            function: subject.call.as_ref().map(|call| call.fun().to_owned()),
            outcome: outcome.to_owned(),
            reason: reason.map(|reason| reason.chars().take(MAX_REASON).collect()),
            jid,
        };
        let mut entries = self.0.lock();
        if let Some(sls) = &row.sls {
            entries.count(sls, outcome, now);
        }
        entries.latest.push_front(row);
        entries.latest.truncate(MAX_LATEST);
    }

    /// Events that matched a rule, and the time of the last.
    pub(super) fn of_rule(&self, tags: &str) -> Option<(u64, i64)> {
        self.0.lock().rules.get(tags).copied()
    }

    /// The files with their counts, and the latest reactions, newest first.
    pub(super) fn report(&self) -> (Vec<ReactorFile>, Vec<ReactionRow>) {
        let entries = self.0.lock();
        let files = entries.files.values().cloned().collect();
        (files, entries.latest.iter().cloned().collect())
    }
}

impl Entries {
    fn count(&mut self, sls: &str, outcome: &str, now: i64) {
        if self.files.len() >= MAX_COUNTED && !self.files.contains_key(sls) {
            return;
        }
        let file = self.files.entry(sls.to_owned()).or_default();
        sls.clone_into(&mut file.sls);
        match outcome {
            "done" | "nobody" => file.done += 1,
            _ => file.failed += 1,
        }
        file.last = now;
    }
}
