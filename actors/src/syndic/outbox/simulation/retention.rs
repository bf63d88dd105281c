//! Returns that wait for longer than jobs are kept, and returns that are gone from the job database.

use super::refusals::StockTop;
use super::*;

/// Removes the oldest jobs that ended, of more than so many.
fn keep_jobs(world: &mut World, most: u64) {
    world.remove(&Retention {
        most_jobs: Some(most),
        ..Retention::default()
    });
}

/// Jobs of "one:4506" that ended, of one return each, an hour between them; the first at hour 1.
fn commit_hours(world: &mut World, hours: std::ops::Range<i64>) {
    for hour in hours {
        let jid = Jid::parse(&format!("20260101{hour:012}")).unwrap();
        let job = JobRecord {
            created: hour * HOUR,
            ..job(&jid, "one:4506")
        };
        let ended = Write::JobState {
            jid: jid.clone(),
            state: saltern_store::JobState::Complete,
            at: hour * HOUR,
            notes: None,
        };
        let returned = Write::Return(returned(&jid, 0, hour * HOUR));
        world
            .database
            .commit(&[Write::Job(job), returned, ended])
            .unwrap();
    }
}

const HOUR: i64 = 3_600_000_000;

#[test]
fn returns_that_retention_removes_before_they_went_up_are_counted_once_and_named() {
    for is_framed in [false, true] {
        let mut world = World::new();
        if is_framed {
            world = World::with_frames();
        }
        commit_hours(&mut world, 0..1);
        assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 1);
        commit_hours(&mut world, 1..9);
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        assert!(matches!(queue.next(9 * HOUR).unwrap(), Next::Batch(_)));
        keep_jobs(&mut world, 5);
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        let Next::Dropped(dropped) = queue.next(9 * HOUR).unwrap() else {
            panic!("returns were removed")
        };
        assert_eq!((dropped.reason, dropped.returns), ("retention", 3));
        assert_eq!(queue.lag(), 5 + 5, "with their jobs, those that are there");
        world.open("one:4506").unwrap();
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        assert_eq!(sent_by(queue), 5, "they are not counted once more");
    }
}

/// Those that were removed are not among those that wait.
#[test]
fn removed_returns_do_not_push_out_those_that_are_left() {
    let mut world = World::new();
    commit_hours(&mut world, 0..1);
    assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 1);
    commit_hours(&mut world, 1..9);
    keep_jobs(&mut world, 3);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    // Jobs count as rows that wait, where they are still there.
    queue.bound(None, 3 + 3);
    let Next::Dropped(dropped) = queue.next(9 * HOUR).unwrap() else {
        panic!("returns were removed")
    };
    assert_eq!((dropped.reason, dropped.returns), ("retention", 5));
    assert_eq!(sent_by(queue), 3);
}

/// None of them is dropped by a bound, whatever is: they went up.
#[test]
fn returns_are_left_to_a_salt_syndic_but_for_those_of_the_last_minute() {
    let mut world = World::new();
    commit_hours(&mut world, 0..9);
    keep_jobs(&mut world, 6);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    queue.bound(Some(Duration::from_secs(3_600)), 1);
    let minute = 60_000_000;
    queue.leave_to_another(8 * HOUR + minute).unwrap();
    assert_eq!(queue.waits_since(), Some(8 * HOUR));
    world.open("one:4506").unwrap();
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(sent_by(queue), 1, "over a restart");
    queue.leave_to_another(8 * HOUR + minute + 1).unwrap();
    assert_eq!(queue.lag(), 0);
}

/// Returns that were removed behind the first one that waits are found when the cursor passes them.
#[test]
fn returns_that_retention_removes_among_others_are_counted_when_they_are_passed() {
    let mut world = World::new();
    let first = world.job_of("one:4506");
    let record = Write::Return(returned(&first, 0, 1));
    world.database.commit(&[record]).unwrap();
    commit_hours(&mut world, 100..104);
    // Those of before are open.
    let open = world.jobs.len() as u64;
    keep_jobs(&mut world, open + 1);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    let mut top = StockTop::default();
    assert_eq!(top.attempts(queue, 9), [("retention", 3)]);
    assert_eq!(top.stored().len(), 2);
    assert_eq!(queue.lag(), 0);
}

