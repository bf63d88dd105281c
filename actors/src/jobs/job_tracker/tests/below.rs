//! Verdicts of syndics on minions below them: evidence for people, which changes no state of a job.

use saltern_requests::SyndicVerdict;
use saltern_store::jobs::JobNotes;

use super::super::machine::Counted;
use super::super::moment::Moment;
use super::super::syndic_verdicts::{MAX_ANNOUNCED, MAX_PENDING, MAX_TEXTS, MAX_TEXTS_OF_SYNDIC};
use super::alone::{Present, at, begin, returned, rules};
use super::*;

/// A verdict of the syndic "low" that came through so many syndics.
fn verdict(minions: Option<&[&str]>, text: Option<&str>, depth: u8) -> JobEvent {
    verdict_of("low", minions, text, depth)
}

fn verdict_of(syndic: &str, minions: Option<&[&str]>, text: Option<&str>, depth: u8) -> JobEvent {
    JobEvent::SaidBelow(SyndicVerdict {
        jid: jid(1),
        syndic: id(syndic),
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

    fn a_second_later(&mut self) -> Vec<TrackerEffect> {
        self.now = self.now.after(Duration::from_secs(1));
        self.step(JobEvent::Tick)
    }

    fn looks(&self) -> u32 {
        self.world.looks.load(Ordering::Relaxed)
    }

    /// Evidence on the minions that have not returned.
    fn evidence(&self) -> Vec<String> {
        let account = self.machine.account(&jid(1), self.now, &self.world);
        let account = account.unwrap();
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
    let read = news.flat_map(|event| {
        assert_eq!(event.tag.as_str(), format!("saltern/job/{}/below", jid(1)));
        let data = decode_exact(event.data.as_ref(), &Limits::WIRE).unwrap();
        assert!(data.get("syndic").is_some());
        let said = data.get("said").and_then(Value::as_array).unwrap().to_vec();
        said.into_iter().map(|said| {
            let field = |name: &str| said.get(name).cloned().unwrap();
            let minions = field("minions").as_array().unwrap().len();
            (minions, field("says"), field("depth").as_i64().unwrap())
        })
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

    assert!(announced(&job.a_second_later()).is_empty());
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
    let mut job = OneJob::of(&["own", "below-low-1", "below-low-2"]);
    job.step(returned(1, "below-low-2", true));
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
    let minions: Vec<String> = (0..=MAX_PENDING)
        .map(|number| format!("s{number}"))
        .collect();
    for (number, syndic) in minions.iter().enumerate() {
        let effects = job.step(verdict_of(syndic, Some(&["a"]), None, 1));
        let word = if number < MAX_PENDING {
            "kept"
        } else {
            "no_room"
        };
        assert_eq!(counted(&effects), [word], "{number}");
    }
    job.a_second_later();
    let effects = job.step(verdict(Some(&["a"]), None, 1));
    assert_eq!(counted(&effects), ["kept"]);
}

#[test]
fn texts_are_bounded_for_each_syndic_and_over_all() {
    let names: Vec<String> = (0..=MAX_TEXTS).map(|number| format!("m{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut job = OneJob::of(&names);
    let mut minions = names.iter();
    let mut say = |job: &mut OneJob, syndic: &str, text: &str| {
        let minion = minions.next().unwrap();
        counted(&job.step(verdict_of(syndic, Some(&[*minion]), Some(text), 1)))
    };
    let per_syndic = MAX_TEXTS_OF_SYNDIC;
    for syndic in 0..MAX_TEXTS / per_syndic {
        for text in 0..per_syndic {
            let (syndic, text) = (format!("s{syndic}"), format!("{syndic}-{text}"));
            assert_eq!(say(&mut job, &syndic, &text), ["kept"]);
        }
    }
    assert_eq!(say(&mut job, "another", "x"), ["no_room"], "of all");

    let mut job = OneJob::of(&names);
    for text in 0..per_syndic {
        let of_stranger = verdict(
            Some(&["stranger"]),
            Some(&format!("of a stranger {text}")),
            1,
        );
        job.step(of_stranger);
    }
    for text in 0..per_syndic {
        let effects = job.step(verdict(Some(&["m0"]), Some(&format!("t{text}")), 1));
        assert_eq!(
            counted(&effects),
            ["kept"],
            "text {text}: nobody has those of strangers"
        );
    }
    // Texts that no minion has any more make room: searched for once a second.
    let one_more =
        |job: &mut OneJob, text: &str| counted(&job.step(verdict(Some(&["m0"]), Some(text), 1)));
    for text in 1..per_syndic {
        assert_eq!(one_more(&mut job, &format!("u{text}")), ["kept"]);
    }
    assert_eq!(
        one_more(&mut job, "v"),
        ["no_room"],
        "it was searched just now"
    );
    let of_other = verdict_of("other", Some(&["m1"]), Some("w"), 1);
    assert_eq!(counted(&job.step(of_other)), ["kept"], "it has its own");
    job.a_second_later();
    assert_eq!(one_more(&mut job, "v"), ["kept"]);
}

#[test]
fn verdicts_on_all_minions_are_carried_over_once_a_second() {
    let mut job = OneJob::of(&["below-low-1", "below-low-2", "own"]);
    let effects = job.step(verdict(None, Some("first"), 1));
    assert_eq!(announced(&effects), [(2, Value::from("first"), 1)]);
    for number in 0..1_000 {
        let effects = job.step(verdict(None, Some(&format!("t{number}")), 1));
        assert!(announced(&effects).is_empty());
    }
    assert_eq!(job.looks(), 1, "minions below were looked for");
    job.step(verdict(Some(&["below-low-2"]), Some("named since"), 1));
    let expected = [
        (1, Value::from("named since"), 1),
        (1, Value::from("t999"), 1),
    ];
    assert_eq!(announced(&job.a_second_later()), expected);
    assert_eq!(job.looks(), 2);
    assert!(job.explains(0, "t999") && job.explains(1, "named since"));
    let other = job.step(verdict_of("lowest", None, Some("of another"), 1));
    assert!(announced(&other).is_empty(), "none is below it");
    assert_eq!(job.looks(), 3, "another syndic waits for nobody");
    job.a_second_later();
    job.a_second_later();
    assert_eq!(job.looks(), 3);
}

#[test]
fn events_are_one_a_second_and_bounded_in_minions() {
    let names: Vec<String> = (0..MAX_ANNOUNCED + 2)
        .map(|number| format!("m{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut job = OneJob::of(&names);
    let effects = job.step(verdict(Some(&names), Some("gone"), 1));
    assert_eq!(
        announced(&effects),
        [(MAX_ANNOUNCED, Value::from("gone"), 1)]
    );
    for text in ["x", "y"] {
        let effects = job.step(verdict(Some(&["m0"]), Some(text), 1));
        assert!(announced(&effects).is_empty());
    }
    let expected = [(2, Value::from("gone"), 1), (1, Value::from("y"), 1)];
    assert_eq!(announced(&job.a_second_later()), expected);
    assert!(announced(&job.a_second_later()).is_empty());
}

#[test]
fn verdict_of_the_syndic_below_which_a_minion_is_now_replaces_that_of_another() {
    let mut job = OneJob::of(&["a", "b"]);
    job.step(verdict_of(
        "one",
        Some(&["a", "b"]),
        Some("far below one"),
        3,
    ));
    job.step(verdict_of("two", Some(&["a"]), Some("of two"), 1));
    assert!(job.explains(0, "of two") && job.explains(1, "far below one"));
    job.step(verdict_of("two", Some(&["b"]), None, 1));
    assert!(!job.explains(1, "far below one"));
    let later = announced(&job.a_second_later());
    assert_eq!(later, [(1, Value::Nil, 1)], "of \"two\" alone");
}

#[test]
fn verdict_is_not_shown_of_a_minion_that_is_below_its_syndic_no_more() {
    let mut job = OneJob::of(&["a", "b"]);
    job.step(verdict(Some(&["a", "b"]), Some("gone"), 1));
    job.world.moved = vec![(id("a"), id("low")), (id("b"), id("other"))];
    assert!(!job.explains(0, "gone") && job.explains(1, "gone"));
}
