//! The scheduler under a stepped clock: a year of it, and clocks that jump.

#![allow(clippy::indexing_slicing, reason = "tests; a failure shows where")]

use jiff::civil::DateTime;
use saltern_config::load_master;

use super::*;

mod edited;

/// Central Europe's clocks, without a database of zones.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

struct Clockwork {
    schedule: Schedule,
    now: Timestamp,
    skipped: Vec<&'static str>,
    drawn: u64,
}

pub(super) fn read(jobs: &str, zone: &TimeZone) -> (Schedule, Vec<Finding>) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("master");
    let jobs = jobs.replace('\n', "\n  ");
    let root = place.path().display();
    std::fs::write(&file, format!("root_dir: {root}\nschedule:\n  {jobs}\n")).unwrap();
    Schedule::read(&load_master(&file).unwrap().config, zone.clone())
}

impl Clockwork {
    /// Starts at a local time of a zone. None of the jobs may be wrong.
    fn new(jobs: &str, zone: &str, start: &str) -> Self {
        let zone = TimeZone::posix(zone).unwrap();
        let (schedule, findings) = read(jobs, &zone);
        assert_eq!(findings, []);
        let start: DateTime = start.parse().unwrap();
        Self {
            schedule,
            now: zone.to_timestamp(start).unwrap(),
            skipped: Vec::new(),
            drawn: 0,
        }
    }

    /// One job by a line of its options.
    fn of(timing: &str, zone: &str, start: &str) -> Self {
        let jobs = format!("job: {{function: test.arg, run_on_start: False, {timing}}}");
        Self::new(&jobs, zone, start)
    }

    fn look(&mut self) -> Vec<Due> {
        let skipped = &mut self.skipped;
        let drawn = &mut self.drawn;
        let mut draw = |from: u64, to: u64| {
            // Runs through all numbers that may be drawn.
            *drawn += 1;
            from + *drawn % (to - from + 1)
        };
        let mut skip = |_: &Job, why: Skip| skipped.push(why.word());
        self.schedule.due(self.now, &mut draw, &mut skip)
    }

    /// Steps from turn to turn for a time, and returns the instants of the runs.
    fn run_for(&mut self, time: SignedDuration) -> Vec<Timestamp> {
        let end = self.now + time;
        let mut ran = Vec::new();
        loop {
            ran.extend(self.look().iter().map(|_| self.now));
            match self.schedule.next(self.now) {
                Some(next) if next <= end => {
                    assert!(next > self.now, "nothing is due that was not run: {next}");
                    self.now = next;
                }
                _ => break,
            }
        }
        self.now = end;
        assert!(self.look().is_empty());
        ran
    }

    fn local(&self, at: Timestamp) -> String {
        self.schedule.zone.to_datetime(at).to_string()
    }

    fn run_for_hours(&mut self, hours: i64) -> Vec<String> {
        let ran = self.run_for(SignedDuration::from_hours(hours));
        ran.into_iter().map(|at| self.local(at)).collect()
    }
}

fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

#[test]
fn daily_job_runs_every_day_of_a_year() {
    for (timing, days) in [
        ("cron: '30 2 * * *'", 366),
        ("when: '2:30am'", 366),
        ("when: ['Saturday 2:30am', 'Sunday 2:30am']", 106),
        ("cron: '0 12 29 2 *'", 1),
        ("when: 'Feb 29 12:00'", 1),
        ("cron: '59 23 31 12 *'", 1),
    ] {
        // 2028 is a leap year, and begins on a Saturday.
        let mut clockwork = Clockwork::of(timing, BERLIN, "2028-01-01T00:00:00");
        let ran = clockwork.run_for(hours(366 * 24));
        assert_eq!(ran.len(), days, "{timing}");
        let mut dates: Vec<String> = ran
            .iter()
            .map(|at| clockwork.local(*at)[..10].to_owned())
            .collect();
        dates.dedup();
        assert_eq!(dates.len(), days, "{timing}: twice on a day");
    }
}

