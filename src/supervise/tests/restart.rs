//! State that survives a panic, and state that does not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::common::*;
use actix::{ActorFutureExt, AsyncContext, MailboxError, StreamHandler, WrapFuture};
use futures_util::stream;
use parking_lot::Mutex;
use saltern_supervise::ChildState;
use tokio::sync::mpsc;

#[test]
fn a_panic_in_a_handler_loses_one_message_and_all_state() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(probe.send(Bump).await, Ok(2));
        let (fatal, behind, last) =
            tokio::join!(probe.send(boom()), probe.send(Bump), probe.send(Bump));
        assert_eq!(fatal, Err(MailboxError::Closed));
        assert_eq!((behind, last), (Ok(1), Ok(2)));
        assert_eq!(probe.send(Bump).await, Ok(3));
        assert!(probe.connected());
        assert_eq!(tree.liveness()[0].restarts, 1);
        // The broken value is dropped without being asked anything.
        assert_eq!(
            log.take(),
            ["build 0", "started 0", "drop 0", "build 0", "started 0"]
        );
    });
}

#[test]
fn the_address_given_out_by_the_context_is_the_surviving_one() {
    paused(async {
        let (_tree, root) = tree(10);
        let given = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&given);
        let probe = Script::new(0, &Log::default())
            .starting(move |_, ctx| keep.lock().push(ctx.address()))
            .start(&root);
        assert!(probe.send(boom()).await.is_err());
        assert_eq!(probe.send(Bump).await, Ok(1));
        let given = given.lock().clone();
        assert_eq!(given, [probe.clone(), probe]);
        assert_eq!(given[0].send(Bump).await, Ok(2));
    });
}

#[test]
fn a_panic_in_a_timer_restarts_and_old_timers_are_gone() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        let ticks = log.clone();
        let timers = act(move |_, ctx| {
            ctx.run_interval(SECOND, move |_, _| ticks.add("tick"));
            ctx.run_later(SECOND * 3 / 2, |_, _| panic!("boom in a timer"));
        });
        assert_eq!(probe.send(timers).await, Ok(()));
        tokio::time::sleep(SECOND * 20).await;
        assert_eq!(log.count("tick"), 1);
        assert_eq!(log.count("build 0"), 2);
        assert_eq!(probe.send(Bump).await, Ok(1));
    });
}

#[test]
fn a_panic_in_a_spawned_future_restarts_and_drops_the_other_futures() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        let (held, mut dropped) = mpsc::channel::<()>(1);
        let futures = act(move |probe, ctx| {
            let forever = async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            ctx.spawn(forever.into_actor(probe));
            ctx.spawn(async { panic!("boom in a future") }.into_actor(probe));
        });
        assert_eq!(probe.send(futures).await, Ok(()));
        assert_eq!(dropped.recv().await, None);
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(log.count("build 0"), 2);
    });
}

#[test]
fn a_panic_in_started_or_build_is_retried() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let tries = Arc::new(AtomicU32::new(0));
        let (in_build, in_started) = (Arc::clone(&tries), Arc::clone(&tries));
        let probe = Script::new(0, &log)
            .building(move || assert!(in_build.fetch_add(1, Ordering::SeqCst) != 0, "first"))
            .starting(move |_, _| assert!(in_started.fetch_add(1, Ordering::SeqCst) > 2, "second"))
            .start(&root);
        // Sent before the first build: waits until there is somebody to answer.
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(log.count("build 0"), 3);
        assert_eq!(log.count("started 0"), 2);
    });
}

#[test]
fn panic_in_a_response_future_fails_all_waiting_callers() {
    paused(async {
        let (_tree, root) = tree(10);
        let probe = Script::new(0, &Log::default()).start(&root);
        let start = tokio::time::Instant::now();
        let (fatal, other) = tokio::join!(
            probe.send(Later(SECOND, Outcome::Panic)),
            probe.send(Later(SECOND * 60, Outcome::Count)),
        );
        assert_eq!(fatal, Err(MailboxError::Closed));
        // Its future died with the value: answered at once, not after a minute.
        assert_eq!(other, Err(MailboxError::Closed));
        assert!(start.elapsed() < SECOND * 2);
        assert_eq!(probe.send(Bump).await, Ok(1));
    });
}

