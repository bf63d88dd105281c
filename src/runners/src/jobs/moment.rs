//! Parses dates and times as people write them, for the filters `start_time` and `end_time`.
//!
//! Stock leaves this to Python's `dateutil`. Here the forms are read that its manual shows and that
//! stock itself prints; a date without a year, or a time without a date, is refused rather than
//! completed with today's.

/// The moment as the twenty digits of a jid; a date alone is its midnight.
pub(super) fn digits(text: &str) -> Option<String> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return compact(text);
    }
    // ISO 8601 has a T between date and time, and a Z for UTC behind them.
    let (date, time) = match text.split_once('T') {
        Some((date, time)) if date.len() == 10 => (date, time.trim_end_matches('Z')),
        _ => (text, ""),
    };
    let words = date.split(|c: char| c.is_whitespace() || c == ',');
    let words = words.chain([time]).filter(|word| !word.is_empty());
    let (mut date, mut time) = (Vec::new(), None);
    for word in words {
        if word.contains(':') {
            if time.replace(time_of_day(word)?).is_some() {
                return None;
            }
        } else {
            date.extend(word.split(['-', '/']));
        }
    }
    let date: [&str; 3] = date.try_into().ok()?;
    Some(format!(
        "{}{}",
        calendar(date)?,
        time.unwrap_or_else(|| "0".repeat(12))
    ))
}

/// `YYYYMMDD`, with the time behind it or as much of it as there is: also a jid.
fn compact(text: &str) -> Option<String> {
    if !matches!(text.len(), 8 | 12 | 14..=20) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u32>().ok();
    is_date(number(0..4)?, number(4..6)?, number(6..8)?).then(|| format!("{text:0<20}"))
}

/// Year, month and day in the orders in which they are unambiguous.
fn calendar(parts: [&str; 3]) -> Option<String> {
    let [first, second, third] = parts;
    let number = |text: &str| text.parse::<u32>().ok();
    let (year, month, day) = match (month_of(first), month_of(second)) {
        // Mar 16 2015
        (Some(month), None) => (number(third)?, month, number(second)?),
        // 2015 Mar 16, 16 Mar 2015
        (None, Some(month)) if first.len() == 4 => (number(first)?, month, number(third)?),
        (None, Some(month)) => (number(third)?, month, number(first)?),
        // 2015-03-16
        _ if first.len() == 4 => (number(first)?, number(second)?, number(third)?),
        // 03/16/2015
        _ if third.len() == 4 => (number(third)?, number(first)?, number(second)?),
        _ => return None,
    };
    is_date(year, month, day).then(|| format!("{year:04}{month:02}{day:02}"))
}

fn is_date(year: u32, month: u32, day: u32) -> bool {
    (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day)
}

fn month_of(word: &str) -> Option<u32> {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let word = word.to_ascii_lowercase();
    let found = MONTHS.iter().position(|month| word.starts_with(month))?;
    u32::try_from(found + 1).ok()
}

/// `19:00`, `19:00:30`, `19:00:30.25` as twelve digits.
fn time_of_day(word: &str) -> Option<String> {
    let (clock, fraction) = word.split_once('.').unwrap_or((word, ""));
    let mut numbers = clock.split(':').map(|part| part.parse::<u32>().ok());
    let hour = numbers.next()??;
    let minute = numbers.next()??;
    let second = numbers.next().unwrap_or(Some(0))?;
    let is_time = hour < 24 && minute < 60 && second < 60 && numbers.next().is_none();
    let is_fraction = fraction.len() <= 6 && fraction.bytes().all(|b| b.is_ascii_digit());
    (is_time && is_fraction).then(|| format!("{hour:02}{minute:02}{second:02}{fraction:0<6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_time_forms_are_parsed() {
        let table = [
            ("2015, Mar 16 19:00", "20150316190000000000"),
            ("2015, Mar 16 19:00:01.5", "20150316190001500000"),
            ("2015-03-16 19:00:30", "20150316190030000000"),
            ("2015-03-16T19:00:30.000001Z", "20150316190030000001"),
            ("2015/03/16", "20150316000000000000"),
            ("16 March 2015", "20150316000000000000"),
            ("Mar 16, 2015 7:05", "20150316070500000000"),
            ("03/16/2015", "20150316000000000000"),
            ("20150316", "20150316000000000000"),
            ("201503161900", "20150316190000000000"),
            ("20150316190000000001", "20150316190000000001"),
        ];
        for (text, digits_of_it) in table {
            assert_eq!(digits(text).as_deref(), Some(digits_of_it), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_time_is_refused() {
        for text in [
            "",
            "soon",
            "19:00",
            "Mar 16",
            "2015-13-16",
            "2015-03-16 25:00",
            "1:2:3:4 2015-03-16",
            "2015-03-16 19:00 20:00",
            "2015",
            "٢٠١٥-٠٣-١٦",
        ] {
            assert_eq!(digits(text), None, "{text}");
        }
    }
}
