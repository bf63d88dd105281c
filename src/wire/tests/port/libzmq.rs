//! Tests against libzmq itself, through pyzmq in the Python environment of stock Salt, as used by
//! stock minions and the stock command line.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use saltern_wire::port::{Heartbeat, PeerLimits, PubLimits, PubMessage, ReqLimits};
use saltern_wire::zmtp::{ReqClient, SubClient};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::port::common::{
    Echo, Running, publish_listener, publish_listener_on, request_listener, request_listener_on,
    socket, soon,
};

/// A python peer and its two pipes. Killed when dropped.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(script: &str, arguments: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/peers")
            .join(script);
        let mut child = Command::new(saltern_stock::python(saltern_stock::NEWEST))
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self {
            child,
            input,
            output,
        }
    }

    fn at(script: &str, running: &Running, scenario: &str) -> Self {
        Self::start(script, &[&format!("tcp://{}", running.addr), scenario])
    }

    async fn says(&mut self, expected: &str) {
        let line = soon(expected, self.output.next_line())
            .await
            .expect("output");
        assert_eq!(
            line.as_deref(),
            Some(expected),
            "see the python traceback above"
        );
    }

    async fn go_on(&mut self) {
        self.input.write_all(b"\n").await.expect("input");
    }

    async fn done(mut self) {
        self.says("done").await;
        assert!(
            soon("python to end", self.child.wait())
                .await
                .expect("status")
                .success()
        );
    }
}

fn echo() -> Running {
    request_listener(ReqLimits::default(), Arc::new(Echo::default()))
}

#[tokio::test]
async fn requests_of_every_socket_type_are_answered() {
    let running = echo();
    for scenario in ["req", "many", "fresh", "correlated", "dealer", "router"] {
        Peer::at("requests.py", &running, scenario).done().await;
    }
    running.reaches("closed_total", "peer_closed", 205).await;
    assert_eq!(running.metric("connections", ""), 0);
}

#[tokio::test]
async fn stock_minion_identity_is_passed_on() {
    let sink = Arc::new(Echo::default());
    let running = request_listener(ReqLimits::default(), Arc::clone(&sink) as _);
    Peer::at("requests.py", &running, "req").done().await;
    assert_eq!(sink.seen.lock()[0].1, "salt-req/minion/m1/4711/0");
}

#[tokio::test]
async fn new_socket_takes_over_an_identity() {
    let running = echo();
    let mut peer = Peer::at("requests.py", &running, "handover");
    peer.says("taken over").await;
    running.reaches("closed_total", "handover", 1).await;
    peer.go_on().await;
    peer.done().await;
}

#[tokio::test]
async fn request_socket_survives_a_listener_restart() {
    // The kernel's socket stays: a released port may be taken by any connection, even by the one
    // that tries to reach it.
    let socket = socket();
    let again = socket.try_clone().expect("a second handle");
    let echo = || Arc::new(Echo::default());
    let running = request_listener_on(socket, ReqLimits::default(), echo());
    let mut peer = Peer::at("requests.py", &running, "reconnect");
    peer.says("restart").await;
    running.stopped().await;
    let running = request_listener_on(again, ReqLimits::default(), echo());
    // Only then: libzmq may write a request into a connection whose end it has not seen yet, and a
    // REQ socket never retries.
    running.reaches("connections", "open", 1).await;
    peer.go_on().await;
    peer.done().await;
}

#[tokio::test]
async fn heartbeats_keep_the_connection_open() {
    let interval = Duration::from_millis(50);
    let heartbeat = Heartbeat {
        interval,
        timeout: interval * 200,
    };
    let peers = PeerLimits {
        heartbeat,
        ..PeerLimits::default()
    };
    let limits = ReqLimits {
        peers,
        ..ReqLimits::default()
    };
    let running = request_listener(limits, Arc::new(Echo::default()));
    let mut peer = Peer::at("requests.py", &running, "heartbeat");
    peer.says("connected").await;
    // A PONG to each of our PINGs, and a PING of its own now and then.
    let before = running.metric("bytes_total", "in");
    running.reaches("bytes_total", "in", before + 100).await;
    peer.go_on().await;
    peer.done().await;
    assert_eq!(
        running.metric("accepted_total", ""),
        1,
        "it never had to reconnect"
    );
}

