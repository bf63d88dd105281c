//! Tests of the listeners with our own client ends and raw peers: the guarantees to callers.
//!
//! Longer than 500 lines because it is a list: one independent test for each guarantee.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use prometheus::Registry;
use saltern_wire::client::{ClientError, Route};
use saltern_wire::port::{
    Heartbeat, Incoming, PeerLimits, PubLimits, PubMessage, PublishCount, ReqLimits, ReqListener,
    RequestSink, SizeLimits,
};
use saltern_wire::zmtp::{ReqClient, SubClient};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::port::common::{
    Echo, Raw, command, message, publish_listener, request_listener, socket, soon,
};

async fn ask(client: &mut ReqClient, payload: &'static [u8]) -> Bytes {
    let reply = soon("a reply", client.request(Bytes::from_static(payload))).await;
    reply.expect("reply")
}

#[tokio::test]
async fn request_gets_its_reply() {
    let running = request_listener(ReqLimits::default(), Arc::new(Echo::default()));
    let mut client = ReqClient::connect(running.addr, Some(b"m1"))
        .await
        .expect("connect");
    for payload in [
        &b"ping"[..],
        b"",
        &[7; 255],
        &[8; 256],
        &[9; 5000],
        &[1; 900_000],
    ] {
        let payload = Bytes::copy_from_slice(payload);
        let reply = soon("a reply", client.request(payload.clone()))
            .await
            .expect("reply");
        assert_eq!(reply, payload);
    }
    assert_eq!(running.metric("messages_total", "in"), 6);
    assert_eq!(running.metric("messages_total", "out"), 6);
    assert_eq!(running.metric("connections", "open"), 1);
    drop(client);
    running.reaches("closed_total", "peer_closed", 1).await;
    assert_eq!(running.metric("connections", ""), 0);
    running.stopped().await;
}

#[tokio::test]
async fn client_connects_from_its_configured_address() {
    let (running, handle) = publish_listener(PubLimits::default());
    let from: IpAddr = "127.9.8.7".parse().expect("address");
    let route = Route {
        from: Some(from),
        ..Route::from(running.addr)
    };
    let _subscriber = SubClient::connect(route, &[b""]).await.expect("connect");
    running.reaches("messages_total", "in", 1).await;
    let addresses: Vec<IpAddr> = handle
        .subscribers()
        .iter()
        .map(|subscriber| subscriber.address.ip())
        .collect();
    assert_eq!(addresses, [from]);
    running.stopped().await;
}

#[tokio::test]
async fn every_subscriber_gets_its_topics() {
    let (running, handle) = publish_listener(PubLimits::default());
    let mut all = SubClient::connect(running.addr, &[b""])
        .await
        .expect("connect");
    let mut some = SubClient::connect(running.addr, &[b"abc", b"ab", b"x"])
        .await
        .expect("connect");
    running.reaches("messages_total", "in", 4).await;
    let counts: Vec<_> = [&b"abcd"[..], b"x", b"y"]
        .into_iter()
        .map(|topic| handle.publish(&PubMessage::with_topic(topic, Bytes::from_static(b"load"))))
        .collect();
    assert_eq!(
        counts[0],
        PublishCount {
            matched: 2,
            queued: 2,
            dropped: 0
        }
    );
    assert_eq!(counts[1].matched, 2);
    assert_eq!(counts[2].matched, 1);
    handle.publish(&PubMessage::new(Bytes::from_static(b"xyz")));
    for expected in [
        &[&b"abcd"[..], b"load"][..],
        &[b"x", b"load"],
        &[b"y", b"load"],
        &[b"xyz"],
    ] {
        assert_eq!(
            soon("a message", all.next()).await.expect("message"),
            expected
        );
    }
    for expected in [&[&b"abcd"[..], b"load"][..], &[b"x", b"load"], &[b"xyz"]] {
        assert_eq!(
            soon("a message", some.next()).await.expect("message"),
            expected
        );
    }
    assert_eq!(handle.subscriber_count(), 2);
    let infos = handle.subscribers();
    assert_eq!(infos[1].subscriptions, [&b"ab"[..], b"abc", b"x"]);
    assert_eq!(infos[0].address.ip(), running.addr.ip());
    drop(some);
    running.reaches("closed_total", "peer_closed", 1).await;
    assert_eq!(handle.subscriber_count(), 1);
    running.stopped().await;
    assert_eq!(handle.subscriber_count(), 0);
    assert_eq!(
        handle.publish(&PubMessage::new(Bytes::new())),
        PublishCount::default()
    );
}

