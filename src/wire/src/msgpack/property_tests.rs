//! Property tests: invariants of all values and of arbitrary, hostile bytes.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::ext::EXT_DATETIME;
use super::unique::unique;
use super::*;

fn plain() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-70_000_i64..70_000).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("equal to itself", |n| !n.is_nan())
            .prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        "[a-z]{250,260}".prop_map(Value::from),
        vec(any::<u8>(), 0..40).prop_map(|bytes| Value::Bin(bytes.into())),
        vec(any::<u8>(), 250..260).prop_map(|bytes| Value::Bin(bytes.into())),
        (any::<i8>(), vec(any::<u8>(), 0..20)).prop_map(|(c, b)| Value::Ext(c, b.into())),
        Just(Value::Ext(
            EXT_DATETIME,
            Bytes::from_static(b"20261121T07:10:35.637714")
        )),
    ]
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    plain().prop_recursive(5, 60, 20, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..20).prop_map(Value::Array),
            vec((plain(), inner), 0..20).prop_map(|entries| Value::Map(unique(entries))),
        ]
    })
}

/// Bytes that resemble MessagePack more often than random ones.
pub(super) fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let marker = prop_oneof![any::<u8>(), 0x80_u8..=0x84, 0x90_u8..=0x94, 0xc0_u8..=0xdf];
    prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(prop_oneof![marker, 0_u8..4], 0..60),
        (value(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(value, at, byte)| {
            let mut packed = encode(&value, Dialect::Bin);
            let at = at.index(packed.len());
            packed[at] = byte;
            packed
        }),
    ]
}

