//! Jobs that minions had returned before a master above had them published here, until the outbox of that master went
//! back for their returns.
//!
//! The list is on the disk before the job is published where a report of it is there by then, so that a process that is
//! killed in between goes back after its next start. At the start a job whose publication never came is left out.
//!
//! Not here: which jobs these are, and how far an outbox goes back ([`JobFollower::go_back_to`](crate::JobFollower::go_back_to)).

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use saltern_config::MasterConfig;
use saltern_model::Jid;

use crate::error::Result;
use crate::files::{self, Create};
use crate::jobs::JobQueries;
use crate::options::StoreOptions;

/// First line of the file; a change of the format changes it.
const HEADING: &str = "saltern-early-jobs-1";

/// Jobs that are kept for one master above.
const MAX_JOBS: usize = 1000;

/// Longest file that is read, in bytes: a jid has some 20.
const MAX_FILE: usize = 64 * MAX_JOBS;

/// The early jobs of one master above.
pub struct EarlyJobs {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Jobs that are being published.
    begun: BTreeSet<Jid>,
    /// Jobs that are published, for the next attempt of the outbox.
    due: BTreeSet<Jid>,
    /// Jobs in the file.
    saved: BTreeSet<Jid>,
}

impl State {
    fn has_room_for(&self, jid: &Jid) -> bool {
        let is_known = self.due.contains(jid) || self.begun.contains(jid);
        is_known || self.due.len() + self.begun.len() < MAX_JOBS
    }

    /// Writes the file, if other jobs have to be in it than are.
    fn save(&mut self, path: &Path) -> Result<()> {
        let all: BTreeSet<Jid> = self.begun.union(&self.due).cloned().collect();
        if all == self.saved {
            return Ok(());
        }
        let mut text = format!("{HEADING}\n");
        for jid in &all {
            text.push_str(jid.as_str());
            text.push('\n');
        }
        files::write_atomic(path, text.as_bytes(), Create::PRIVATE)?;
        self.saved = all;
        Ok(())
    }
}

impl EarlyJobs {
    /// Reads what an earlier process has left. `purpose` is that of the outbox's follower.
    ///
    /// # Errors
    /// The file or the database cannot be read.
    pub fn open(config: &MasterConfig, purpose: &str, reader: &dyn JobQueries) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config), purpose, reader)
    }

    /// The same with this crate's options.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with_options(
        options: &StoreOptions,
        purpose: &str,
        reader: &dyn JobQueries,
    ) -> Result<Self> {
        let path = options.private_dir().join(format!("{purpose}_early"));
        let text = files::read_replaceable(&path, MAX_FILE)?.unwrap_or_default();
        let listed = text.strip_prefix(HEADING).unwrap_or_default();
        let listed = listed.split_whitespace().take(MAX_JOBS);
        let saved: BTreeSet<Jid> = listed.filter_map(|jid| Jid::parse(jid).ok()).collect();
        let mut due = BTreeSet::new();
        for jid in &saved {
            if reader.has_early_returns(jid)? {
                due.insert(jid.clone());
            }
        }
        let state = State {
            begun: BTreeSet::new(),
            due,
            saved,
        };
        Ok(Self {
            path,
            state: Mutex::new(state),
        })
    }

    /// A job that minions have returned is about to be published. Where too many of them wait, it is left out.
    ///
    /// # Errors
    /// The file cannot be written: a process that is killed before [`Self::went_back`] forgets the job.
    pub fn begin(&self, jid: &Jid) -> Result<()> {
        let mut state = self.state.lock();
        if !state.has_room_for(jid) {
            return Ok(());
        }
        state.begun.insert(jid.clone());
        state.save(&self.path)
    }

    /// The publication of a job is over, which minions had returned before or, if not `is_early`, had not. `false` where
    /// too many of them wait: nothing goes back for this one.
    ///
    /// # Errors
    /// The file cannot be written: a process that is killed before [`Self::went_back`] forgets the job.
    pub fn end(&self, jid: &Jid, is_early: bool) -> Result<bool> {
        let mut state = self.state.lock();
        let has_room = state.has_room_for(jid);
        state.begun.remove(jid);
        if is_early && has_room {
            state.due.insert(jid.clone());
        }
        state.save(&self.path)?;
        Ok(has_room)
    }

    /// Ends all publications that were begun: the actor that would have seen them end is gone. The outbox goes back for
    /// them. Returns of one that was not published are passed once more.
    pub fn end_all(&self) {
        let mut state = self.state.lock();
        let begun = std::mem::take(&mut state.begun);
        state.due.extend(begun);
    }

    /// Whether an outbox has to go back.
    pub fn are_due(&self) -> bool {
        !self.state.lock().due.is_empty()
    }

    /// The jobs for which the outbox has to go back, until it [went back](Self::went_back) for them.
    pub fn due(&self) -> HashSet<Jid> {
        self.state.lock().due.iter().cloned().collect()
    }

    /// The outbox went back for these jobs as far as it could, and has saved its cursor.
    ///
    /// # Errors
    /// The file cannot be written: after the next start it goes back once more.
    pub fn went_back(&self, jids: &HashSet<Jid>) -> Result<()> {
        let mut state = self.state.lock();
        state.due.retain(|jid| !jids.contains(jid));
        state.save(&self.path)
    }
}
