//! A log line before formatting: event, place and time, with values sanitized and bounded in
//! length, because peers choose them.

use std::fmt::{self, Write as _};

use saltern_base::{escaped_for_terminal, trace};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

/// One line.
pub(super) struct LogLine {
    pub(super) metadata: &'static Metadata<'static>,
    /// Microseconds since 1970-01-01 UTC.
    pub(super) micros: i64,
    pub(super) message: String,
    pub(super) fields: Vec<(&'static str, Value)>,
}

/// The value of a field.
pub(super) enum Value {
    /// Text, cut where it is too long.
    Text(String),
    /// A number, or true or false: JSON as it is.
    Bare(String),
}

impl Value {
    /// As it is read by people.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Bare(text) => text,
        }
    }
}

/// The most of a field that is logged, in characters: peers that have proved nothing yet name users
/// and ids of any length.
const MAX_FIELD_LENGTH: usize = 1024;
/// Maximum length of a message, which may contain the text of a foreign error.
const MAX_MESSAGE_LENGTH: usize = 4 * 1024;

impl LogLine {
    /// The text of an event. `left_out` similar ones were not logged before it.
    pub(super) fn new(event: &Event<'_>, micros: i64, left_out: u64) -> Self {
        let mut line = Self {
            metadata: event.metadata(),
            micros,
            message: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut line);
        line.message = cut(&line.message, MAX_MESSAGE_LENGTH);
        if let Some(place) = trace::current() {
            let trace = format!("{:032x}", place.context().trace());
            line.fields.push(("trace_id", Value::Text(trace)));
        }
        if left_out > 0 {
            let left_out = Value::Bare(left_out.to_string());
            line.fields.push(("left_out", left_out));
        }
        line
    }

    /// The value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.text())
    }

    /// The message, followed by the fields as `name=value`, all of it plain.
    pub(super) fn text(&self) -> String {
        let mut text = plain(&self.message);
        for (name, value) in &self.fields {
            let _ = write!(text, " {name}={}", plain(value.text()));
        }
        text
    }

    /// The level by Python's name.
    pub(super) fn level(&self) -> &'static str {
        match *self.metadata.level() {
            Level::ERROR => "ERROR",
            Level::WARN => "WARNING",
            Level::INFO => "INFO",
            Level::DEBUG => "DEBUG",
            Level::TRACE => "TRACE",
        }
    }

    fn bare(&mut self, field: &Field, value: impl fmt::Display) {
        let value = Value::Bare(value.to_string());
        self.fields.push((field.name(), value));
    }
}

impl Visit for LogLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            let value = Value::Text(cut(value, MAX_FIELD_LENGTH));
            self.fields.push((field.name(), value));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.record_str(field, &format!("{value:?}"));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_str(field, &saltern_base::chain(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, value);
    }
}

/// Cuts a text to a number of characters, and notes how much was left out.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => {
            let (start, rest) = text.split_at(end);
            format!("{start}… ({} bytes more)", rest.len())
        }
    }
}

/// A text with the characters that steer escaped.
pub(super) fn plain(text: &str) -> String {
    escaped_for_terminal(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_from_outside_stays_on_one_line() {
        let shown = |value: &str| plain(&cut(value, MAX_FIELD_LENGTH));
        assert_eq!(shown("mü \"x\""), "mü \"x\"");
        assert_eq!(
            shown("evil\n[CRITICAL] \u{1b}[31m \u{202e}x\u{200b}"),
            "evil\\n[CRITICAL] \\u{1b}[31m \\u{202e}x\\u{200b}"
        );
        let long = shown(&"ü".repeat(MAX_FIELD_LENGTH + 5));
        assert!(long.ends_with("ü… (10 bytes more)"));
        assert_eq!(long.chars().filter(|c| *c == 'ü').count(), MAX_FIELD_LENGTH);
    }
}
