//! The last highstate of each minion, in a few words: verdict, the states that make it, counts.
//!
//! A follower of the job database: it reads returns of `state.apply` and `state.highstate` once, in
//! order, beside all requests, and keeps a summary by minion. So a page about thousands of minions reads
//! no return, and retention of jobs takes no verdict away. Summaries and cursor are saved together in
//! one file; after a crash the returns since then are read again.
//!
//! Not here: when it reads on (maintenance, and each query for as long as it may).

mod verdict;

use std::collections::HashMap;
use std::path::PathBuf;

use parking_lot::{Mutex, RwLock};
use saltern_model::query::{
    HighstateCounts, HighstateGroup, HighstateGroups, HighstateRow, HighstateRun, HighstatesPage,
};
use saltern_model::{Jid, MinionId, ReturnRecord};
use saltern_store::files::{self, Create};
use saltern_store::{JobQueries, StoreError, StoreOptions};
use saltern_wire::msgpack::{Limits, decode_wire};
use serde::{Deserialize, Serialize};

pub use verdict::StateOutcome;

use verdict::{FUNCTIONS, Highstate, NameSet, Names, Verdict};

/// Version of the file; another one is not read.
const VERSION: u32 = 1;

/// The largest file that is read, in bytes.
const MAX_FILE: usize = 256 << 20;

/// Minions that a group names.
const SAMPLE: usize = 20;

/// Groups of one answer.
const MAX_GROUPS: usize = 100;

/// The word for a minion without a summary.
const UNKNOWN: &str = "unknown";

/// Summaries of all minions.
pub struct Highstates {
    path: PathBuf,
    /// Held by the one who reads on.
    progress: Mutex<Progress>,
    known: RwLock<Known>,
}

/// How far the database was read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Progress {
    /// The database that the cursor belongs to.
    identity: String,
    cursor: i64,
    /// Whether something has changed since it was saved.
    #[serde(skip)]
    is_changed: bool,
}

/// The summaries. Equal lists of names are kept once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    lists: HashMap<String, Names>,
    minions: HashMap<MinionId, Summary>,
}

/// The last highstate of a minion.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Summary {
    jid: Jid,
    received: i64,
    verdict: Verdict,
    is_test: bool,
    succeeded: usize,
    changed: usize,
    would_change: usize,
    failed: usize,
    /// Key of the list of the states that make the verdict.
    states: String,
    /// Key of the list of SLS files.
    files: String,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct Saved<P, K> {
    version: u32,
    progress: P,
    known: K,
}

impl Summary {
    fn group(&self) -> String {
        format!("{}-{}", self.verdict.as_str(), self.states)
    }
}

/// Which rows of a page are wanted.
pub(crate) struct Wanted<'a> {
    pub(crate) verdict: Option<&'a str>,
    pub(crate) group: Option<&'a str>,
    pub(crate) after: Option<&'a str>,
    pub(crate) limit: usize,
}

impl Highstates {
    /// The words for verdicts.
    pub(crate) fn verdicts() -> Vec<(&'static str, &'static str)> {
        let known = Verdict::ALL.map(Verdict::as_str).into_iter();
        known.chain([UNKNOWN]).map(|word| (word, word)).collect()
    }

    /// The summaries that an earlier process saved, if it did.
    pub(crate) fn open(options: &StoreOptions) -> Self {
        Self::open_at(options.private_dir().join("highstates.json"))
    }

    fn open_at(path: PathBuf) -> Self {
        let saved = files::read(&path, MAX_FILE).unwrap_or_else(|error| {
            tracing::warn!(%error, "the last highstates cannot be read: they are learnt anew");
            None
        });
        let saved = saved.and_then(|bytes| {
            let saved: Saved<Progress, Known> = serde_json::from_slice(&bytes)
                .inspect_err(|error| tracing::warn!(%error, "the last highstates are learnt anew"))
                .ok()?;
            (saved.version == VERSION).then_some((saved.progress, saved.known))
        });
        let (progress, known) = saved.unwrap_or_default();
        Self {
            path,
            progress: Mutex::new(progress),
            known: RwLock::new(known),
        }
    }

