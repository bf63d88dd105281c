//! Tests of websockets: the upgrade, requests and publications, and hostile peers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use saltern_wire::client::{ClientError, ReqClient, Route, SubClient};
use saltern_wire::port::{Close, PeerLimits, PubLimits, PubMessage, ReqLimits, Transport};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tungstenite::handshake::derive_accept_key;

use crate::port::common::{Echo, Raw, publish_listener_of_all, request_listener_of, soon};
use crate::port::hostile::Step::{Dribble, End, Flood, Send};
use crate::port::hostile::{Row, all_hold, attack, publish_limits, request_limits, row, verdict};

/// An upgrade with RFC 6455's own example of a key, and the answer to it.
const UPGRADE: &[u8] = b"GET /ws HTTP/1.1\r\nHost: master\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A frame as a client sends it: masked.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ ..126 => bytes.push(0x80 | short as u8),
        middle @ ..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
    bytes
}

const BINARY: u8 = 0x82;
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;

async fn upgraded(addr: SocketAddr) -> Raw {
    let mut raw = Raw::connect(addr).await;
    raw.send(UPGRADE).await;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.extend(raw.read(1).await);
    }
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains(ACCEPTED), "{answer}");
    raw
}

fn echo(limits: ReqLimits) -> crate::port::common::Running {
    request_listener_of(
        Transport::WebSocket,
        None,
        limits,
        Arc::new(Echo::default()),
    )
}

#[tokio::test]
async fn a_binary_message_is_a_request_and_gets_one_reply() {
    let running = echo(ReqLimits::default());
    let mut raw = upgraded(running.addr).await;
    raw.send(&frame(BINARY, b"hello")).await;
    assert_eq!(raw.read(7).await, b"\x82\x05hello");
    let long = vec![b'x'; 70_000];
    raw.send(&frame(BINARY, &long)).await;
    assert_eq!(raw.read(10).await, b"\x82\x7f\0\0\0\0\0\x01\x11\x70");
    assert_eq!(raw.read(70_000).await, long);
    // In pieces, with a ping between them.
    let pieces = [
        frame(0x02, b"hel"),
        frame(PING, b"?"),
        frame(0x00, b"l"),
        frame(0x80, b"o"),
    ];
    raw.send(&pieces.concat()).await;
    assert_eq!(raw.read(10).await, b"\x8a\x01?\x82\x05hello");
    raw.send(&frame(CLOSE, b"\x03\xe8bye")).await;
    assert_eq!(raw.closed().await.as_ref(), b"\x88\x02\x03\xe8");
    let mut raw = upgraded(running.addr).await;
    raw.send(&frame(TEXT, b"close")).await;
    assert_eq!(raw.closed().await.as_ref(), b"\x88\x00");
    running.reaches("closed_total", "peer_closed", 2).await;
    running.stopped().await;
}

#[tokio::test]
async fn connected_subscriber_gets_every_publication() {
    let (running, addresses, handle) = publish_listener_of_all(PubLimits::default(), None);
    let mut raw = upgraded(addresses[2]).await;
    let message = PubMessage::new(Bytes::from_static(b"hi"));
    assert_eq!(handle.publish_to_hearers(&message, None).queued, 1);
    assert_eq!(handle.publish_to_hearers(&message, Some(&["m1"])).queued, 1);
    for _ in 0..2 {
        assert_eq!(raw.read(6).await, b"\x82\x04\xc4\x02hi");
    }
    drop(raw);
    running.stopped().await;
}

fn route(to: SocketAddr) -> Route {
    Route {
        transport: Transport::WebSocket,
        ..Route::from(to)
    }
}

#[tokio::test]
async fn client_end_gets_replies_of_any_size() {
    let running = echo(ReqLimits::default());
    let connected = ReqClient::connect(route(running.addr)).await;
    let mut client = connected.expect("connect");
    for size in [1, 125, 126, 65_535, 65_536, 3 << 20] {
        let sent = Bytes::from(vec![7; size]);
        let asked = client.request(sent.clone());
        assert_eq!(soon("a reply", asked).await.expect("reply"), sent);
    }
    drop(client);
    running.stopped().await;
}

#[tokio::test]
async fn client_end_subscribes() {
    let (running, addresses, handle) = publish_listener_of_all(PubLimits::default(), None);
    let connected = SubClient::connect(route(addresses[2]), &[], b"").await;
    let mut client = connected.expect("connect");
    running.reaches("connections", "open", 1).await;
    let message = PubMessage::new(Bytes::from_static(b"hi"));
    assert_eq!(handle.publish_to_hearers(&message, None).queued, 1);
    let publication = soon("a publication", client.next()).await;
    assert_eq!(publication.expect("it"), [Bytes::from_static(b"hi")]);
    drop(client);
    running.stopped().await;
}

