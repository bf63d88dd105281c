//! Differential test of the scheduler: ours and stock's under the same stepped clock.
//!
//! Both tick alike through a case, and must run the same jobs at each tick.

mod cases;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use saltern_automation::schedule::Schedule;
use saltern_config::load_master;
use serde_json::{Value as Json, json};

use cases::{CASES, Case, DIFFERENT};

/// Ticks at which a job ran.
type Ran = Vec<(usize, String)>;

fn stock(cases: &[&Case]) -> Vec<Ran> {
    let cases: Vec<Json> = cases
        .iter()
        .map(|case| {
            json!({
                "schedule": case.schedule, "start": case.start,
                "tick": case.tick, "ticks": case.ticks,
            })
        })
        .collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schedule_stock/stock.py");
    let answer = saltern_stock::answer(saltern_stock::NEWEST, script, &json!(cases).to_string());
    serde_json::from_slice(&answer).unwrap()
}

/// The ticks of a case, in UTC as in local time.
fn ticks(case: &Case) -> impl Iterator<Item = Timestamp> {
    let start: DateTime = case.start.parse().unwrap();
    let start = TimeZone::UTC.to_timestamp(start).unwrap();
    let tick = SignedDuration::from_secs(i64::try_from(case.tick).unwrap());
    (0..case.ticks).map(move |number| start + tick * i32::try_from(number).unwrap())
}

fn ours(case: &Case) -> Ran {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("master");
    let schedule = case.schedule.replace('\n', "\n  ");
    let root = place.path().display();
    let text = format!(
        "root_dir: {root}\nloop_interval: {}\nschedule:\n  {schedule}\n",
        case.tick
    );
    std::fs::write(&file, text).unwrap();
    let config = load_master(&file).unwrap().config;
    let (mut schedule, _) = Schedule::read(&config, TimeZone::UTC);
    let mut ran = Ran::new();
    for (tick, now) in ticks(case).enumerate() {
        for due in schedule.due(now, &mut |from, _| from, &mut |_, _| ()) {
            let name = match due.function.as_str() {
                "test.arg" => due.job.name.clone(),
                other => format!("{} by {other}", due.job.name),
            };
            ran.push((tick, name));
        }
    }
    ran
}

#[test]
fn schedule_runs_same_jobs_as_stock_at_each_tick() {
    let cases: Vec<&Case> = CASES.iter().collect();
    let mut wrong = Vec::new();
    for (case, stock) in cases.iter().zip(stock(&cases)) {
        let ours = ours(case);
        if ours != stock || stock.is_empty() != case.never {
            wrong.push(format!("{case:?}\n  stock {stock:?}\n  ours  {ours:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn known_schedule_differences_hold() {
    let cases: Vec<&Case> = DIFFERENT.iter().map(|(case, ..)| case).collect();
    for ((case, expected, why), stock) in DIFFERENT.iter().zip(stock(&cases)) {
        let ours = ours(case);
        let ticks: Vec<usize> = ours.iter().map(|(tick, _)| *tick).collect();
        assert_eq!(ticks, *expected, "{case:?}");
        assert_ne!(ours, stock, "stock does the same: {why}");
    }
}
