//! `strftime`: dates from numbers and from the usual ways to write one, in UTC.

use minijinja::value::Value;
use saltern_base::clock::civil;

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
    format(micros, &args.text(1, "%Y-%m-%d")?).map(Value::from)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
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
        let part = |index: usize| {
            found
                .get(index)
                .and_then(|part| part.as_str().parse::<i64>().ok())
                .unwrap_or(0)
        };
        let days = days_from_civil(part(1), part(2), part(3));
        return Ok((days * 86_400 + part(4) * 3600 + part(5) * 60 + part(6)) * 1_000_000);
    }
    match text.parse::<f64>() {
        Ok(seconds) => Ok((seconds * 1e6) as i64),
        Err(_) => Err(Fault::other(format!("Unable to parse {text}"))),
    }
}

const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

fn format(micros: i64, format: &str) -> Outcome<String> {
    let civil = civil(micros);
    let (year, month, day) = (civil.year, i64::from(civil.month), i64::from(civil.day));
    let days = days_from_civil(year, month, day);
    let weekday = (days + 3).rem_euclid(7);
    let of_year = days - days_from_civil(year, 1, 1) + 1;
    let pick = |names: &[&'static str], index: i64| {
        usize::try_from(index)
            .ok()
            .and_then(|index| names.get(index).copied())
            .unwrap_or_default()
    };
    let short = |name: &'static str| name.get(..3).unwrap_or_default();
    let hour12 = match civil.hour % 12 {
        0 => 12,
        hour => hour,
    };
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let piece = match letters.next() {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year.rem_euclid(100)),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('e') => format!("{day:2}"),
            Some('H') => format!("{:02}", civil.hour),
            Some('I') => format!("{hour12:02}"),
            Some('M') => format!("{:02}", civil.minute),
            Some('S') => format!("{:02}", civil.second),
            Some('f') => format!("{:06}", civil.micros),
            Some('p') => if civil.hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('j') => format!("{of_year:03}"),
            Some('A') => pick(&DAYS, weekday).to_owned(),
            Some('a') => short(pick(&DAYS, weekday)).to_owned(),
            Some('B') => pick(&MONTHS, month - 1).to_owned(),
            Some('b' | 'h') => short(pick(&MONTHS, month - 1)).to_owned(),
            Some('u') => (weekday + 1).to_string(),
            Some('w') => ((weekday + 1) % 7).to_string(),
            Some('s') => micros.div_euclid(1_000_000).to_string(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{:02}:{:02}:{:02}", civil.hour, civil.minute, civil.second),
            Some('D') => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            Some('R') => format!("{:02}:{:02}", civil.hour, civil.minute),
            Some('Z' | 'z') => String::new(),
            Some('%') => "%".to_owned(),
            Some('n') => "\n".to_owned(),
            Some('t') => "\t".to_owned(),
            Some(other) => format!("%{other}"),
            None => "%".to_owned(),
        };
        out.push_str(&piece);
    }
    Ok(out)
}
