//! Restart policies: which children restart, when, and with which siblings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::common::*;
use saltern_supervise::{Budget, ChildState, ExitReason, Restart};

#[test]
fn back_off_is_served_and_starts_over_after_a_quiet_window() {
    paused(async {
        let (_tree, root) = tree(1000);
        let log = Log::default();
        let broken = Arc::new(AtomicBool::new(true));
        let state = Arc::clone(&broken);
        let log_of_probe = log.clone();
        let probe = Script::new(0, &log)
            .starting(move |_, _| assert!(!state.load(Ordering::SeqCst), "broken"))
            .start(&root);
        tokio::time::sleep(SECOND * 17).await;
        let times = log_of_probe.times("build 0");
        // The timer wheel of tokio rounds up to the next millisecond.
        let expected = [0, 0, 100, 300, 700, 1500, 3100, 6300, 11300, 16300];
        assert_eq!(times.len(), expected.len(), "{times:?}");
        for (time, expected) in times.iter().zip(expected) {
            assert!((expected..expected + 20).contains(time), "{times:?}");
        }

        broken.store(false, Ordering::SeqCst);
        assert_eq!(probe.send(Bump).await, Ok(1));
        tokio::time::sleep(SECOND * 61).await;
        log.take();
        let start = tokio::time::Instant::now();
        assert!(probe.send(boom()).await.is_err());
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

#[test]
fn a_transient_child_may_end_by_itself_but_not_by_a_panic() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let spec = generous().with_restart(Restart::Transient);
        let probe = Script::new(0, &log).start_with(&root, spec);
        assert!(probe.send(boom()).await.is_err());
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(probe.send(stop()).await, Ok(()));
        assert!(probe.send(Bump).await.is_err());
        assert!(!probe.connected());
        assert!(tree.liveness().is_empty());
        assert_eq!(log.count("build 0"), 2);
    });
}

#[test]
fn permanent_child_that_stops_itself_is_restarted() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(probe.send(stop()).await, Ok(()));
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(
            log.take(),
            [
                "build 0",
                "started 0",
                "stopping 0",
                "stopped 0",
                "drop 0",
                "build 0",
                "started 0"
            ]
        );
    });
}

#[test]
fn later_children_of_a_branch_wait_until_the_failed_one_has_really_started() {
    paused(async {
        let (_tree, root) = tree(100);
        // Each failure is one of the branch.
        let branch = root.supervisor("branch", Budget::new(0, SECOND));
        let log = Log::default();
        let broken = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&broken);
        let one = Script::new(1, &log)
            .starting(move |_, _| assert!(!state.load(Ordering::SeqCst), "broken"))
            .start(&branch);
        let two = Script::new(2, &log).start(&branch);
        assert_eq!(two.send(Bump).await, Ok(1));
        broken.store(true, Ordering::SeqCst);
        assert!(one.send(boom()).await.is_err());
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(log.count("build 2"), 1);
        broken.store(false, Ordering::SeqCst);
        assert_eq!(two.send(Bump).await, Ok(1));
        assert_eq!(log.count("build 2"), 2);
    });
}

#[test]
fn exhausted_budget_restarts_the_branch_then_stops_the_tree() {
    paused(async {
        // The root allows one restart, the branch two.
        let (tree, root) = tree(1);
        let branch = root.supervisor("branch", Budget::new(2, SECOND * 60));
        let log = Log::default();
        let outside = Script::new(1, &log).draining_for(SECOND).start(&root);
        let weak = Script::new(2, &log).start(&branch);
        let sibling = Script::new(3, &log).start(&branch);
        assert_eq!(sibling.send(Bump).await, Ok(1));

        for _ in 0..2 {
            assert!(weak.send(boom()).await.is_err());
            assert_eq!(weak.send(Bump).await, Ok(1));
        }
        assert_eq!(sibling.send(Bump).await, Ok(2), "not concerned so far");
        assert!(weak.send(boom()).await.is_err());
        assert_eq!(weak.send(Bump).await, Ok(1), "the branch was restarted");
        assert_eq!(sibling.send(Bump).await, Ok(1), "all of it");
        assert_eq!(outside.send(Bump).await, Ok(1), "and nothing else");
        assert_eq!(log.count("build 1"), 1);

        // The branch has a full budget again; the root has none.
        for _ in 0..2 {
            assert!(weak.send(boom()).await.is_err());
            assert_eq!(weak.send(Bump).await, Ok(1));
        }
        log.take();
        assert!(weak.send(boom()).await.is_err());
        let failure = tree.failed().await;
        assert_eq!(failure.actor.to_string(), "probe-2");
        assert_eq!(failure.reason, ExitReason::Panicked("boom".to_owned()));
        assert_eq!(
            failure.to_string(),
            "supervisor \"root\" has used up its restarts: actor \"probe-2\" panicked: \"boom\""
        );
        assert_eq!(
            log.take(),
            [
                "drop 2",
                "stopping 3",
                "stopped 3",
                "drop 3",
                "drain 1",
                "drained 1",
                "stopping 1",
                "stopped 1",
                "drop 1",
            ]
        );
        assert!(!weak.connected() && !sibling.connected() && !outside.connected());
        assert!(tree.liveness().is_empty());
    });
}

#[test]
fn a_child_may_use_up_its_own_budget_before_its_supervisors() {
    paused(async {
        let (tree, root) = tree(1000);
        let spec = generous().with_budget(Budget::new(1, SECOND));
        let probe = Script::new(0, &Log::default()).start_with(&root, spec);
        assert!(probe.send(boom()).await.is_err());
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(tree.liveness()[0].state, ChildState::Running);
        assert!(probe.send(boom()).await.is_err());
        let failure = tree.failed().await;
        assert_eq!(failure.supervisor, "root");
    });
}

#[test]
fn restarts_outside_the_window_are_forgiven() {
    paused(async {
        let (tree, root) = tree(1);
        let probe = Script::new(0, &Log::default()).start(&root);
        for _ in 0..5 {
            assert!(probe.send(boom()).await.is_err());
            assert_eq!(probe.send(Bump).await, Ok(1));
            tokio::time::sleep(SECOND * 60).await;
        }
        assert_eq!(tree.liveness()[0].restarts, 5);
    });
}

#[test]
fn a_panic_can_be_injected_by_name() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let one = Script::new(1, &log).start(&root);
        let two = Script::new(2, &log).start(&root);
        assert_eq!(one.send(Bump).await, Ok(1));
        assert_eq!(two.send(Bump).await, Ok(1));
        assert!(tree.inject_panic("probe", 2));
        assert!(!tree.inject_panic("probe", 3));
        assert!(!tree.inject_panic("nobody", 1));
        assert_eq!(two.send(Bump).await, Ok(1));
        assert_eq!(one.send(Bump).await, Ok(2));
        assert_eq!(tree.liveness()[1].restarts, 1);
    });
}

#[test]
fn two_exhausted_budgets_at_once_stop_the_tree_once() {
    paused(async {
        let (tree, root) = tree(0);
        let log = Log::default();
        let sink = Script::new(1, &log).draining_for(SECOND).start(&root);
        let two = Script::new(2, &log).start(&root);
        let three = Script::new(3, &log).start(&root);
        assert_eq!(sink.send(Bump).await, Ok(1));
        two.do_send(boom());
        three.do_send(boom());
        let failure = tree.failed().await;
        assert_eq!(failure.actor.instance, 2);
        assert_eq!(log.count("drained 1"), 1);
        assert!(!two.connected() && !three.connected());
    });
}
