//! A schedule that is replaced while the scheduler runs.

use super::*;

#[test]
fn unchanged_job_keeps_its_turn() {
    let zone = TimeZone::posix(BERLIN).unwrap();
    let same = "same: {function: test.arg, hours: 1}";
    let mut clockwork = Clockwork::new(same, BERLIN, "2028-01-01T00:00:00");
    assert_eq!(clockwork.look().len(), 1);
    clockwork.now += SignedDuration::from_mins(59);
    assert!(clockwork.look().is_empty());
    let with_other = format!("{same}\nother: {{function: test.arg, hours: 1}}");
    clockwork.schedule.become_like(read(&with_other, &zone).0);
    assert!(
        clockwork.look().is_empty(),
        "a new job took this for a start"
    );
    clockwork.now += SignedDuration::from_mins(1);
    let names: Vec<String> = clockwork
        .look()
        .iter()
        .map(|due| due.job.name.clone())
        .collect();
    assert_eq!(names, ["same"]);
    let changed = same.replace("hours: 1", "hours: 2");
    clockwork.schedule.become_like(read(&changed, &zone).0);
    assert_eq!(clockwork.run_for_hours(2), ["2028-01-01T03:00:00"]);
}

/// A job edited at a local time, and its runs then.
fn edited(before: &str, start: &str, minutes: i64, after: &str) -> (Clockwork, Vec<Due>) {
    let zone = TimeZone::posix(BERLIN).unwrap();
    let job = |options: &str| format!("job: {{function: test.arg, {options}}}");
    let mut clockwork = Clockwork::new(&job(before), BERLIN, start);
    let under_way = clockwork.look();
    clockwork.now += SignedDuration::from_mins(minutes);
    clockwork.schedule.become_like(read(&job(after), &zone).0);
    (clockwork, under_way)
}

#[test]
fn edited_job_counts_runs_under_way() {
    for after in ["seconds: 1, args: [x]", "seconds: 2"] {
        let (mut clockwork, under_way) = edited("seconds: 1", "2028-01-01T12:00:00", 1, after);
        assert_eq!(under_way.len(), 1);
        assert!(clockwork.run_for(hours(1)).is_empty(), "{after}");
        drop(under_way);
        clockwork.now += SignedDuration::from_secs(2);
        assert_eq!(clockwork.look().len(), 1, "{after}");
    }
}

#[test]
fn edited_job_does_not_repeat_a_slot() {
    let start = "2028-06-01T17:00:00";
    for slot in ["when: 5pm", "once: '2028-06-01T17:00:00'"] {
        for change in ["args: [x]", "splay: {start: 0, end: 0}", "maxrunning: 3"] {
            let after = format!("{slot}, {change}");
            let (mut clockwork, ran) = edited(slot, start, 0, &after);
            assert_eq!(ran.len(), 1, "{slot}");
            drop(ran);
            assert!(clockwork.run_for(hours(23)).is_empty(), "{after}");
        }
    }
    // A new job has missed the slots before it.
    let zone = TimeZone::posix(BERLIN).unwrap();
    let mut clockwork = Clockwork::of("when: 6pm", BERLIN, "2028-06-01T17:00:30");
    let other = read("other: {function: test.arg, when: 5pm}", &zone);
    clockwork.schedule.become_like(other.0);
    assert_eq!(clockwork.run_for_hours(24), ["2028-06-02T17:00:00"]);
}

#[test]
fn edited_job_keeps_its_turn_unless_timing_changes() {
    let hourly = "hours: 1, run_on_start: False";
    let daily = "cron: '0 12 * * *'";
    for (before, after, expected) in [
        (hourly, "hours: 1, args: [x]", "2028-06-01T12:30:00"),
        (hourly, "hours: 2", "2028-06-01T13:50:00"),
        (
            hourly,
            "hours: 1, splay: {start: 5, end: 5}",
            "2028-06-01T12:50:05",
        ),
        (hourly, daily, "2028-06-01T12:00:00"),
        // It ran 20 minutes ago, but for another reason.
        ("when: '11:30'", "when: 12pm", "2028-06-01T12:00:00"),
        // A disabled job has no missed turn.
        (
            "cron: '40 11 * * *', enabled: False",
            "cron: '40 11 * * *'",
            "2028-06-02T11:40:00",
        ),
        // The range that it was held for has changed.
        (
            "minutes: 5, run_on_start: False, range: {start: 5pm, end: 6pm}",
            "minutes: 5, range: {start: 10am, end: 6pm}",
            "2028-06-01T11:50:00",
        ),
    ] {
        let zone = TimeZone::posix(BERLIN).unwrap();
        let job = |options: &str| format!("job: {{function: test.arg, {options}}}");
        let mut clockwork = Clockwork::new(&job(before), BERLIN, "2028-06-01T11:30:00");
        clockwork.run_for(SignedDuration::from_mins(20));
        clockwork.schedule.become_like(read(&job(after), &zone).0);
        let ran = clockwork.run_for_hours(25);
        assert_eq!(ran[0], expected, "{before} to {after}");
    }
}

#[test]
fn edited_splay_keeps_the_waiting_slot() {
    let before = "when: 5pm, splay: {start: 300, end: 300}";
    let (mut clockwork, _) = edited(before, "2028-06-01T17:00:00", 1, "when: 5pm, splay: 2");
    assert_eq!(clockwork.run_for_hours(1), ["2028-06-01T17:05:00"]);
}