#[test]
fn interval_and_short_slots_have_no_gap_in_a_year() {
    let year = 366 * 24;
    for (timing, expected, longest) in [
        ("hours: 1", year, 3600),
        ("minutes: 90", year * 2 / 3, 5400),
        ("days: 1, hours: 6", year / 30, 30 * 3600),
        ("weeks: 1", 52, 7 * 24 * 3600),
        ("cron: '0 * * * *'", year, 3600),
        ("cron: '*/20 * * * *'", 3 * year, 1200),
    ] {
        let mut clockwork = Clockwork::of(timing, BERLIN, "2028-01-01T00:00:00");
        let mut ran = vec![clockwork.now];
        ran.extend(clockwork.run_for(hours(year)));
        assert_eq!(ran.len() as i64 - 1, expected, "{timing}");
        for two in ran.windows(2) {
            let silence = two[1].duration_since(two[0]).as_secs();
            assert!(
                silence > 0 && silence <= longest,
                "{timing}: {silence} s before {}",
                two[1]
            );
        }
    }
}

#[test]
fn slot_skipped_by_clock_change_runs_at_the_change() {
    let mut clockwork = Clockwork::of("cron: '30 2 * * *'", BERLIN, "2028-03-25T12:00:00");
    let expected = ["2028-03-26T03:00:00", "2028-03-27T02:30:00"];
    assert_eq!(clockwork.run_for_hours(47), expected);
    let mut clockwork = Clockwork::of("cron: '*/30 * * * *'", BERLIN, "2028-03-26T01:15:00");
    let expected = [
        "2028-03-26T01:30:00",
        "2028-03-26T03:00:00",
        "2028-03-26T03:30:00",
    ];
    assert_eq!(clockwork.run_for_hours(1), expected[..2]);
}

#[test]
fn slot_shown_twice_repeats_for_hourly_jobs_only() {
    let mut clockwork = Clockwork::of("cron: '30 2 * * *'", BERLIN, "2028-10-29T00:00:00");
    let day = clockwork.run_for(hours(24));
    assert_eq!(day.len(), 1);
    assert_eq!(clockwork.skipped, ["repeated"]);
    assert_eq!(day[0].to_string(), "2028-10-29T00:30:00Z");
    let mut clockwork = Clockwork::of("cron: '30 * * * *'", BERLIN, "2028-10-29T00:00:00");
    let expected =
        ["00:30", "01:30", "02:30", "02:30", "03:30"].map(|time| format!("2028-10-29T{time}:00"));
    assert_eq!(clockwork.run_for_hours(5), expected);
}

#[test]
fn range_from_doubled_hour_begins_twice() {
    let timing = "minutes: 15, range: {start: '2:30am', end: 5am}";
    let mut clockwork = Clockwork::of(timing, BERLIN, "2028-10-29T02:05:00");
    // 03:00 is 02:00 once more, and outside.
    let ran = clockwork.run_for(SignedDuration::from_mins(100));
    let ran: Vec<String> = ran.iter().map(Timestamp::to_string).collect();
    let expected =
        ["00:30", "00:45", "01:30", "01:45"].map(|time| format!("2028-10-29T{time}:00Z"));
    assert_eq!(ran, expected);
    assert_eq!(clockwork.skipped, ["not_in_range", "not_in_range"]);
}

#[test]
fn run_after_skip_range_runs_at_end_of_range() {
    for (window, start, ran_at) in [
        (
            "{start: 1am, end: 5am}",
            "2028-06-01T00:30:00",
            "2028-06-01T03:00:01Z",
        ),
        // The end is shown twice, and the first time is over already.
        (
            "{start: 1am, end: '2:30am'}",
            "2028-10-29T02:45:00",
            "2028-10-29T01:30:01Z",
        ),
        // The end is skipped.
        (
            "{start: 1am, end: '2:30am'}",
            "2028-03-26T00:30:00",
            "2028-03-26T01:00:00Z",
        ),
    ] {
        let timing =
            format!("minutes: 40, run_after_skip_range: True, skip_during_range: {window}");
        let mut clockwork = Clockwork::of(&timing, BERLIN, start);
        let ran = clockwork.run_for(hours(6));
        assert_eq!(ran[0].to_string(), ran_at, "{window} from {start}");
        assert!(clockwork.skipped.len() < 10, "{:?}", clockwork.skipped);
    }
}

#[test]
fn skipped_weekend_ends_before_the_next() {
    let timing = "hours: 1, run_after_skip_range: True, \
                  skip_during_range: {start: Friday 10pm, end: Monday 6am}";
    // A Friday.
    let mut clockwork = Clockwork::of(timing, BERLIN, "2028-06-02T19:30:00");
    let ran = clockwork.run_for_hours(24 * 4);
    let expected = [
        "2028-06-02T20:30:00",
        "2028-06-02T21:30:00",
        "2028-06-06T00:00:00",
        "2028-06-06T01:00:00",
    ];
    assert_eq!(ran[..4], expected);
    assert!(clockwork.skipped.len() < 90, "{}", clockwork.skipped.len());
}