#[tokio::test]
async fn cancelled_subscription_no_longer_matches() {
    let (running, handle) = publish_listener(PubLimits::default());
    let mut raw = Raw::open(running.addr, 0, "SUB", b"").await;
    raw.send(&message(&[b"\x01ab"])).await;
    running.reaches("messages_total", "in", 1).await;
    assert_eq!(
        handle
            .publish(&PubMessage::new(Bytes::from_static(b"abc")))
            .queued,
        1
    );
    assert_eq!(raw.read(5).await, b"\x00\x03abc");
    raw.send(&message(&[b"\x00ab"])).await;
    running.reaches("messages_total", "in", 2).await;
    assert_eq!(
        handle
            .publish(&PubMessage::new(Bytes::from_static(b"abc")))
            .matched,
        0
    );
}

#[tokio::test]
async fn concurrent_publications_have_one_order() {
    let (running, handle) = publish_listener(PubLimits::default());
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(
            SubClient::connect(running.addr, &[b""])
                .await
                .expect("connect"),
        );
    }
    running.reaches("messages_total", "in", 10).await;
    let threads: Vec<_> = (0..4u8)
        .map(|thread| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                for number in 0..100u8 {
                    let count = handle.publish(&PubMessage::new(Bytes::from(vec![thread, number])));
                    assert_eq!(
                        count,
                        PublishCount {
                            matched: 10,
                            queued: 10,
                            dropped: 0
                        }
                    );
                }
            })
        })
        .collect();
    let mut orders = HashSet::new();
    for client in &mut clients {
        let mut order = Vec::new();
        for _ in 0..400 {
            let frames = soon("a message", client.next()).await.expect("message");
            order.push(frames.concat());
        }
        orders.insert(order);
    }
    assert_eq!(orders.len(), 1, "subscribers saw different orders");
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[tokio::test]
async fn total_memory_of_slow_subscribers_is_bounded() {
    let limits = PubLimits {
        pinned: 8 << 20,
        ..PubLimits::default()
    };
    let (running, handle) = publish_listener(limits);
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut raw = Raw::open(running.addr, 1, "SUB", b"").await;
        raw.send(&command("SUBSCRIBE", b"")).await;
        slow.push(raw);
    }
    let mut prompt = SubClient::connect(running.addr, &[b""])
        .await
        .expect("connect");
    running.reaches("messages_total", "in", 3).await;
    // More than what the kernel buffers for a connection and the bound together.
    let mut dropped = 0;
    for number in 0..64 {
        let count = handle.publish(&PubMessage::new(Bytes::from(vec![number; 1 << 20])));
        dropped += count.dropped;
        let frames = soon("a message", prompt.next()).await.expect("message");
        assert_eq!(frames[0][0], number, "the prompt one misses nothing");
    }
    assert!(dropped > 0);
    let held: Vec<_> = handle
        .subscribers()
        .iter()
        .map(|info| info.queued_bytes)
        .collect();
    assert!(held.iter().all(|bytes| *bytes <= 10 << 20), "{held:?}");
}

#[tokio::test]
async fn unanswered_request_gets_the_configured_reply() {
    let limits = ReqLimits {
        unanswered: Bytes::from_static(b"lost"),
        ..ReqLimits::default()
    };
    let running = request_listener(limits, Arc::new(Echo::default()));
    let mut client = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    assert_eq!(ask(&mut client, b"drop").await, "lost");
    assert_eq!(ask(&mut client, b"next").await, "next");
    assert_eq!(running.metric("unanswered_total", ""), 1);
}

#[tokio::test]
async fn late_reply_to_a_closed_connection_is_dropped() {
    let sink = Arc::new(Echo::default());
    let running = request_listener(ReqLimits::default(), Arc::clone(&sink) as _);
    let mut raw = Raw::open(running.addr, 1, "REQ", b"m1").await;
    raw.send(&message(&[b"", b"hold"])).await;
    soon("the request", sink.held_one.notified()).await;
    drop(raw);
    running.reaches("closed_total", "peer_closed", 1).await;
    for reply in sink.held.lock().drain(..) {
        reply.send(Bytes::from_static(b"late"));
    }
    assert_eq!(running.metric("dropped_total", ""), 1);
    // The next connection with the same identity does not get it.
    let mut client = ReqClient::connect(running.addr, Some(b"m1"))
        .await
        .expect("connect");
    assert_eq!(ask(&mut client, b"mine").await, "mine");
}

