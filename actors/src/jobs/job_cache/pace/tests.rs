use super::*;

/// An attempt that ends so; its parameters.
fn one(pace: &mut Pace, landing: Landing) -> Attempt {
    pace.wake();
    let now = pace.paused_until.unwrap_or_else(Instant::now);
    let Next::Give(attempt) = pace.next(now) else {
        panic!("nothing is in its way");
    };
    pace.land(landing, now);
    attempt
}

fn sizes(attempt: Attempt) -> (usize, usize) {
    (attempt.rows, attempt.patience)
}

#[test]
fn failing_returner_is_called_less_often_with_more_rows() {
    let mut pace = Pace::default();
    let mut asked = Vec::new();
    for _ in 0..6 {
        asked.push(sizes(one(&mut pace, Landing::Failed)));
        assert!(pace.is_behind && pace.paused_until.is_some());
    }
    let expected = [
        (ROWS, FAILURES_BEFORE_BACKOFF),
        (ROWS * 2, FAILURES_BEFORE_BACKOFF),
        (ROWS * 4, FAILURES_BEFORE_BACKOFF),
        (ROWS * 8, FAILURES_BEFORE_BACKOFF),
        (ROWS * 16, ROWS * 16),
        (ROWS * 16, ROWS * 16),
    ];
    assert_eq!(asked, expected);
    // One success resets it.
    one(&mut pace, Landing::Moved);
    assert!(pace.is_behind && pace.paused_until.is_none());
    assert_eq!(
        sizes(one(&mut pace, Landing::Empty)),
        (ROWS, FAILURES_BEFORE_BACKOFF)
    );
    assert!(!pace.is_behind);
}

#[test]
fn row_that_kills_python_has_a_last_try() {
    let mut pace = Pace::default();
    let tries = |pace: &mut Pace, landings: &[Landing]| -> Vec<bool> {
        let one = |landing: &Landing| one(pace, *landing).is_last_try;
        landings.iter().map(one).collect()
    };
    // Other failures in between change nothing.
    let landings = [
        Landing::Killed,
        Landing::Killed,
        Landing::Failed,
        Landing::Killed,
        Landing::Moved,
        Landing::Killed,
    ];
    let expected = [false, false, false, false, true, false];
    assert_eq!(tries(&mut pace, &landings), expected);
}

#[test]
fn rows_added_during_an_attempt_are_sent_next() {
    let now = Instant::now();
    let mut pace = Pace::default();
    pace.wake();
    assert!(matches!(pace.next(now), Next::Give(_)));
    // The attempt has looked already, and saw nothing.
    pace.wake();
    assert_eq!(pace.next(now), Next::Nothing);
    pace.land(Landing::Empty, now);
    assert!(matches!(pace.next(now), Next::Give(_)));
    pace.land(Landing::Empty, now);
    assert_eq!(pace.next(now), Next::Nothing);
}

#[test]
fn waiting_client_ends_the_pause_but_not_right_after_a_failure() {
    let now = Instant::now();
    let mut pace = Pace::default();
    for _ in 0..6 {
        one(&mut pace, Landing::Failed);
    }
    assert!(pace.is_failing());
    pace.wake();
    let failed = Instant::now();
    pace.in_flight = true;
    pace.land(Landing::Failed, failed);
    assert!(
        !pace.hurry(failed),
        "the attempt of a moment ago says enough"
    );
    assert!(matches!(pace.next(failed), Next::Pause(_)));
    let later = failed + MIN_PAUSE;
    assert!(pace.hurry(later));
    assert!(matches!(pace.next(later), Next::Give(_)));
    assert!(pace.hurry(later), "one attempt serves all who wait");
    pace.land(Landing::Moved, later);
    assert!(!pace.is_failing() && now <= later);
}