/// The outbox for all passes returns of others without saving its cursor each time.
#[test]
fn cursor_is_saved_before_retention_removes_returns_of_others_that_it_has_passed() {
    let mut world = World::new();
    commit_hours(&mut world, 0..1);
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    queue.save_if_moved().unwrap();
    commit_hours(&mut world, 1..4);
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    queue.save_if_due(1).unwrap();
    queue.save_if_due(59_000_000).unwrap();
    world.open("any").unwrap();
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(queue.lag() > 0, "not for each of them");
    assert!(matches!(queue.next(1).unwrap(), Next::Idle));
    queue.save_if_due(1).unwrap();
    queue.save_if_due(60_000_001).unwrap();
    world.open("any").unwrap();
    assert_eq!(world.outboxes["any"].lag(), 0, "within a minute");
    keep_jobs(&mut world, 1);
    commit_hours(&mut world, 4..5);
    world.open("any").unwrap();
    let queue = world.outboxes.get_mut("any").unwrap();
    assert!(matches!(queue.next(2).unwrap(), Next::Idle));
    assert!(
        matches!(queue.next(2).unwrap(), Next::Idle),
        "none is missing"
    );
}

#[test]
fn outbox_waits_since_its_first_own_return_that_is_not_stored_above() {
    for is_framed in [false, true] {
        let mut world = World::new();
        if is_framed {
            world = World::with_frames();
        }
        let since = |world: &World, name: &str| world.outboxes[name].waits_since();
        assert_eq!(since(&world, "one:4506"), None);
        for name in ["one:4506", "any"] {
            let queue = world.outboxes.get_mut(name).unwrap();
            assert!(matches!(queue.next(HOUR).unwrap(), Next::Idle));
        }
        assert_eq!(since(&world, "one:4506"), Some(HOUR));
        commit_hours(&mut world, 2..4);
        let queue = world.outboxes.get_mut("any").unwrap();
        assert!(matches!(queue.next(9 * HOUR).unwrap(), Next::Idle));
        assert_eq!(
            since(&world, "any"),
            Some(9 * HOUR),
            "they are of the other"
        );
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        let Next::Batch(batch) = queue.next(9 * HOUR).unwrap() else {
            panic!("there are returns")
        };
        assert_eq!(queue.waits_since(), Some(2 * HOUR));
        if is_framed {
            let (first, _) = queue.sent(batch);
            commit_hours(&mut world, 4..5);
            let queue = world.outboxes.get_mut("one:4506").unwrap();
            let Next::Batch(batch) = queue.next(9 * HOUR).unwrap() else {
                panic!("there is a return")
            };
            let (second, _) = queue.sent(batch);
            assert_eq!(queue.waits_since(), Some(2 * HOUR));
            queue.stored(first, 9 * HOUR).unwrap();
            assert_eq!(queue.waits_since(), Some(4 * HOUR));
            queue.stored(second, 9 * HOUR).unwrap();
        } else {
            queue.acknowledged(batch, "one:4506").unwrap();
        }
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        assert!(
            queue.waits_since() < Some(9 * HOUR),
            "it has not looked yet"
        );
        assert!(matches!(queue.next(9 * HOUR).unwrap(), Next::Idle));
        assert_eq!(queue.waits_since(), Some(9 * HOUR));
    }
}

/// A master above is away for three days, and jobs are kept for one. The other outboxes go on.
#[test]
fn returns_for_a_master_that_is_away_for_longer_than_jobs_are_kept_go_up() {
    const KEEP: Duration = Duration::from_secs(24 * 3600);
    let mut world = World::new();
    let expire = |world: &mut World, now: i64| {
        let waits_since = world.outboxes.values().map(OutboxQueue::waits_since);
        let waits_since = waits_since.map(|since| since.unwrap_or(i64::MIN)).min();
        let oldest = now - 7 * 24 * HOUR;
        world.remove(&Retention {
            before: Some(now - 24 * HOUR),
            held_from: waits_since.map(|since| held_from(KEEP, since, Some(oldest))),
            ..Retention::default()
        });
    };
    for hour in 1..73 {
        commit_hours(&mut world, hour..hour + 1);
        let now = hour * HOUR;
        for name in MASTERS.into_iter().chain(["any"]) {
            if hour % 24 == 0 {
                // Expiry comes before the first look of the new process.
                world.open(name).unwrap();
                expire(&mut world, now);
            }
            let queue = world.outboxes.get_mut(name).unwrap();
            let next = queue.next(now).unwrap();
            assert_eq!(matches!(next, Next::Batch(_)), name == "one:4506");
        }
        expire(&mut world, now);
    }
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(sent_by(queue), 72);
    assert!(matches!(queue.next(72 * HOUR).unwrap(), Next::Idle));
    for name in ["two:4506", "any"] {
        let queue = world.outboxes.get_mut(name).unwrap();
        assert!(matches!(queue.next(72 * HOUR).unwrap(), Next::Idle));
    }
    expire(&mut world, 72 * HOUR);
    let (jobs, _) = world.database.reader().unwrap().counts().unwrap();
    assert_eq!(jobs, 25, "those of the last day");
}