#[test]
fn clock_set_back_an_hour_neither_repeats_nor_drops_runs() {
    let table = [
        ("cron: '0 12 * * *'", 0),
        ("when: '12:00'", 0),
        ("when: '2028-06-01 12:00'", 0),
        ("once: '2028-06-01T12:00:00'", 0),
        ("cron: '*/10 * * * *'", 6),
        ("minutes: 10", 6),
        ("hours: 1", 1),
    ];
    for (timing, expected) in table {
        let mut clockwork = Clockwork::of(timing, BERLIN, "2028-06-01T11:00:00");
        let ran = clockwork.run_for(hours(1));
        assert!(!ran.is_empty(), "{timing}");
        clockwork.now -= hours(1);
        assert_eq!(clockwork.run_for(hours(1)).len(), expected, "{timing}");
    }
}

#[test]
fn splayed_slot_runs_after_clock_is_set_back() {
    for slot in [
        "cron: '0 12 * * *'",
        "when: '12:00'",
        "once: '2028-06-01T12:00:00'",
    ] {
        for by in [SignedDuration::from_micros(1), hours(30)] {
            let timing = format!("{slot}, splay: {{start: 300, end: 300}}");
            let mut clockwork = Clockwork::of(&timing, BERLIN, "2028-06-01T11:00:00");
            assert!(clockwork.run_for(SignedDuration::from_mins(62)).is_empty());
            clockwork.now -= by;
            let set_back = clockwork.now;
            let [ran] = *clockwork.run_for(hours(1)) else {
                panic!("{slot}, set back by {by}");
            };
            let rest = SignedDuration::from_mins(3);
            assert_eq!(ran.duration_since(set_back), rest, "{slot}");
            // Not the same slot again.
            assert!(clockwork.run_for(hours(11)).is_empty(), "{slot}");
        }
    }
}

#[test]
fn clock_set_back_far_keeps_interval() {
    let mut clockwork = Clockwork::of("hours: 1", BERLIN, "2028-06-01T11:00:00");
    clockwork.run_for(SignedDuration::from_mins(50));
    clockwork.now -= hours(1000);
    assert!(clockwork.run_for(SignedDuration::from_mins(9)).is_empty());
    assert_eq!(clockwork.run_for(SignedDuration::from_mins(2)).len(), 1);
}

#[test]
fn missed_day_is_made_up_by_one_run_at_most() {
    let table = [
        ("seconds: 1", 1),
        ("hours: 5", 1),
        ("cron: '* * * * *'", 1),
        ("cron: '0 12 * * *'", 1),
        ("when: '12:00'", 0),
        ("when: ['12:00', '13:00', '14:00']", 0),
        ("once: '2028-06-01T12:00:00'", 0),
    ];
    for (timing, expected) in table {
        let mut clockwork = Clockwork::of(timing, BERLIN, "2028-06-01T11:59:59.5");
        clockwork.look();
        clockwork.now += hours(24) + SignedDuration::from_mins(7);
        let late = clockwork.look();
        assert_eq!(late.len(), expected, "{timing}");
        assert!(late.iter().all(|due| due.late > Duration::ZERO), "{timing}");
        drop(late);
        assert!(clockwork.look().is_empty(), "{timing}: a burst");
        let is_once = timing.starts_with("once");
        assert_eq!(
            clockwork.run_for(hours(24)).is_empty(),
            is_once,
            "{timing}: silence"
        );
    }
}

#[test]
fn splay_stays_in_bounds_with_one_run_per_slot() {
    for (splay, from, to) in [
        ("300", 1, 300),
        ("{start: 20, end: 40}", 20, 40),
        ("{start: 0, end: 3599}", 0, 3599),
    ] {
        let timing = format!("cron: '0 * * * *', splay: {splay}");
        let mut clockwork = Clockwork::of(&timing, BERLIN, "2028-01-01T00:30:00");
        let ran = clockwork.run_for(hours(24 * 300));
        let mut slots = Vec::new();
        for at in ran {
            let after = at.as_second().rem_euclid(3600);
            assert!((from..=to).contains(&after), "{splay}: {after}");
            slots.push(at.as_second().div_euclid(3600));
        }
        assert!(slots.len() > 24 * 150, "{splay}: {}", slots.len());
        assert!(
            slots.is_sorted_by(|a, b| a < b),
            "{splay}: twice within an hour"
        );
    }
}