#[tokio::test]
async fn new_connection_takes_over_an_identity() {
    let sink = Arc::new(Echo::default());
    let running = request_listener(ReqLimits::default(), Arc::clone(&sink) as _);
    let mut old = Raw::open(running.addr, 1, "REQ", b"m1").await;
    old.send(&message(&[b"", b"hold"])).await;
    soon("the request", sink.held_one.notified()).await;
    let mut new = ReqClient::connect(running.addr, Some(b"m1"))
        .await
        .expect("connect");
    assert_eq!(ask(&mut new, b"hello").await, "hello");
    old.closed().await;
    running.reaches("closed_total", "handover", 1).await;
    // The end of the old one does not release the new one's identity.
    let mut newest = Raw::open(running.addr, 1, "REQ", b"m1").await;
    newest.send(&message(&[b"", b"hi"])).await;
    assert_eq!(newest.read(6).await, b"\x01\x00\x00\x02hi");
    running.reaches("closed_total", "handover", 2).await;
}

#[tokio::test]
async fn dealer_gets_each_envelope_back_in_any_order() {
    let sink = Arc::new(Echo::default());
    let running = request_listener(ReqLimits::default(), Arc::clone(&sink) as _);
    for kind in ["DEALER", "ROUTER"] {
        let mut raw = Raw::open(running.addr, 1, kind, b"").await;
        raw.send(&message(&[b"a", b"bc", b"", b"hold", b"ignored", b"too"]))
            .await;
        soon("the request", sink.held_one.notified()).await;
        raw.send(&message(&[b"second", b"", b"quick"])).await;
        let quick = message(&[b"second", b"", b"quick"]);
        assert_eq!(raw.read(quick.len()).await, quick);
        let held = sink.held.lock().pop().expect("held");
        held.send(Bytes::from_static(b"slow"));
        let slow = message(&[b"a", b"bc", b"", b"slow"]);
        assert_eq!(raw.read(slow.len()).await, slow);
    }
    let seen = sink.seen.lock();
    let (connection, identity, payload) = &seen[0];
    assert_eq!(payload, "hold");
    assert_eq!(identity.len(), 5, "an identity for a peer without one");
    assert_eq!(identity[0], 0);
    assert_ne!(*connection, seen[2].0);
}

/// Keeps every request, so that a test sees how many a peer may have outstanding.
#[derive(Default)]
struct Keep {
    kept: Mutex<Vec<Incoming>>,
    came: Notify,
}

impl RequestSink for Keep {
    fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming> {
        self.kept.lock().push(incoming);
        self.came.notify_one();
        Ok(())
    }

    fn deliver(&self, _incoming: Incoming) -> BoxFuture<'_, ()> {
        unreachable!("try_deliver takes everything")
    }
}

#[tokio::test]
async fn full_window_stops_requests_but_answers_pings() {
    for (kind, window) in [("REQ", 1), ("DEALER", 3)] {
        let sink = Arc::new(Keep::default());
        let limits = ReqLimits {
            window: 3,
            ..ReqLimits::default()
        };
        let running = request_listener(limits, Arc::clone(&sink) as _);
        let mut raw = Raw::open(running.addr, 1, kind, b"").await;
        let request = message(&[b"", b"x"]);
        raw.send(&request.repeat(window)).await;
        while sink.kept.lock().len() < window {
            soon("the requests", sink.came.notified()).await;
        }
        raw.send(&command("PING", b"\0\0context")).await;
        let pong = command("PONG", b"context");
        assert_eq!(raw.read(pong.len()).await, pong);
        raw.send(&request.repeat(2)).await;
        // A reply makes room for exactly one more.
        let first = sink.kept.lock().remove(0);
        first.reply.send(Bytes::from_static(b"y"));
        let reply = message(&[b"", b"y"]);
        assert_eq!(raw.read(reply.len()).await, reply);
        while sink.kept.lock().len() < window {
            soon("one more", sink.came.notified()).await;
        }
        assert_eq!(running.metric("messages_total", "in"), window as u64 + 1);
    }
}

/// Sink without room until it is given some.
struct Narrow {
    room: Semaphore,
    waiting: Notify,
}

impl RequestSink for Narrow {
    fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming> {
        if incoming.payload == "easy" {
            incoming.reply.send(incoming.payload);
            return Ok(());
        }
        Err(incoming)
    }

