//! Tests of the stop of a master, and of what it leaves behind.

use std::collections::HashSet;
use std::sync::Arc;

use saltern_actors::{Master, StartError};
use saltern_wire::msgpack::Value;
use saltern_wire::zmtp::{ReqClient, SubClient};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, UnixStream};

use crate::site::{Listener, Minion, Site};
use crate::{in_system, until};

/// Longer than the test may take: a stop that waits for something in vain is one that fails.
const PATIENT: &str = "saltern_stop_timeout: 600\n";

const NAMES: [&str; 5] = [
    "master_event_pub.ipc",
    "master_event_pull.ipc",
    "publish_pull.ipc",
    "saltern_control.ipc",
    "workers.ipc",
];

fn sockets(site: &Site) -> Vec<String> {
    let entries = std::fs::read_dir(site.path().join("sock")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn idle_master_stops_at_once_and_removes_its_files() {
    in_system(async {
        let site = Site::new(PATIENT);
        let identity = site.minion("m1");
        let running = site.start();
        let mut events = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let _minion = identity.sign_in(&running).await;
        // The minion's answer may be here before the event is.
        events.wait_for("salt/auth").await;
        let _subscriber = SubClient::connect(running.master.publish_address(), &[b""])
            .await
            .unwrap();
        assert_eq!(sockets(&site), NAMES);
        running.master.shutdown().await;
        assert!(sockets(&site).is_empty());
        assert!(
            events.next().await.is_none(),
            "the bus closes its connections"
        );
    });
}

/// A minion that reconnects after a restart is not kept out by strangers that were quicker.
#[test]
fn connections_are_reserved_for_minions_after_a_restart() {
    in_system(async {
        let site = Site::new("saltern_max_connections: 8\n");
        let identity = site.minion("m1");
        let first = site.start();
        let mut minion = identity.sign_in(&first).await;
        minion
            .return_until_acknowledged("20260102030405000001")
            .await;
        drop(minion);
        first.master.shutdown().await;

        let second = site.start();
        let mut strangers = Vec::new();
        for _ in 0..8 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
            let address = second.master.request_address();
            strangers.push(socket.connect(address).await.unwrap());
        }
        let reserved = ["request", "reserved"];
        until(|| second.labelled("saltern_port_refused_total", &reserved) > 0.0).await;
        let mut minion = identity.sign_in(&second).await;
        assert_eq!(
            minion
                .return_until_acknowledged("20260102030405000002")
                .await,
            1
        );
        second.master.shutdown().await;
    });
}

#[test]
fn master_stopped_while_starting_stops_at_once() {
    in_system(async {
        let site = Site::new(PATIENT);
        site.start().master.shutdown().await;
        assert!(sockets(&site).is_empty());
    });
}

#[test]
fn requests_in_flight_are_stored_answered_and_fired() {
    in_system(async {
        let site = Site::new("");
        let running = site.start();
        let mut minions = Vec::new();
        for number in 0..4 {
            let identity = site.minion(&format!("m{number}"));
            minions.push(identity.sign_in(&running).await);
        }
        let mut events = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let mut returning = Vec::new();
        for (number, mut minion) in minions.into_iter().enumerate() {
            returning.push(actix_rt::spawn(async move {
                let mut stored = 0;
                loop {
                    let jid = format!("2026010203040506{number:02}{stored:02}");
                    // An answer is an acknowledgement; the end of the connection is none.
                    match minion.try_send(Minion::return_of(&jid)).await {
                        Some(Ok(_)) => stored += 1,
                        Some(Err(_)) => {}
                        None => return stored,
                    }
                    if stored == 100 {
                        return stored;
                    }
                }
            }));
        }
        // In the middle of it.
        let mut heard = HashSet::new();
        while heard.len() < 20 {
            heard.extend(events.next().await.map(|(tag, _)| tag));
        }
        running.master.shutdown().await;
        let mut acknowledged = 0;
        for task in returning {
            acknowledged += task.await.unwrap();
        }
        let (_, stored) = site.reader().counts().unwrap();
        assert!(
            acknowledged > 0 && stored >= acknowledged,
            "{stored} < {acknowledged}"
        );
        while let Some((tag, _)) = events.next().await {
            heard.insert(tag);
        }
        heard.retain(|tag| tag.contains("/ret/"));
        assert_eq!(heard.len() as u64, stored, "what was stored was fired");
    });
}

#[test]
fn stuck_subscriber_does_not_delay_the_stop() {
    in_system(async {
        let site = Site::new(PATIENT);
        let identity = site.minion("m1");
        let running = site.start();
        let mut minion = identity.sign_in(&running).await;
        let deaf = UnixStream::connect(site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        // More than the kernel keeps for a socket.
        let big = Value::from("x".repeat(400_000));
        for _ in 0..4 {
            let fields = vec![
                ("cmd", Value::from("_minion_event")),
                ("tag", Value::from("big")),
                ("data", Value::map([("text", big.clone())])),
            ];
            assert!(minion.send(fields).await.is_ok());
        }
        running.master.shutdown().await;
        drop(deaf);
    });
}

#[test]
fn failed_start_leaves_no_sign_of_a_running_master() {
    in_system(async {
        let site = Site::new("");
        let mut config = site.config();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        config.publish_port = taken.local_addr().unwrap().port();
        let config = Arc::new(config);
        let parts = site.parts(&config);
        let failed = Master::start(parts);
        assert!(matches!(failed, Err(StartError::Port { .. })));
        assert!(sockets(&site).is_empty());

        // A file of the job cache where the master needs a directory: found before any actor runs.
        let site = Site::new("");
        let config = Arc::new(site.config());
        let parts = site.parts(&config);
        let cursor = config.cachedir.join("saltern/mirror_cursor");
        std::fs::create_dir_all(&cursor).unwrap();
        let failed = Master::start(parts);
        assert!(matches!(failed, Err(StartError::Store(_))));
        assert!(sockets(&site).is_empty());
    });
}

#[test]
fn files_of_a_dead_master_are_replaced() {
    in_system(async {
        let site = Site::new("");
        std::fs::create_dir_all(site.path().join("sock")).unwrap();
        for name in NAMES {
            std::fs::write(site.socket(name), "stale").unwrap();
            std::fs::write(site.socket(&format!("{name}-new")), "stale").unwrap();
        }
        let running = site.start();
        assert!(
            Listener::connect(&site.socket("master_event_pub.ipc"))
                .await
                .is_ok()
        );
        let mut control = UnixStream::connect(site.socket("saltern_control.ipc"))
            .await
            .unwrap();
        control.write_all(b"\"actors\"\n").await.unwrap();
        assert!(
            ReqClient::connect(running.master.request_address(), None)
                .await
                .is_ok()
        );
        running.master.shutdown().await;
    });
}
