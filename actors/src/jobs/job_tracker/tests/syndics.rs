//! Tests of the shell with syndics: their minions, their returns, and the replay after a restart.

use saltern_base::clock::Clock;
use saltern_model::Compat;
use saltern_requests::SyndicMinions;
use saltern_wire::msgpack::{Dialect, encode};

use super::*;
use crate::events::bus::{Bus, QueueLimits, Subscription};
use crate::messages::TakeSyndicMinions;

fn leaves(number: u32, minions: &[&str]) -> Vec<SyndicMinions> {
    vec![SyndicMinions {
        jid: jid(number),
        syndic: id("relay"),
        minions: ids(minions),
    }]
}

fn forwarded(record: ReturnRecord) -> Box<ReceivedReturn> {
    Box::new(ReceivedReturn {
        job: job(1, &[record.minion.as_str()]),
        record,
        reporter: Some(id("relay")),
        standalone: false,
        forwarded: true,
        confirms_only: false,
        events: vec![event("ret")],
        keep: true,
    })
}

/// The store's report of these returns through a syndic.
fn stored_forwarded(returns: &[(u32, &str)]) -> Stored {
    let mut stored = stored(returns);
    for one in &mut stored.returns {
        one.forwarded = true;
    }
    stored
}

#[test]
fn syndic_minions_are_stored_and_then_awaited() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        let (answer, reply) = rig.answer().await;
        let message = TakeSyndicMinions {
            leaves: leaves(1, &["b"]),
            answer,
        };
        rig.tracker.send(message).await.unwrap();
        let persist = rig.store.recv().await.unwrap();
        let [(Write::Expected { minions, .. }, FollowUp::Expect(expected))] = &persist.writes[..]
        else {
            panic!("it is stored that they are expected");
        };
        assert_eq!(*minions, ids(&["b"]));
        assert_eq!(*expected, leaves(1, &["b"])[0]);
        persist.answer.unwrap().done();
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        let joined = Stored {
            leaves: leaves(1, &["b"]),
            ..Stored::default()
        };
        rig.tracker.send(joined).await.unwrap();
        rig.tracker.send(stored(&[(1, "a")])).await.unwrap();
        assert_eq!(rig.metrics.open.get(), 1, "one is below a syndic");
        rig.tracker
            .send(stored_forwarded(&[(1, "b")]))
            .await
            .unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
        let (word, data) = rig.next_event().await;
        assert_eq!(word, "finished");
        assert_eq!(data.get("returned").unwrap().as_array().unwrap().len(), 2);
    });
}

#[test]
fn minion_that_joins_an_ended_job_reopens_it() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        rig.tracker.send(stored(&[(1, "a")])).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
        assert_eq!(rig.next_event().await.0, "finished");
        let joined = Stored {
            leaves: leaves(1, &["b"]),
            ..Stored::default()
        };
        rig.tracker.send(joined).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Open)]);
        assert_eq!(rig.metrics.open.get(), 1);
        rig.tracker
            .send(stored_forwarded(&[(1, "b")]))
            .await
            .unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
    });
}

#[test]
fn unannounced_forwarded_return_adds_its_minion() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        let (answer, _reply) = rig.answer().await;
        let returned = forwarded(record(1, "b"));
        rig.tracker
            .send(TakeReturn { returned, answer })
            .await
            .unwrap();
        let persist = rig.store.recv().await.unwrap();
        assert!(matches!(
            persist.writes[..],
            [(Write::Expected { .. }, _), (Write::Return(_), _)]
        ));
        rig.tracker
            .send(stored_forwarded(&[(1, "b")]))
            .await
            .unwrap();
        rig.tracker.send(stored(&[(1, "a")])).await.unwrap();
        let (_, data) = rig.next_event().await;
        assert_eq!(data.get("returned").unwrap().as_array().unwrap().len(), 2);
    });
}

/// Delivers a return through a syndic; gives the message to the store.
async fn take_forwarded(rig: &mut Rig, number: u32, minion: &str) -> Persist {
    let (answer, _reply) = rig.answer().await;
    let returned = forwarded(record(number, minion));
    rig.tracker
        .send(TakeReturn { returned, answer })
        .await
        .unwrap();
    rig.store.recv().await.unwrap()
}

#[test]
fn lookups_for_forwarded_returns_are_charged_to_their_jobs() {
    in_system(async {
        let mut rig = rig(&expired_without_b());
        for number in 0..40 {
            take_forwarded(&mut rig, 1_000 + number, "c").await;
        }
        let last = take_forwarded(&mut rig, 1, "b").await;
        assert_eq!(state_beside_return(&last), Some(JobState::Complete));
    });
}