/// Accepts a connection, upgrades it, takes one message and sends these bytes.
async fn serve_once(listener: &TcpListener, then: &[u8]) -> tokio::net::TcpStream {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a request"));
    }
    let head = String::from_utf8(head).expect("text");
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    let accept = derive_accept_key(key.expect("a key").as_bytes());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await.expect("written");
    let mut message = [0; 2 + 4 + 2];
    stream.read_exact(&mut message).await.expect("a message");
    stream.write_all(then).await.expect("written");
    stream
}

#[tokio::test]
async fn client_end_takes_no_message_from_before_a_request_for_its_reply() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = listener.local_addr().expect("address");
    let serving = async {
        // A ping between two requests is no reason for another connection.
        let first = serve_once(&listener, b"\x82\x01a\x89\x00\x82\x01b").await;
        (first, serve_once(&listener, b"\x82\x01c").await)
    };
    let asking = async {
        let mut client = ReqClient::connect(route(to)).await.expect("connect");
        let mut replies = Vec::new();
        for _ in 0..2 {
            let reply = client.request(Bytes::from_static(b"hi")).await;
            replies.push(reply.expect("a reply"));
        }
        replies
    };
    let (_streams, replies) = soon("replies", async { tokio::join!(serving, asking) }).await;
    assert_eq!(replies, ["a", "c"]);
}

/// A listener that answers an upgrade with these bytes.
async fn answering(answer: &'static [u8]) -> Result<(), ClientError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = listener.local_addr().expect("address");
    let serving = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = [0; 64];
        stream.read_exact(&mut head).await.expect("a request");
        stream.write_all(answer).await.expect("written");
        stream
    };
    let connecting = ReqClient::connect(route(to));
    let (_stream, connected) = soon("an end", async { tokio::join!(serving, connecting) }).await;
    connected.map(drop)
}

