//! Verdicts of syndics on minions below them: evidence for people, which changes no state of a job.

use saltern_requests::SyndicVerdict;
use saltern_store::jobs::JobNotes;

use super::super::machine::{Counted, MAX_TEXTS};
use super::super::moment::Moment;
use super::alone::{Present, at, begin, returned, rules};
use super::*;

/// A verdict of the syndic "low" that came through so many syndics.
fn verdict(minions: Option<&[&str]>, text: Option<&str>, depth: u8) -> JobEvent {
    JobEvent::SaidBelow(SyndicVerdict {
        jid: jid(1),
        syndic: id("low"),
        minions: minions.map(ids),
        text: text.map(Arc::from),
        depth,
    })
}

/// A machine with one job, and the time at which things happen to it.
struct OneJob {
    machine: Machine,
    world: Present,
    now: Moment,
}

impl OneJob {
    fn none() -> Self {
        let rules = Rules {
            most: (2 * MAX_TEXTS, 2 * MAX_TEXTS),
            ..rules()
        };
        Self {
            machine: Machine::new(rules, 1),
            world: Present::default(),
            now: at(0),
        }
    }

    fn of(minions: &[&str]) -> Self {
        let mut one = Self::none();
        one.step(begin(1, minions));
        one.step(JobEvent::Left(jid(1)));
        one
    }

    fn step(&mut self, event: JobEvent) -> Vec<TrackerEffect> {
        self.machine.step(self.now, event, &self.world)
    }

    /// Evidence on the minions that have not returned.
    fn evidence(&self) -> Vec<String> {
        let account = self.machine.account(&jid(1), self.now).unwrap();
        account.missing.into_iter().map(|one| one.why).collect()
    }

    fn explains(&self, minion: usize, text: &str) -> bool {
        let evidence = self.evidence();
        evidence.get(minion).is_some_and(|why| why.contains(text))
    }
}

/// The words with which verdicts were counted.
fn counted(effects: &[TrackerEffect]) -> Vec<&'static str> {
    let words = effects.iter().filter_map(|effect| match effect {
        TrackerEffect::Count(Counted::SaidBelow(word)) => Some(*word),
        _ => None,
    });
    words.collect()
}

/// The events about verdicts of syndics: minions, text and depth.
fn announced(effects: &[TrackerEffect]) -> Vec<(usize, Value, i64)> {
    let news = effects.iter().filter_map(|effect| match effect {
        TrackerEffect::Report(news @ JobNews::Below { .. }) => Some(news.event("")),
        _ => None,
    });
    let read = news.map(|event| {
        assert_eq!(event.tag.as_str(), format!("saltern/job/{}/below", jid(1)));
        let data = decode_exact(event.data.as_ref(), &Limits::WIRE).unwrap();
        let field = |name: &str| data.get(name).cloned().unwrap();
        assert_eq!(field("syndic"), Value::from("low"));
        let minions = field("minions").as_array().unwrap().len();
        (minions, field("says"), field("depth").as_i64().unwrap())
    });
    read.collect()
}

#[test]
fn verdict_is_evidence_until_it_is_withdrawn_or_the_minion_returns() {
    let mut job = OneJob::of(&["a", "b"]);
    let effects = job.step(verdict(Some(&["a", "b", "stranger"]), Some("gone"), 1));
    assert_eq!(announced(&effects), [(2, Value::from("gone"), 1)]);
    assert_eq!(counted(&effects), ["kept"]);
    assert!(job.explains(0, "nothing was heard of it yet; gone"));
    assert!(job.explains(1, "; gone"));
    let again = job.step(verdict(Some(&["a"]), Some("gone"), 1));
    assert!(announced(&again).is_empty(), "it is the same");

    let effects = job.step(verdict(Some(&["a"]), None, 1));
    assert_eq!(announced(&effects), [(1, Value::Nil, 1)]);
    assert!(!job.explains(0, "gone") && job.explains(1, "gone"));

    job.step(returned(1, "b", true));
    let late = job.step(verdict(Some(&["b"]), Some("gone"), 1));
    assert!(announced(&late).is_empty(), "it has returned");
    assert_eq!(job.evidence().len(), 1);
}

