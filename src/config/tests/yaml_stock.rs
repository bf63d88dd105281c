//! Compares the YAML reader with what stock's loader made of the same documents
//! (`tests/vectors/options_yaml.json`, written by `options_yaml.py` there).

use saltern_config::yaml::{Key, Limits, Node, NodeValue, parse};
use serde_json::{Value, json};

/// Documents on which this reader and stock's are known to differ, and why.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "a: &a\n  b: [*a]\n",
        "stock builds a value that contains itself",
    ),
    (
        "a: [!!str, b]",
        "the parser gives up on a tag with a comma after it",
    ),
];

fn spelled(node: &NodeValue) -> Value {
    match node {
        NodeValue::Null => json!(["null"]),
        NodeValue::Bool(flag) => json!(["bool", flag]),
        NodeValue::Int(number) => json!(["int", number.to_string()]),
        NodeValue::BigInt(digits) => json!(["int", digits]),
        NodeValue::Float(number) => json!(["float", number]),
        NodeValue::Str(text) | NodeValue::Timestamp(text) => json!(["str", text]),
        NodeValue::Binary(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!(["bytes", hex])
        }
        NodeValue::Seq(items) => {
            let items: Vec<Value> = items.iter().map(|item| spelled(&item.value)).collect();
            json!(["list", items])
        }
        NodeValue::Map(map) => {
            let entries: Vec<Value> = map
                .iter()
                .map(|(key, entry)| json!([spelled(&key_value(key)), spelled(&entry.value.value)]))
                .collect();
            json!(["map", entries])
        }
    }
}

fn key_value(key: &Key) -> NodeValue {
    match key.clone() {
        Key::Null => NodeValue::Null,
        Key::Bool(flag) => NodeValue::Bool(flag),
        Key::Int(number) => NodeValue::Int(number),
        Key::BigInt(digits) => NodeValue::BigInt(digits),
        Key::Float(number) => NodeValue::Float(number),
        Key::Str(text) => NodeValue::Str(text),
        Key::Binary(bytes) => NodeValue::Binary(bytes),
    }
}

fn read(document: &str) -> Option<Node> {
    parse(document, "document", &Limits::DEFAULT).ok()
}

#[test]
fn yaml_documents_read_as_by_stock() {
    let rows: Vec<(String, Value)> =
        serde_json::from_str(include_str!("../../../tests/vectors/options_yaml.json")).unwrap();
    assert!(rows.len() > 2500);
    let mut wrong = Vec::new();
    for (document, stock) in rows {
        let ours = read(&document).map_or(Value::Null, |node| spelled(&node.value));
        let known = DIFFERENT.iter().any(|(text, _)| *text == document);
        if (ours == stock) == known {
            wrong.push(format!("{document:?}\n  stock {stock}\n  ours  {ours}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
