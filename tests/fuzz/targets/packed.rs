//! Msgpack in both dialects, and JSON.

use bytes::Bytes;
use saltern_fuzz::Fuzz;
use saltern_wire::msgpack::{
    Dialect, Limits, MapView, RawValue, Value, decode, decode_exact, decode_wire, encode,
};

const LIMITS: Limits = Limits {
    depth: 64,
    bytes: 1 << 20,
    items: 10_000,
};

fn seeds() -> Vec<Vec<u8>> {
    let value = Value::map([
        ("text", Value::from("salt")),
        ("bytes", Value::Bin(Bytes::from_static(b"\0\xff"))),
        (
            "numbers",
            Value::Array(vec![1_i64.into(), (-70_000_i64).into(), u64::MAX.into()]),
        ),
        ("float", Value::Float(1.5)),
        ("nothing", Value::Nil),
        ("map", Value::map([("a", Value::from(true))])),
    ]);
    let raw = encode(&value, Dialect::Raw);
    vec![
        encode(&value, Dialect::Bin),
        raw,
        b"\xc7\x04\x01abcd".to_vec(),
        b"\x80".to_vec(),
    ]
}

/// A decoded value is encoded and decoded to the same, in every reader.
#[test]
fn msgpack() {
    Fuzz {
        name: "msgpack",
        seeds: seeds(),
        words: &[
            b"\xc4",
            b"\xd9",
            b"\xdf\xff\xff\xff\xff",
            b"\xdd",
            b"\xc7\x04\x01",
            b"\xcb",
            b"\x91",
            b"\xa4text",
        ],
        count: 20_000,
    }
    .run(|bytes| {
        let exact = decode_exact(bytes, &LIMITS);
        if let Ok(value) = &exact {
            let again = decode_exact(&encode(value, Dialect::Bin), &LIMITS).unwrap();
            assert_eq!(encode(&again, Dialect::Bin), encode(value, Dialect::Bin));
        }
        let _ = (decode(bytes, &LIMITS), decode_wire(bytes, &LIMITS));
        let shared = Bytes::copy_from_slice(bytes);
        let raw = RawValue::parse(shared.clone(), &LIMITS);
        assert_eq!(
            raw.is_ok(),
            exact.is_ok(),
            "one reader takes what another refuses"
        );
        if let Ok(raw) = raw {
            let _ = (raw.decode(), raw.as_array(), raw.as_map(), raw.as_f64());
            let other = raw.to_bin_dialect();
            assert!(RawValue::parse(other, &LIMITS).is_ok());
        }
        if let Ok(map) = MapView::parse(shared, &LIMITS) {
            let again = MapView::parse(map.pack(), &LIMITS).unwrap();
            assert_eq!(again.len(), map.len());
            let _ = map.pack_bin_dialect();
        }
    });
}

#[test]
fn json() {
    let text = br#"{"a": [1, -2.5e3, "\u00e9\ud83d\ude00", null, true], "b": {"": NaN}}"#;
    Fuzz {
        name: "json",
        seeds: vec![text.to_vec(), b"[]".to_vec()],
        words: &[
            b"[",
            b"{",
            b"\"",
            b"\\u",
            b"\\ud83d",
            b"1e999",
            b"Infinity",
            b",",
            b":",
        ],
        count: 20_000,
    }
    .run(|bytes| {
        let _ = saltern_wire::json::parse(&String::from_utf8_lossy(bytes));
    });
}