    fn deliver(&self, incoming: Incoming) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.waiting.notify_one();
            let permit = self.room.acquire().await.expect("never closed");
            permit.forget();
            incoming.reply.send(incoming.payload);
        })
    }
}

#[tokio::test]
async fn full_sink_blocks_only_the_refused_socket() {
    let sink = Arc::new(Narrow {
        room: Semaphore::new(0),
        waiting: Notify::new(),
    });
    let running = request_listener(ReqLimits::default(), Arc::clone(&sink) as _);
    let mut held = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let mut free = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let hard = tokio::spawn(async move { ask(&mut held, b"hard").await });
    soon("back-pressure", sink.waiting.notified()).await;
    for _ in 0..10 {
        assert_eq!(ask(&mut free, b"easy").await, "easy");
    }
    assert!(!hard.is_finished());
    sink.room.add_permits(1);
    assert_eq!(
        soon("the held reply", hard).await.expect("no panic"),
        "hard"
    );
}

#[tokio::test]
async fn authentication_raises_the_limit_of_its_address_only() {
    let small = SizeLimits {
        frame: 1000,
        message: 1000,
        ..SizeLimits::UNKNOWN_PEER
    };
    let limits = ReqLimits {
        before_auth: small,
        ..ReqLimits::default()
    };
    let running = request_listener(limits, Arc::new(Echo::default()));
    let large = Bytes::from(vec![7; 3 << 20]);
    let asked = message(&[b"", &large]);

    let mut stranger = Raw::open(running.addr, 1, "REQ", b"").await;
    stranger.send(&asked).await;
    stranger.closed().await;
    running.reaches("closed_total", "frame_size", 1).await;

    let mut known = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    assert_eq!(ask(&mut known, b"trust").await, "trust");
    let reply = soon("a reply", known.request(large.clone())).await;
    assert_eq!(reply.expect("reply"), large);
    // A stock minion reconnects for its next request.
    let mut again = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let reply = soon("a reply", again.request(large.clone())).await;
    assert_eq!(reply.expect("reply"), large);

    let mut elsewhere = Raw::open_from([127, 0, 0, 2], running.addr, 1, "REQ", b"").await;
    elsewhere.send(&asked).await;
    elsewhere.closed().await;
    running.reaches("closed_total", "frame_size", 2).await;
}

#[tokio::test]
async fn identity_is_not_taken_over_from_another_address() {
    let running = request_listener(ReqLimits::default(), Arc::new(Echo::default()));
    let mut ours = Raw::open(running.addr, 1, "REQ", b"m1").await;
    let mut theirs = Raw::open_from([127, 0, 0, 2], running.addr, 1, "REQ", b"m1").await;
    for raw in [&mut theirs, &mut ours] {
        raw.send(&message(&[b"", b"hi"])).await;
        assert_eq!(raw.read(6).await, b"\x01\x00\x00\x02hi");
    }
    assert_eq!(running.metric("connections", "open"), 2);
}

#[tokio::test]
async fn large_messages_share_a_budget_and_small_ones_do_not_wait() {
    let sink = Arc::new(Keep::default());
    let megabyte = SizeLimits {
        frame: 1 << 20,
        message: 1 << 20,
        ..SizeLimits::UNKNOWN_PEER
    };
    let limits = ReqLimits {
        before_auth: megabyte,
        in_flight: 1 << 20,
        ..ReqLimits::default()
    };
    let running = request_listener(limits, Arc::clone(&sink) as _);
    let large = message(&[b"", &vec![7; 700_000]]);
    let mut first = Raw::open(running.addr, 1, "REQ", b"").await;
    first.send(&large).await;
    soon("the first", sink.came.notified()).await;
    let mut second = Raw::open(running.addr, 1, "REQ", b"").await;
    second.send(&large).await;
    let mut small = Raw::open(running.addr, 1, "REQ", b"").await;
    small.send(&message(&[b"", b"small"])).await;
    soon("the small one", sink.came.notified()).await;
    assert_eq!(
        sink.kept.lock().len(),
        2,
        "the second large one had no room"
    );
    let incoming = sink.kept.lock().remove(0);
    incoming.reply.send(Bytes::new());
    soon("the second", sink.came.notified()).await;
    assert_eq!(sink.kept.lock()[1].payload.len(), 700_000);
}

