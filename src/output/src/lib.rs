//! Prints returns of minions as stock Salt prints them, and in forms of our own.
//!
//! Scripts read the output of `salt`, so it has to agree with stock byte for byte: the vectors in
//! `tests/vectors` were written by stock's own outputters, and `tests/e2e/cli_*.rs` compare whole
//! commands. Outputters without a form here yet (`highstate`, `key`, `table` and other rare ones) print as
//! nested. This crate only turns values into text: it neither writes to a terminal nor decides whether
//! colour is wanted.
//!
//! [`render`] takes a value, an [`Outputter`] and [`OutputOptions`]. Each return is rendered by itself, so
//! that ten thousand of them need no more memory than one.

mod colors;
mod document;
mod json;
mod messages;
mod nested;
mod no_return;
mod options;
mod outputter;
mod plain;

use saltern_wire::msgpack::Value;

pub use colors::{Color, Colors};
pub use document::JsonDocument;
pub use json::json;
pub use messages::{NO_MINIONS_MATCHED, NOT_CONNECTED, no_response, verbose_heading};
pub use nested::nested;
pub use no_return::no_return;
pub use options::{
    Indent, Justify, OutputOptions, StateMode, StateOptions, StateOutput, TableOptions, Tabular,
};
pub use outputter::{Outputter, UnknownOutputter};

/// One value as stock's `display_output` prints it: without trailing white space and without
/// the final newline. An empty text means that stock prints nothing at all.
#[must_use]
pub fn render(value: &Value, outputter: Outputter, options: &OutputOptions) -> String {
    let printed = match outputter {
        Outputter::NoReturn => Some(no_return(value, options)),
        Outputter::Json => Some(plain::stock_json(value, &options.indent)),
        Outputter::Yaml => plain::stock_yaml(value, &options.indent),
        Outputter::Raw => Some(saltern_python::str(value).into_owned()),
        Outputter::Txt => plain::txt(value),
        Outputter::Pprint => plain::stock_pprint(value, &options.indent),
        Outputter::NewlineValuesOnly => plain::newline_values_only(value),
        Outputter::Quiet => Some(String::new()),
        _ => None,
    };
    let mut text = printed.unwrap_or_else(|| nested(value, options));
    text.truncate(saltern_python::text::rstrip(&text).len());
    text
}

/// One minion's return, headed by its id, as the command line shows it.
#[must_use]
pub fn render_return(
    id: &str,
    value: Value,
    outputter: Outputter,
    options: &OutputOptions,
) -> String {
    let headed = Value::Map(vec![(Value::from(id), value)]);
    render(&headed, outputter, options)
}
