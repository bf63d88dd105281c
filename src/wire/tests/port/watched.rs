//! Tests of the subscriber watch, and of operations on a single subscriber.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use saltern_wire::port::{
    Close, Heartbeat, PeerLimits, PubHandle, PubLimits, PubMessage, SubscriberWatch,
};
use saltern_wire::zmtp::SubClient;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::port::common::{Raw, Running, command, message, publish_listener, soon};

#[derive(Debug, PartialEq)]
enum Notice {
    Subscribed(u64, Vec<u8>),
    Asked(u64),
    Answered(u64),
    Left(u64, Close),
}

struct Notes(UnboundedSender<Notice>);

impl Notes {
    fn note(&self, notice: Notice) {
        let _ = self.0.send(notice);
    }
}

impl SubscriberWatch for Notes {
    fn subscribed(&self, connection: u64, address: SocketAddr, topic: &[u8]) {
        assert!(address.ip().is_loopback());
        self.note(Notice::Subscribed(connection, topic.to_vec()));
    }

    fn registers(&self, _: u64, _: &Bytes) -> Option<Bytes> {
        unreachable!("ZeroMQ has no such thing")
    }

    fn asked(&self, connection: u64) {
        self.note(Notice::Asked(connection));
    }

    fn answered(&self, connection: u64) {
        self.note(Notice::Answered(connection));
    }

    fn left(&self, connection: u64, reason: Close) {
        self.note(Notice::Left(connection, reason));
    }
}

struct Watched {
    running: Running,
    handle: PubHandle,
    notices: UnboundedReceiver<Notice>,
    _notes: Arc<Notes>,
}

impl Watched {
    fn with(limits: PubLimits) -> Self {
        let (running, handle) = publish_listener(limits);
        let (sender, notices) = unbounded_channel();
        let notes = Arc::new(Notes(sender));
        let watch: Arc<dyn SubscriberWatch> = notes.clone();
        handle.set_watch(Arc::downgrade(&watch));
        Self {
            running,
            handle,
            notices,
            _notes: notes,
        }
    }

    async fn next(&mut self) -> Notice {
        soon("a call of the watch", self.notices.recv())
            .await
            .expect("the listener runs")
    }
}

#[tokio::test]
async fn watch_is_notified_of_subscribers_and_their_end() {
    let mut watched = Watched::with(PubLimits::default());
    // A peer that does not subscribe is not reported.
    drop(Raw::open(watched.running.addr, 1, "SUB", b"").await);
    let closed = watched.running.reaches("closed_total", "peer_closed", 1);
    closed.await;
    let subscriber = SubClient::connect(watched.running.addr, &[b"", b"broadcast"]).await;
    assert_eq!(watched.next().await, Notice::Subscribed(2, b"".to_vec()));
    let second = Notice::Subscribed(2, b"broadcast".to_vec());
    assert_eq!(watched.next().await, second);
    drop(subscriber);
    assert_eq!(watched.next().await, Notice::Left(2, Close::PeerClosed));
}

#[tokio::test]
async fn silently_lost_peer_is_pinged_and_closed() {
    let mut watched = Watched::with(PubLimits {
        peers: PeerLimits {
            heartbeat: Heartbeat {
                interval: Duration::from_millis(50),
                timeout: Duration::from_secs(3),
            },
            ..PubLimits::default().peers
        },
        ..PubLimits::default()
    });
    let mut peer = Raw::open(watched.running.addr, 1, "SUB", b"").await;
    peer.send(&command("SUBSCRIBE", b"")).await;
    assert_eq!(watched.next().await, Notice::Subscribed(1, Vec::new()));
    let ping = command("PING", b"\0\0");
    assert_eq!(peer.read(ping.len()).await, ping);
    assert_eq!(watched.next().await, Notice::Asked(1));
    peer.send(&command("PONG", b"")).await;
    assert_eq!(watched.next().await, Notice::Answered(1));
    // From here on the peer's end stays open and sends nothing more.
    assert_eq!(watched.next().await, Notice::Asked(1));
    assert_eq!(watched.next().await, Notice::Left(1, Close::Heartbeat));
    assert_eq!(watched.running.metric("closed_total", "heartbeat"), 1);
}

#[tokio::test]
async fn single_subscriber_can_be_addressed_and_dismissed() {
    let mut watched = Watched::with(PubLimits::default());
    let mut first = Raw::open(watched.running.addr, 0, "SUB", b"").await;
    first.send(&message(&[b"\x01"])).await;
    assert_eq!(watched.next().await, Notice::Subscribed(1, Vec::new()));
    let mut second = Raw::open(watched.running.addr, 0, "SUB", b"").await;
    second.send(&message(&[b"\x01"])).await;
    assert_eq!(watched.next().await, Notice::Subscribed(2, Vec::new()));

    let handle = watched.handle.clone();
    let only = PubMessage::new(Bytes::from_static(b"only the second"));
    assert!(handle.publish_to(2, &only));
    assert!(!handle.publish_to(3, &only), "there is no third connection");
    let all = PubMessage::new(Bytes::from_static(b"all"));
    assert_eq!(handle.publish(&all).queued, 2);
    for (peer, expected) in [
        (&mut first, message(&[b"all"])),
        (
            &mut second,
            [message(&[b"only the second"]), message(&[b"all"])].concat(),
        ),
    ] {
        assert_eq!(peer.read(expected.len()).await, expected);
    }

    assert!(handle.dismiss(1));
    assert!(first.closed().await.is_empty());
    assert_eq!(watched.next().await, Notice::Left(1, Close::Dismissed));
    assert!(!handle.dismiss(1), "it is gone");
    assert_eq!(handle.publish(&all).queued, 1);
}

#[tokio::test]
async fn dropped_watch_is_ignored() {
    let (running, handle) = publish_listener(PubLimits::default());
    let nobody: Weak<Notes> = Weak::new();
    handle.set_watch(nobody);
    let subscriber = SubClient::connect(running.addr, &[b""]).await;
    running.reaches("messages_total", "in", 1).await;
    drop(subscriber);
    running.reaches("closed_total", "peer_closed", 1).await;
}
