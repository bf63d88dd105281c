//! Parses dates and times as people write them in `when`, `range`, `after` and `until`.
//!
//! Stock reads them with `dateutil.parser`, which guesses. Here are the forms of Salt's manual and
//! other unambiguous ones; everything else is refused, and so is a time zone: stock compares with
//! local time, and stops at a date that has one.
//!
//! Parts that are not written come from the current day, so `5:00pm` comes every day, `Monday
//! 5:00pm` every week and `December 24 4pm` every year.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time, Weekday};

/// The longest text that is parsed.
const MAX_TEXT_BYTES: usize = 100;

/// Years without 29 February in a row, at most, and one.
const YEARS: i16 = 9;

/// Words that dateutil passes over.
const FILLING: [&str; 3] = ["at", "on", "of"];

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// Local date and time, of which the date may be left open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    day: Day,
    time: Time,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Day {
    Every,
    Weekday(Weekday),
    Yearly { month: i8, day: i8 },
    Date(Date),
}

impl Moment {
    /// Parses a text; `None` when it is none of the forms.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES || !text.is_ascii() {
            return None;
        }
        let text = text.to_ascii_lowercase().replace(',', " ");
        let mut words = Vec::new();
        for word in text.split_whitespace() {
            match at_t(word) {
                Some((date, time)) => words.extend([date, time]),
                None => words.push(word),
            }
        }
        let mut found = Found::default();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let half = words.next_if(|next| matches!(*next, "am" | "pm"));
            found.take(word, half)?;
        }
        found.moment()
    }

    /// The date and time on a day: parts that are not written come from it, a weekday is the next
    /// one. `None` on 29 February of other years.
    pub(super) fn on(&self, today: Date) -> Option<DateTime> {
        let date = match self.day {
            Day::Every => today,
            Day::Weekday(weekday) => {
                let days = today.weekday().until(weekday);
                today.checked_add(i64::from(days).days()).ok()?
            }
            Day::Yearly { month, day } => Date::new(today.year(), month, day).ok()?,
            Day::Date(date) => date,
        };
        Some(DateTime::from_parts(date, self.time))
    }

    /// The first time that it comes after `at`, or at it.
    pub(super) fn next(&self, at: DateTime, inclusive: bool) -> Option<DateTime> {
        let is_next = |found: &DateTime| *found > at || (inclusive && *found == at);
        self.around(at.date(), [0, 1]).find(is_next)
    }

    /// The last time that it came before `at`.
    pub(super) fn before(&self, at: DateTime) -> Option<DateTime> {
        self.around(at.date(), [0, -1])
            .filter(|found| *found < at)
            .max()
    }

    /// Whether it has neither date nor weekday.
    pub(super) fn is_daily(&self) -> bool {
        self.day == Day::Every
    }

    /// Its occurrences near a day, from there on forwards or backwards.
    fn around(&self, today: Date, steps: [i16; 2]) -> impl Iterator<Item = DateTime> {
        let direction = steps.into_iter().sum::<i16>().signum();
        let steps: Vec<i16> = match self.day {
            Day::Yearly { .. } => (0..YEARS).map(|years| years * direction).collect(),
            Day::Date(_) => vec![0],
            Day::Every | Day::Weekday(_) => steps.to_vec(),
        };
        steps.into_iter().filter_map(move |step| {
            let from = match self.day {
                Day::Every => today.checked_add(i64::from(step).days()).ok()?,
                Day::Weekday(_) => today.checked_add((i64::from(step) * 7).days()).ok()?,
                Day::Yearly { .. } => Date::new(today.year().checked_add(step)?, 1, 1).ok()?,
                Day::Date(date) => date,
            };
            self.on(from)
        })
    }
}

/// The date and the time of `2026-11-22t05:00`.
fn at_t(word: &str) -> Option<(&str, &str)> {
    let (date, time) = word.split_once('t')?;
    let is_digit = |text: &str, last: bool| {
        let byte = match last {
            true => text.bytes().last(),
            false => text.bytes().next(),
        };
        byte.is_some_and(|byte| byte.is_ascii_digit())
    };
    (is_digit(date, true) && is_digit(time, false)).then_some((date, time))
}

/// Parts of a date parsed so far.
#[derive(Default)]
struct Found {
    weekday: Option<Weekday>,
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
    time: Option<Time>,
}