#[test]
fn callers_get_an_error_at_once_also_during_back_off() {
    paused(async {
        let (_tree, root) = tree(100);
        let probe = Script::new(0, &Log::default()).start(&root);
        for _ in 0..6 {
            assert!(probe.send(boom()).await.is_err());
        }
        assert_eq!(probe.send(Bump).await, Ok(1));
        let start = tokio::time::Instant::now();
        let (owed, fatal) = tokio::join!(
            probe.send(Later(SECOND * 60, Outcome::Count)),
            probe.send(boom())
        );
        assert!(owed.is_err() && fatal.is_err());
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert!(start.elapsed() >= SECOND * 3, "the back-off was served");
    });
}

#[test]
fn an_atomic_response_holds_messages_back_and_its_panic_loses_only_itself() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        let start = tokio::time::Instant::now();
        let (atomic, behind) =
            tokio::join!(probe.send(Atomic(SECOND, Outcome::Count)), probe.send(Bump));
        assert_eq!((atomic, behind), (Ok(1), Ok(2)));
        assert!(start.elapsed() >= SECOND);

        let (fatal, behind) =
            tokio::join!(probe.send(Atomic(SECOND, Outcome::Panic)), probe.send(Bump));
        assert_eq!((fatal, behind), (Err(MailboxError::Closed), Ok(1)));
        assert_eq!(log.count("build 0"), 2);
        // The wait itself is gone too.
        assert_eq!(probe.send(Atomic(SECOND, Outcome::Count)).await, Ok(2));
    });
}

#[test]
fn timers_wait_for_an_atomic_response_too() {
    // A wait stops the mailbox *and* the other futures of the context in actix: a timer that
    // falls due meanwhile fires afterwards. Written down here because it is easy to get wrong.
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        let ticks = log.clone();
        let timer = act(move |_, ctx| {
            ctx.run_later(SECOND, move |_, _| ticks.add("late"));
        });
        assert_eq!(probe.send(timer).await, Ok(()));
        assert_eq!(probe.send(Atomic(SECOND * 5, Outcome::Count)).await, Ok(1));
        assert_eq!(probe.send(Bump).await, Ok(2));
        assert_eq!(log.times("late"), [5000]);
    });
}

#[test]
fn detached_response_outlives_the_value_and_its_panic_is_isolated() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        let (answer, fatal) = tokio::join!(
            probe.send(Detached(SECOND, Outcome::Count)),
            probe.send(boom())
        );
        assert_eq!((answer, fatal), (Ok(42), Err(MailboxError::Closed)));
        assert_eq!(log.count("build 0"), 2);

        let lost = probe.send(Detached(SECOND, Outcome::Panic)).await;
        assert_eq!(lost, Err(MailboxError::Closed));
        assert_eq!(
            log.count("build 0"),
            2,
            "not supervised: it is a task, not the actor"
        );
    });
}

struct Item(u32);

impl StreamHandler<Item> for Probe {
    fn handle(&mut self, Item(number): Item, _: &mut actix::Context<Self>) {
        assert!(number != 13, "boom in a stream");
        self.count += number;
        self.script.log.add(format!("item {number}"));
    }
}

#[test]
fn a_stream_dies_with_the_value_that_added_it() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        let (items, mut source) = mpsc::unbounded_channel();
        let add = act(move |_, ctx| {
            Probe::add_stream(stream::poll_fn(move |cx| source.poll_recv(cx)), ctx);
        });
        assert_eq!(probe.send(add).await, Ok(()));
        for number in [1, 13, 2] {
            items
                .send(Item(number))
                .map_err(|_| "closed")
                .expect("the stream is read");
        }
        items.closed().await;
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!(log.count("item 1"), 1);
        assert_eq!(log.count("item 2"), 0);
        assert_eq!(log.count("build 0"), 2);
    });
}