/// The value as stock's `loads` of the wire reads it.
fn guessed(value: &Value) -> Value {
    let text = |bytes: &Bytes| {
        std::str::from_utf8(bytes).map_or_else(|_| Value::Bin(bytes.clone()), Value::from)
    };
    match value {
        Value::Bin(bytes) => text(bytes),
        Value::Ext(code, payload) if !ext::is_known(*code, payload) => text(payload),
        Value::Array(items) => Value::Array(items.iter().map(guessed).collect()),
        // Bytes may have become the text that another key is.
        Value::Map(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| (guessed(key), guessed(value)));
            Value::Map(unique(entries.collect()))
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn the_bin_dialect_keeps_every_value(value in value()) {
        let packed = encode(&value, Dialect::Bin);
        prop_assert_eq!(&decode_exact(&packed, &Limits::WIRE).unwrap(), &value);
        prop_assert_eq!(decode_wire(&packed, &Limits::WIRE).unwrap(), guessed(&value));
    }

    #[test]
    fn the_raw_dialect_keeps_what_can_be_guessed(value in value()) {
        let packed = encode(&value, Dialect::Raw);
        prop_assert_eq!(decode_wire(&packed, &Limits::WIRE).unwrap(), guessed(&value));
    }

    #[test]
    fn scanning_and_decoding_agree(packed in hostile()) {
        let scanned = RawValue::parse(packed.clone().into(), &Limits::WIRE).err();
        prop_assert_eq!(scanned, decode_wire(&packed, &Limits::WIRE).err());
        prop_assert_eq!(scanned, decode_exact(&packed, &Limits::WIRE).err());
        let split = MapView::parse(packed.into(), &Limits::WIRE).err();
        prop_assert!(split == scanned || split == Some(DecodeError::NotAMap));
    }

    #[test]
    fn text_that_is_read_is_the_one_that_is_decoded(packed in hostile()) {
        let Ok(raw) = RawValue::parse(packed.into(), &Limits::WIRE) else { return Ok(()) };
        let decoded = raw.decode();
        prop_assert_eq!(raw.as_read_str(), decoded.as_str());
    }

    #[test]
    fn scanning_and_decoding_agree_on_limits(
        packed in hostile(), depth in 0_u32..4, bytes in 0_usize..100, items in 0_usize..30
    ) {
        let limits = Limits { depth, bytes, items };
        let scanned = RawValue::parse(packed.clone().into(), &limits).err();
        prop_assert_eq!(scanned, decode_wire(&packed, &limits).err());
    }

    #[test]
    fn truncated_value_is_reported_as_such(value in value(), cut in any::<prop::sample::Index>()) {
        let mut packed = encode(&value, Dialect::Bin);
        let whole = packed.len();
        packed.truncate(cut.index(whole));
        for error in [
            decode_wire(&packed, &Limits::WIRE).unwrap_err(),
            RawValue::parse(packed.clone().into(), &Limits::WIRE).unwrap_err(),
        ] {
            let DecodeError::Truncated { missing } = error else {
                panic!("{error}");
            };
            prop_assert!(missing >= 1 && missing <= whole - packed.len());
        }
    }

    #[test]
    fn transcoding_equals_decoding_and_packing(packed in hostile()) {
        let Ok(raw) = RawValue::parse(packed.into(), &Limits::WIRE) else { return Ok(()) };
        // NaN is not equal to itself, so values are compared as they are packed.
        let meant = encode(&raw.decode(), Dialect::Bin);
        let passed = raw.to_bin_dialect();
        prop_assert_eq!(
            encode(&decode_exact(&passed, &Limits::WIRE).unwrap(), Dialect::Bin), meant.clone()
        );
        let passed = raw.to_raw_dialect();
        prop_assert_eq!(
            encode(&decode_wire(&passed, &Limits::WIRE).unwrap(), Dialect::Bin), meant
        );
        let again = RawValue::parse(passed, &Limits::WIRE).unwrap();
        prop_assert_eq!(again.to_raw_dialect().as_ptr(), again.bytes().as_ptr());
    }

    #[test]
    fn map_view_splits_and_reassembles_a_value(value in value()) {
        let raw = RawValue::pack(&value, Dialect::Bin);
        match &value {
            Value::Array(items) => {
                let parts = raw.as_array().unwrap();
                prop_assert_eq!(&parts.iter().map(RawValue::decode_exact).collect::<Vec<_>>(), items);
            }
            Value::Map(_) => {
                let view = raw.as_map().unwrap();
                prop_assert_eq!(&view.pack(), raw.bytes());
                prop_assert_eq!(
                    decode_exact(&view.pack_bin_dialect(), &Limits::WIRE).unwrap(),
                    guessed(&value)
                );
                // A key of another type may have become the text that one is.
                let value = guessed(&value);
                for (name, of_name) in value.as_map().unwrap() {
                    if let (Some(name), Value::Nil | Value::Int(_)) = (name.as_str(), of_name) {
                        prop_assert_eq!(
                            view.get(name).map(RawValue::decode_exact),
                            value.get(name).cloned()
                        );
                    }
                }
            }
            _ => {
                prop_assert!(raw.as_array().is_none() && raw.as_map().is_none());
                prop_assert_eq!(raw.as_bytes(), value.as_bytes());
                prop_assert_eq!(raw.as_i64(), value.as_i64());
                prop_assert_eq!(raw.as_u64(), value.as_u64());
                prop_assert_eq!(raw.as_f64(), value.as_f64());
                prop_assert_eq!(raw.as_bool(), value.as_bool());
            }
        }
    }
}

#[test]
fn text_and_byte_forms_of_a_key_are_one_key() {
    let id = |victim: &[u8]| {
        let tail = b"\xa3m-1\xc4\x02id\xa6victim";
        [b"\x81\xa6grains", victim, b"\xa2id", tail].concat()
    };
    for (head, others) in [(&b"\x82"[..], 0), (b"\xde\x00\x0b", 9)] {
        let mut packed = id(head);
        for other in 0..others {
            packed.extend_from_slice(&[other, 0xc0]);
        }
        let load = decode_wire(&packed, &Limits::WIRE).unwrap();
        let grains = load.get("grains").and_then(Value::as_map).unwrap();
        assert_eq!(grains.len(), 1 + usize::from(others));
        assert_eq!(grains[0], ("id".into(), "victim".into()));
        // In files and events bytes stay bytes, another key than the text.
        let exact = decode_exact(&packed, &Limits::WIRE).unwrap();
        let grains = exact.get("grains").and_then(Value::as_map).unwrap();
        assert_eq!(grains.len(), 2 + usize::from(others));
    }
}

#[test]
fn announced_lengths_reserve_no_memory() {
    let unlimited = Limits {
        items: usize::MAX,
        ..Limits::WIRE
    };
    for (packed, limits, error) in [
        (
            &b"\xdd\xff\xff\xff\xff"[..],
            unlimited,
            cut_off(0xffff_fffb),
        ),
        (b"\xdd\xff\xff\xff\xff", Limits::WIRE, too_many()),
        (b"\xdf\xff\xff\xff\xff\xc0", Limits::WIRE, too_many()),
        (b"\xdc\x01\xff", Limits::WIRE, cut_off(0x1ff + 1 - 3)),
        (b"\xdb\xff\xff\xff\xff", Limits::WIRE, cut_off(0xffff_ffff)),
        (b"\xc6\xff\xff\xff\xff", Limits::WIRE, cut_off(0xffff_ffff)),
        (
            b"\xc9\xff\xff\xff\xff\x01",
            Limits::WIRE,
            cut_off(0xffff_ffff),
        ),
    ] {
        assert_eq!(decode_wire(packed, &limits), Err(error), "{packed:x?}");
        let scanned = RawValue::parse(Bytes::copy_from_slice(packed), &limits);
        assert_eq!(scanned, Err(error), "{packed:x?}");
    }
}

fn cut_off(missing: usize) -> DecodeError {
    DecodeError::Truncated { missing }
}

fn too_many() -> DecodeError {
    DecodeError::TooManyItems {
        limit: Limits::WIRE.items,
    }
}

#[test]
fn nested_announcements_are_summed() {
    // Each level announces as many items as there are bytes left: believing each by itself would
    // reserve hundreds of times the input.
    let mut packed = Vec::new();
    for _ in 0..400 {
        packed.extend_from_slice(b"\xdc\x03\x00");
    }
    assert!(matches!(
        decode_wire(&packed, &Limits::WIRE),
        Err(DecodeError::Truncated { .. })
    ));
}

#[test]
fn nesting_limit_is_exact() {
    let nested = |levels: usize| [vec![0x91; levels], vec![0xc0]].concat();
    for limits in [
        Limits {
            depth: 3,
            ..Limits::WIRE
        },
        Limits::WIRE,
    ] {
        let depth = limits.depth;
        let good = nested(depth as usize);
        assert!(decode_wire(&good, &limits).is_ok());
        assert_eq!(
            RawValue::parse(good.clone().into(), &limits)
                .unwrap()
                .to_bin_dialect(),
            good
        );
        let deep = nested(depth as usize + 1);
        assert_eq!(
            decode_wire(&deep, &limits),
            Err(DecodeError::TooDeep { limit: depth })
        );
        let scanned = RawValue::parse(deep.into(), &limits);
        assert_eq!(scanned, Err(DecodeError::TooDeep { limit: depth }));
    }
    let siblings = encode(&Value::Array(vec![Value::Array(vec![]); 9]), Dialect::Raw);
    assert!(
        decode_wire(
            &siblings,
            &Limits {
                depth: 2,
                ..Limits::WIRE
            }
        )
        .is_ok()
    );
}

#[test]
fn plain_value_is_transcoded_without_a_copy() {
    let load = Value::map([
        ("id", Value::from("m1")),
        ("return", vec![Value::from(1)].into()),
    ]);
    let raw = RawValue::pack(&load, Dialect::Raw);
    assert_eq!(raw.to_bin_dialect().as_ptr(), raw.bytes().as_ptr());
    assert_eq!(raw.to_raw_dialect().as_ptr(), raw.bytes().as_ptr());
    let view = raw.as_map().unwrap();
    let part = view.get("return").unwrap().to_bin_dialect();
    assert!(raw.bytes().as_ptr_range().contains(&part.as_ptr()));
}

#[test]
fn float32_keeps_its_bytes_until_decoded() {
    let raw = RawValue::parse(Bytes::from_static(b"\xca\x3f\xc0\x00\x00"), &Limits::WIRE).unwrap();
    assert_eq!(raw.kind(), Kind::Float);
    assert_eq!(raw.as_f64(), Some(1.5));
    assert_eq!(raw.to_bin_dialect(), &b"\xca\x3f\xc0\x00\x00"[..]);
    assert_eq!(
        encode(&raw.decode(), Dialect::Raw),
        b"\xcb\x3f\xf8\0\0\0\0\0\0"
    );
}

#[test]
fn map_view_edits_like_a_dictionary() {
    let packed = b"\x84\xa1a\x01\xa1b\x02\xc4\x01a\x03\x05\x06";
    let mut view = MapView::parse(Bytes::from_static(packed), &Limits::WIRE).unwrap();
    assert_eq!(view.len(), 4);
    assert_eq!(view.get("a").and_then(RawValue::as_i64), Some(3));
    assert_eq!(view.remove("a").and_then(|value| value.as_i64()), Some(3));
    assert!(!view.contains("a") && view.contains("b"));
    view.insert("b", RawValue::pack("new", Dialect::Raw));
    view.insert("c", RawValue::pack(&Value::Nil, Dialect::Raw));
    assert_eq!(view.str("b"), Some("new"));
    assert_eq!(view.str("c"), None);
    assert_eq!(view.pack(), &b"\x83\xa1b\xa3new\x05\x06\xa1c\xc0"[..]);
}

#[test]
fn key_set_in_a_map_view_is_unique() {
    // As raw text, as bytes, and as an ext that stock does not know: all are read as "a".
    let packed = b"\x84\x05\x06\xa1a\x01\xc4\x01a\x02\xd4\x07a\x03";
    let mut view = MapView::parse(Bytes::from_static(packed), &Limits::WIRE).unwrap();
    assert_eq!(view.get("a").and_then(RawValue::as_i64), Some(3));
    view.insert("a", RawValue::pack(&4, Dialect::Raw));
    assert_eq!(view.pack(), &b"\x82\x05\x06\xa1a\x04"[..]);
}

#[test]
fn length_of_a_packed_map_view_is_known_before() {
    for entries in [0, 1, 15, 16, 0xffff, 0x1_0000] {
        let mut packed = Vec::new();
        let mut encoder = Encoder::new(&mut packed, Dialect::Raw);
        encoder.map(entries);
        for entry in 0..entries {
            encoder.uint(entry as u64).nil();
        }
        let view = MapView::parse(packed.into(), &Limits::WIRE).unwrap();
        assert_eq!(view.packed_len(), view.pack().len(), "{entries}");
    }
}
