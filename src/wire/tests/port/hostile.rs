//! The hostile-peer table: each row is what one peer sends; each ends with that connection closed
//! for the stated reason, that reason counted once, and an honest peer served all the while.
//!
//! Longer than 500 lines because the table is one page, so that a missing row can be seen.
//! Deadlines are short here so that rows about silence end soon; no row sleeps to see an effect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use saltern_wire::port::{
    Close, Heartbeat, PeerLimits, Progress, PubLimits, PubMessage, Rate, ReqLimits, SizeLimits,
};
use saltern_wire::zmtp::{ReqClient, SubClient};
use tokio::io::AsyncWriteExt;

use crate::port::common::{
    Echo, Raw, Running, command, greeting, message, publish_listener, ready, request_listener, soon,
};

/// Step of a hostile peer.
pub(crate) enum Step {
    /// Writes this.
    Send(Vec<u8>),
    /// Writes this again and again, as fast as it goes, until the connection is closed.
    Flood(Vec<u8>),
    /// Writes this byte by byte, slowly.
    Dribble(Vec<u8>),
    /// Closes its side.
    End,
    /// Does not read what comes.
    Deaf,
}

use Step::{Deaf, Dribble, End, Flood, Send};

pub(crate) struct Row {
    pub(crate) name: &'static str,
    steps: Vec<Step>,
    reason: Close,
}

pub(crate) fn row(name: &'static str, reason: Close, steps: impl IntoIterator<Item = Step>) -> Row {
    Row {
        name,
        steps: steps.into_iter().collect(),
        reason,
    }
}

/// The handshake of a well-behaved peer, then these bytes.
fn after(minor: u8, socket_type: &str, then: &[u8]) -> Step {
    Send([&greeting(minor), &ready(socket_type, b""), then].concat())
}

/// Time between two bytes of a slow peer; all deadlines are multiples of it. The shortest of them is longer
/// than a busy machine keeps this process, and so the honest peers in it, from their work.
const PACE: Duration = Duration::from_millis(20);

fn peers() -> PeerLimits {
    PeerLimits {
        handshake: PACE * 140,
        heartbeat: Heartbeat {
            interval: PACE * 60,
            timeout: PACE * 60,
        },
        idle: Some(PACE * 100),
        progress: Progress {
            grace: PACE * 40,
            bytes_per_second: 1 << 30,
        },
        commands: Rate {
            burst: 20,
            per_second: 10,
        },
        ..PeerLimits::default()
    }
}

pub(crate) fn request_limits() -> ReqLimits {
    let before_auth = SizeLimits {
        frame: 1 << 16,
        message: 1 << 17,
        frames: 16,
        command: 512,
    };
    ReqLimits {
        peers: peers(),
        before_auth,
        ..ReqLimits::default()
    }
}

pub(crate) fn publish_limits() -> PubLimits {
    PubLimits {
        peers: peers(),
        subscriptions: 8,
        topic: 64,
        drain_timeout: PACE * 30,
        ..PubLimits::default()
    }
}

fn long(flags: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![flags];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

fn mechanism(name: &[u8]) -> Vec<u8> {
    let mut bytes = greeting(1);
    bytes[12..32].fill(0);
    bytes[12..12 + name.len()].copy_from_slice(name);
    bytes
}

fn property(name: &str, announced: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&announced.to_be_bytes());
    bytes.extend_from_slice(value);
    bytes
}