#[test]
fn the_end_of_a_stream_stops_the_actor_and_a_permanent_one_comes_back() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        let add = act(|_, ctx| {
            Probe::add_stream(stream::iter([Item(5), Item(6)]), ctx);
        });
        let (added, after) = tokio::join!(probe.send(add), probe.send(Bump));
        assert_eq!((added, after), (Ok(()), Ok(1)));
        // `StreamHandler::finished` stops by default; override it where that is not wanted.
        assert_eq!(probe.send(Bump).await, Ok(1));
        assert_eq!((log.count("item 6"), log.count("stopped 0")), (1, 1));
        assert_eq!(log.count("build 0"), 2);
    });
}

#[test]
fn started_may_hold_the_mailbox_until_it_has_loaded() {
    paused(async {
        let (_tree, root) = tree(10);
        let probe = Script::new(0, &Log::default())
            .starting(|probe, ctx| {
                let load = tokio::time::sleep(SECOND).into_actor(probe);
                ctx.wait(load.map(|(), probe: &mut Probe, _| probe.count = 100));
            })
            .start(&root);
        assert_eq!(probe.send(Bump).await, Ok(101));
        assert!(probe.send(boom()).await.is_err());
        assert_eq!(probe.send(Bump).await, Ok(101));
    });
}

#[test]
fn a_value_that_panics_in_drop_is_survived() {
    paused(async {
        let (_tree, root) = tree(10);
        let mut script = Script::new(0, &Log::default());
        script.drop = Arc::new(|| panic!("boom in drop"));
        let probe = script.start(&root);
        assert!(probe.send(boom()).await.is_err());
        assert_eq!(probe.send(Bump).await, Ok(1));
    });
}

#[test]
fn restart_leaves_other_actors_on_the_thread_alone() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let one = Script::new(1, &log).start(&root);
        let two = Script::new(2, &log).start(&root);
        assert_eq!(two.send(Bump).await, Ok(1));
        assert!(one.send(boom()).await.is_err());
        assert_eq!(two.send(Bump).await, Ok(2));
        assert_eq!(log.count("build 2"), 1);
        let health = tree.liveness();
        assert_eq!(
            health
                .iter()
                .map(|child| child.restarts)
                .collect::<Vec<_>>(),
            [1, 0]
        );
    });
}

#[test]
fn self_sending_actor_does_not_starve_its_thread() {
    fn again(log: Log) -> Do {
        act(move |_, ctx| {
            log.add("turn");
            ctx.address().do_send(again(log.clone()));
        })
    }
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let busy = Script::new(1, &log).start(&root);
        let neighbour = Script::new(2, &Log::default()).start(&root);
        busy.do_send(again(log.clone()));
        for count in 1..100 {
            assert_eq!(neighbour.send(Bump).await, Ok(count));
        }
        assert!(log.count("turn") > 64, "it did get its turns");
    });
}

#[test]
fn child_without_addresses_is_not_stopped() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let ticks = log.clone();
        let script = Script::new(0, &log).starting(move |_, ctx| {
            let ticks = ticks.clone();
            ctx.run_interval(SECOND, move |_, _| ticks.add("tick"));
        });
        drop(script.start(&root));
        tokio::time::sleep(SECOND * 4).await;
        assert!(log.count("tick") >= 3);
        assert_eq!(tree.liveness()[0].state, ChildState::Running);
        assert_eq!(tree.liveness()[0].restarts, 0);
    });
}

#[test]
fn full_mailbox_refuses_and_keeps_accepted_messages() {
    paused(async {
        let (_tree, root) = tree(10);
        let log = Log::default();
        let probe = Script::new(0, &log).start(&root);
        let slow = probe.send(Atomic(SECOND, Outcome::Count));
        let mut taken = 0;
        // Yields, so that the runner takes what it will while the actor waits.
        let fill = async {
            for _ in 0..1000 {
                taken += u32::from(probe.try_send(Bump).is_ok());
                tokio::task::yield_now().await;
            }
        };
        let (slow, ()) = tokio::join!(slow, fill);
        assert_eq!(slow, Ok(1));
        // Twice the mailbox, and one slot of this sender.
        assert!((32..=33).contains(&taken), "took {taken}");
        assert_eq!(probe.send(Bump).await, Ok(taken + 2));
    });
}
