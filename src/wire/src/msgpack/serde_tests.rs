//! Tests of typed structs: the same bytes as the encoder's, and what peers may send in their place.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::property_tests::{hostile, value};
use super::*;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Load<'a> {
    id: &'a str,
    #[serde(deserialize_with = "lenient")]
    retcode: Option<i64>,
    arg: Vec<Value>,
    kinds: Vec<Shape>,
    nested: Option<Nested>,
    by_name: BTreeMap<String, u64>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Nested {
    #[serde(rename = "return")]
    value: Value,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    note: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Unit,
    Newtype(i8),
    Tuple(u8, String),
    Struct { flag: bool, size: f64 },
}

fn raw(value: &Value, dialect: Dialect) -> RawValue {
    RawValue::pack(value, dialect)
}

proptest! {
    #[test]
    fn packed_value_has_the_bytes_of_the_encoder(value in value()) {
        for dialect in [Dialect::Raw, Dialect::Bin] {
            prop_assert_eq!(pack(&value, dialect), encode(&value, dialect));
        }
    }

    #[test]
    fn raw_value_is_written_in_the_dialect_of_its_reader(value in value()) {
        for from in [Dialect::Raw, Dialect::Bin] {
            let raw = raw(&value, from);
            prop_assert_eq!(pack(&raw, Dialect::Bin), raw.to_bin_dialect());
            prop_assert_eq!(pack(&raw, Dialect::Raw), raw.to_raw_dialect());
        }
    }

    #[test]
    fn read_value_is_the_decoded_value(value in value()) {
        let raw = raw(&value, Dialect::Bin);
        prop_assert_eq!(raw.read::<Value>().unwrap(), raw.decode());
        prop_assert_eq!(raw.read::<Option<Value>>().unwrap().unwrap_or(Value::Nil), raw.decode());
        prop_assert_eq!(&raw.read::<RawValue>().unwrap(), &raw);
        prop_assert_eq!(raw.read::<MapView>().ok(), raw.as_map());
        let items = raw.as_array().map(|items| items.iter().map(RawValue::decode).collect());
        prop_assert_eq!(raw.read::<Vec<Value>>().ok(), items);
    }

    /// Structs and enums are packed as the reference implementation packs them, which other
    /// programs read. It has no raw dialect.
    #[test]
    fn records_have_the_bytes_of_rmp_serde(
        id in ".{0,300}", retcode in any::<Option<i64>>(), size in any::<f64>(), flag in any::<bool>(),
        number in any::<u64>(), small in any::<i8>(), text in ".{0,40}", note in any::<Option<String>>(),
    ) {
        let kinds = vec![
            Shape::Unit,
            Shape::Newtype(small),
            Shape::Tuple(small as u8, text.clone()),
            Shape::Struct { flag, size },
        ];
        let load = Load {
            id: &id,
            retcode,
            arg: vec![number.into(), text.as_str().into(), Value::Nil],
            kinds,
            nested: Some(Nested { value: flag.into(), note }),
            by_name: BTreeMap::from([(text, number)]),
        };
        let packed = pack(&load, Dialect::Bin);
        prop_assert_eq!(&packed, &rmp_serde::to_vec_named(&load).unwrap());
        for dialect in [Dialect::Raw, Dialect::Bin] {
            let packed = RawValue::parse(pack(&load, dialect).into(), &Limits::WIRE).unwrap();
            prop_assert_eq!(&packed.read::<Load<'_>>().unwrap(), &load);
            let map = packed.as_map().unwrap();
            prop_assert_eq!(&map.read::<Load<'_>>().unwrap(), &load);
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_read_without_a_panic(packed in hostile()) {
        let read = from_slice::<Value>(&packed, &Limits::WIRE);
        prop_assert_eq!(read, decode(&packed, &Limits::WIRE).map_err(ReadError::from));
        let Ok(raw) = RawValue::parse(packed.into(), &Limits::WIRE) else { return Ok(()) };
        let _ = raw.read::<Load<'_>>();
        let _ = raw.read::<Shape>();
        let _ = raw.read::<Vec<Shape>>();
        let _ = raw.read::<HashMap<String, Nested>>();
        let _ = raw.read::<(Option<&str>, &[u8], u8)>();
        let _ = raw.as_map().map(|map| map.read::<Load<'_>>().is_ok());
    }
}

/// Both ways to a struct: from a map that was split, and from one inside another value.
fn read_both(entries: Vec<(Value, Value)>) -> [Result<Option<String>, ReadError>; 2] {
    #[derive(Deserialize)]
    struct Named {
        id: Option<String>,
        #[serde(default)]
        other: u8,
    }
    let mut packed = Vec::new();
    let mut encoder = Encoder::new(&mut packed, Dialect::Bin);
    encoder.map(entries.len());
    for (key, value) in &entries {
        encoder.value(key).value(value);
    }
    let raw = RawValue::parse(packed.into(), &Limits::WIRE).unwrap();
    let map = raw.as_map().unwrap();
    [map.read::<Named>(), raw.read::<Named>()].map(|read| {
        read.map(|named| {
            assert_eq!(named.other, 0);
            named.id
        })
    })
}

#[test]
fn last_of_equal_keys_counts() {
    let entries = vec![("id".into(), "a".into()), ("id".into(), "b".into())];
    assert_eq!(
        read_both(entries),
        [const { "b" }; 2].map(|id| Ok(Some(id.to_owned())))
    );
}

#[test]
fn key_is_read_from_bytes_and_no_number_names_a_field() {
    let entries = vec![
        (Value::Bin(b"id"[..].into()), "a".into()),
        (0.into(), "c".into()),
        (1.into(), 7.into()),
        (Value::Nil, Value::map([("id", "d")])),
    ];
    assert_eq!(
        read_both(entries),
        ["a"; 2].map(|id| Ok(Some(id.to_owned())))
    );
}

#[test]
fn list_is_no_struct_and_number_is_no_variant() {
    let list = raw(&Value::Array(vec!["a".into(), 1.into()]), Dialect::Raw);
    assert!(list.read::<Nested>().is_err());
    assert!(raw(&0.into(), Dialect::Raw).read::<Shape>().is_err());
    let by_number = Value::Map(vec![(1.into(), 1.into())]);
    assert!(raw(&by_number, Dialect::Raw).read::<Shape>().is_err());
}

#[test]
fn lenient_field_of_another_type_counts_as_missing() {
    for wrong in [
        Value::from("x"),
        Value::map([("a", 1)]),
        1.5.into(),
        u64::MAX.into(),
    ] {
        let load = Value::map([
            ("id", Value::from("m1")),
            ("retcode", wrong),
            ("arg", vec![1.into()].into()),
        ]);
        let load = raw(&load, Dialect::Raw);
        let read: Load<'_> = load.read().unwrap();
        assert_eq!((read.id, read.retcode, read.arg.len()), ("m1", None, 1));
    }
}

#[test]
fn packed_value_of_a_field_shares_the_received_bytes() {
    #[derive(Deserialize)]
    struct Inner {
        value: RawValue,
    }
    #[derive(Deserialize)]
    struct Outer {
        inner: Inner,
    }
    let outer = Value::map([("inner", Value::map([("value", "x".repeat(100))]))]);
    let outer = raw(&outer, Dialect::Raw);
    let read: Outer = outer.read().unwrap();
    let field = read.inner.value.bytes().as_ptr_range();
    let whole = outer.bytes().as_ptr_range();
    assert!(whole.start < field.start && field.end == whole.end);
}

#[test]
fn flattened_struct_is_counted_at_its_end() {
    #[derive(Serialize)]
    struct Stamped<'a> {
        #[serde(flatten)]
        data: &'a Nested,
        _stamp: &'a str,
    }
    let data = Nested::default();
    let packed = pack(
        &Stamped {
            data: &data,
            _stamp: "now",
        },
        Dialect::Bin,
    );
    let same = Value::map([("return", Value::Nil), ("_stamp", "now".into())]);
    assert_eq!(packed, encode(&same, Dialect::Bin));
}

#[test]
fn deepest_value_that_is_accepted_is_read_and_packed() {
    let mut deep = Value::Nil;
    for _ in 0..Limits::WIRE.depth {
        deep = Value::Array(vec![deep]);
    }
    let packed = pack(&deep, Dialect::Raw);
    assert_eq!(from_slice::<Value>(&packed, &Limits::WIRE).unwrap(), deep);
}
