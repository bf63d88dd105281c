//! The two-step stop.

use std::sync::Arc;

use crate::common::*;
use actix::{ActorFutureExt, Running, WrapFuture};
use saltern_supervise::ChildState;
use tokio::time::Instant;

#[test]
fn children_drain_in_reverse_order_one_after_the_other() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let sink = Script::new(1, &log).draining_for(SECOND).start(&root);
        let source = Script::new(2, &log).draining_for(SECOND).start(&root);
        assert_eq!(sink.send(Bump).await, Ok(1));
        assert_eq!(source.send(Bump).await, Ok(1));
        log.take();
        let start = Instant::now();
        assert!(tree.shutdown().await.is_clean());
        assert_eq!(
            log.take(),
            [
                "drain 2",
                "drained 2",
                "stopping 2",
                "stopped 2",
                "drop 2",
                "drain 1",
                "drained 1",
                "stopping 1",
                "stopped 1",
                "drop 1",
            ]
        );
        assert!(start.elapsed() < SECOND * 3);
        assert!(!sink.connected() && !source.connected());
        assert!(tree.liveness().is_empty());
    });
}

#[test]
fn stop_drains_mailboxes_while_the_sink_still_answers() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let sink = Script::new(1, &log).start(&root);
        let target = sink.clone();
        let mut script = Script::new(2, &log);
        // The source passes something on while it drains.
        script.drain = Arc::new(move |probe, _| {
            let pass_on = target.send(Bump).into_actor(probe);
            Some(Box::pin(pass_on.map(|answer, probe: &mut Probe, _| {
                probe.script.log.add(format!("sink says {answer:?}"));
            })))
        });
        let source = script.start(&root);
        assert_eq!(source.send(Bump).await, Ok(1));
        let first = source.send(Atomic(SECOND, Outcome::Count));
        let queued = [source.send(Bump), source.send(Bump)];
        let [second, third] = queued;
        let (stopped, first, second, third) = tokio::join!(tree.shutdown(), first, second, third);
        assert!(stopped.is_clean());
        assert_eq!((first, second, third), (Ok(2), Ok(3), Ok(4)));
        assert_eq!(log.count("sink says Ok(1)"), 1);
    });
}

#[test]
fn drain_beyond_the_shutdown_budget_is_cut_short() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let spec = generous().with_shutdown(SECOND * 3);
        Script::new(1, &log)
            .draining_for(SECOND * 60)
            .start_with(&root, spec);
        Script::new(2, &log).start(&root);
        let start = Instant::now();
        tokio::task::yield_now().await;
        let stopped = tree.shutdown().await;
        assert_eq!(stopped.overran.len(), 1);
        assert_eq!(stopped.overran[0].instance, 1);
        assert!(stopped.stuck.is_empty());
        assert!((SECOND * 3..SECOND * 4).contains(&start.elapsed()));
        assert_eq!(log.count("drained 1"), 0);
        assert_eq!(log.count("drop 1"), 1);
    });
}

#[test]
fn zero_shutdown_budget_skips_draining() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let spec = generous().with_shutdown(std::time::Duration::ZERO);
        let probe = Script::new(1, &log)
            .draining_for(SECOND)
            .start_with(&root, spec);
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert!(tree.shutdown().await.is_clean());
        assert_eq!(log.count("drain 1"), 0);
        assert_eq!(log.count("stopped 1"), 1);
    });
}

#[test]
fn second_shutdown_call_stops_at_once() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let spec = generous().with_shutdown(SECOND * 600);
        for number in 1..=3 {
            let script = Script::new(number, &log).draining_for(SECOND * 300);
            let probe = script.start_with(&root, spec.clone());
            assert_eq!(probe.send(Bump).await, Ok(1));
        }
        let start = Instant::now();
        let again = async {
            tokio::time::sleep(SECOND).await;
            assert_eq!(tree.liveness()[2].state, ChildState::Draining);
            tree.shutdown().await
        };
        let (first, second) = tokio::join!(tree.shutdown(), again);
        assert_eq!(first.overran.len(), 1);
        assert!(second.is_clean());
        assert!(start.elapsed() < SECOND * 2);
        assert_eq!(log.count("drain 3"), 1);
        assert_eq!(log.count("drain 1") + log.count("drain 2"), 0);
        assert!(tree.liveness().is_empty());
    });
}

#[test]
fn a_panic_while_draining_ends_the_child_and_the_stop_goes_on() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let sink = Script::new(1, &log).draining_for(SECOND).start(&root);
        let mut script = Script::new(2, &log);
        script.drain = Arc::new(|_, _| panic!("boom while draining"));
        let source = script.start(&root);
        assert_eq!(source.send(Bump).await, Ok(1));
        assert_eq!(sink.send(Bump).await, Ok(1));
        assert!(tree.shutdown().await.is_clean());
        assert_eq!(log.count("build 2"), 1, "nothing is restarted any more");
        assert_eq!(log.count("drained 1"), 1);
    });
}

#[test]
fn an_actor_that_refuses_to_stop_is_stopped() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let mut script = Script::new(1, &log);
        script.stopping = Running::Continue;
        let probe = script.start(&root);
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert!(tree.shutdown().await.is_clean());
        assert_eq!(log.count("drop 1"), 1);
        assert!(!probe.connected());
    });
}

#[test]
fn a_child_in_back_off_ends_without_being_built_again() {
    paused(async {
        let (tree, root) = tree(100);
        let log = Log::default();
        let probe = Script::new(1, &log)
            .starting(|_, _| panic!("broken"))
            .start(&root);
        let waiting = probe.send(Bump);
        tokio::time::sleep(SECOND * 2).await;
        let builds = log.count("build 1");
        assert!(tree.shutdown().await.is_clean());
        assert!(waiting.await.is_err());
        assert_eq!(log.count("build 1"), builds);
    });
}

#[test]
fn nothing_starts_after_the_stop() {
    paused(async {
        let (tree, root) = tree(10);
        assert!(tree.shutdown().await.is_clean());
        let log = Log::default();
        let probe = Script::new(1, &log).start(&root);
        assert!(probe.send(Bump).await.is_err());
        assert!(log.take().is_empty());
        assert!(tree.shutdown().await.is_clean());
    });
}

#[test]
fn an_atomic_response_under_way_is_not_cut_off_by_draining() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        // The drain is done long before the message that arrives while it runs.
        let probe = Script::new(1, &log).draining_for(SECOND).start(&root);
        assert_eq!(probe.send(Bump).await, Ok(1));
        let late = async {
            tokio::time::sleep(SECOND / 2).await;
            probe.send(Atomic(SECOND * 2, Outcome::Count)).await
        };
        let (stopped, late) = tokio::join!(tree.shutdown(), late);
        assert_eq!(late, Ok(2));
        assert!(stopped.is_clean());
    });
}
