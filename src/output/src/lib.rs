//! Prints returns of minions as stock Salt prints them.
//!
//! Scripts read the output of `salt`, so it has to agree with stock byte for byte; the vectors
//! in `tests/vectors` were written by stock's own outputters. This crate only turns values into
//! text: it neither writes to a terminal nor decides whether colour is wanted. Of stock's
//! outputters it has `nested` (the default), `json` and `no_return`; a return that asks for any other
//! is shown as nested, which is also what stock does with an outputter it does not know.

mod json;
mod nested;
mod no_return;

use saltern_wire::msgpack::Value;

pub use json::json;
pub use nested::nested;
pub use no_return::no_return;

/// How a value is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Terminal colours, stock's default theme.
    pub color: bool,
    /// Shows an escape character inside a string as `?`, so that a minion cannot drive the
    /// terminal (stock's option `strip_colors`, on by default).
    pub strip_colors: bool,
    /// The highest return code among the values; anything but 0 turns keys red.
    pub retcode: i64,
    /// Spaces before the first column (stock's `nested_indent`).
    pub indent: usize,
}

impl Style {
    /// Stock's defaults, with or without colour.
    #[must_use]
    pub const fn new(color: bool) -> Self {
        Self {
            color,
            strip_colors: true,
            retcode: 0,
            indent: 0,
        }
    }

    /// The same style for a return with this return code.
    #[must_use]
    pub const fn with_retcode(mut self, retcode: i64) -> Self {
        self.retcode = retcode;
        self
    }
}

/// The outputters that a return's `out` field can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputter {
    /// The indented tree that most functions are shown with.
    Nested,
    /// The red notice for a minion that did not answer.
    NoReturn,
}

impl Outputter {
    /// The outputter for a return's `out` field; every name that is not known here, `highstate`
    /// among them, is shown as nested.
    #[must_use]
    pub fn for_name(name: Option<&str>) -> Self {
        match name {
            Some("no_return") => Self::NoReturn,
            _ => Self::Nested,
        }
    }
}

/// One value as stock's `display_output` prints it: without trailing white space and without
/// the final newline. An empty text means that stock prints nothing at all.
#[must_use]
pub fn render(value: &Value, outputter: Outputter, style: &Style) -> String {
    let mut text = match outputter {
        Outputter::Nested => nested(value, style),
        Outputter::NoReturn => no_return(value, style),
    };
    text.truncate(saltern_python::text::rstrip(&text).len());
    text
}

/// One minion's return, headed by its id, as the command line shows it.
#[must_use]
pub fn render_return(id: &str, value: Value, outputter: Outputter, style: &Style) -> String {
    render(
        &Value::Map(vec![(Value::from(id), value)]),
        outputter,
        style,
    )
}

/// What stands for the return of a minion that is known but has no connection to the master.
pub const NOT_CONNECTED: &str = "Minion did not return. [Not connected]";

/// What stands for the return of a minion that did not answer (stock: `salt/client/__init__.py`).
#[must_use]
pub fn no_response(jid: &str) -> String {
    format!(
        "Minion did not return. [No response]\nThe minions may not have all finished running \
         and any remaining minions will return upon completion. To look up the return data for \
         this job later, run the following command:\n\nsalt-run jobs.lookup_jid {jid}"
    )
}

/// The line that stock prints when a target matches nobody.
pub const NO_MINIONS_MATCHED: &str =
    "No minions matched the target. No command was sent, no jid was assigned.";

/// The heading of `salt -v`: the jid, a rule as long as that line, and an empty line.
#[must_use]
pub fn verbose_heading(jid: &str) -> String {
    let line = format!("Executing job with jid {jid}");
    let rule = "-".repeat(line.chars().count());
    format!("{line}\n{rule}\n")
}
