//! Numbers as people read them: amounts, rates, shares and spans of time in a few characters.

/// Placeholder for an unknown value.
const NOTHING: &str = "-";

/// A whole number.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or(NOTHING.to_owned(), |value| format!("{value:.0}"))
}

/// How often in a second.
pub(super) fn rate(value: Option<f64>) -> String {
    value.map_or(NOTHING.to_owned(), |value| format!("{value:.1}"))
}

/// A share of one, in percent.
pub(super) fn share(value: Option<f64>) -> String {
    value.map_or(NOTHING.to_owned(), |value| {
        format!("{:.1} %", value * 100.0)
    })
}

/// Bytes.
pub(super) fn amount(value: Option<f64>) -> String {
    let Some(mut value) = value else {
        return NOTHING.to_owned();
    };
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            let places = usize::from(unit != "B");
            return format!("{value:.places$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// A short time, given in seconds.
pub(super) fn moment(value: Option<f64>) -> String {
    match value {
        None => NOTHING.to_owned(),
        Some(value) if value < 1e-3 => format!("{:.0} µs", value * 1e6),
        Some(value) if value < 1.0 => format!("{:.1} ms", value * 1e3),
        Some(value) => format!("{value:.1} s"),
    }
}

/// A span of time, given in microseconds.
pub(super) fn span(micros: i64) -> String {
    let seconds = micros / 1_000_000;
    match seconds {
        ..60 => format!("{:.1} s", micros as f64 / 1e6),
        60..3_600 => format!("{} min {:02}", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {:02}", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_their_units() {
        assert_eq!(number(Some(12.0)), "12");
        assert_eq!(rate(Some(1234.56)), "1234.6");
        assert_eq!(share(Some(0.125)), "12.5 %");
        assert_eq!(rate(None), "-");
        let amounts = [
            (512.0, "512 B"),
            (1536.0, "1.5 KiB"),
            (30_818_304.0, "29.4 MiB"),
            (5e13, "45.5 TiB"),
        ];
        for (bytes, text) in amounts {
            assert_eq!(amount(Some(bytes)), text);
        }
        let moments = [(0.000_042, "42 µs"), (0.0123, "12.3 ms"), (2.5, "2.5 s")];
        for (seconds, text) in moments {
            assert_eq!(moment(Some(seconds)), text);
        }
        let spans = [
            (1_500_000, "1.5 s"),
            (61_000_000, "1 min 01"),
            (3_720_000_000, "1 h 02"),
            (90_000_000_000, "1 d 01 h"),
        ];
        for (micros, text) in spans {
            assert_eq!(span(micros), text);
        }
    }
}
