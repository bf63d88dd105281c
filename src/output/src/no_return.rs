//! Stock's `salt/output/no_return.py`: the notice for a minion that did not answer. Unlike in
//! `nested`, the colour stands before the indent.

use saltern_wire::msgpack::Value;

use crate::Style;
use crate::nested::{Palette, sorted};

/// A map of minion id to notice as stock's `no_return` outputter returns it.
#[must_use]
pub fn no_return(value: &Value, style: &Style) -> String {
    let mut out = String::new();
    show(value, 0, &Palette::new(style.color), &mut out);
    out
}

fn show(value: &Value, indent: usize, palette: &Palette, out: &mut String) {
    let (red, cyan, end) = (palette.red, palette.cyan, palette.end);
    match value {
        Value::Str(text) => {
            for line in text.split('\n') {
                out.push_str(&format!("{red}{:indent$}{line}{end}\n", ""));
            }
        }
        Value::Map(entries) => {
            for (key, value) in sorted(entries) {
                out.push_str(&format!("{cyan}{:indent$}{key}{end}:\n", ""));
                show(value, indent + 4, palette, out);
            }
        }
        _ => {}
    }
}
