//! The counts and times of a host's states, and the summary that shows them.

use saltern_python::number::{self, float_repr};
use saltern_wire::msgpack::Value;

use crate::{Color, OutputOptions};

/// A result as the key of a dict: numbers and booleans that are equal are the same key.
#[derive(PartialEq)]
enum Key {
    None,
    Number(f64),
    Text(String),
    Other(String),
}

const SUCCEEDED: Key = Key::Number(1.0);
const FAILED: Key = Key::Number(0.0);
/// Stock counts warnings beside the results, under this name.
const WARNINGS: &str = "warnings";

/// Counts and times of a summary.
#[derive(Default)]
pub(super) struct Tally {
    counts: Vec<(Key, usize)>,
    /// Milliseconds of the states that ran one after another.
    sequential: f64,
    /// Milliseconds of the longest state that ran beside others.
    parallel: Option<f64>,
    /// States that changed something.
    pub(super) changed: usize,
}

impl Tally {
    /// Counts a result; nothing where it cannot be the key of a dict.
    pub(super) fn count(&mut self, result: &Value, count: usize) -> Option<()> {
        let key = match result {
            Value::Nil => Key::None,
            Value::Bool(flag) => Key::Number(f64::from(u8::from(*flag))),
            Value::Str(text) => Key::Text(text.clone()),
            Value::Array(_) | Value::Map(_) => return None,
            _ => match result.as_f64() {
                Some(number) => Key::Number(number),
                None => Key::Other(saltern_python::repr(result)),
            },
        };
        self.add(key, count);
        Some(())
    }

    /// Counts a state with warnings.
    pub(super) fn count_warning(&mut self) {
        self.add(Key::Text(WARNINGS.to_owned()), 1);
    }

    fn add(&mut self, key: Key, count: usize) {
        match self.counts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, total)) => *total += count,
            None => self.counts.push((key, count)),
        }
    }

    /// Adds the time that a state took; nothing where that is of a type that is no number.
    pub(super) fn add_duration(&mut self, state: &Value) -> Option<()> {
        let duration = match state.get("duration") {
            None => Some(0.0),
            Some(duration) => milliseconds(duration)?,
        };
        // Stock logs a text that is no number, and goes on.
        let Some(duration) = duration else {
            return Some(());
        };
        if state.get("__parallel__").is_none() {
            self.sequential += duration;
            return Some(());
        }
        match &mut self.parallel {
            Some(longest) if duration > *longest => *longest = duration,
            Some(_) => {}
            none => *none = Some(duration),
        }
        Some(())
    }

    fn of(&self, key: &Key) -> usize {
        let found = self.counts.iter().find(|(known, _)| known == key);
        found.map_or(0, |(_, count)| *count)
    }

    /// The lines of the summary.
    pub(super) fn lines(&self, host: &str, options: &OutputOptions) -> Vec<String> {
        let paint = |color, text: &str| options.colors.paint(color, text);
        let digits = self.counts.iter().map(|(_, count)| count.to_string().len());
        let width = "Succeeded: ".len() + digits.max().unwrap_or(0);
        let rule = "-".repeat(width);
        let label = |label: &str, count: &str| {
            let room = width - label.len() - 2;
            format!("{label}: {count:>room$}")
        };
        let (passed, undecided) = (self.of(&SUCCEEDED), self.of(&Key::None));
        let succeeded = passed + undecided;
        let failed = self.of(&FAILED);
        let of_failed = if failed > 0 { Color::Red } else { Color::Cyan };
        let warnings = self.of(&Key::Text(WARNINGS.to_owned()));
        let all: usize = self.counts.iter().map(|(_, count)| count).sum();
        let all = all - warnings;

        let mut lines = vec![paint(Color::Cyan, &format!("\nSummary for {host}\n{rule}"))];
        let counted = paint(Color::Green, &label("Succeeded", &succeeded.to_string()));
        lines.push(counted + &self.remarks(undecided, options));
        lines.push(paint(of_failed, &label("Failed", &failed.to_string())));
        if options.state.percent && all > 0 {
            let percent =
                |count: usize| float_repr(number::round(count as f64 / all as f64 * 100.0, 2));
            lines.push(paint(
                Color::Green,
                &label("Success %", &percent(succeeded)),
            ));
            lines.push(paint(of_failed, &label("Failure %", &percent(failed))));
        }
        if warnings > 0 {
            let counted = label("Warnings", &warnings.to_string());
            lines.push(paint(Color::LightRed, &counted));
        }
        let total = format!("{rule}\nTotal states run: {all:>room$}", room = width - 7);
        lines.push(paint(Color::Cyan, &total));
        if options.state.profile {
            lines.push(paint(Color::Cyan, &self.run_time(width)));
        }
        lines
    }

    /// How many of the states that succeeded changed something, or would have.
    fn remarks(&self, undecided: usize, options: &OutputOptions) -> String {
        let mut remarks = Vec::new();
        if undecided > 0 {
            let text = format!("unchanged={undecided}");
            remarks.push(options.colors.paint(Color::LightYellow, &text));
        }
        if self.changed > 0 {
            let text = format!("changed={}", self.changed);
            remarks.push(options.colors.paint(Color::Green, &text));
        }
        match remarks.is_empty() {
            true => String::new(),
            false => format!(" ({})", remarks.join(", ")),
        }
    }

    fn run_time(&self, width: usize) -> String {
        let sum = self.sequential + self.parallel.unwrap_or(0.0);
        let (sum, unit) = match sum > 999.0 {
            true => (sum / 1000.0, "s"),
            false => (sum, "ms"),
        };
        let sum = match sum.is_finite() {
            true => format!("{sum:.3}"),
            false => float_repr(sum),
        };
        format!("Total run time: {sum:>room$} {unit}", room = width - 5)
    }
}

/// `float(duration)`, without its unit where it has one: nothing inside where it is a text that is no
/// number, nothing at all where Python refuses the type.
pub(crate) fn milliseconds(duration: &Value) -> Option<Option<f64>> {
    match duration {
        Value::Bool(flag) => Some(Some(f64::from(u8::from(*flag)))),
        Value::Str(text) => {
            let plain = text.split(" ms").next().unwrap_or_default();
            Some(number::parse_float(text).or_else(|| number::parse_float(plain)))
        }
        _ => duration.as_f64().map(Some),
    }
}
