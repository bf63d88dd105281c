//! Every value of `vectors/nested.json` prints here as stock Salt printed it there.

use saltern_output::{OutputOptions, nested, no_return};
use saltern_wire::msgpack::{self, Limits};

#[test]
fn values_print_as_stock_prints_them() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("vectors/nested.json")).expect("the vectors are JSON");
    let rows = vectors["rows"].as_array().expect("rows");
    assert!(rows.len() > 300, "only {} rows", rows.len());
    for row in rows {
        let packed = unhex(row["value"].as_str().expect("value"));
        let value = msgpack::decode(&packed, &Limits::WIRE).expect("a packed value");
        let style = &row["style"];
        let options = OutputOptions {
            strip_colors: style["strip_colors"].as_bool().expect("strip_colors"),
            retcode: style["retcode"].as_i64().expect("retcode"),
            nested_indent: style["indent"].as_u64().expect("indent") as usize,
            ..OutputOptions::new(style["color"].as_bool().expect("color"))
        };
        let text = match row["out"].as_str() {
            Some("nested") => nested(&value, &options),
            _ => no_return(&value, &options),
        };
        assert_eq!(
            Some(text.as_str()),
            row["text"].as_str(),
            "{value:?} as {row}"
        );
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect()
}
