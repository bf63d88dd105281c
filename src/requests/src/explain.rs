//! Account of a job: its state, who returned, and who did not and why. Made of the job database and,
//! while the job is open, of what the tracker says; by the master and by tools beside it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use saltern_model::control::{Account, Missing};
use saltern_model::query::{JobReport, ReturnedMinion};
use saltern_model::{Jid, MinionId};
use saltern_store::StoreError;
use saltern_store::jobs::{JobNotes, JobState, LostReason, ReturnHead, StoredJob};

use crate::Services;
use crate::syndics::{absence_below, minions_moved};

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
    /// Why minions below syndics receive nothing at this moment, as their inventories have it; beside what is
    /// stored with a job that has ended.
    pub absent: HashMap<MinionId, Arc<str>>,
}

/// The minions that have not returned a job that has ended, with what this master knows of those below syndics
/// at this moment; `None` where there is no such job, or it is open.
///
/// # Errors
/// The job database cannot be read.
pub fn missing_of_ended(
    jid: &Jid,
    services: &Services,
) -> Result<Option<Vec<Missing>>, StoreError> {
    let reader = &services.jobs.reader;
    let job = reader.load(jid)?;
    let Some(job) = job.filter(|job| job.state != JobState::Open) else {
        return Ok(None);
    };
    let returns = reader.return_heads(jid)?;
    let evidence = with_syndics(job, (returns, None), Standing::Over, services);
    Ok(Some(evidence.missing()))
}

/// Evidence about a job with its returns, and since when its batch pauses, where inventories of syndics are known.
pub(crate) fn with_syndics(
    job: StoredJob,
    (returns, paused_since): (Vec<ReturnHead>, Option<i64>),
    standing: Standing,
    services: &Services,
) -> Evidence {
    let outdated = outdated_verdicts(&job, |minions, syndic| {
        minions_moved(minions, syndic, services)
    });
    let mut absent = HashMap::new();
    if job.state.is_incomplete_end() {
        let returned: HashSet<_> = returns.iter().map(|one| &one.minion).collect();
        let minions = job.record.minions.iter();
        let missing = minions.filter(|minion| !returned.contains(minion));
        absent.extend(missing.filter_map(|minion| {
            let why = absence_below(minion, services)??;
            Some((minion.clone(), why))
        }));
    }
    Evidence {
        job,
        returns,
        paused_since,
        standing,
        outdated,
        absent,
    }
}

/// The minions of a stored job that are not below the syndic any more which has said something of them, as `moved`
/// has it of some minions and a syndic.
fn outdated_verdicts(
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
    /// Nothing: the job is over.
    Over,
    /// Of a job that is over, the running master: who is missing, and why.
    Ended(Vec<Missing>),
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
                Standing::Over | Standing::Ended(_) => None,
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
        match &self.standing {
            Standing::Open(account) => return account.missing.clone(),
            Standing::Ended(missing) => return missing.clone(),
            Standing::Over | Standing::Stopped | Standing::Unknown => {}
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
            .map(|minion| {
                let mut one = lost.remove(minion).unwrap_or_else(|| unheard(minion));
                let now = self.absent.get(minion);
                if let Some(now) = now.filter(|now| !one.why.contains(&***now)) {
                    one.why = format!("{}; at this moment it is {now}", one.why);
                }
                one
            })
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
