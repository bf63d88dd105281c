//! Tests of Salt's TCP transport: many requests on one connection, registered subscribers, and
//! hostile peers.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use saltern_wire::client::{ReqClient, Route, SubClient};
use saltern_wire::port::{
    Close, PeerLimits, PubLimits, PubMessage, ReqLimits, SubscriberWatch, Transport,
};

use crate::port::common::{Echo, Raw, publish_listener_of_all, request_listener_of, soon};
use crate::port::hostile::Step::{Dribble, End, Flood, Send};
use crate::port::hostile::{Row, all_hold, attack, publish_limits, request_limits, row, verdict};

/// A request with this number whose body is packed text.
fn request(mid: u8, body: &str) -> Vec<u8> {
    let mut bytes = b"\x82\xa4head\x81\xa3mid\xa1".to_vec();
    bytes.push(b'0' + mid);
    bytes.extend_from_slice(b"\xa4body");
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

fn route(to: SocketAddr) -> Route {
    Route {
        transport: Transport::Tcp,
        ..Route::from(to)
    }
}

#[tokio::test]
async fn replies_find_their_requests_on_one_connection() {
    let echo = Arc::new(Echo::default());
    let sink = Arc::clone(&echo);
    let running = request_listener_of(Transport::Tcp, None, ReqLimits::default(), sink);
    let mut raw = Raw::connect(running.addr).await;
    // Positive fixints are packed values of one byte.
    raw.send(&request(1, "\x07")).await;
    assert_eq!(raw.read(19).await, request(1, "\x07"));
    raw.send(&[request(2, "\x08"), request(3, "\x09")].concat())
        .await;
    let replies = raw.read(38).await;
    assert_eq!(replies, [request(2, "\x08"), request(3, "\x09")].concat());
    let mut client = ReqClient::connect(route(running.addr))
        .await
        .expect("connect");
    for body in [b"\xa3you".as_slice(), b"\xa2hi"] {
        let asked = client.request(Bytes::copy_from_slice(body));
        assert_eq!(soon("a reply", asked).await.expect("reply"), body);
    }
    running.stopped().await;
}

#[tokio::test]
async fn large_request_of_a_stranger_is_refused() {
    let running = request_listener_of(
        Transport::Tcp,
        None,
        request_limits(),
        Arc::new(Echo::default()),
    );
    let large = [b"\xc6\x00\x20\x00\x00".as_slice(), &vec![7; 2 << 20]].concat();
    let mut stranger = ReqClient::connect(route(running.addr))
        .await
        .expect("connect");
    let refused = stranger.request(large.into());
    assert!(soon("a refusal", refused).await.is_err());
    running.reaches("closed_total", "message_size", 1).await;
    running.stopped().await;
}

#[tokio::test]
async fn many_small_values_cost_no_more_than_one_large_one() {
    let echo = Arc::new(Echo::default());
    let running = request_listener_of(Transport::Tcp, None, ReqLimits::default(), echo);
    let mut client = ReqClient::connect(route(running.addr))
        .await
        .expect("connect");
    // No length is announced; reading it byte by byte would take hours.
    let body = [b"\xdd\x00\x1c\x00\x00".as_slice(), &vec![7; 0x1c_0000]].concat();
    let asked = client.request(body.clone().into());
    assert_eq!(soon("a reply", asked).await.expect("reply"), body);
    running.stopped().await;
}

/// Accepts any text as a registered name.
struct Names;

impl SubscriberWatch for Names {
    fn subscribed(&self, _: u64, _: SocketAddr, topic: &[u8]) {
        assert!(topic.is_empty());
    }

    fn registers(&self, _: u64, words: &Bytes) -> Option<Bytes> {
        (words.first() == Some(&0xa2)).then(|| words.slice(1..))
    }

    fn asked(&self, _: u64) {
        unreachable!("only ZeroMQ's peers answer");
    }

    fn answered(&self, _: u64) {}

    fn left(&self, _: u64, _: Close) {}
}

#[tokio::test]
async fn registered_subscriber_gets_what_concerns_it() {
    let (running, addresses, handle) = publish_listener_of_all(PubLimits::default(), None);
    let watch: Arc<dyn SubscriberWatch> = Arc::new(Names);
    handle.set_watch(Arc::<dyn SubscriberWatch>::downgrade(&watch) as Weak<_>);
    let mut subscribers = Vec::new();
    for words in [b"\xa2m1".as_slice(), b"\xa2m2", b"\x05"] {
        let subscriber = SubClient::connect(route(addresses[1]), &[], words);
        subscribers.push(subscriber.await.expect("connect"));
    }
    running.reaches("messages_total", "in", 3).await;
    let message = |text: &'static str| PubMessage::new(Bytes::from_static(text.as_bytes()));
    let count = handle.publish_to_hearers(&message("for m1"), Some(&["m1", "m9"]));
    assert_eq!((count.matched, count.queued), (2, 2));
    let count = handle.publish_to_hearers(&message("for all"), None);
    assert_eq!(count.queued, 3);
    // Subscribers with topics are addressed by the other function.
    assert_eq!(handle.publish(&message("for subscribers")).matched, 0);
    let expected = [
        vec!["for m1", "for all"],
        vec!["for all"],
        vec!["for m1", "for all"],
    ];
    for (subscriber, texts) in subscribers.iter_mut().zip(expected) {
        for text in texts {
            let frames = soon("a publication", subscriber.next()).await;
            assert_eq!(frames.expect("message"), [text]);
        }
    }
    drop(subscribers);
    running.stopped().await;
}

/// Rows of both ports.
fn common_rows() -> Vec<Row> {
    vec![
        row(
            "no packed value",
            Close::Malformed,
            [Send(b"\xc1".to_vec())],
        ),
        row("a number", Close::Malformed, [Send(b"\x07".to_vec())]),
        row(
            "a greeting of ZeroMQ",
            Close::Malformed,
            [Send(crate::port::common::greeting(1))],
        ),
        row(
            "an HTTP request",
            Close::Malformed,
            [Send(b"GET / HTTP/1.1\r\n\r\n".to_vec())],
        ),
        row(
            "no body",
            Close::Malformed,
            [Send(b"\x81\xa4head\x80".to_vec())],
        ),
        row(
            "no head",
            Close::Malformed,
            [Send(b"\x81\xa4body\x07".to_vec())],
        ),
        row(
            "a list as a key",
            Close::Malformed,
            [Send(b"\x81\x90\x07".to_vec())],
        ),
        row(
            "nested deeper than Python can",
            Close::Malformed,
            [Send(
                [&b"\x82\xa4head\x80\xa4body"[..], &[0x91; 1000], b"\xc0"].concat(),
            )],
        ),
        row(
            "4 GiB of bytes announced",
            Close::MessageSize,
            [Send(
                b"\x82\xa4head\x80\xa4body\xc6\xff\xff\xff\xff".to_vec(),
            )],
        ),
        row(
            "4 GiB of entries announced",
            Close::MessageSize,
            [Send(b"\xdf\xff\xff\xff\xff".to_vec())],
        ),
        row(
            "half a frame, then an end",
            Close::Truncated,
            [Send(b"\x82\xa4he".to_vec()), End],
        ),
        row(
            "half a frame, then silence",
            Close::SlowMessage,
            [Send(b"\x82\xa4he".to_vec())],
        ),
        row(
            "a frame byte by byte",
            Close::SlowMessage,
            [Dribble([&b"\xdc\x04\x00"[..], &[7; 1000]].concat())],
        ),
    ]
}

fn request_rows() -> Vec<Row> {
    let mut rows = common_rows();
    let mut head = b"\x82\xa4head\x81\xa3mid\xc5\x08\x00".to_vec();
    head.resize(head.len() + 2048, b'x');
    head.extend_from_slice(b"\xa4body\x07");
    rows.extend([
        row("a head of 2 KiB", Close::Envelope, [Send(head)]),
        row("silence", Close::Idle, [Send(request(1, "\x07"))]),
        row(
            "a frame over the limit for strangers",
            Close::MessageSize,
            [Send(b"\xdd\x00\x02\x00\x01".to_vec())],
        ),
    ]);
    rows
}

fn publish_rows() -> Vec<Row> {
    let mut rows = common_rows();
    let registration = b"\x82\xa4head\x80\xa4body\xa2m1";
    let mut long = b"\x82\xa4head\x80\xa4body\xc5\x20\x00".to_vec();
    long.resize(long.len() + 0x2000, b'x');
    rows.extend([
        row("a registration of 8 KiB", Close::MessageSize, [Send(long)]),
        row(
            "registering for ever",
            Close::Flood,
            [Flood(registration.to_vec())],
        ),
    ]);
    rows
}

async fn on_the_request_port(row: Row) {
    let running = request_listener_of(
        Transport::Tcp,
        None,
        request_limits(),
        Arc::new(Echo::default()),
    );
    attack(&running, &row).await;
    let mut honest = ReqClient::connect(route(running.addr))
        .await
        .expect("connect");
    let asked = honest.request(Bytes::from_static(b"\xa2hi"));
    let reply = soon("an honest reply", asked).await.expect("reply");
    assert_eq!(reply, b"\xa2hi".as_slice(), "after \"{}\"", row.name);
    verdict(&running, &row, 1);
}

async fn on_the_publish_port(row: Row) {
    // A subscriber that cannot be sent a PING may be silent.
    let limits = PubLimits {
        peers: PeerLimits {
            idle: None,
            ..publish_limits().peers
        },
        ..publish_limits()
    };
    let (mut running, addresses, handle) = publish_listener_of_all(limits, None);
    let mut honest = SubClient::connect(route(addresses[1]), &[], b"\xa2hi")
        .await
        .expect("connect");
    running.reaches("messages_total", "in", 1).await;
    running.addr = addresses[1];
    attack(&running, &row).await;
    handle.publish_to_hearers(&PubMessage::new(Bytes::from_static(b"hi")), None);
    let frames = soon("an honest message", honest.next()).await;
    assert_eq!(frames.expect("message"), ["hi"], "after \"{}\"", row.name);
    verdict(&running, &row, 1);
}

#[tokio::test]
async fn hostile_tcp_request_peers_harm_no_other() {
    all_hold(request_rows().into_iter().map(on_the_request_port)).await;
}

#[tokio::test]
async fn hostile_tcp_publish_peers_harm_no_other() {
    all_hold(publish_rows().into_iter().map(on_the_publish_port)).await;
}