#[test]
fn reloaded_job_is_complete_only_with_minions_that_joined_it() {
    in_system(async {
        let mut rig = rig(&[Write::Job(job(1, &["a", "b"])), ended(1, JobState::Expired)]);
        let joined = |minion: &str| Stored {
            leaves: leaves(1, &[minion]),
            ..Stored::default()
        };
        assert_eq!(state_beside_return(&rig.take(1, "a").await), None);
        rig.tracker.send(joined("z")).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Expired)]);
        assert_eq!(rig.metrics.open.get(), 0);
        let both = stored(&[(1, "a"), (1, "b")]);
        rig.tracker.send(both).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Expired)]);
        let last = take_forwarded(&mut rig, 1, "z").await;
        assert_eq!(state_beside_return(&last), Some(JobState::Complete));
        rig.tracker
            .send(stored_forwarded(&[(1, "z")]))
            .await
            .unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
        // One that joins after its last known return: the state is corrected.
        rig.tracker.send(joined("y")).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Expired)]);
    });
}

#[test]
fn forwarded_probe_answer_is_no_return() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        rig.tracker.send(departed(1, true)).await.unwrap();
        let probe = rig.publisher.recv().await.unwrap().jid;
        while rig.store.try_recv().is_ok() {}
        let described = Value::map([("jid", jid(1).as_str()), ("fun", "test.ping")]);
        let said = Value::map([
            ("jid", Value::from(probe.as_str())),
            ("return", Value::Array(vec![described])),
        ]);
        let answered = ReturnRecord {
            jid: probe,
            load: Packed::new(encode(&said, Dialect::Bin)),
            ..record(1, "a")
        };
        let (answer, reply) = rig.answer().await;
        let returned = forwarded(answered);
        rig.tracker
            .send(TakeReturn { returned, answer })
            .await
            .unwrap();
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert!(rig.store.try_recv().is_err(), "it is not stored");
    });
}

#[test]
fn late_answer_to_a_forgotten_probe_makes_no_job() {
    in_system(async {
        let mut asked_by_user = job(2, &["b"]);
        asked_by_user.fun = "saltutil.running".to_owned();
        let mut rig = rig(&[Write::Job(asked_by_user)]);
        while rig.store.try_recv().is_ok() {}
        let running = |number| ReturnRecord {
            fun: "saltutil.running".to_owned(),
            ..record(number, "b")
        };
        // Of the question, of a user's own one, and of a job that is known below only.
        for (number, returned, is_kept) in [
            (7, running(7), false),
            (2, running(2), true),
            (8, record(8, "b"), true),
        ] {
            let (answer, _reply) = rig.answer().await;
            let returned = forwarded(returned);
            rig.tracker
                .send(TakeReturn { returned, answer })
                .await
                .unwrap();
            let kept = rig.store.try_recv().is_ok();
            assert_eq!(kept, is_kept, "{number}");
        }
        assert_eq!(rig.metrics.strays.get(), 1);
    });
}

/// Connects a listener, and gives all that it gets before it has to wait.
async fn heard(rig: &Rig, subscription: &Subscription) -> Vec<String> {
    rig.tracker
        .send(Greet(subscription.newcomer()))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let frames = subscription
        .take_now(1_000)
        .map_or(Vec::new(), |taken| taken.0);
    let text = |frame: &Bytes| String::from_utf8_lossy(frame).into_owned();
    frames.iter().map(text).collect()
}

#[test]
fn missed_events_are_replayed_only_soon_after_the_start() {
    in_system(async {
        let old = ReturnRecord {
            received: NOW - 1_000_000_000,
            ..record(3, "old")
        };
        let of_runner = ReturnRecord {
            fun: "runner.jobs.active".to_owned(),
            received: NOW,
            ..record(4, "master")
        };
        let young = |minion| ReturnRecord {
            received: NOW,
            ..record(1, minion)
        };
        let mut known = job(1, &["a", "b", "c"]);
        known.created = NOW;
        let rig = rig(&[
            Write::Job(known),
            Write::Return(young("forgotten")),
            Write::Return(old),
            Write::Return(young("a")),
            Write::Return(of_runner),
        ]);
        let limits = QueueLimits {
            frames: 1_000,
            bytes: 1 << 20,
        };
        let bus = Bus::new(Compat::V3008, limits, Clock::system(), &Registry::new());
        let subscription = bus.subscribe();
        let frames = heard(&rig, &subscription).await;
        let count = |what: &str| frames.iter().filter(|frame| frame.contains(what)).count();
        assert_eq!(count(&format!("again/{}", jid(1))), 1, "{frames:?}");
        assert_eq!(count("/ret/a"), 1, "{frames:?}");
        assert_eq!(
            count("/ret/"),
            1,
            "the last {RECALLED}, but old ones: {frames:?}"
        );
        tokio::time::sleep(Duration::from_secs(30)).await;
        let late = bus.subscribe();
        let frames = heard(&rig, &late).await;
        assert!(
            !frames.iter().any(|frame| frame.contains("/ret/")),
            "{frames:?}"
        );
    });
}
