//! Account of a job: its state, who returned, and who did not and why. Made of the job database and,
//! while the job is open, of what the tracker says; by the master and by tools beside it.

use std::collections::{BTreeMap, HashMap, HashSet};

use saltern_model::MinionId;
use saltern_model::control::{Account, Missing};
use saltern_model::query::{JobReport, ReturnedMinion};
use saltern_store::jobs::{JobNotes, JobState, LostReason, ReturnHead, StoredJob};

/// Evidence about a job.
pub struct Evidence {
    /// The job.
    pub job: StoredJob,
    /// Its returns, in the order of their arrival.
    pub returns: Vec<ReturnHead>,
    /// Since when its batch pauses, in microseconds since 1970.
    pub paused_since: Option<i64>,
    /// Source of the live state.
    pub standing: Standing,
    /// The verdicts of syndics on minions that are not below these any more, which are left out.
    pub outdated: HashSet<MinionId>,
}

/// The minions of a stored job that are not below the syndic any more which has said something of them, as `moved`
/// has it of some minions and a syndic.
pub fn outdated_verdicts(
    job: &StoredJob,
    moved: impl Fn(Vec<MinionId>, &MinionId) -> Vec<MinionId>,
) -> HashSet<MinionId> {
    let mut of: BTreeMap<MinionId, Vec<MinionId>> = BTreeMap::new();
    for (minion, said) in notes(job).below {
        of.entry(said.syndic).or_default().push(minion);
    }
    let moved = of.into_iter().flat_map(|(syndic, of)| moved(of, &syndic));
    moved.collect()
}

fn notes(job: &StoredJob) -> JobNotes {
    match job.notes.as_deref().unwrap_or_default() {
        [] => JobNotes::default(),
        notes => JobNotes::unpack(notes),
    }
}

/// Source of the live state, beside the stored one.
pub enum Standing {
    /// Nothing, and nothing is missing.
    Over,
    /// The job is open, and no master runs that could say more.
    Stopped,
    /// The job has just ended, or its beginning is just being stored.
    Unknown,
    /// The tracker's account.
    Open(Account),
}

/// A job's state in one word.
pub fn state_word(state: JobState) -> &'static str {
    match state {
        JobState::Open => "open",
        JobState::Complete => "complete",
        JobState::Expired => "expired",
        JobState::Killed => "killed",
    }
}

impl Evidence {
    /// The account.
    pub fn report(&self) -> JobReport {
        let record = &self.job.record;
        let returned = self.returns.iter().map(|one| ReturnedMinion {
            minion: one.minion.clone(),
            received: one.received,
            retcode: one.retcode,
        });
        JobReport {
            created: record.created,
            expected: record.minions.len().max(self.returns.len()),
            finished: self.job.finished,
            function: record.fun.clone(),
            is_master_running: match self.standing {
                Standing::Over => None,
                Standing::Stopped => Some(false),
                Standing::Unknown | Standing::Open(_) => Some(true),
            },
            jid: record.jid.clone(),
            missing: self.missing(),
            paused_since: self.paused_since,
            published: self.job.published,
            publisher: self.job.publisher.clone(),
            returned: returned.collect(),
            state: state_word(self.job.state).to_owned(),
            target: record.tgt.clone(),
            target_type: record.tgt_type.clone(),
            user: record.user.clone(),
        }
    }

    /// Missing minions: from the running master, or from the notes stored with the job.
    pub fn missing(&self) -> Vec<Missing> {
        if let Standing::Open(account) = &self.standing {
            return account.missing.clone();
        }
        let notes = notes(&self.job);
        let lost = notes.lost.into_iter().map(given_up);
        let mut lost: HashMap<MinionId, Missing> =
            lost.map(|one| (one.minion.clone(), one)).collect();
        let below = notes.below.into_iter();
        for (minion, said) in below.filter(|(minion, _)| !self.outdated.contains(minion)) {
            match lost.get_mut(&minion) {
                Some(one) => one.why = said.beside(&one.why),
                None => {
                    let why = said.text.to_string();
                    let one = Missing {
                        why,
                        ..unheard(&minion)
                    };
                    lost.insert(minion, one);
                }
            }
        }
        let returned: HashSet<_> = self.returns.iter().map(|one| &one.minion).collect();
        let minions = self.job.record.minions.iter();
        minions
            .filter(|id| !returned.contains(id))
            .map(|minion| lost.remove(minion).unwrap_or_else(|| unheard(minion)))
            .collect()
    }
}

/// A minion that was given up, from the notes of its job.
fn given_up((minion, reason): (MinionId, LostReason)) -> Missing {
    Missing {
        minion,
        state: reason.state().to_owned(),
        why: reason.text().to_owned(),
    }
}

fn unheard(minion: &MinionId) -> Missing {
    Missing {
        minion: minion.clone(),
        state: "expected".to_owned(),
        why: "nothing is written down of it".to_owned(),
    }
}
