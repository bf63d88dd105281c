//! Notes on a job ([`JobNotes`]): made of its state, and the state restored from them.

use saltern_store::jobs::JobNotes;

use super::job::{Job, MinionState};

/// The notes of this job.
pub(super) fn notes_of(job: &Job) -> JobNotes {
    let mut notes = JobNotes::default();
    if job.counts().returned() == job.counts().total() {
        return notes;
    }
    for (minion, entry) in job.missing() {
        if let Some(reason) = entry.state().reason() {
            notes.lost.push((minion.clone(), reason.clone()));
        }
        if entry.was_signalled {
            notes.signalled.push(minion.clone());
        }
        if let Some(said) = &entry.below {
            notes.below.push((minion.clone(), (**said).clone()));
        }
    }
    notes
}

/// Restores the states of a job's minions.
pub(super) fn restore(notes: JobNotes, job: &mut Job) {
    for (minion, reason) in notes.lost {
        job.put(&minion, MinionState::lost(reason));
    }
    for minion in notes.signalled {
        if let Some(entry) = job.entry_mut(&minion) {
            entry.was_signalled = true;
        }
    }
    for (minion, said) in notes.below {
        if let Some(entry) = job
            .entry_mut(&minion)
            .filter(|it| !it.state().has_returned())
        {
            entry.below = Some(Box::new(said));
        }
    }
}