#[test]
fn maxrunning_bounds_concurrent_runs() {
    let mut clockwork = Clockwork::of("seconds: 1, maxrunning: 2", BERLIN, "2028-01-01T00:00:00");
    let mut under_way = Vec::new();
    for _ in 0..6 {
        under_way.extend(clockwork.look());
        clockwork.now += SignedDuration::from_secs(1);
    }
    assert_eq!((under_way.len(), clockwork.skipped.len()), (2, 3));
    under_way.pop();
    assert_eq!(clockwork.look().len(), 1);
    let mut free = Clockwork::of(
        "seconds: 1, jid_include: False",
        BERLIN,
        "2028-01-01T00:00:00",
    );
    let mut under_way = Vec::new();
    for _ in 0..6 {
        under_way.extend(free.look());
        free.now += SignedDuration::from_secs(1);
    }
    assert_eq!(under_way.len(), 5);
}

#[test]
fn faulty_job_is_reported_and_others_run() {
    let table = [
        ("5", "is no mapping of options, but an integer"),
        ("{seconds: 5}", "names no function"),
        ("{function: test.arg}", "has no time at which it would run"),
        (
            "{function: test.arg, seconds: 0}",
            "has an interval of 0 seconds",
        ),
        (
            "{function: test.arg, seconds: x}",
            "seconds is text, not a whole number",
        ),
        (
            "{function: test.arg, cron: 'x y'}",
            "cron \"x y\" is no cron expression",
        ),
        (
            "{function: test.arg, cron: '0 0 30 2 *'}",
            "means a day that never comes",
        ),
        (
            "{function: test.arg, when: tomorrow}",
            "when \"tomorrow\" is no date or time",
        ),
        (
            "{function: test.arg, when: 17:00}",
            "needs quotes around it",
        ),
        ("{function: test.arg, when: []}", "when is an empty list"),
        (
            "{function: test.arg, once: 5pm}",
            "once \"5pm\" is no date of the form",
        ),
        (
            "{function: test.arg, when: 5pm, cron: '* * * * *'}",
            "has both \"when\" and \"cron\"",
        ),
        (
            "{function: test.arg, seconds: 1, until: x}",
            "until \"x\" is no date or time",
        ),
        (
            "{function: test.arg, seconds: 1, args: x}",
            "\"args\" is no list",
        ),
        (
            "{function: test.arg, seconds: 1, kwargs: x}",
            "\"kwargs\" is no mapping",
        ),
        (
            "{function: test.arg, seconds: 1, maxrunning: x}",
            "maxrunning is text",
        ),
        (
            "{function: test.arg, seconds: 1, splay: -1}",
            "splay is less than zero",
        ),
        (
            "{function: test.arg, seconds: 1, range: 5}",
            "range is no mapping",
        ),
        (
            "{function: test.arg, seconds: 1, range: {start: 5pm}}",
            "range has no \"end\"",
        ),
        (
            "{function: test.arg, seconds: 1, range: {start: 5pm, end: 4pm}}",
            "ends before it starts",
        ),
    ];
    for (job, expected) in table {
        let jobs = format!("good: {{function: test.arg, seconds: 1}}\nbad: {job}");
        let (schedule, findings) = read(&jobs, &TimeZone::UTC);
        let [finding] = findings.as_slice() else {
            panic!("{job}: {findings:?}");
        };
        let text = finding.to_string();
        assert!(
            text.contains(expected) && text.contains("job \"bad\""),
            "{job}: {text}"
        );
        assert_eq!(
            (schedule.jobs.len(), finding.severity),
            (1, Severity::Warning),
            "{job}"
        );
        assert_eq!(finding.line, 4, "{job}");
    }
}

#[test]
fn ignored_option_is_reported_and_job_runs() {
    let table = [
        ("seconds: 1, when: 5pm", "\"when\" has no effect"),
        (
            "seconds: 1, returner: mysql",
            "returner \"mysql\" is not called",
        ),
        ("seconds: 1, metadata: x", "\"metadata\" is no mapping"),
        (
            "seconds: 1, splay: {start: 5, end: 4}",
            "splay ends before it starts",
        ),
    ];
    for (options, expected) in table {
        let job = format!("job: {{function: test.arg, {options}}}");
        let (schedule, findings) = read(&job, &TimeZone::UTC);
        assert_eq!((schedule.jobs.len(), findings.len()), (1, 1), "{options}");
        assert!(
            findings[0].to_string().contains(expected),
            "{}",
            findings[0]
        );
    }
}
