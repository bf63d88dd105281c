//! Stock's `salt/output/no_return.py`: the notice for a minion that did not answer. Unlike in
//! `nested`, the colour stands before the indent.

use saltern_wire::msgpack::Value;

use crate::nested::sorted;
use crate::{Color, Colors, OutputOptions};

/// A map of minion id to notice as stock's `no_return` outputter returns it.
#[must_use]
pub fn no_return(value: &Value, options: &OutputOptions) -> String {
    let mut out = String::new();
    show(value, 0, &options.colors, &mut out);
    out
}

fn show(value: &Value, indent: usize, colors: &Colors, out: &mut String) {
    let (red, cyan, end) = (
        colors.code(Color::Red),
        colors.code(Color::Cyan),
        colors.end(),
    );
    match value {
        Value::Str(text) => {
            for line in text.split('\n') {
                out.push_str(&format!("{red}{:indent$}{line}{end}\n", ""));
            }
        }
        Value::Map(entries) => {
            for (key, value) in sorted(entries) {
                out.push_str(&format!("{cyan}{:indent$}{key}{end}:\n", ""));
                show(value, indent + 4, colors, out);
            }
        }
        _ => {}
    }
}