#[tokio::test]
async fn connections_are_limited_in_total_and_by_address() {
    for (connections, per_address, reason) in [(2, 9, "connections"), (9, 2, "per_address")] {
        let peers = PeerLimits {
            connections,
            per_address,
            ..PeerLimits::default()
        };
        let limits = ReqLimits {
            peers,
            ..ReqLimits::default()
        };
        let running = request_listener(limits, Arc::new(Echo::default()));
        let mut client = ReqClient::connect(running.addr, None)
            .await
            .expect("connect");
        let second = Raw::open(running.addr, 1, "REQ", b"").await;
        let mut third = Raw::connect(running.addr).await;
        assert!(third.closed().await.is_empty(), "not even a greeting");
        running.reaches("refused_total", reason, 1).await;
        assert_eq!(ask(&mut client, b"hi").await, "hi");
        drop(second);
        running.reaches("closed_total", "peer_closed", 1).await;
        Raw::open(running.addr, 1, "REQ", b"").await;
        assert_eq!(running.metric("accepted_total", ""), 3);
    }
}

#[tokio::test]
async fn heartbeats_go_to_zmtp31_peers_only() {
    let short = Duration::from_millis(50);
    let peers = PeerLimits {
        heartbeat: Heartbeat {
            interval: short,
            timeout: short * 60,
        },
        idle: None,
        ..PeerLimits::default()
    };
    let requests = request_listener(
        ReqLimits {
            peers,
            ..ReqLimits::default()
        },
        Arc::new(Echo::default()),
    );
    let (publications, _) = publish_listener(PubLimits {
        peers,
        ..PubLimits::default()
    });
    let ping = command("PING", b"\0\0");
    for (running, kind) in [(&requests, "REQ"), (&publications, "SUB")] {
        let mut modern = Raw::open(running.addr, 1, kind, b"").await;
        let old = Raw::open(running.addr, 0, kind, b"").await;
        for _ in 0..3 {
            assert_eq!(modern.read(ping.len()).await, ping);
            modern.send(&command("PONG", b"")).await;
        }
        // Three intervals are over for the old peer too; nothing came.
        let mut byte = [0];
        let silent = old.stream.try_read(&mut byte).expect_err("silence");
        assert_eq!(silent.kind(), std::io::ErrorKind::WouldBlock);
    }
    // Our own subscriber answers while it waits for a message.
    let mut client = SubClient::connect(publications.addr, &[b""])
        .await
        .expect("connect");
    let waiting = tokio::time::timeout(short * 80, client.next()).await;
    assert!(waiting.is_err(), "neither a message nor an end came");
    assert_eq!(publications.metric("closed_total", "heartbeat"), 0);
}

/// The runtime that created a listener would be woken for each connection that another one serves.
#[test]
fn listener_belongs_to_the_runtime_that_serves_it() {
    let (socket, registry) = (socket(), Registry::new());
    let addr = socket.local_addr().expect("address");
    let sockets = vec![socket.into()];
    let listener = ReqListener::new(sockets, ReqLimits::default(), &registry).expect("listener");
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let serving = tokio::spawn(listener.serve(Arc::new(Echo::default()), stop.clone()));
        let mut client = ReqClient::connect(addr, None).await.expect("connect");
        assert_eq!(ask(&mut client, b"ping").await, "ping");
        stop.cancel();
        soon("the listener to end", serving)
            .await
            .expect("no panic");
    });
}

#[tokio::test]
async fn stopping_listener_sends_outstanding_replies() {
    let sink = Arc::new(Echo::default());
    let running = request_listener(ReqLimits::default(), Arc::clone(&sink) as _);
    let addr = running.addr;
    let mut client = ReqClient::connect(addr, None).await.expect("connect");
    let idle = Raw::open(addr, 1, "REQ", b"").await;
    let waiting = tokio::spawn(async move { ask(&mut client, b"hold").await });
    soon("the request", sink.held_one.notified()).await;
    running.stop.cancel();
    running.reaches("closed_total", "shutdown", 1).await;
    let refused = async { while tokio::net::TcpStream::connect(addr).await.is_ok() {} };
    soon("no more connections", refused).await;
    let held = sink.held.lock().pop().expect("held");
    held.send(Bytes::from_static(b"at last"));
    assert_eq!(
        soon("the reply", waiting).await.expect("no panic"),
        "at last"
    );
    running.stopped().await;
    drop(idle);
}

