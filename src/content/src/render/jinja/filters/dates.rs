//! `strftime`: dates from numbers and from the usual ways to write one, in UTC.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use minijinja::value::Value;
use saltern_base::clock::{self, ZoneName};

use super::super::fault::{Fault, Outcome};
use super::super::value::Kind;
use super::super::{Py, ops};
use super::{Row, own_pattern};
use crate::render::jinja::args::Bound;

pub(super) const FILTERS: &[Row] = &[
    ("strftime", &["date", "format"], |py, args| {
        strftime(py, args)
    }),
    ("date_format", &["date", "format"], |py, args| {
        strftime(py, args)
    }),
];

fn strftime(py: &mut Py<'_, '_, '_>, args: &Bound) -> Outcome<Value> {
    let value = args.need(0)?;
    ops::defined(value)?;
    let micros = match Kind::of(value) {
        Kind::None => py.run.clock.unix_micros(),
        Kind::Str(text) => read(text, py.run.clock.unix_micros())?,
        _ => match ops::as_float(value) {
            Some(seconds) => (seconds * 1e6) as i64,
            None => return Err(Fault::other("Unable to parse the date")),
        },
    };
    let format = args.text(1, "%Y-%m-%d")?;
    Ok(Value::from(clock::strftime(
        &format,
        micros,
        ZoneName::Nothing,
    )))
}

/// The moment that a text names.
fn read(text: &str, now: i64) -> Outcome<i64> {
    let text = text.trim();
    if text == "now" {
        return Ok(now);
    }
    let pattern = own_pattern(
        r"^(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\.\d+)?Z?)?$",
    )?;
    let found = pattern
        .captures(text)
        .map_err(|error| Fault::other(error.to_string()))?;
    if let Some(found) = found {
        let part = |index: usize| found.get(index).map_or("0", |part| part.as_str());
        return moment(&[1, 2, 3, 4, 5, 6].map(part))
            .ok_or_else(|| Fault::other(format!("Unable to parse {text}")));
    }
    match text.parse::<f64>() {
        Ok(seconds) => Ok((seconds * 1e6) as i64),
        Err(_) => Err(Fault::other(format!("Unable to parse {text}"))),
    }
}

/// Year, month, day, hour, minute and second as microseconds since 1970.
fn moment(parts: &[&str; 6]) -> Option<i64> {
    let [year, rest @ ..] = parts;
    let [month, day, hour, minute, second] = rest.map(|part| part.parse::<i8>().unwrap_or(-1));
    let time = DateTime::new(year.parse().ok()?, month, day, hour, minute, second, 0).ok()?;
    Some(Offset::UTC.to_timestamp(time).ok()?.as_microsecond())
}