    /// Reads on in at most so many steps, each of at most 5,000 rows or 50 returns; gives how many rows
    /// are left. Nothing when somebody else is reading.
    pub fn catch_up(
        &self,
        reader: &dyn JobQueries,
        steps: usize,
    ) -> Result<Option<u64>, StoreError> {
        let Some(mut progress) = self.progress.try_lock() else {
            return Ok(None);
        };
        let identity = reader.identity()?;
        if progress.identity != identity {
            // Summaries stay: an older return replaces no newer one.
            *progress = Progress {
                identity,
                ..Progress::default()
            };
        }
        let mut left = 0;
        for _ in 0..steps {
            let step = reader.returns_of(&FUNCTIONS, progress.cursor)?;
            for row in &step.returns {
                self.take(&row.record);
            }
            progress.is_changed |= step.through > progress.cursor;
            progress.cursor = step.through.max(progress.cursor);
            left = u64::try_from(step.last - progress.cursor).unwrap_or_default();
            if left == 0 {
                break;
            }
        }
        Ok(Some(left))
    }

    /// Takes a return into account.
    fn take(&self, record: &ReturnRecord) {
        let Ok(load) = decode_wire(record.load.as_ref(), &Limits::WIRE) else {
            tracing::debug!(jid = %record.jid, minion = %record.minion, "a return cannot be decoded");
            return;
        };
        if let Some(highstate) = Highstate::of(&record.fun, &load) {
            self.known.write().put(record, highstate);
        }
    }

    /// Saves what has changed, without minions that are not among these.
    pub fn save(&self, accepted: &[MinionId]) -> Result<(), StoreError> {
        let mut progress = self.progress.lock();
        if !progress.is_changed {
            return Ok(());
        }
        self.known.write().retain(accepted);
        let saved = {
            let known = self.known.read();
            serde_json::to_vec(&Saved {
                version: VERSION,
                progress: &*progress,
                known: &*known,
            })
        };
        if let Some(dir) = self.path.parent() {
            files::ensure_dir(dir, 0o700)?;
        }
        match saved {
            Ok(saved) => files::write_atomic(&self.path, &saved, Create::PRIVATE.derived())?,
            Err(error) => tracing::error!(%error, "the last highstates cannot be written"),
        }
        progress.is_changed = false;
        Ok(())
    }

    /// The minions by their verdicts.
    pub(crate) fn groups(&self, accepted: &[MinionId], behind: u64) -> HighstateGroups {
        let known = self.known.read();
        let mut counts = HighstateCounts::default();
        let mut groups: HashMap<String, HighstateGroup> = HashMap::new();
        for minion in accepted {
            let Some(summary) = known.minions.get(minion) else {
                counts.unknown += 1;
                continue;
            };
            match summary.verdict {
                Verdict::InLine => counts.in_line += 1,
                Verdict::Corrected => counts.corrected += 1,
                Verdict::Drifted => counts.drifted += 1,
                Verdict::Failed => counts.failed += 1,
            }
            if summary.verdict != Verdict::InLine {
                let group = groups.entry(summary.group());
                let group = group.or_insert_with(|| known.group(summary));
                group.total += 1;
                group.oldest = group.oldest.min(summary.received);
                group.newest = group.newest.max(summary.received);
                if group.minions.len() < SAMPLE {
                    group.minions.push(minion.clone());
                }
            }
        }
        let mut groups: Vec<HighstateGroup> = groups.into_values().collect();
        let rank = |group: &HighstateGroup| {
            let mut verdicts = Verdict::ALL.iter();
            let rank = verdicts.position(|of| of.as_str() == group.verdict);
            (rank, usize::MAX - group.total, group.group.clone())
        };
        groups.sort_by_cached_key(rank);
        let more = groups.len().saturating_sub(MAX_GROUPS);
        groups.truncate(MAX_GROUPS);
        HighstateGroups {
            counts,
            groups,
            more,
            behind,
        }
    }

