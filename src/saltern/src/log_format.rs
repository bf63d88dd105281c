//! Log lines in the form that `log_fmt_console` and `log_fmt_logfile` ask for: the `%(name)s`
//! fields of Python's `logging`, with width, precision and alignment.
//!
//! Fields that only a Python process has (`thread`, `funcName`, …) print as `-`.

use std::fmt::{self, Write as _};

use saltern_base::clock::{Civil, Clock, civil};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A compiled format.
pub(crate) struct PythonFormat {
    parts: Vec<Part>,
    date: String,
    clock: Clock,
}

enum Part {
    Text(String),
    Field {
        name: String,
        flags: String,
        width: usize,
    },
}

impl PythonFormat {
    /// Reads a format; what is no field stands for itself.
    pub(crate) fn new(format: &str, date: &str, clock: Clock) -> Self {
        Self {
            parts: parse(format),
            date: date.to_owned(),
            clock,
        }
    }

    fn value(&self, name: &str, event: &Event<'_>, now: i64, message: &str) -> String {
        let metadata = event.metadata();
        let time = civil(now);
        match name {
            "asctime" => strftime(&self.date, &time),
            "msecs" => format!("{:03}", time.micros / 1000),
            "name" | "module" => metadata.target().to_owned(),
            "lineno" => metadata
                .line()
                .map_or_else(|| "-".to_owned(), |line| line.to_string()),
            "levelname" => level_name(metadata.level()).to_owned(),
            "colorlevel" => format!("[{:<8}]", level_name(metadata.level())),
            "colorname" => format!("[{}]", metadata.target()),
            "colorprocess" => format!("[{}]", std::process::id()),
            "colormsg" | "message" => message.to_owned(),
            "process" => std::process::id().to_string(),
            "jid" => String::new(),
            _ => "-".to_owned(),
        }
    }
}

fn level_name(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG => "DEBUG",
        Level::TRACE => "TRACE",
    }
}

fn parse(format: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = format;
    while let Some(start) = rest.find('%') {
        let (before, field) = rest.split_at(start);
        parts.push(Part::Text(before.to_owned()));
        match parse_field(field) {
            Some((part, length)) => {
                parts.push(part);
                rest = field.get(length..).unwrap_or_default();
            }
            None => {
                parts.push(Part::Text("%".to_owned()));
                let skip = if field.starts_with("%%") { 2 } else { 1 };
                rest = field.get(skip..).unwrap_or_default();
            }
        }
    }
    parts.push(Part::Text(rest.to_owned()));
    parts
}

/// `%(name)-17s`: the field and its length in the format.
fn parse_field(text: &str) -> Option<(Part, usize)> {
    let name_end = text.strip_prefix("%(")?.find(')')? + 2;
    let name = text.get(2..name_end)?;
    let spec = text.get(name_end + 1..)?;
    let conversion = spec.find(|c: char| c.is_ascii_alphabetic())?;
    let shape = spec.get(..conversion)?;
    let is_flag = |c: char| matches!(c, '-' | '0' | '+' | ' ' | '#');
    let flags: String = shape.chars().take_while(|c| is_flag(*c)).collect();
    let width = shape
        .get(flags.len()..)?
        .split('.')
        .next()?
        .parse()
        .unwrap_or(0);
    let part = Part::Field {
        name: name.to_owned(),
        flags,
        width,
    };
    Some((part, name_end + 1 + conversion + 1))
}

fn aligned(value: &str, flags: &str, width: usize) -> String {
    if flags.contains('-') {
        format!("{value:<width$}")
    } else if flags.contains('0') && value.bytes().all(|b| b.is_ascii_digit()) {
        format!("{value:0>width$}")
    } else {
        format!("{value:>width$}")
    }
}

/// The conversions that date formats use; others stand for themselves.
fn strftime(format: &str, t: &Civil) -> String {
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let _ = match chars.next() {
            Some('Y') => write!(out, "{:04}", t.year),
            Some('y') => write!(out, "{:02}", t.year.rem_euclid(100)),
            Some('m') => write!(out, "{:02}", t.month),
            Some('d') => write!(out, "{:02}", t.day),
            Some('H') => write!(out, "{:02}", t.hour),
            Some('M') => write!(out, "{:02}", t.minute),
            Some('S') => write!(out, "{:02}", t.second),
            Some('f') => write!(out, "{:06}", t.micros),
            Some('F') => write!(out, "{:04}-{:02}-{:02}", t.year, t.month, t.day),
            Some('T') => write!(out, "{:02}:{:02}:{:02}", t.hour, t.minute, t.second),
            Some('z') => write!(out, "+0000"),
            Some('Z') => write!(out, "UTC"),
            Some('%') => write!(out, "%"),
            Some(other) => write!(out, "%{other}"),
            None => write!(out, "%"),
        };
    }
    out
}

