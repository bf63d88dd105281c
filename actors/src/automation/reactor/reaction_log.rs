//! Log of the reactor for people: events by rule, reactions by file, and the latest ones that ended. It
//! lasts over a restart in a file of its own, but for the last seconds before a crash; failures also
//! last as dead letters.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

use parking_lot::Mutex;
use saltern_config::MasterConfig;
use saltern_model::Jid;
use saltern_model::query::{ReactionRow, ReactorFile};
use saltern_store::{HistoryFile, SavedHistory};
use serde::{Deserialize, Serialize};

use super::watch::Subject;

/// Name of the file.
const FILE: &str = "reactor_history";

/// Latest reactions that are kept.
const MAX_LATEST: usize = 100;

/// Files, and rules, that are counted.
const MAX_COUNTED: usize = 10_000;

/// Those that are taken over from an earlier process, the newest ones: the rest is room for new
/// names.
const MAX_RESTORED: usize = MAX_COUNTED / 2;

/// Characters of a reason.
const MAX_REASON: usize = 500;

/// The log.
pub(super) struct ReactionLog {
    entries: Mutex<Entries>,
    file: HistoryFile,
}

#[derive(Default)]
struct Entries {
    /// Events that matched, and the time of the last, by the tags of the rule.
    rules: HashMap<String, (u64, i64)>,
    files: BTreeMap<String, ReactorFile>,
    /// Newest first.
    latest: VecDeque<ReactionRow>,
    /// Counts the changes of all these.
    changes: u64,
}

/// Content of the file, each list with the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedLog {
    rules: Vec<SavedRule>,
    files: Vec<ReactorFile>,
    latest: Vec<ReactionRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedRule {
    tags: String,
    events: u64,
    last: i64,
}

impl SavedHistory for SavedLog {
    fn shorten(&mut self) -> bool {
        self.rules.truncate(self.rules.len() / 2);
        self.files.truncate(self.files.len() / 2);
        self.latest.truncate(self.latest.len() / 2);
        !(self.rules.is_empty() && self.files.is_empty() && self.latest.is_empty())
    }
}

impl ReactionLog {
    /// The log of a master, with what an earlier process wrote of it.
    pub(super) fn open(config: &MasterConfig) -> Self {
        let file = HistoryFile::new(config, FILE);
        let saved: SavedLog = file.read().unwrap_or_default();
        Self {
            entries: Mutex::new(Entries::of(saved)),
            file,
        }
    }

    /// Counts an event for each rule that it matched.
    pub(super) fn matched(&self, rules: Vec<String>, now: i64) {
        let mut entries = self.entries.lock();
        for rule in rules {
            if entries.rules.len() >= MAX_COUNTED && !entries.rules.contains_key(&rule) {
                continue;
            }
            let (events, last) = entries.rules.entry(rule).or_default();
            *events += 1;
            *last = now;
            entries.changes += 1;
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
        let mut entries = self.entries.lock();
        if let Some(sls) = &row.sls {
            entries.count(sls, outcome, now);
        }
        entries.latest.push_front(row);
        entries.latest.truncate(MAX_LATEST);
        entries.changes += 1;
    }

    /// Events that matched a rule, and the time of the last.
    pub(super) fn of_rule(&self, tags: &str) -> Option<(u64, i64)> {
        self.entries.lock().rules.get(tags).copied()
    }

    /// The files with their counts, and the latest reactions, newest first.
    pub(super) fn report(&self) -> (Vec<ReactorFile>, Vec<ReactionRow>) {
        let entries = self.entries.lock();
        let files = entries.files.values().cloned().collect();
        (files, entries.latest.iter().cloned().collect())
    }

    /// Whether something has not been written.
    pub(super) fn has_news(&self) -> bool {
        self.file.lacks(self.entries.lock().changes)
    }

    /// Writes the file. Blocks.
    pub(super) fn save(&self) {
        self.file.save(|| self.entries.lock().snapshot());
    }
}

impl Entries {
    fn of(saved: SavedLog) -> Self {
        let rules = saved.rules.into_iter().take(MAX_RESTORED);
        let files = saved.files.into_iter().take(MAX_RESTORED);
        Self {
            rules: rules
                .map(|rule| (rule.tags, (rule.events, rule.last)))
                .collect(),
            files: files.map(|file| (file.sls.clone(), file)).collect(),
            latest: saved.latest.into_iter().take(MAX_LATEST).collect(),
            changes: 0,
        }
    }

    /// The content of the file, and the number of the last change in it.
    fn snapshot(&self) -> (SavedLog, u64) {
        let rules = self.rules.iter();
        let mut rules: Vec<SavedRule> = rules
            .map(|(tags, (events, last))| SavedRule {
                tags: tags.clone(),
                events: *events,
                last: *last,
            })
            .collect();
        rules.sort_by_key(|rule| Reverse(rule.last));
        let mut files: Vec<ReactorFile> = self.files.values().cloned().collect();
        files.sort_by_key(|file| Reverse(file.last));
        let saved = SavedLog {
            rules,
            files,
            latest: self.latest.iter().cloned().collect(),
        };
        (saved, self.changes)
    }

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
