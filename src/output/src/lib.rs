//! Prints returns of minions as stock Salt prints them, and in forms of our own.
//!
//! Scripts read the output of `salt`, so it has to agree with stock byte for byte: `tests/corpus`
//! compares each outputter with stock's own of three releases, `DIFFERENCES.md` lists what differs, and
//! `tests/e2e/cli_*.rs` compare whole commands. In our own forms ([`Outputter::is_own`]) text of minions
//! cannot steer the terminal. This crate only turns values into text: it neither writes to a terminal
//! nor decides whether colour is wanted.
//!
//! [`render`] takes a value, an [`Outputter`] and [`OutputOptions`]. Each return is rendered by itself, so
//! that ten thousand of them need no more memory than one.
//!
//! | module | outputters |
//! |---|---|
//! | `nested`, `no_return` | those |
//! | `plain` | `json`, `yaml`, `raw`, `txt`, `pprint`, `newline_values_only` |
//! | `highstate` | `highstate`, with all modes of `state_output` |
//! | `key` | `key`, also for lists that are no value |
//! | `table`, `profile` | those |
//! | `runners` | `overstatestage`, `virt_query` |
//! | `own` | `jsonl`, `summary`, `changes-only` |

mod colors;
mod decode;
mod dict;
mod document;
mod highstate;
mod json;
mod key;
mod messages;
mod nested;
mod no_return;
mod options;
mod outputter;
mod own;
mod plain;
mod profile;
mod runners;
mod table;

use saltern_wire::msgpack::Value;

pub use colors::{Color, Colors};
pub use document::JsonDocument;
pub use json::{Shown, json, json_line};
pub use key::{KEY_LIST_STYLES, KeyList, KeyListStyle, key_lists};
pub use messages::{NO_MINIONS_MATCHED, NOT_CONNECTED, batch_part, no_response, verbose_heading};
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
        Outputter::Nested => None,
        Outputter::Highstate => Some(stock_highstate(value.clone(), options)),
        Outputter::Json => Some(plain::stock_json(value, &options.indent)),
        Outputter::Yaml => plain::stock_yaml(value, &options.indent),
        Outputter::Raw => Some(saltern_python::str(value).into_owned()),
        Outputter::Txt => plain::txt(value),
        Outputter::Pprint => plain::stock_pprint(value, &options.indent),
        Outputter::Key => key::key(value, options),
        Outputter::Table => table::table(value, options),
        Outputter::NoReturn => Some(no_return(value, options)),
        Outputter::Quiet => Some(String::new()),
        Outputter::NewlineValuesOnly => plain::newline_values_only(value),
        Outputter::OverstateStage => runners::overstate_stage(value, options),
        Outputter::VirtQuery => runners::virt_query(value),
        Outputter::Profile => profile::profile(value, options),
        Outputter::JsonLines => Some(own::json_lines(value, options)),
        Outputter::Summary => Some(own::summary(value, options)),
        Outputter::ChangesOnly => Some(own::changes_only(value, options)),
    };
    let mut text = printed.unwrap_or_else(|| nested(value, options));
    text.truncate(saltern_python::text::rstrip(&text).len());
    text
}

/// `highstate`. Where stock gives up, it shows as nested what it has made of the value by then.
fn stock_highstate(mut value: Value, options: &OutputOptions) -> String {
    highstate::highstate(&mut value, options).unwrap_or_else(|| nested(&value, options))
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
