//! A value of the inventory: how it is compared and written.

use std::borrow::Cow;
use std::cmp::Ordering;

use saltern_base::clock::civil;
use serde_json::Value as Json;

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// Nothing is known.
    Absent,
    /// In microseconds since 1970.
    Time(i64),
    /// A grain, or a text of our own.
    Value(Json),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Value(Json::from(text))
    }
}

impl Cell {
    pub(super) const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The order of two values: numbers by size, texts as versions are ordered, the unknown last.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Absent, Self::Absent) => Ordering::Equal,
            (Self::Absent, _) => Ordering::Greater,
            (_, Self::Absent) => Ordering::Less,
            (Self::Time(one), Self::Time(other)) => one.cmp(other),
            (one, other) => match (one.number(), other.number()) {
                (Some(one), Some(other)) => one.total_cmp(&other),
                _ => natural(&one.text(), &other.text()),
            },
        }
    }

    /// The number, if it is one.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Value(Json::Number(number)) => number.as_f64(),
            _ => None,
        }
    }

    /// As one text: a list with commas, a time as a date.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Absent => Cow::Borrowed(""),
            Self::Time(micros) => Cow::Owned(date(*micros)),
            Self::Value(Json::String(text)) => Cow::Borrowed(text),
            Self::Value(value) => Cow::Owned(text_of(value)),
        }
    }
}

/// A value as a text; a list has commas.
pub(super) fn text_of(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(text_of).collect();
            items.join(",")
        }
        other => other.to_string(),
    }
}

fn date(micros: i64) -> String {
    let t = civil(micros);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        t.year(),
        t.month(),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    )
}

/// Compares texts with numbers in them by these numbers: 6.9 stands before 6.12.
pub(super) fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (left, right) = match (one.chars().next(), other.chars().next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => (left, right),
        };
        let order = if left.is_ascii_digit() && right.is_ascii_digit() {
            let (left, right) = (digits(&mut one), digits(&mut other));
            left.len().cmp(&right.len()).then_with(|| left.cmp(right))
        } else {
            one = one.get(left.len_utf8()..).unwrap_or_default();
            other = other.get(right.len_utf8()..).unwrap_or_default();
            left.cmp(&right)
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Takes the digits off the front, without leading zeros.
fn digits<'a>(text: &mut &'a str) -> &'a str {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    digits.trim_start_matches('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        for (one, other) in [
            ("6.9", "6.12"),
            ("6.1", "6.1.0-13-amd64"),
            ("web2", "web10"),
            ("", "a"),
            ("a", "b"),
            ("12", "012a"),
        ] {
            assert_eq!(natural(one, other), Ordering::Less, "{one} {other}");
            assert_eq!(natural(other, one), Ordering::Greater, "{other} {one}");
        }
        assert_eq!(natural("web007", "web7"), Ordering::Equal);
    }

    #[test]
    fn unknown_values_stand_last() {
        let number = |number: i64| Cell::Value(number.into());
        assert_eq!(number(9).compare(&number(10)), Ordering::Less);
        assert_eq!(number(9).compare(&Cell::Absent), Ordering::Less);
        assert_eq!(Cell::from("9").compare(&number(10)), Ordering::Less);
        let list = Cell::Value(serde_json::json!(["a", 1]));
        assert_eq!(list.text(), "a,1");
        assert_eq!(Cell::Time(1_000_000).text(), "1970-01-01T00:00:01Z");
    }
}
