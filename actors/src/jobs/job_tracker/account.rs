//! State of an open job's missing minions in words, for those who explain it. What is known of any
//! other job stands in its notes (`saltern_runners::explain`).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use saltern_model::MinionId;

use super::job::{Entry, Job, MinionState};
use super::machine::JobEnvironment;
use super::moment::Moment;
use saltern_model::control::{Account, Missing};

/// The account of this job, without what syndics say of these minions.
pub(super) fn account_of(job: &Job, now: Moment, outdated: &HashSet<MinionId>) -> Account {
    Account {
        rounds: job.rounds,
        next_look: job.look_at.map(|at| at.since(now)),
        missing: missing(job, now, outdated),
    }
}

/// The minions that are not below the syndic any more which has said something of them.
pub(super) fn outdated_verdicts(job: &Job, world: &dyn JobEnvironment) -> HashSet<MinionId> {
    let mut of: HashMap<&MinionId, Vec<MinionId>> = HashMap::new();
    for (minion, entry) in job.missing() {
        if let Some(said) = &entry.below {
            of.entry(&said.syndic).or_default().push(minion.clone());
        }
    }
    let moved = of.into_iter();
    let moved = moved.flat_map(|(syndic, minions)| world.moved(syndic, minions));
    moved.collect()
}

fn missing(job: &Job, now: Moment, outdated: &HashSet<MinionId>) -> Vec<Missing> {
    let has_left = job.left.is_some();
    let of = |(minion, entry): (&MinionId, &Entry)| Missing {
        minion: minion.clone(),
        state: entry.state().name(has_left).to_owned(),
        why: match &entry.below {
            Some(said) if !outdated.contains(minion) => said.beside(&why(entry, has_left, now)),
            _ => why(entry, has_left, now),
        },
    };
    job.missing().map(of).collect()
}

fn why(entry: &Entry, has_left: bool, now: Moment) -> String {
    let asked = entry
        .asked_since
        .map(|since| format!("; it was asked {} ago", shown(now.since(since))))
        .unwrap_or_default();
    let said = entry
        .said
        .as_ref()
        .map(|said| format!("said {} ago that", shown(now.since(said.at))));
    match (entry.state(), said) {
        (MinionState::Unreachable(reason) | MinionState::Unknown(reason), _) => {
            reason.text().to_owned()
        }
        (MinionState::Running, Some(said)) => format!("it {said} it runs the job{asked}"),
        (MinionState::Ending { .. }, Some(said)) => {
            format!("it {said} it does not run the job; its return may be on its way")
        }
        _ if has_left => format!("the job was sent; nothing was heard of it yet{asked}"),
        _ => "the job is on its way to the publish port".to_owned(),
    }
}

fn shown(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use saltern_model::MinionId;

    use super::*;
    use crate::jobs::job_tracker::job::Reason;

    fn id(name: &str) -> MinionId {
        MinionId::parse(name).unwrap()
    }

    #[test]
    fn account_lists_missing_minions_with_their_states() {
        let at = |seconds| Moment::at(Duration::from_secs(seconds));
        let mut job = Job::new("test.ping".into(), 0, at(0));
        job.expect(["away", "back", "new", "runs"].map(id).to_vec());
        job.put(&id("back"), MinionState::Returned { retcode: 0 });
        let away = Reason::NotConnected(Arc::from("no\tconnection"));
        job.put(&id("away"), MinionState::lost(away));
        job.left = Some(at(1));
        job.rounds = 2;
        job.look_at = Some(at(9));
        let account = account_of(&job, at(5), &HashSet::new());
        let states: Vec<_> = account
            .missing
            .iter()
            .map(|one| (one.minion.as_str(), one.state.as_str()))
            .collect();
        let expected = [
            ("away", "unreachable"),
            ("new", "delivered"),
            ("runs", "delivered"),
        ];
        assert_eq!(states, expected);
        assert_eq!(account.next_look, Some(Duration::from_secs(4)));
    }
}
