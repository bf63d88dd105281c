//! Property tests of the codec over arbitrary bytes in arbitrary pieces.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use saltern_wire::port::SizeLimits;
use saltern_wire::zmtp::codec::{Codec, Item};
use saltern_wire::zmtp::command::{Command, Ready, SocketType};
use saltern_wire::zmtp::greeting::Greeting;
use tokio_util::codec::{Decoder, Encoder};

const LIMITS: SizeLimits = SizeLimits {
    frame: 2000,
    message: 4000,
    frames: 8,
    command: 400,
};

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=most).prop_map(Bytes::from)
}

fn socket_type() -> impl Strategy<Value = SocketType> {
    prop::sample::select(vec![
        SocketType::Req,
        SocketType::Dealer,
        SocketType::Router,
    ])
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (socket_type(), bytes(255)).prop_map(|(kind, identity)| {
            Command::Ready(Ready {
                socket_type: Some(kind),
                identity,
            })
        }),
        bytes(255).prop_map(Command::Error),
        bytes(300).prop_map(Command::Subscribe),
        bytes(300).prop_map(Command::Cancel),
        (any::<u16>(), bytes(16)).prop_map(|(ttl, context)| Command::Ping { ttl, context }),
        bytes(16).prop_map(Command::Pong),
        ("[A-Z]{7,8}", bytes(50)).prop_map(|(name, body)| {
            Command::Unknown {
                name: Bytes::from(name),
                body,
            }
        }),
    ]
}

/// Items as a peer may send them: a greeting, then whole messages and commands.
fn conversation() -> impl Strategy<Value = Vec<Item>> {
    let message = prop::collection::vec(bytes(500), 1..5).prop_map(|frames| {
        let last = frames.len() - 1;
        frames
            .into_iter()
            .enumerate()
            .map(|(index, payload)| Item::Frame {
                more: index < last,
                payload,
            })
            .collect::<Vec<_>>()
    });
    let part = prop_oneof![
        message,
        command().prop_map(|command| vec![Item::Command(command)])
    ];
    (0..=1u8, prop::collection::vec(part, 0..10)).prop_map(|(minor, parts)| {
        let greeting = Item::Greeting(Greeting { minor });
        std::iter::once(greeting)
            .chain(parts.into_iter().flatten())
            .collect()
    })
}

fn encode(items: &[Item]) -> BytesMut {
    let mut codec = Codec::new(LIMITS);
    let mut bytes = BytesMut::new();
    for item in items {
        codec
            .encode(item.clone(), &mut bytes)
            .expect("encoding has no limits");
    }
    bytes
}

/// Feeds `bytes` in pieces of these sizes, over and over.
fn decode(bytes: &[u8], pieces: &[usize]) -> Result<Vec<Item>, String> {
    let mut codec = Codec::new(LIMITS);
    let mut buffer = BytesMut::new();
    let mut items = Vec::new();
    let mut rest = bytes;
    for piece in pieces.iter().cycle() {
        let (now, later) = rest.split_at((*piece).clamp(1, rest.len().max(1)).min(rest.len()));
        buffer.extend_from_slice(now);
        rest = later;
        let before = buffer.capacity();
        while let Some(item) = codec
            .decode(&mut buffer)
            .map_err(|error| error.to_string())?
        {
            items.push(item);
        }
        assert!(buffer.capacity() <= before, "the decoder reserved memory");
        // The number of missing bytes is never more than a limit allows.
        assert!(codec.missing(&buffer) <= LIMITS.frame + 9);
        if rest.is_empty() {
            break;
        }
    }
    Ok(items)
}

proptest! {
    #[test]
    fn what_is_encoded_reads_back_in_any_pieces(
        items in conversation(),
        pieces in prop::collection::vec(1usize..100, 1..20),
    ) {
        let bytes = encode(&items);
        prop_assert_eq!(decode(&bytes, &pieces).expect("well formed"), items);
    }

    #[test]
    fn random_bytes_give_the_same_in_any_pieces(
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        greeted in any::<bool>(),
        pieces in prop::collection::vec(1usize..50, 1..20),
    ) {
        let mut bytes =
            if greeted { encode(&[Item::Greeting(Greeting::V31)]) } else { BytesMut::new() };
        bytes.extend_from_slice(&noise);
        let whole = decode(&bytes, &[bytes.len().max(1)]);
        prop_assert_eq!(decode(&bytes, &pieces), whole);
    }

    #[test]
    fn one_wrong_byte_never_panics(
        items in conversation(),
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = encode(&items);
        let place = place.index(bytes.len());
        bytes[place] = value;
        let _ = decode(&bytes, &[bytes.len()]);
    }
}
