//! Actors on threads of their own.

use std::{collections::HashSet, sync::mpsc, thread::ThreadId};

use crate::common::*;
use futures_util::{StreamExt, stream};
use saltern_supervise::{Budget, HEARTBEAT, Placement};

const MESSAGES: u32 = 100_000;

fn thread_of(into: mpsc::Sender<(ThreadId, String)>) -> Do {
    act(move |_, _| {
        let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
        let _ = into.send((std::thread::current().id(), name.trim_end().to_owned()));
    })
}

#[test]
fn threads_are_named_and_shared_by_name_and_an_actor_stays_on_its_own() {
    real_time(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let on = |name| generous().on(Placement::thread(name));
        let one = Script::new(1, &log).start_with(&root, on("first"));
        let two = Script::new(2, &log).start_with(&root, on("second"));
        let three = Script::new(3, &log).start_with(&root, on("first"));
        let (sender, seen) = mpsc::channel();
        for probe in [&one, &two, &three] {
            assert_eq!(probe.send(thread_of(sender.clone())).await, Ok(()));
        }
        assert!(one.send(boom()).await.is_err());
        assert_eq!(one.send(thread_of(sender)).await, Ok(()));
        let seen: Vec<_> = seen.iter().collect();
        assert_eq!(seen[0], seen[2]);
        assert_eq!(seen[0], seen[3]);
        assert_eq!(
            seen.iter().map(|(id, _)| *id).collect::<HashSet<_>>().len(),
            2
        );
        if cfg!(target_os = "linux") {
            assert_eq!(
                (seen[0].1.as_str(), seen[1].1.as_str()),
                ("first", "second")
            );
        }
        assert_eq!(two.send(Bump).await, Ok(1));
        assert!(tree.shutdown().await.is_clean());
        assert!(one.send(Bump).await.is_err());
    });
}

/// Threads of this process with a name.
#[cfg(target_os = "linux")]
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = tasks.flatten().map(|task| {
        // It may have ended.
        std::fs::read_to_string(task.path().join("comm")).unwrap_or_default()
    });
    names.filter(|found| found.trim_end() == name).count()
}

