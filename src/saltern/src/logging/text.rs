//! Log lines in the form that `log_fmt_console` and `log_fmt_logfile` ask for: the `%(name)s`
//! fields of Python's `logging`, with width, precision and alignment.
//!
//! Fields that only a Python process has (`thread`, `funcName`, …) print as `-`.

use saltern_base::clock::{ZoneName, civil, strftime};

use super::line::{LogLine, plain};

/// A compiled format.
pub(super) struct PythonFormat {
    parts: Vec<Part>,
    date: String,
    /// Format of the job id, where a line has one.
    jid: String,
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
    /// Parses a format; other text is literal. `jid` is the option `log_fmt_jid`.
    pub(super) fn new(format: &str, date: &str, jid: &str) -> Self {
        Self {
            parts: parse(format),
            date: date.to_owned(),
            jid: jid.to_owned(),
        }
    }

    /// The line in this form, with its end of line.
    pub(super) fn form(&self, line: &LogLine) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Field { name, flags, width } => {
                    out.push_str(&aligned(&self.value(name, line), flags, *width));
                }
            }
        }
        out.push('\n');
        out
    }

    fn value(&self, name: &str, line: &LogLine) -> String {
        let metadata = line.metadata;
        match name {
            "asctime" => strftime(&self.date, line.micros, ZoneName::Utc),
            "msecs" => civil(line.micros).strftime("%3f").to_string(),
            "name" | "module" => metadata.target().to_owned(),
            "lineno" => metadata
                .line()
                .map_or_else(|| "-".to_owned(), |line| line.to_string()),
            "levelname" => line.level().to_owned(),
            "colorlevel" => format!("[{:<8}]", line.level()),
            "colorname" => format!("[{}]", metadata.target()),
            "colorprocess" => format!("[{}]", std::process::id()),
            "colormsg" | "message" => line.text(),
            "process" => std::process::id().to_string(),
            "jid" => line
                .field("jid")
                .map(|jid| self.jid.replace("%(jid)s", &plain(jid)))
                .unwrap_or_default(),
            _ => "-".to_owned(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
