//! Frames of the ports and of the event sockets: the same messages, whole and in pieces.

use bytes::{Bytes, BytesMut};
use saltern_fuzz::{Fuzz, Random};
use saltern_wire::ipc::{EventFrame, Framing, PullDecoder};
use saltern_wire::msgpack::{Dialect, Value, encode};
use saltern_wire::port::Transport;
use tokio_util::codec::Decoder as _;

/// Pieces of a stream, as a network may cut it; the cuts follow from the bytes.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let sum = bytes.iter().fold(0_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    let mut random = Random::new(sum, 0);
    let largest = [1, 3, 64, 4096][random.below(4)];
    // Nothing is a piece, too.
    let (mut rest, mut pieces) = (bytes, vec![&bytes[..0]]);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((1 + random.below(largest)).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

fn assert_alike(transport: Transport, bytes: &[u8]) {
    for is_publish in [false, true] {
        let whole = transport.messages_of(is_publish, [bytes]);
        let divided = transport.messages_of(is_publish, pieces(bytes));
        assert_eq!(whole, divided, "publish port: {is_publish}");
    }
}

const GREETING: &[u8] =
    b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

const READY: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ";

#[test]
fn zmtp_frames() {
    let with = |parts: &[&[u8]]| [&[GREETING, READY], parts].concat().concat();
    Fuzz {
        name: "zmtp_frames",
        seeds: vec![
            with(&[b"\x01\0\0\x05hello", b"\x01\0\x02\0\0\0\0\0\0\0\x03abc"]),
            with(&[b"\x04\x0a\x09SUBSCRIBE", b"\0\x01\x01", b"\0\x03\0ab"]),
            with(&[b"\x04\x07\x04PING\0\x0a", b"\x04\x08\x05ERROR\x01x"]),
            with(&[b"\x01\x05ident\x01\x00\x00\x02hi", b"\x04\x08\x06CANCELx"]),
            GREETING.to_vec(),
        ],
        words: &[
            GREETING,
            READY,
            b"\x01\0\0\x02hi",
            b"\x04\x05\x04PING",
            b"\x06",
            b"DEALER",
            b"SUB",
        ],
        count: 16_000,
    }
    .run(|bytes| assert_alike(Transport::ZeroMq, bytes));
}

#[test]
fn tcp_frames() {
    let map = |entries: Value| encode(&entries, Dialect::Bin);
    let head = |head: Value, body: &'static [u8]| {
        map(Value::map([
            ("head", head),
            ("body", Value::Bin(Bytes::from_static(body))),
        ]))
    };
    Fuzz {
        name: "tcp_frames",
        seeds: vec![
            head(Value::map([("mid", 1_i64)]), b"hello"),
            head(Value::Map(Vec::new()), b""),
            [
                head(Value::map([("mid", 1_i64)]), b"one"),
                head(Value::map([("mid", 2_i64)]), b"two"),
            ]
            .concat(),
        ],
        words: &[
            b"\x82",
            b"\xa4head",
            b"\xa4body",
            b"\xc4\x05hello",
            b"\xdf\0\0\0\x02",
            b"\xc6",
        ],
        count: 16_000,
    }
    .run(|bytes| assert_alike(Transport::Tcp, bytes));
}

const UPGRADE: &[u8] = b"GET /ws HTTP/1.1\r\nHost: salt\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn websocket_frames() {
    let with = |parts: &[&[u8]]| [&[UPGRADE], parts].concat().concat();
    Fuzz {
        name: "websocket_frames",
        seeds: vec![
            with(&[b"\x82\x85abcd\x09\x07\x0f\x08\x0e"]),
            with(&[b"\x02\x82abcd\0\0", b"\x80\x81abcd\0", b"\x89\x80abcd"]),
            with(&[b"\x88\x82abcd\x03\xe8"]),
            with(&[b"\x81\x85abcd\x02\x0e\x0c\x17\x04"]),
            with(&[b"\x82\xfe\0\x02abcdzz"]),
        ],
        words: &[
            UPGRADE,
            b"\r\n\r\n",
            b"Origin: x\r\n",
            b"\x82\x80abcd",
            b"\x82\xff",
            b"\x88\x80abcd",
        ],
        count: 10_000,
    }
    .run(|bytes| assert_alike(Transport::WebSocket, bytes));
}

/// The bodies that a decoder finds, and whether it ends with an error.
fn bodies<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Bytes>, bool) {
    let mut decoder = PullDecoder::new(8 << 10);
    let (mut buffer, mut bodies) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(body)) => bodies.push(body),
                Ok(None) => break,
                Err(_) => return (bodies, true),
            }
        }
    }
    (bodies, false)
}

#[test]
fn event_frames() {
    let frame = EventFrame::new("salt/job/1/new", b"\x81\xa1a\x01");
    let (bare, prefixed) = (frame.bytes(Framing::Bare), frame.bytes(Framing::Prefixed));
    Fuzz {
        name: "event_frames",
        seeds: vec![
            bare.to_vec(),
            prefixed.to_vec(),
            [&bare[..], &bare].concat(),
            [&prefixed[..], &prefixed].concat(),
        ],
        words: &[
            &bare,
            &prefixed,
            b"\xa4body",
            b"\xa4head",
            b"\n\n",
            b"\xc6",
            b"\x82",
        ],
        count: 20_000,
    }
    .run(|bytes| {
        let (whole, divided) = (bodies([bytes]), bodies(pieces(bytes)));
        assert_eq!(whole, divided);
        for body in whole.0 {
            let _ = saltern_wire::ipc::split_body(&body);
        }
    });
}