#[tokio::test]
async fn stopping_listener_closes_after_its_drain_time() {
    let sink = Arc::new(Echo::default());
    let peers = PeerLimits {
        drain: Duration::from_millis(50),
        ..PeerLimits::default()
    };
    let running = request_listener(
        ReqLimits {
            peers,
            ..ReqLimits::default()
        },
        sink.clone(),
    );
    let mut raw = Raw::open(running.addr, 1, "REQ", b"").await;
    raw.send(&message(&[b"", b"hold"])).await;
    soon("the request", sink.held_one.notified()).await;
    running.stopped().await;
    raw.closed().await;

    let (running, handle) = publish_listener(PubLimits {
        peers,
        queue_bytes: 1 << 30,
        ..PubLimits::default()
    });
    let mut raw = Raw::open(running.addr, 1, "SUB", b"").await;
    raw.send(&command("SUBSCRIBE", b"")).await;
    running.reaches("messages_total", "in", 1).await;
    handle.publish(&PubMessage::new(Bytes::from(vec![0; 64 << 20])));
    running.stopped().await;
    raw.closed().await;
}

#[tokio::test]
async fn queued_publications_leave_before_a_stop() {
    let (running, handle) = publish_listener(PubLimits::default());
    let mut client = SubClient::connect(running.addr, &[b""])
        .await
        .expect("connect");
    running.reaches("messages_total", "in", 1).await;
    let large = Bytes::from(vec![5; 8 << 20]);
    for _ in 0..3 {
        handle.publish(&PubMessage::new(large.clone()));
    }
    let reading = tokio::spawn(async move {
        for _ in 0..3 {
            let frames = client.next().await.expect("message");
            assert_eq!(frames, [large.as_ref()]);
        }
        assert!(matches!(client.next().await, Err(ClientError::Closed(_))));
    });
    running.stopped().await;
    soon("all messages", reading).await.expect("no panic");
}

#[tokio::test]
async fn client_reconnects_after_an_idle_close() {
    let peers = PeerLimits {
        // Longer than a busy machine takes from its new connection to its request.
        idle: Some(Duration::from_secs(5)),
        ..PeerLimits::default()
    };
    let limits = ReqLimits {
        peers,
        ..ReqLimits::default()
    };
    let running = request_listener(limits, Arc::new(Echo::default()));
    let mut client = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    assert_eq!(ask(&mut client, b"one").await, "one");
    running.reaches("closed_total", "idle", 1).await;
    assert_eq!(ask(&mut client, b"two").await, "two");
    assert_eq!(running.metric("accepted_total", ""), 2);
}

#[tokio::test]
async fn client_does_not_take_the_reply_of_an_abandoned_request() {
    let sink = Arc::new(Echo::default());
    let running = request_listener(ReqLimits::default(), Arc::clone(&sink) as _);
    let mut client = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    {
        let request = client.request(Bytes::from_static(b"hold"));
        let given_up = tokio::time::timeout(Duration::from_millis(50), request).await;
        assert!(given_up.is_err());
    }
    let again = client.request(Bytes::from_static(b"hi")).await;
    assert!(matches!(again, Err(ClientError::Abandoned(_))));
}

#[tokio::test]
async fn client_reports_a_wrong_socket_type() {
    let (running, _handle) = publish_listener(PubLimits::default());
    let refused = soon("a refusal", ReqClient::connect(running.addr, None)).await;
    let Err(refused) = refused else {
        panic!("a PUB answers no requests")
    };
    let text = refused.to_string();
    assert!(
        text.contains("kind of socket") || text.contains("Invalid socket type"),
        "{text}"
    );
}

#[tokio::test]
async fn panicking_sink_costs_one_connection() {
    struct Fragile;
    impl RequestSink for Fragile {
        fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming> {
            assert!(incoming.payload != "boom", "as the test wants");
            incoming.reply.send(incoming.payload);
            Ok(())
        }

        fn deliver(&self, _incoming: Incoming) -> BoxFuture<'_, ()> {
            unreachable!("try_deliver takes everything")
        }
    }
    let running = request_listener(ReqLimits::default(), Arc::new(Fragile));
    let mut fatal = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let mut other = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    assert!(
        soon("an end", fatal.request(Bytes::from_static(b"boom")))
            .await
            .is_err()
    );
    running.reaches("closed_total", "panic", 1).await;
    assert_eq!(ask(&mut other, b"hi").await, "hi");
    assert_eq!(running.metric("connections", ""), 1);
}
