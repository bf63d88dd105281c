//! Tests with repeated panics of every actor, while jobs run through.

use std::cell::Cell;
use std::rc::Rc;

use saltern_model::Jid;
use saltern_wire::msgpack::Value;
use saltern_wire::zmtp::SubClient;
use tokio::sync::oneshot;

use crate::site::{Listener, Minion, Site, jid_of};
use crate::{in_system, until};

/// Every actor of a master with two workers.
const ACTORS: [(&str, u32); 12] = [
    ("event_publisher", 0),
    ("publisher", 0),
    ("job_mirror", 0),
    ("job_store", 0),
    ("job_tracker", 0),
    ("batches", 0),
    ("mworker", 1),
    ("mworker", 2),
    ("renderer", 1),
    ("req_router", 0),
    ("maintenance", 0),
    ("upkeep", 0),
];

/// Returns one job after the other while `go_on`; gives the acknowledged jobs. Its one connection
/// must hold: `send` insists on it.
async fn keep_returning(mut minion: Minion, number: usize, go_on: Rc<Cell<bool>>) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while go_on.get() {
        let jid = format!("20260102030405{number:02}{:04}", acknowledged.len());
        minion.return_until_acknowledged(&jid).await;
        acknowledged.push(jid);
    }
    acknowledged
}

/// Follows publications on one connection, which must hold, and returns each of them.
async fn follow(
    mut publications: SubClient,
    mut minion: Minion,
    mut stop: oneshot::Receiver<()>,
) -> usize {
    let mut done = 0;
    loop {
        let frames = tokio::select! {
            frames = publications.next() => frames.expect("the connection holds"),
            _ = &mut stop => return done,
        };
        let load = minion.open(&frames[0]).unwrap();
        let jid = load.get("jid").and_then(Value::as_str).unwrap().to_owned();
        minion.return_until_acknowledged(&jid).await;
        done += 1;
    }
}

#[test]
fn panics_lose_no_return_and_no_connection() {
    in_system(async {
        let site = Site::new("");
        let identities: Vec<_> = (0..4).map(|n| site.minion(&format!("m{n}"))).collect();
        let running = site.start();
        let go_on = Rc::new(Cell::new(true));
        let mut returning = Vec::new();
        for (number, identity) in identities.iter().take(3).enumerate() {
            let minion = identity.sign_in(&running).await;
            returning.push(actix_rt::spawn(keep_returning(
                minion,
                number,
                go_on.clone(),
            )));
        }
        let publications = SubClient::connect(running.master.publish_address(), &[b""])
            .await
            .unwrap();
        running.subscriptions(1.0).await;
        let (stop, stopped) = oneshot::channel();
        let follower = identities[3].sign_in(&running).await;
        let following = actix_rt::spawn(follow(publications, follower, stopped));
        let mut events = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();

        let mut jobs = 0;
        for round in 1..=2 {
            for (name, instance) in ACTORS {
                assert!(
                    running.master.inject_panic(name, instance),
                    "{name} {instance}"
                );
                until(|| running.master.restarts(name, instance) == Some(round)).await;
                // A whole job after it: announced, published, returned, fired.
                let jid = loop {
                    let answer = running.publish(&["m3"]).await;
                    if answer.get("load").is_some() {
                        break jid_of(&answer);
                    }
                };
                jobs += 1;
                events.wait_for(&format!("salt/job/{jid}/new")).await;
                events.wait_for(&format!("salt/job/{jid}/ret/m3")).await;
            }
        }
        go_on.set(false);
        let mut acknowledged = Vec::new();
        for task in returning {
            acknowledged.push(task.await.unwrap());
        }
        stop.send(()).unwrap();
        assert!(following.await.unwrap() >= jobs);
        running.master.shutdown().await;

        let reader = site.reader();
        let mut all = 0;
        for (number, jids) in acknowledged.iter().enumerate() {
            assert!(!jids.is_empty());
            for jid in jids {
                let returns = reader.returns(&Jid::parse(jid).unwrap()).unwrap();
                assert_eq!(returns.len(), 1, "{jid}");
                assert_eq!(returns[0].minion.as_str(), format!("m{number}"));
                all += 1;
            }
        }
        let (_, stored) = reader.counts().unwrap();
        assert_eq!(stored, all + jobs as u64);
        assert!(reader.open_jobs().unwrap().len() <= ACTORS.len());
    });
}