impl Found {
    /// Takes a word and the half of the day that follows it; `None` when it is no part, or one that
    /// was given before.
    fn take(&mut self, word: &str, half: Option<&str>) -> Option<()> {
        if let Some(time) = time(word, half) {
            return put(&mut self.time, time);
        }
        if half.is_some() {
            return None;
        }
        if FILLING.contains(&word) {
            return Some(());
        }
        if let Some((_, weekday)) = WEEKDAYS.iter().find(|(name, _)| is_name(word, name)) {
            return put(&mut self.weekday, *weekday);
        }
        let month = MONTHS.iter().position(|name| is_name(word, name));
        if let Some(month) = month.or((word == "sept").then_some(8)) {
            return put(&mut self.month, i8::try_from(month + 1).ok()?);
        }
        self.take_numbers(word)
    }

    fn take_numbers(&mut self, word: &str) -> Option<()> {
        let parts: Vec<&str> = word.split(['-', '/']).collect();
        match *parts.as_slice() {
            [year, month, day] if year.len() == 4 => self.take_date(Some(year), month, day),
            [month, day, year] if year.len() == 4 => self.take_date(Some(year), month, day),
            [month, day] => self.take_date(None, month, day),
            [digits] if digits.len() == 8 => {
                let (year, rest) = digits.split_at_checked(4)?;
                let (month, day) = rest.split_at_checked(2)?;
                self.take_date(Some(year), month, day)
            }
            [digits] => {
                let suffix = ["st", "nd", "rd", "th"];
                let day = suffix.iter().find_map(|end| digits.strip_suffix(end));
                match (day, digits.len()) {
                    (None, 4) => put(&mut self.year, number(digits)?),
                    (day, _) => put(&mut self.day, number(day.unwrap_or(digits))?),
                }
            }
            _ => None,
        }
    }

    /// The month stands before the day, unless only the other way round makes a date.
    fn take_date(&mut self, year: Option<&str>, month: &str, day: &str) -> Option<()> {
        let (month, day): (i8, i8) = (number(month)?, number(day)?);
        let (month, day) = match month > 12 {
            true => (day, month),
            false => (month, day),
        };
        if let Some(year) = year {
            put(&mut self.year, number(year)?)?;
        }
        put(&mut self.month, month)?;
        put(&mut self.day, day)
    }

    fn moment(self) -> Option<Moment> {
        let day = match (self.year, self.month, self.day, self.weekday) {
            (Some(year), Some(month), Some(day), _) => Day::Date(Date::new(year, month, day).ok()?),
            (None, Some(month), Some(day), _) => {
                // A leap year, so that 29 February is valid.
                Date::new(2000, month, day).ok()?;
                Day::Yearly { month, day }
            }
            (None, None, None, Some(weekday)) => Day::Weekday(weekday),
            (None, None, None, None) if self.time.is_some() => Day::Every,
            _ => return None,
        };
        Some(Moment {
            day,
            time: self.time.unwrap_or(Time::midnight()),
        })
    }
}

fn put<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn number<N: std::str::FromStr>(digits: &str) -> Option<N> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Names may be cut to three letters, as dateutil has them.
fn is_name(word: &str, name: &str) -> bool {
    word == name || name.get(..3) == Some(word)
}

/// `17:00`, `17:00:30.5`, `5:00pm`, `5pm`; `half` is an `am` or `pm` that stands apart.
fn time(word: &str, half: Option<&str>) -> Option<Time> {
    let attached = ["am", "pm"].into_iter().find(|half| word.ends_with(half));
    let digits = attached.map_or(Some(word), |half| word.strip_suffix(half))?;
    let half = match (attached, half) {
        (Some(_), Some(_)) => return None,
        (attached, apart) => attached.or(apart),
    };
    let parts: Vec<&str> = digits.split(':').collect();
    let (hour, minute, second) = match *parts.as_slice() {
        [hour] if half.is_some() => (hour, "0", "0"),
        [hour, minute] => (hour, minute, "0"),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let hour: i8 = number(hour)?;
    let hour = match half {
        None => hour,
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some("pm") => hour % 12 + 12,
        Some(_) => hour % 12,
    };
    let nanoseconds = number(&format!("{fraction:0<9.9}"))?;
    Time::new(hour, number(minute)?, number(second)?, nanoseconds).ok()
}

#[cfg(test)]
mod tests;
