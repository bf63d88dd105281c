//! The inventory as a table, as CSV (RFC 4180) and as JSON.
//!
//! Values that come from minions cannot send control sequences to a terminal: a table shows such
//! characters as their code points, JSON as escapes, CSV as code points where a terminal reads it.

use std::borrow::Cow;
use std::fmt::Write as _;

use saltern_base::escaped_json_for_terminal;
use serde_json::{Map, Value as Json};

use super::Minions;
use super::cell::Cell;
use crate::terminal::plain;

/// The most columns of a terminal that one value takes in a table.
const MAX_WIDTH: usize = 60;

/// How an inventory is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Columns that line up, for people.
    Table,
    /// Comma-separated values with a heading.
    Csv,
    /// An array with an object for each minion, a line each; times in microseconds since 1970.
    Json,
}

impl Minions {
    /// The text of the list. `is_terminal`: a terminal reads it.
    #[must_use]
    pub fn print(&self, form: Form, is_terminal: bool) -> String {
        match form {
            Form::Table => self.table(),
            Form::Csv => self.csv(is_terminal),
            Form::Json => self.json(),
        }
    }

    fn table(&self) -> String {
        let heading = self.columns.iter().map(|name| plain(name, MAX_WIDTH));
        let rows = self.rows.iter().map(|row| {
            let cells = row.iter().map(|cell| match cell {
                Cell::Absent => "-".to_owned(),
                Cell::Time(micros) => format!("{} ago", span(self.now.saturating_sub(*micros))),
                cell => plain(&cell.text(), MAX_WIDTH),
            });
            cells.collect()
        });
        let rows: Vec<Vec<String>> = std::iter::once(heading.collect()).chain(rows).collect();
        let mut widths = vec![0; self.columns.len()];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                let _ = write!(line, "{cell:width$}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn csv(&self, is_terminal: bool) -> String {
        let mut text = String::new();
        let heading = self.columns.iter().map(|name| quoted(name, is_terminal));
        let heading: Vec<Cow<'_, str>> = heading.collect();
        let _ = writeln!(text, "{}\r", heading.join(","));
        for row in &self.rows {
            for (at, cell) in row.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&quoted(&cell.text(), is_terminal));
            }
            text.push_str("\r\n");
        }
        text
    }

    fn json(&self) -> String {
        let mut text = String::from("[");
        for (at, row) in self.rows.iter().enumerate() {
            text.push_str(if at == 0 { "\n" } else { ",\n" });
            let entries = self.columns.iter().zip(row).map(|(name, cell)| {
                let value = match cell {
                    Cell::Absent => Json::Null,
                    Cell::Time(micros) => Json::from(*micros),
                    Cell::Value(value) => value.clone(),
                };
                (name.clone(), value)
            });
            let object = Json::Object(entries.collect::<Map<_, _>>()).to_string();
            text.push_str(&escaped_json_for_terminal(&object));
        }
        text.push_str("\n]\n");
        text
    }
}

fn quoted(text: &str, is_terminal: bool) -> Cow<'_, str> {
    let text = match is_terminal {
        true => Cow::Owned(plain(text, usize::MAX)),
        false => Cow::Borrowed(text),
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => Cow::Owned(format!("\"{}\"", text.replace('"', "\"\""))),
        false => text,
    }
}

/// A span of time in its largest unit.
pub(crate) fn span(micros: i64) -> String {
    let seconds = micros.max(0) / 1_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} m", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn minions() -> Minions {
        let value = |value: Json| Cell::Value(value);
        Minions {
            columns: vec!["id".to_owned(), "os".to_owned(), "last_seen".to_owned()],
            rows: vec![
                vec!["web1".into(), "De,b\"ian".into(), Cell::Time(0)],
                vec!["w\u{1b}2".into(), value(json!(["a", true])), Cell::Absent],
            ],
            now: 180_000_000,
            has_master: true,
        }
    }

    #[test]
    fn inventory_is_a_table_csv_or_json() {
        let minions = minions();
        assert_eq!(
            minions.print(Form::Table, true),
            "id        os        last_seen\nweb1      De,b\"ian  3 m ago\nw\\u{1b}2  a,true    -\n"
        );
        let time = "1970-01-01T00:00:00Z";
        assert_eq!(
            minions.print(Form::Csv, false),
            format!("id,os,last_seen\r\nweb1,\"De,b\"\"ian\",{time}\r\nw\u{1b}2,\"a,true\",\r\n")
        );
        assert!(!minions.print(Form::Csv, true).contains('\u{1b}'));
        let text = minions.print(Form::Json, false);
        let read: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(
            read,
            json!([
                {"id": "web1", "os": "De,b\"ian", "last_seen": 0},
                {"id": "w\u{1b}2", "os": ["a", true], "last_seen": null},
            ])
        );
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn json_escapes_what_steers_a_terminal() {
        let text = escaped_json_for_terminal("\"a\u{9b}\u{202e}\u{e0001}ü\"");
        assert_eq!(text, "\"a\\u009b\\u202e\\udb40\\udc01ü\"");
    }
}