/// As many calls as blocked at once need threads, and keep none once they are done.
#[cfg(target_os = "linux")]
#[test]
fn threads_of_a_pool_bear_the_name_of_the_actors_and_end_with_their_work() {
    const CALLS: usize = 8;
    real_time(async {
        let (tree, root) = tree(10);
        let spec = generous().on(Placement::thread("brief"));
        let one = Script::new(1, &Log::default()).start_with(&root, spec);
        let all = std::sync::Arc::new(std::sync::Barrier::new(CALLS));
        let (into, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let handler = act(move |_, _| {
            for _ in 0..CALLS {
                let (all, into) = (all.clone(), into.clone());
                let begun = saltern_base::blocking::begin(move || {
                    all.wait();
                    let _ = into.send(threads_named("brief-pool"));
                });
                assert!(begun.is_ok());
            }
        });
        assert_eq!(one.send(handler).await, Ok(()));
        assert_eq!(seen.recv().await, Some(CALLS));
        let ended = async {
            while threads_named("brief-pool") > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        // A pool of tokio keeps them for ten seconds of its own accord.
        let ended = tokio::time::timeout(SECOND * 5, ended).await;
        assert!(ended.is_ok(), "they are kept");
        assert!(tree.shutdown().await.is_clean());
    });
}

/// The system cuts names off, and `-pool` at their end shows what they are.
#[cfg(target_os = "linux")]
#[test]
fn threads_of_a_pool_are_known_by_their_end_however_long_the_name() {
    for (name, expected) in [
        ("ten_letters", "ten_letter-pool"),
        ("publisher", "publisher-pool"),
        ("nine_and_\u{e4}", "nine_and_-pool"),
        ("", "-pool"),
    ] {
        let runtime = saltern_supervise::runtime(name).expect("a runtime");
        let found = runtime.block_on(async {
            let comm = || std::fs::read_to_string("/proc/thread-self/comm");
            saltern_base::blocking::run(comm).await
        });
        let found = found.expect("it ends").expect("a name");
        assert_eq!(found.trim_end(), expected, "{name}");
    }
}

#[test]
fn of_100_000_messages_to_another_thread_only_the_fatal_ones_are_lost() {
    real_time(async {
        let (tree, root) = tree(10);
        let spec = generous().on(Placement::thread("worker"));
        let probe = Script::new(0, &Log::default()).start_with(&root, spec);
        let answers: Vec<bool> = stream::iter(1..=MESSAGES)
            .map(|number| {
                let probe = &probe;
                async move {
                    if number % (MESSAGES / 4) == 0 {
                        probe.send(boom()).await.is_ok()
                    } else {
                        probe.send(Bump).await.is_ok()
                    }
                }
            })
            .buffered(256)
            .collect()
            .await;
        let lost: Vec<usize> = answers
            .iter()
            .enumerate()
            .filter(|(_, fine)| !**fine)
            .map(|(at, _)| at + 1)
            .collect();
        assert_eq!(lost, [25_000, 50_000, 75_000, 100_000]);
        assert_eq!(tree.liveness()[0].restarts, 4);
        assert!(tree.shutdown().await.is_clean());
    });
}

#[test]
fn branch_keeps_its_order_across_threads() {
    real_time(async {
        let (tree, root) = tree(10);
        let branch = root.supervisor("branch", Budget::new(0, SECOND));
        let log = Log::default();
        let on = |name| generous().on(Placement::thread(name));
        let one = Script::new(1, &log).start_with(&branch, on("one"));
        let two = Script::new(2, &log).start_with(&branch, on("two"));
        let (started, mut last) = tokio::sync::mpsc::unbounded_channel();
        let three = Script::new(3, &log)
            .starting(move |_, _| started.send(()).unwrap_or_default())
            .start_with(&branch, on("three"));
        for probe in [&one, &two, &three] {
            assert_eq!(probe.send(Bump).await, Ok(1));
        }
        assert_eq!(last.recv().await, Some(()));
        log.take();
        assert!(one.send(boom()).await.is_err());
        // The sender gets the error before the other threads are notified: only then is it certain
        // that the old values do not answer any more.
        assert_eq!(last.recv().await, Some(()));
        let built: Vec<String> = log
            .take()
            .into_iter()
            .filter(|entry| !entry.starts_with("drop"))
            .collect();
        assert_eq!(
            built,
            [
                "build 1",
                "started 1",
                "build 2",
                "started 2",
                "build 3",
                "started 3"
            ]
        );
        for probe in [&one, &two, &three] {
            assert_eq!(probe.send(Bump).await, Ok(1));
        }
        assert!(tree.shutdown().await.is_clean());
    });
}

#[test]
fn heartbeat_distinguishes_a_stuck_thread_from_a_full_mailbox() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let on = |name| generous().on(Placement::thread(name));
        let stuck = Script::new(1, &log).start_with(&root, on("stuck"));
        let waiting = Script::new(2, &log).start_with(&root, on("waiting"));
        let (release, gate) = mpsc::channel::<()>();
        let (entered, inside) = mpsc::channel();
        stuck.do_send(act(move |_, _| {
            let _ = entered.send(());
            let _ = gate.recv();
        }));
        // Busy in its mailbox for ever, but not its thread.
        waiting.do_send(act(|probe, ctx| {
            use actix::{AsyncContext, WrapFuture};
            ctx.wait(std::future::pending::<()>().into_actor(probe));
        }));
        for _ in 0..10 {
            waiting.do_send(Bump);
        }
        // Not awaited: an idle system would let its clock run ahead of the other threads.
        inside.recv().expect("the handler was entered");

        tokio::time::advance(HEARTBEAT * 10).await;
        let age = |place: usize| tree.liveness()[place].last_beat_age;
        while age(1) > HEARTBEAT || tree.liveness()[1].mailbox_len < 10 {
            tokio::task::yield_now().await;
        }
        assert!(age(0) >= HEARTBEAT * 9);

        let stopping = async {
            let stopped = tree.shutdown().await;
            release.send(()).expect("the handler waits");
            stopped
        };
        let stopped = stopping.await;
        let stuck: Vec<u32> = stopped.stuck.iter().map(|actor| actor.instance).collect();
        assert!(stuck.contains(&1), "{stopped:?}");
    });
}

/// Lets a beat pass on this system's clock; actors on other threads answer in their own time.
async fn pass_a_beat() {
    tokio::time::advance(HEARTBEAT).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Whether a heartbeat of the tree resolves within ten intervals.
async fn beats(tree: &saltern_supervise::Tree) -> bool {
    let ten_beats = async {
        for _ in 0..10 {
            pass_a_beat().await;
        }
    };
    tokio::select! {
        biased;
        () = tree.heartbeat() => true,
        () = ten_beats => false,
    }
}

#[test]
fn heartbeat_stops_while_a_thread_is_stuck_unless_it_may_block() {
    paused(async {
        let (tree, root) = tree(10);
        let log = Log::default();
        let on = |name| generous().on(Placement::thread(name));
        let blocked = Script::new(1, &log).start_with(&root, on("blocked").may_block());
        let watched = Script::new(2, &log).start_with(&root, on("watched"));
        let block = |probe: &actix::Addr<Probe>| {
            let (release, gate) = mpsc::channel::<()>();
            let (entered, inside) = mpsc::channel();
            probe.do_send(act(move |_, _| {
                let _ = entered.send(());
                let _ = gate.recv();
            }));
            // Not awaited: an idle system would let its clock run ahead of the other threads.
            inside.recv().expect("the handler was entered");
            release
        };

        let may_block: Vec<bool> = tree
            .liveness()
            .iter()
            .map(|child| child.may_block)
            .collect();
        assert_eq!(may_block, [true, false]);

        let release_blocked = block(&blocked);
        while !beats(&tree).await {}

        let release_watched = block(&watched);
        // What it answered just before it was stuck counts once more.
        for _ in 0..3 {
            pass_a_beat().await;
        }
        assert!(!beats(&tree).await);

        release_watched.send(()).expect("the handler waits");
        while !beats(&tree).await {}
        release_blocked.send(()).expect("the handler waits");
        // Not whether it is clean: while this thread idles, its paused clock runs ahead of the others.
        tree.shutdown().await;
    });
}