#[tokio::test]
async fn client_end_takes_no_other_answer_for_an_upgrade() {
    let forbidden = answering(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await;
    let Err(ClientError::Refused { reason, .. }) = forbidden else {
        panic!("refused");
    };
    assert_eq!(reason, "HTTP status 403");
    let other = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: AAAA\r\n\r\n";
    let other = answering(other).await;
    assert!(matches!(other, Err(ClientError::SocketType(_))));
    let none = answering(b"\x82\xa4head\x80\xa4body\xc0").await;
    assert!(matches!(none, Err(ClientError::Refused { .. })));
}

fn after_upgrade(then: &[u8]) -> crate::port::hostile::Step {
    Send([UPGRADE, then].concat())
}

fn without(line: &str) -> Vec<u8> {
    let text = std::str::from_utf8(UPGRADE).expect("text");
    let lines = text.split_inclusive("\r\n");
    let lines: String = lines.filter(|each| !each.starts_with(line)).collect();
    lines.into_bytes()
}

/// The upgrade as a browser sends it for a page of another site.
fn from_a_page() -> Vec<u8> {
    let mut bytes = UPGRADE[..UPGRADE.len() - 2].to_vec();
    bytes.extend_from_slice(b"oRIGIN: http://evil.example\r\n\r\n");
    bytes
}

#[tokio::test]
async fn upgrade_with_an_origin_is_forbidden() {
    let running = echo(ReqLimits::default());
    let mut raw = Raw::connect(running.addr).await;
    raw.send(&from_a_page()).await;
    let answer = raw.closed().await;
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{answer:?}");
    running.reaches("closed_total", "origin", 1).await;
    running.stopped().await;
}

/// Rows of both ports.
fn common_rows() -> Vec<Row> {
    let mut endless = UPGRADE[..UPGRADE.len() - 2].to_vec();
    endless.extend_from_slice(b"X: ");
    endless.resize(5000, b'x');
    vec![
        row(
            "no HTTP",
            Close::Handshake,
            [Send(b"\x00\x01\x02\x03".to_vec())],
        ),
        row(
            "an ordinary page",
            Close::Handshake,
            [Send(b"GET / HTTP/1.1\r\nHost: m\r\n\r\n".to_vec())],
        ),
        row(
            "no key",
            Close::Handshake,
            [Send(without("Sec-WebSocket-Key"))],
        ),
        row(
            "no version",
            Close::Handshake,
            [Send(without("Sec-WebSocket-V"))],
        ),
        row("a page in a browser", Close::Origin, [Send(from_a_page())]),
        row("a head without end", Close::Handshake, [Send(endless)]),
        row(
            "half a head, then an end",
            Close::Truncated,
            [Send(UPGRADE[..50].to_vec()), End],
        ),
        row(
            "half a head, then silence",
            Close::HandshakeTimeout,
            [Send(UPGRADE[..50].to_vec())],
        ),
        row(
            "a head byte by byte",
            Close::HandshakeTimeout,
            [Dribble(UPGRADE.to_vec())],
        ),
        row("no mask", Close::Malformed, [after_upgrade(b"\x82\x02hi")]),
        row(
            "reserved bits",
            Close::Malformed,
            [after_upgrade(&frame(0xc2, b"hi"))],
        ),
        row(
            "a reserved kind",
            Close::Malformed,
            [after_upgrade(&frame(0x83, b"hi"))],
        ),
        row(
            "a continuation of nothing",
            Close::Malformed,
            [after_upgrade(&frame(0x80, b"hi"))],
        ),
        row(
            "a message inside a message",
            Close::Malformed,
            [after_upgrade(
                &[frame(0x02, b"a"), frame(BINARY, b"b")].concat(),
            )],
        ),
        row(
            "a large ping",
            Close::CommandSize,
            [after_upgrade(&frame(PING, &[0; 126]))],
        ),
        row(
            "a ping in pieces",
            Close::CommandSize,
            [after_upgrade(&frame(0x09, b"a"))],
        ),
        row(
            "4 GiB announced",
            Close::FrameSize,
            [after_upgrade(b"\x82\xff\0\0\0\x01\0\0\0\0\x01\x02\x03\x04")],
        ),
        row(
            "half a frame, then an end",
            Close::Truncated,
            [after_upgrade(b"\x82\x85\x01\x02\x03\x04hel"), End],
        ),
        row(
            "half a frame, then silence",
            Close::SlowMessage,
            [after_upgrade(b"\x82\x85\x01\x02\x03\x04hel")],
        ),
        row(
            "a message without end, then silence",
            Close::SlowMessage,
            [after_upgrade(&frame(0x02, b"hel"))],
        ),
        row(
            "pings for ever",
            Close::Flood,
            [after_upgrade(b""), Flood(frame(PING, b"?"))],
        ),
        row(
            "chatter for ever",
            Close::Flood,
            [after_upgrade(b""), Flood(frame(TEXT, b"?"))],
        ),
    ]
}

fn request_rows() -> Vec<Row> {
    let mut rows = common_rows();
    let many = [frame(0x02, b"a"), frame(0x00, b"b").repeat(16)].concat();
    let large = [frame(0x02, &[0; 1 << 16]), frame(0x00, &[0; 1 << 16])].concat();
    let too_large = [large, frame(0x00, b"x")].concat();
    rows.extend([
        row("too many pieces", Close::Frames, [after_upgrade(&many)]),
        row(
            "pieces too large together",
            Close::MessageSize,
            [after_upgrade(&too_large)],
        ),
        row("silence", Close::Idle, [after_upgrade(b"")]),
    ]);
    rows
}

async fn on_the_request_port(row: Row) {
    let running = echo(request_limits());
    attack(&running, &row).await;
    let mut honest = upgraded(running.addr).await;
    honest.send(&frame(BINARY, b"hi")).await;
    assert_eq!(
        honest.read(4).await,
        b"\x82\x02hi",
        "after \"{}\"",
        row.name
    );
    verdict(&running, &row, 1);
}

async fn on_the_publish_port(row: Row) {
    let limits = PubLimits {
        peers: PeerLimits {
            idle: None,
            ..publish_limits().peers
        },
        ..publish_limits()
    };
    let (mut running, addresses, handle) = publish_listener_of_all(limits, None);
    let mut honest = upgraded(addresses[2]).await;
    running.addr = addresses[2];
    attack(&running, &row).await;
    handle.publish_to_hearers(&PubMessage::new(Bytes::from_static(b"hi")), None);
    assert_eq!(
        honest.read(6).await,
        b"\x82\x04\xc4\x02hi",
        "after \"{}\"",
        row.name
    );
    verdict(&running, &row, 1);
}

#[tokio::test]
async fn hostile_ws_request_peers_harm_no_other() {
    all_hold(request_rows().into_iter().map(on_the_request_port)).await;
}

#[tokio::test]
async fn hostile_ws_publish_peers_harm_no_other() {
    all_hold(common_rows().into_iter().map(on_the_publish_port)).await;
}
