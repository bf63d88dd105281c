//! Test vectors of stock Salt, made by `tests/vectors/make_msgpack.py`.

use bytes::Bytes;
use serde_json::Value as Json;

use super::*;

const VECTORS: &str = include_str!("../../../../tests/vectors/msgpack.json");

fn section(name: &str) -> Vec<Json> {
    let mut vectors: Json = serde_json::from_str(VECTORS).unwrap();
    let Json::Array(rows) = vectors[name].take() else {
        panic!("no section \"{name}\"")
    };
    assert!(!rows.is_empty());
    rows
}

/// An event that stock sent.
pub(crate) struct StockEvent {
    pub(crate) tag: String,
    pub(crate) data: Vec<u8>,
    pub(crate) prefixed: Vec<u8>,
}

/// Frames that `fire_event` of every version wrote into a socket.
pub(crate) fn stock_frames() -> Vec<StockEvent> {
    let vectors: Json = serde_json::from_str(VECTORS).unwrap();
    let versions = vectors["frames"].as_object().unwrap().values();
    let sent = versions.flat_map(|version| version["sent"].as_array().unwrap());
    sent.map(|event| {
        let mut data = hex(event["data"].as_str().unwrap());
        let mut prefixed = hex(event["prefixed"].as_str().unwrap());
        if let Some(fill) = event.get("fill") {
            let number = |at: usize| fill[at].as_u64().unwrap() as usize;
            let byte = hex(fill[0].as_str().unwrap())[0];
            for (bytes, at) in [(&mut data, number(2)), (&mut prefixed, number(3))] {
                bytes.splice(at..at, std::iter::repeat_n(byte, number(1)));
            }
        }
        StockEvent {
            tag: event["tag"].as_str().unwrap().to_owned(),
            data,
            prefixed,
        }
    })
    .collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn bytes_of(json: &Json) -> Bytes {
    hex(json.as_str().unwrap()).into()
}

/// Reads the script's description of a value.
fn described(json: &Json) -> Value {
    let what = &json[1];
    match json[0].as_str().unwrap() {
        "nil" => Value::Nil,
        "bool" => Value::Bool(what.as_bool().unwrap()),
        "int" => {
            let number: i128 = what.as_str().unwrap().parse().unwrap();
            i64::try_from(number).map_or_else(|_| Value::Uint(number as u64), Value::Int)
        }
        "float" => Value::Float(f64::from_be_bytes(bytes_of(what)[..].try_into().unwrap())),
        "str" => Value::Str(what.as_str().unwrap().to_owned()),
        "bin" => Value::Bin(bytes_of(what)),
        "array" => Value::Array(what.as_array().unwrap().iter().map(described).collect()),
        "map" => Value::map(
            what.as_array()
                .unwrap()
                .iter()
                .map(|pair| (described(&pair[0]), described(&pair[1]))),
        ),
        "ext" => Value::Ext(what.as_i64().unwrap() as i8, bytes_of(&json[2])),
        other => panic!("unknown type \"{other}\""),
    }
}

#[test]
fn values_are_packed_as_by_stock() {
    for vector in section("pack") {
        let (value, fill) = match vector.get("fill") {
            None => (described(&vector["value"]), Vec::new()),
            Some(fill) => {
                let len = fill[2].as_u64().unwrap() as usize;
                let fill_bytes = vec![bytes_of(&fill[1])[0]; len];
                let value = match fill[0].as_str().unwrap() {
                    "str" => Value::Str(String::from_utf8(fill_bytes.clone()).unwrap()),
                    "bin" => Value::Bin(fill_bytes.clone().into()),
                    "array" => Value::Array(vec![Value::Nil; len]),
                    "ext" => Value::Ext(9, fill_bytes.clone().into()),
                    other => panic!("unknown type \"{other}\""),
                };
                (value, fill_bytes)
            }
        };
        for (dialect, name) in [(Dialect::Raw, "raw"), (Dialect::Bin, "bin")] {
            let packed = [&bytes_of(&vector[name])[..], &fill].concat();
            assert!(encode(&value, dialect) == packed, "{name} {vector}");
            assert!(
                RawValue::parse(packed.into(), &Limits::WIRE).is_ok(),
                "{vector}"
            );
        }
        let bin = encode(&value, Dialect::Bin);
        assert!(
            decode_exact(&bin, &Limits::WIRE).unwrap() == value,
            "{vector}"
        );
        // A value received over the wire and passed on reads the same as what stock passes on.
        let wire = RawValue::pack(&value, Dialect::Raw);
        let passed = decode_exact(&wire.to_bin_dialect(), &Limits::WIRE).unwrap();
        assert!(passed == wire.decode(), "{vector}");
    }
}

#[test]
fn packed_bytes_are_read_as_by_stock() {
    for vector in section("read") {
        let packed = bytes_of(&vector["packed"]);
        let Some(wire) = vector.get("wire").map(described) else {
            // Stock gives up on a broken ext; here it is its payload, which is harmless.
            let broken_ext = RawValue::parse(packed.clone(), &Limits::WIRE)
                .is_ok_and(|raw| raw.kind() == Kind::Ext && raw.to_bin_dialect() != packed);
            assert!(
                broken_ext || decode_wire(&packed, &Limits::WIRE).is_err(),
                "{vector}"
            );
            continue;
        };
        let raw = RawValue::parse(packed.clone(), &Limits::WIRE).unwrap();
        assert_eq!(raw.decode(), wire, "{vector}");
        assert_eq!(
            encode(&wire, Dialect::Raw),
            bytes_of(&vector["again_raw"]),
            "{vector}"
        );
        assert_eq!(
            encode(&wire, Dialect::Bin),
            bytes_of(&vector["again_bin"]),
            "{vector}"
        );

        // Passed on, it reads to a listener as what stock would have passed on.
        let bin = raw.to_bin_dialect();
        let read = decode_exact(&bin, &Limits::WIRE).unwrap();
        assert_eq!(read, wire, "{vector}");
        if bin.as_ptr() == packed.as_ptr() {
            assert_eq!(vector["listener"], vector["wire"], "{vector}");
        }
        let again = decode_wire(&raw.to_raw_dialect(), &Limits::WIRE).unwrap();
        assert_eq!(again, wire, "{vector}");
    }
}

#[test]
fn broken_ext_is_passed_on_as_its_payload() {
    for (packed, passed) in [
        (&b"\xd5\x4e20"[..], &b"\xa220"[..]),
        (b"\xd4\x4f\xff", b"\xc4\x01\xff"),
        (b"\xd5\xffab", b"\xa2ab"),
    ] {
        let raw = RawValue::parse(Bytes::copy_from_slice(packed), &Limits::WIRE).unwrap();
        assert_eq!(raw.to_bin_dialect(), passed);
    }
}

#[test]
fn unpackable_python_values_arrive_converted() {
    // A set arrives as a list, an integer beyond 64 bits as text.
    for vector in section("converted") {
        let value = decode_wire(&bytes_of(&vector["packed"]), &Limits::WIRE).unwrap();
        match vector["input"].as_str().unwrap() {
            "2**64" => assert_eq!(value.as_str(), Some("18446744073709551616")),
            "-(2**63)-1" => assert_eq!(value.as_str(), Some("-9223372036854775809")),
            "{7}" => assert_eq!(value, Value::Array(vec![Value::Int(7)])),
            other => panic!("unknown input \"{other}\""),
        }
    }
}