#[tokio::test]
async fn subscribers_get_everything_in_order() {
    let (running, handle) = publish_listener(PubLimits {
        queue: 2000,
        ..PubLimits::default()
    });
    let mut peer = Peer::at("subscriptions.py", &running, "all");
    peer.says("subscribed").await;
    running.reaches("messages_total", "in", 1).await;
    for number in 0..1000 {
        let message = PubMessage::new(Bytes::from(format!("message {number}")));
        assert_eq!(handle.publish(&message).queued, 1);
    }
    handle.publish(&PubMessage::new(Bytes::from(vec![b'x'; 3_000_000])));
    peer.go_on().await;
    peer.done().await;
}

#[tokio::test]
async fn subscribers_get_only_their_topics() {
    let (running, handle) = publish_listener(PubLimits::default());
    let publish = |topic: &str, payload: &'static str| {
        let payload = Bytes::from_static(payload.as_bytes());
        handle
            .publish(&PubMessage::with_topic(topic.as_bytes(), payload))
            .queued
    };
    let mut peer = Peer::at("subscriptions.py", &running, "filtered");
    peer.says("subscribed").await;
    running.reaches("messages_total", "in", 2).await;
    let (a, b) = ("a".repeat(40), "b".repeat(40));
    assert_eq!((publish(&b, "for b"), publish(&a, "for a")), (0, 1));
    assert_eq!(publish("broadcast", "for all"), 1);
    peer.go_on().await;
    peer.says("unsubscribed").await;
    running.reaches("messages_total", "in", 3).await;
    assert_eq!(
        (publish(&a, "for a"), publish("broadcast", "again")),
        (0, 1)
    );
    peer.go_on().await;
    peer.done().await;

    let mut peer = Peer::at("subscriptions.py", &running, "xsub");
    peer.says("subscribed").await;
    running.reaches("messages_total", "in", 4).await;
    publish("broadcast", "for all");
    peer.go_on().await;
    peer.done().await;
}

#[tokio::test]
async fn subscriber_resubscribes_after_a_listener_restart() {
    let socket = socket();
    let again = socket.try_clone().expect("a second handle");
    let (running, handle) = publish_listener_on(socket, PubLimits::default());
    let mut peer = Peer::at("subscriptions.py", &running, "reconnect");
    peer.says("restart").await;
    running.reaches("messages_total", "in", 1).await;
    assert_eq!(handle.subscriber_count(), 1);
    running.stopped().await;
    let (running, handle) = publish_listener_on(again, PubLimits::default());
    // libzmq subscribes again only when its user calls it.
    peer.go_on().await;
    running.reaches("messages_total", "in", 1).await;
    handle.publish(&PubMessage::new(Bytes::from_static(b"after")));
    peer.done().await;
}

#[tokio::test]
async fn our_request_client_works_with_libzmq() {
    for (kind, prefix) in [("router", &b"me:"[..]), ("rep", b":")] {
        let mut peer = Peer::start("listeners.py", &[kind]);
        let port = soon("a port", peer.output.next_line())
            .await
            .expect("output")
            .expect("line");
        let addr: SocketAddr = format!("127.0.0.1:{port}").parse().expect("address");
        let mut client = ReqClient::connect(addr, Some(b"me"))
            .await
            .expect("connect");
        for payload in [&b"hello"[..], b"", &[b'x'; 70_000]] {
            let request = client.request(Bytes::copy_from_slice(payload));
            let reply = soon("a reply", request).await.expect("reply");
            assert_eq!(reply, [prefix, payload].concat());
        }
        for number in 0..1000 {
            let request = client.request(Bytes::from(number.to_string()));
            soon("a reply", request).await.expect("reply");
        }
    }
}

#[tokio::test]
async fn our_subscribe_client_works_with_libzmq() {
    let mut peer = Peer::start("listeners.py", &["xpub"]);
    let port = soon("a port", peer.output.next_line())
        .await
        .expect("output")
        .expect("line");
    let addr: SocketAddr = format!("127.0.0.1:{port}").parse().expect("address");
    let mut client = SubClient::connect(addr, &[b"top"]).await.expect("connect");
    peer.says("b'\\x01top'").await;
    for number in 0..1000 {
        let frames = soon("a message", client.next()).await.expect("message");
        assert_eq!(
            frames,
            [
                Bytes::from_static(b"topic"),
                Bytes::from(number.to_string())
            ]
        );
    }
}