/// Rows that are the same on both ports; `kind` is a socket type that the port serves.
fn common_rows(kind: &'static str) -> Vec<Row> {
    let greeted = |then: &[u8]| Send([&greeting(1), then].concat());
    let with_ready = |body: &[u8]| greeted(&command("READY", body));
    let mut end_early = greeting(1);
    end_early.truncate(40);
    vec![
        row(
            "an HTTP request",
            Close::Signature,
            [Send(b"GET / HTTP/1.1\r\n\r\n".to_vec())],
        ),
        row("zeros", Close::Signature, [Flood(vec![0; 1000])]),
        row("ff for ever", Close::Signature, [Flood(vec![0xff; 1000])]),
        row(
            "a ZMTP 1.0 identity",
            Close::Signature,
            [Send(b"\x01\x00".to_vec())],
        ),
        row(
            "a ZMTP 2.0 greeting",
            Close::Version,
            [Send(b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05\0\0".to_vec())],
        ),
        row(
            "a greeting cut short by an end",
            Close::Truncated,
            [Send(end_early.clone()), End],
        ),
        row(
            "a greeting cut short by silence",
            Close::HandshakeTimeout,
            [Send(end_early)],
        ),
        row("silence", Close::HandshakeTimeout, []),
        row(
            "a greeting, then silence",
            Close::HandshakeTimeout,
            [Send(greeting(1))],
        ),
        row(
            "a greeting byte by byte",
            Close::HandshakeTimeout,
            [Dribble(greeting(1))],
        ),
        row("CURVE", Close::Mechanism, [Send(mechanism(b"CURVE"))]),
        row("PLAIN", Close::Mechanism, [Send(mechanism(b"PLAIN"))]),
        row(
            "NULL and more",
            Close::Mechanism,
            [Send(mechanism(b"NULLIFY"))],
        ),
        row(
            "a message before READY",
            Close::Handshake,
            [greeted(&message(&[b"", b"hello"]))],
        ),
        row(
            "the header of a large message before READY",
            Close::Handshake,
            [greeted(&long(2, 1 << 40))],
        ),
        row(
            "a PING before READY",
            Close::Handshake,
            [greeted(&command("PING", b"\0\0"))],
        ),
        row(
            "ERROR",
            Close::PeerError,
            [greeted(&command("ERROR", b"\x02no"))],
        ),
        row(
            "a READY of 2^40 bytes",
            Close::CommandSize,
            [greeted(&long(6, 1 << 40))],
        ),
        row(
            "a READY full of properties",
            Close::CommandSize,
            [with_ready(&property("X", 3, b"abc").repeat(200))],
        ),
        row(
            "a property that points past the end",
            Close::Command,
            [with_ready(&property("Socket-Type", 200, b"REQ"))],
        ),
        row(
            "a property of 2^32-1 bytes",
            Close::Command,
            [with_ready(&property("Socket-Type", u32::MAX, b"REQ"))],
        ),
        row(
            "a property without name",
            Close::Command,
            [with_ready(&property("", 0, b""))],
        ),
        row(
            "half a property",
            Close::Command,
            [with_ready(b"\x0bSocket")],
        ),
        row("an empty command", Close::Command, [greeted(b"\x04\x00")]),
        row(
            "a command name past the end",
            Close::Command,
            [greeted(b"\x04\x03\x09AB")],
        ),
        row(
            "a command without name",
            Close::Command,
            [greeted(b"\x04\x02\x00A")],
        ),
        row("no socket type", Close::SocketType, [with_ready(b"")]),
        row(
            "an unknown socket type",
            Close::SocketType,
            [with_ready(&property("Socket-Type", 5, b"RADIO"))],
        ),
        row("a PUSH", Close::SocketType, [after(1, "PUSH", b"")]),
        row(
            "READY twice",
            Close::Handshake,
            [after(1, kind, &ready(kind, b""))],
        ),
        row(
            "ERROR after READY",
            Close::PeerError,
            [after(1, kind, &command("ERROR", b"\0"))],
        ),
        row(
            "reserved flags",
            Close::Flags,
            [after(1, kind, b"\x10\x00")],
        ),
        row(
            "a command with MORE",
            Close::Flags,
            [after(1, kind, b"\x05\x05\x04PONG")],
        ),
        row(
            "a frame of 2^62 bytes",
            Close::FrameSize,
            [after(1, kind, &long(2, 1 << 62))],
        ),
        row(
            "a frame of 2^64-1 bytes",
            Close::FrameSize,
            [after(1, kind, &long(2, u64::MAX))],
        ),
        row(
            "a command of 2^64-1 bytes",
            Close::CommandSize,
            [after(1, kind, &long(6, u64::MAX))],
        ),
        row(
            "a PING without TTL",
            Close::Command,
            [after(1, kind, &command("PING", b"\0"))],
        ),
        row(
            "a PING with a long context",
            Close::Command,
            [after(1, kind, &command("PING", &[0; 19]))],
        ),
        row(
            "a PONG with a long context",
            Close::Command,
            [after(1, kind, &command("PONG", &[0; 17]))],
        ),
        row(
            "a flood of PINGs",
            Close::Flood,
            [after(1, kind, b""), Flood(command("PING", b"\0\0x"))],
        ),
        row(
            "a flood of PINGs, PONGs not read",
            Close::Flood,
            [Deaf, after(1, kind, b""), Flood(command("PING", b"\0\0x"))],
        ),
        row(
            "a flood of PONGs",
            Close::Flood,
            [after(1, kind, b""), Flood(command("PONG", b""))],
        ),
        row(
            "a flood of unknown commands",
            Close::Flood,
            [after(1, kind, b""), Flood(command("HELLO", b"x"))],
        ),
        row("no PONG", Close::Heartbeat, [after(1, kind, b"")]),
        row("silence of a 3.0 peer", Close::Idle, [after(0, kind, b"")]),
        row(
            "half a header, then an end",
            Close::Truncated,
            [after(1, kind, b"\x02\0\0"), End],
        ),
        row(
            "half a frame, then an end",
            Close::Truncated,
            [after(1, kind, b"\x00\x10abc"), End],
        ),
        row(
            "half a frame, then silence",
            Close::SlowMessage,
            [after(1, kind, b"\x00\x10abc")],
        ),
        row(
            "half a command, then silence",
            Close::SlowMessage,
            [after(1, kind, b"\x04\x10\x04PO")],
        ),
        row(
            "a frame byte by byte",
            Close::SlowMessage,
            [after(1, kind, b"\x00\x60"), Dribble(vec![b'x'; 0x60])],
        ),
    ]
}

fn request_rows() -> Vec<Row> {
    let kind = "REQ";
    let mut rows = common_rows(kind);
    rows.extend([
        row(
            "a SUB on the request port",
            Close::SocketType,
            [after(1, "SUB", b"")],
        ),
        row(
            "an identity of 300 bytes",
            Close::Command,
            [Send([greeting(1), ready("REQ", &[b'i'; 300])].concat())],
        ),
        row(
            "one byte over the frame limit",
            Close::FrameSize,
            [after(
                1,
                kind,
                &[&b"\x01\0"[..], &long(2, (1 << 16) + 1)].concat(),
            )],
        ),
        row(
            "a message over the limit, in frames below it",
            Close::MessageSize,
            [
                after(1, kind, b"\x01\0"),
                Flood([long(3, 1 << 16), vec![0; 1 << 16]].concat()),
            ],
        ),
        row(
            "frames without end",
            Close::Frames,
            [
                after(1, kind, b"\x01\0\x01\x01x"),
                Flood(b"\x01\x01x".to_vec()),
            ],
        ),
        row(
            "empty frames without end",
            Close::Frames,
            [after(1, kind, b""), Flood(b"\x01\0".to_vec())],
        ),
        row(
            "an envelope without end",
            Close::Envelope,
            [after(1, "DEALER", b""), Flood(b"\x01\x01x".to_vec())],
        ),
        row(
            "an envelope of many bytes",
            Close::Envelope,
            [after(1, "DEALER", &message(&[&[1; 2000], b"", b"x"]))],
        ),
        row(
            "a request without delimiter",
            Close::Envelope,
            [after(1, kind, &message(&[b"hello"]))],
        ),
        row(
            "two frames without delimiter",
            Close::Envelope,
            [after(1, kind, &message(&[b"hello", b"there"]))],
        ),
        row(
            "a delimiter alone",
            Close::Envelope,
            [after(1, kind, &message(&[b""]))],
        ),
        row(
            "a flood of subscriptions",
            Close::Flood,
            [after(1, kind, b""), Flood(command("SUBSCRIBE", b"x"))],
        ),
        row(
            "a delimiter, then an end",
            Close::Truncated,
            [after(1, kind, b"\x01\0"), End],
        ),
        row(
            "a delimiter, then silence",
            Close::SlowMessage,
            [after(1, kind, b"\x01\0")],
        ),
        row(
            "half a large frame, then silence",
            Close::SlowMessage,
            [after(
                1,
                kind,
                &[&b"\x01\0"[..], &long(2, 60_000), &[0; 30_000]].concat(),
            )],
        ),
        row(
            "a reply that is not read",
            Close::SlowReader,
            [Deaf, after(0, kind, &message(&[b"", b"large"]))],
        ),
    ]);
    rows
}

fn publish_rows() -> Vec<Row> {
    let kind = "SUB";
    let mut rows = common_rows(kind);
    let topics = |form: fn(&[u8]) -> Vec<u8>| {
        (0..9)
            .flat_map(|number: u8| form(&[b't', number]))
            .collect::<Vec<u8>>()
    };
    let as_command = |topic: &[u8]| command("SUBSCRIBE", topic);
    let as_message = |topic: &[u8]| message(&[&[&[1], topic].concat()]);
    let change = [command("SUBSCRIBE", b"x"), command("CANCEL", b"x")].concat();
    rows.extend([
        row(
            "a REQ on the publish port",
            Close::SocketType,
            [after(1, "REQ", b"")],
        ),
        row(
            "too many subscriptions",
            Close::Subscriptions,
            [after(1, kind, &topics(as_command))],
        ),
        row(
            "too many subscriptions as messages",
            Close::Subscriptions,
            [after(0, kind, &topics(as_message))],
        ),
        row(
            "a topic that is too long",
            Close::Topic,
            [after(1, kind, &as_command(&[b'x'; 65]))],
        ),
        row(
            "a long topic as a message",
            Close::Topic,
            [after(0, kind, &as_message(&[b'x'; 65]))],
        ),
        row(
            "a topic of 64 KiB",
            Close::CommandSize,
            [after(1, kind, &as_command(&[b'x'; 1 << 16]))],
        ),
        row(
            "a topic of 64 KiB as a message",
            Close::FrameSize,
            [after(0, kind, &as_message(&[b'x'; 1 << 16]))],
        ),
        row(
            "subscribing and cancelling for ever",
            Close::Flood,
            [after(1, kind, b""), Flood(change)],
        ),
        row(
            "the same subscription for ever",
            Close::Flood,
            [after(1, kind, b""), Flood(as_command(b"x"))],
        ),
        row(
            "cancelling what is not subscribed, for ever",
            Close::Flood,
            [after(0, kind, b""), Flood(message(&[b"\0x"]))],
        ),
        row(
            "messages that are no subscriptions",
            Close::Flood,
            [after(1, "XSUB", b""), Flood(message(&[b"hello"]))],
        ),
        row(
            "empty messages",
            Close::Flood,
            [after(1, kind, b""), Flood(message(&[b""]))],
        ),
        row(
            "a message of two frames",
            Close::Frames,
            [after(1, kind, &message(&[b"\x01a", b"b"]))],
        ),
    ]);
    rows
}

/// Runs a row, and checks that the connection is closed.
pub(crate) async fn attack(running: &Running, row: &Row) {
    let raw = Raw::connect(running.addr).await;
    let (mut read, mut write) = raw.stream.into_split();
    let deaf = row.steps.iter().any(|step| matches!(step, Deaf));
    let reading = async {
        if deaf {
            running.reaches("closed_total", row.reason.label(), 1).await;
        } else {
            let mut sink = tokio::io::sink();
            // A reset ends the copy as well as an orderly end.
            let _ = tokio::io::copy(&mut read, &mut sink).await;
        }
    };
    let writing = async {
        for step in &row.steps {
            match step {
                Send(bytes) => {
                    let _ = write.write_all(bytes).await;
                }
                Flood(bytes) => while write.write_all(bytes).await.is_ok() {},
                Dribble(bytes) => {
                    let mut pace = tokio::time::interval(PACE);
                    for byte in bytes {
                        pace.tick().await;
                        if write.write_all(&[*byte]).await.is_err() {
                            break;
                        }
                    }
                }
                End => {
                    let _ = write.shutdown().await;
                }
                Deaf => {}
            }
        }
    };
    soon(row.name, async { tokio::join!(reading, writing) }).await;
    running.reaches("closed_total", row.reason.label(), 1).await;
}

/// Runs a row on the request port, beside a client that sends requests all the time.
async fn on_the_request_port(row: Row) {
    let running = request_listener(request_limits(), Arc::new(Echo::default()));
    let mut honest = ReqClient::connect(running.addr, None)
        .await
        .expect("connect");
    let ask = async |client: &mut ReqClient| {
        let reply = soon("an honest reply", client.request(Bytes::from_static(b"hi"))).await;
        assert_eq!(reply.expect("reply"), "hi", "beside \"{}\"", row.name);
    };
    ask(&mut honest).await;
    let mut attacking = std::pin::pin!(attack(&running, &row));
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    loop {
        tokio::select! {
            () = &mut attacking => break,
            _ = pace.tick() => ask(&mut honest).await,
        }
    }
    ask(&mut honest).await;
    verdict(&running, &row, 1);
}

/// Runs a row on the publish port, beside a subscriber that reads all the time.
async fn on_the_publish_port(row: Row) {
    let (running, handle) = publish_listener(publish_limits());
    let mut honest = SubClient::connect(running.addr, &[b"hi"])
        .await
        .expect("connect");
    running.reaches("messages_total", "in", 1).await;
    let mut attacking = std::pin::pin!(attack(&running, &row));
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let mut more = true;
    while more {
        more = tokio::select! {
            () = &mut attacking => false,
            _ = pace.tick() => true,
        };
        handle.publish(&PubMessage::new(Bytes::from_static(b"hi")));
        let frames = soon("an honest message", honest.next())
            .await
            .expect("message");
        assert_eq!(frames, ["hi"], "beside \"{}\"", row.name);
    }
    verdict(&running, &row, 1);
    assert_eq!(handle.subscriber_count(), 1, "after \"{}\"", row.name);
}

pub(crate) fn verdict(running: &Running, row: &Row, honest: u64) {
    let counted = |reason: &Close| running.metric("closed_total", reason.label());
    assert_eq!(counted(&row.reason), 1, "\"{}\"", row.name);
    let all: u64 = Close::ALL.iter().map(counted).sum();
    assert_eq!(all, 1, "\"{}\" closed something else too", row.name);
    assert_eq!(
        running.metric("connections", ""),
        honest,
        "after \"{}\"",
        row.name
    );
}

/// Runs the rows concurrently, each to its end, so that one run shows all failures.
pub(crate) async fn all_hold<F: Future<Output = ()> + std::marker::Send + 'static>(
    mut rows: impl Iterator<Item = F>,
) {
    let mut running: tokio::task::JoinSet<()> = rows.by_ref().take(12).collect();
    let mut failed = 0;
    while let Some(row) = running.join_next().await {
        failed += u32::from(row.is_err());
        if let Some(row) = rows.next() {
            running.spawn(row);
        }
    }
    assert_eq!(failed, 0, "rows failed; see the messages above");
}

#[tokio::test]
async fn hostile_request_peers_harm_no_other() {
    all_hold(request_rows().into_iter().map(on_the_request_port)).await;
}

#[tokio::test]
async fn hostile_publish_peers_harm_no_other() {
    all_hold(publish_rows().into_iter().map(on_the_publish_port)).await;
}

#[tokio::test]
async fn subscriber_that_does_not_read_misses_messages_and_is_closed() {
    let limits = PubLimits {
        queue: 10,
        ..publish_limits()
    };
    let (running, handle) = publish_listener(limits);
    let _deaf = {
        let mut raw = Raw::open(running.addr, 1, "SUB", b"").await;
        raw.send(&command("SUBSCRIBE", b"")).await;
        raw
    };
    let mut honest = SubClient::connect(running.addr, &[b""])
        .await
        .expect("connect");
    running.reaches("messages_total", "in", 2).await;
    let message = PubMessage::new(Bytes::from(vec![7; 1 << 20]));
    let mut dropped = 0;
    while running.metric("closed_total", Close::SlowSubscriber.label()) == 0 {
        dropped += handle.publish(&message).dropped;
        let frames = soon("an honest message", honest.next())
            .await
            .expect("message");
        assert_eq!(frames[0].len(), 1 << 20);
    }
    assert!(dropped > 0, "its queue never filled");
    assert_eq!(running.metric("dropped_total", ""), dropped as u64);
    assert_eq!(handle.subscriber_count(), 1);
}
