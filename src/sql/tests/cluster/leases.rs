//! Leases in the time of a real server.

use std::thread;
use std::time::Duration;

use saltern_sql::{LeaseAction, LeaseHolder, LeaseTable};

use crate::conformance::Site;
use crate::site::Database;

/// Long enough for a machine that has much else to do.
const LONG: Duration = Duration::from_secs(600);
const GLANCE: Duration = Duration::from_millis(20);

#[test]
fn lease_has_one_owner_at_a_time() {
    let database = Database::start();
    let cluster = database.cluster("leases");
    drop(cluster.open());
    let table = || LeaseTable::new(cluster.store.clone(), cluster.options.clone());
    let [first, second] = [table(), table()].map(|table| table.expect("a table"));
    let ask = |table: &LeaseTable, member: &str, length: Duration, action: LeaseAction| {
        let answer = table.carry_out(("jobs", member), length, action);
        answer.expect("an answer")
    };
    assert_eq!(ask(&first, "a", LONG, LeaseAction::Take), Some(1));
    assert_eq!(ask(&second, "b", LONG, LeaseAction::Take), None);
    assert_eq!(ask(&second, "b", LONG, LeaseAction::Renew(1)), None);
    assert_eq!(ask(&second, "b", LONG, LeaseAction::Release(1)), None);
    assert_eq!(ask(&first, "a", LONG, LeaseAction::Renew(1)), Some(1));
    assert_eq!(ask(&first, "a", LONG, LeaseAction::Release(1)), None);
    // One that comes late.
    assert_eq!(ask(&first, "a", LONG, LeaseAction::Renew(1)), None);
    assert_eq!(ask(&second, "b", GLANCE, LeaseAction::Take), Some(3));
    // It is over by itself, and another one's then.
    while ask(&first, "a", LONG, LeaseAction::Take).is_none() {
        thread::sleep(GLANCE);
    }
    assert_eq!(ask(&second, "b", LONG, LeaseAction::Renew(3)), None);
    assert_eq!(ask(&first, "a", LONG, LeaseAction::Renew(4)), Some(4));
    // It ends later than any lease does when the clock of the database was set back.
    database
        .server
        .query(&["UPDATE leases.lease SET until = until + interval '2 minutes'"]);
    assert_eq!(ask(&second, "b", LONG, LeaseAction::Take), Some(5));
    // Leases have their owners each.
    let other = second.carry_out(("schedule", "b"), LONG, LeaseAction::Take);
    assert_eq!(other.expect("an answer"), Some(1));
}

#[test]
fn holder_owns_from_the_answer_until_two_thirds_of_the_lease() {
    let second = Duration::from_secs;
    let mut holder = LeaseHolder::new(second(6));
    let take = holder.due(second(10)).expect("due");
    assert_eq!(take.action, LeaseAction::Take);
    assert_eq!(holder.epoch(second(10)), None);
    holder.answered(take.number, Some(7));
    assert_eq!(holder.epoch(second(13)), Some(7));
    assert_eq!(holder.epoch(second(14)), None, "by its own clock");
    assert_eq!(holder.due(Duration::from_millis(10_999)), None);
    let renew = holder.due(second(12)).expect("due");
    assert_eq!(renew.action, LeaseAction::Renew(7));
    let release = holder.release(second(13)).expect("it owned something");
    assert_eq!(release.action, LeaseAction::Release(7));
    holder.answered(renew.number, Some(7));
    assert_eq!(holder.epoch(second(13)), None, "it has let go");
}