#[test]
fn verdict_ends_no_job_and_awaits_no_minion_less() {
    let mut job = OneJob::of(&["a"]);
    job.step(verdict(Some(&["a"]), Some("gone"), 1));
    assert!(job.machine.is_awaited(&jid(1), &id("a")));
    assert_eq!(job.machine.open_count(), 1);
    job.now = at(3);
    let effects = job.step(returned(1, "a", true));
    let is_complete = |effect: &TrackerEffect| {
        matches!(effect, TrackerEffect::Keep { state: JobState::Complete, notes, .. }
            if *notes == JobNotes::default())
    };
    assert!(effects.iter().any(is_complete), "{effects:?}");
}

#[test]
fn verdict_of_the_nearest_master_stays() {
    let mut job = OneJob::of(&["a"]);
    job.step(verdict(Some(&["a"]), Some("of low"), 2));
    job.step(verdict(Some(&["a"]), Some("of middle"), 1));
    job.step(verdict(Some(&["a"]), None, 1));
    assert!(job.explains(0, "of low"));
    job.step(verdict(Some(&["a"]), Some("of low, later"), 2));
    assert!(job.explains(0, "of low, later"));
    job.step(verdict(Some(&["a"]), None, 2));
    job.step(verdict(Some(&["a"]), Some("of middle"), 1));
    assert!(job.explains(0, "of middle"));
    job.step(verdict(Some(&["a"]), Some("of low again"), 2));
    assert!(job.explains(0, "of low again"));
}

#[test]
fn verdict_on_all_is_on_the_missing_minions_below_that_syndic() {
    let mut job = OneJob::of(&["own", "below-1", "below-2"]);
    job.step(returned(1, "below-2", true));
    let effects = job.step(verdict(None, Some("refused"), 1));
    assert_eq!(announced(&effects), [(1, Value::from("refused"), 1)]);
    assert!(!job.explains(0, "refused") && job.explains(1, "refused"));
}

#[test]
fn verdict_is_written_with_the_job_and_there_after_a_restart() {
    let mut job = OneJob::of(&["a", "b"]);
    job.step(verdict(Some(&["a"]), Some("gone"), 1));
    let kept = job.step(JobEvent::KeepAll);
    let notes = kept.into_iter().find_map(|effect| match effect {
        TrackerEffect::Keep { notes, .. } => Some(notes),
        _ => None,
    });
    let notes = JobNotes::unpack(&notes.unwrap().pack());
    let JobEvent::Begun(begun) = begin(1, &["a", "b"]) else {
        panic!("it begins a job")
    };
    let mut later = OneJob::none();
    later.step(JobEvent::Resumed(Resumed {
        job: begun,
        departure: Departure::Left,
        returned: Vec::new(),
        notes,
    }));
    assert!(later.explains(0, "; gone") && !later.explains(1, "gone"));
}

#[test]
fn late_verdict_stands_in_the_notes_of_an_ended_job_and_reopens_nothing() {
    let mut job = OneJob::of(&["a"]);
    job.step(JobEvent::EndOlderThan(2));
    assert_eq!(job.machine.open_count(), 0);
    let effects = job.step(verdict(Some(&["a"]), Some("gone"), 1));
    assert_eq!(counted(&effects), ["kept"]);
    let kept = job.step(JobEvent::KeepAll);
    let [TrackerEffect::Keep { state, notes, .. }] = kept.as_slice() else {
        panic!("{kept:?}")
    };
    assert_eq!((*state, notes.below.len()), (JobState::Expired, 1));
    assert_eq!(job.machine.open_count(), 0);
}

#[test]
fn unknown_job_and_too_many_texts_are_counted() {
    let mut job = OneJob::of(&["a", "b"]);
    let mut of_other = verdict(Some(&["a"]), Some("gone"), 1);
    if let JobEvent::SaidBelow(said) = &mut of_other {
        said.jid = jid(2);
    }
    assert_eq!(counted(&job.step(of_other)), ["no_job"]);
    // Texts that no minion has any more make room.
    for number in 0..MAX_TEXTS + 5 {
        let effects = job.step(verdict(Some(&["a"]), Some(&format!("t{number}")), 1));
        assert_eq!(counted(&effects), ["kept"], "{number}");
    }
    let minions: Vec<String> = (0..MAX_TEXTS).map(|number| format!("m{number}")).collect();
    let minions: Vec<&str> = minions.iter().map(String::as_str).collect();
    let mut job = OneJob::of(&minions);
    for minion in &minions {
        job.step(verdict(Some(&[*minion]), Some(*minion), 1));
    }
    let effects = job.step(verdict(Some(&["m0"]), Some("one more"), 1));
    assert_eq!(counted(&effects), ["no_room"]);
    assert!(job.explains(0, "; m0"));
}