    /// Some minions with their last highstates. `accepted` is sorted.
    pub(crate) fn page(&self, accepted: &[MinionId], wanted: &Wanted<'_>) -> HighstatesPage {
        let known = self.known.read();
        let is_wanted = |minion: &&MinionId| {
            let summary = known.minions.get(*minion);
            let verdict = summary.map_or(UNKNOWN, |summary| summary.verdict.as_str());
            wanted.verdict.is_none_or(|wanted| wanted == verdict)
                && wanted
                    .group
                    .is_none_or(|wanted| summary.is_some_and(|summary| summary.group() == wanted))
        };
        let matching: Vec<&MinionId> = accepted.iter().filter(is_wanted).collect();
        let start = wanted.after.map_or(0, |after| {
            matching.partition_point(|minion| minion.as_str() <= after)
        });
        let rest = matching.get(start..).unwrap_or_default();
        let shown = rest.get(..wanted.limit).unwrap_or(rest);
        let rows: Vec<HighstateRow> = shown.iter().map(|minion| known.row(minion)).collect();
        let last = rows.last().map(|row| row.minion.to_string());
        HighstatesPage {
            total: matching.len(),
            next: last.filter(|_| rest.len() > rows.len()),
            rows,
        }
    }
}

impl Known {
    fn put(&mut self, record: &ReturnRecord, highstate: Highstate) {
        let known = self.minions.get(&record.minion);
        if known.is_some_and(|known| known.received > record.received) {
            return;
        }
        let mut key = |set: NameSet| {
            let NameSet { digest, kept } = set;
            self.lists.entry(digest.clone()).or_insert(kept);
            digest
        };
        let summary = Summary {
            jid: record.jid.clone(),
            received: record.received,
            verdict: highstate.verdict,
            is_test: highstate.is_test,
            succeeded: highstate.succeeded,
            changed: highstate.changed,
            would_change: highstate.would_change,
            failed: highstate.failed,
            states: key(highstate.states),
            files: key(highstate.files),
        };
        self.minions.insert(record.minion.clone(), summary);
    }

    /// Forgets other minions than these, and lists that none of these has.
    fn retain(&mut self, accepted: &[MinionId]) {
        self.minions
            .retain(|minion, _| accepted.binary_search(minion).is_ok());
        let used: std::collections::HashSet<&String> = self
            .minions
            .values()
            .flat_map(|summary| [&summary.states, &summary.files])
            .collect();
        self.lists.retain(|key, _| used.contains(key));
    }

    fn list(&self, key: &str) -> Names {
        self.lists.get(key).cloned().unwrap_or_default()
    }

    /// The group of a summary, without minions.
    fn group(&self, summary: &Summary) -> HighstateGroup {
        let Names { names, more } = self.list(&summary.states);
        HighstateGroup {
            group: summary.group(),
            verdict: summary.verdict.as_str().to_owned(),
            states: names,
            more,
            total: 0,
            minions: Vec::new(),
            oldest: summary.received,
            newest: summary.received,
        }
    }

    fn row(&self, minion: &MinionId) -> HighstateRow {
        let summary = self.minions.get(minion);
        let run = summary.map(|summary| {
            let Names { names, more } = self.list(&summary.states);
            HighstateRun {
                jid: summary.jid.clone(),
                received: summary.received,
                is_test: summary.is_test,
                group: summary.group(),
                succeeded: summary.succeeded,
                changed: summary.changed,
                would_change: summary.would_change,
                failed: summary.failed,
                states: names,
                more,
                files: self.list(&summary.files).names,
            }
        });
        HighstateRow {
            minion: minion.clone(),
            verdict: summary
                .map_or(UNKNOWN, |summary| summary.verdict.as_str())
                .to_owned(),
            run,
        }
    }
}

#[cfg(test)]
mod tests;