/// The message of an event, followed by its other fields as `name=value`.
#[derive(Default)]
struct Message {
    text: String,
    fields: String,
}

/// The most of a field that is printed, in characters: peers that have proved nothing yet name
/// users and ids of any length.
const LONGEST_FIELD: usize = 1024;

impl Message {
    /// Adds ` name=value`. Values come from outside: they must not end the line, steer a terminal
    /// or fill the disk.
    fn field(&mut self, field: &Field, value: &str) {
        let _ = write!(self.fields, " {}=", field.name());
        push_plain(&mut self.fields, value);
    }
}

/// Whether a character would steer whoever shows it: control characters, and those of Unicode that
/// turn the direction of a line or cannot be seen.
fn steers(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    );
    c.is_control() || is_invisible
}

/// Appends `value` with the characters that steer escaped, cut after [`LONGEST_FIELD`].
fn push_plain(out: &mut String, value: &str) {
    let mut rest = value.chars();
    for c in rest.by_ref().take(LONGEST_FIELD) {
        if steers(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    let cut = rest.as_str().len();
    if cut > 0 {
        let _ = write!(out, "… ({cut} bytes more)");
    }
}

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.text.push_str(value);
        } else {
            self.field(field, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.text, "{value:?}");
        } else {
            self.field(field, &format!("{value:?}"));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.field(field, &crate::commands::chain(value));
    }
}

impl<S, N> FormatEvent<S, N> for PythonFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        message.text.push_str(&message.fields);
        let now = self.clock.unix_micros();
        for part in &self.parts {
            match part {
                Part::Text(text) => writer.write_str(text)?,
                Part::Field { name, flags, width } => {
                    let value = self.value(name, event, now, &message.text);
                    writer.write_str(&aligned(&value, flags, *width))?;
                }
            }
        }
        writer.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let t = civil(1_795_244_782_637_714);
        assert_eq!(strftime("%Y-%m-%d %H:%M:%S", &t), "2026-11-21 07:06:22");
        assert_eq!(strftime("%T %q%", &t), "07:06:22 %q%");
    }

    #[test]
    fn a_field_from_outside_stays_on_its_line() {
        let shown = |value: &str| {
            let mut out = String::new();
            push_plain(&mut out, value);
            out
        };
        assert_eq!(shown("mü \"x\""), "mü \"x\"");
        assert_eq!(
            shown("evil\n[CRITICAL] \u{1b}[31m \u{202e}x\u{200b}"),
            "evil\\n[CRITICAL] \\u{1b}[31m \\u{202e}x\\u{200b}"
        );
        let long = shown(&"ü".repeat(LONGEST_FIELD + 5));
        assert!(long.ends_with("ü… (10 bytes more)"));
        assert_eq!(long.chars().filter(|c| *c == 'ü').count(), LONGEST_FIELD);
    }

    #[test]
    fn stock_formats_are_understood() {
        let shapes = |format: &str| -> Vec<String> {
            parse(format)
                .into_iter()
                .map(|part| match part {
                    Part::Text(text) => text,
                    Part::Field { name, flags, width } => format!("<{name}|{flags}|{width}>"),
                })
                .filter(|text| !text.is_empty())
                .collect()
        };
        assert_eq!(
            shapes("%(asctime)s,%(msecs)03d [%(name)-17s:%(lineno)-4d] 100%% %(message)s"),
            [
                "<asctime||0>",
                ",",
                "<msecs|0|3>",
                " [",
                "<name|-|17>",
                ":",
                "<lineno|-|4>",
                "] 100",
                "%",
                " ",
                "<message||0>"
            ]
        );
        assert_eq!(aligned("7", "0", 3), "007");
        assert_eq!(aligned("x", "-", 3), "x  ");
    }
}
