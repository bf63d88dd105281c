//! `saltern_reactor_limits`: bounds on the rate of events that rules follow, and on their
//! concurrency.

use saltern_config::MasterConfig;
use saltern_config::yaml::Node;
use saltern_python::expression::{ExpressionError, Pattern};

/// The most limits: each has a queue of its own.
const MAX_LIMITS: usize = 1_000;

/// Limit on the events of some tags.
#[derive(Clone)]
pub struct Limit {
    /// The pattern as it was written.
    pub name: String,
    tags: Pattern,
    /// The most events in a second; further ones are dropped.
    pub rate: Option<f64>,
    /// The most events whose reactions are under way; further ones wait.
    pub concurrency: Option<usize>,
}

impl Limit {
    /// Whether it applies to events of this tag.
    pub fn is_for(&self, tag: &str) -> bool {
        self.tags.matches(tag)
    }
}

/// Error in the option.
#[derive(Debug, thiserror::Error)]
#[error("option \"saltern_reactor_limits\": {0}")]
pub struct LimitError(Fault);

/// Why the option is refused.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("it is no mapping")]
    NoMapping,
    #[error("there are more than {MAX_LIMITS} patterns")]
    TooMany,
    #[error("a pattern is no text")]
    NoText,
    #[error("\"{pattern}\": {source}")]
    Entry { pattern: String, source: EntryFault },
}

/// Why the limit of one pattern is refused.
#[derive(Debug, thiserror::Error)]
enum EntryFault {
    #[error("it is no mapping")]
    NoMapping,
    #[error("{0} is neither \"rate\" nor \"concurrency\"")]
    Unknown(String),
    #[error("\"concurrency\" is no number above 0")]
    Concurrency,
    #[error("\"rate\" is no number above 0, alone or with /s, /m or /h")]
    Rate,
    #[error(transparent)]
    Pattern(#[from] ExpressionError),
}

impl LimitError {
    /// The error, without the name of the option.
    pub fn problem(&self) -> String {
        self.0.to_string()
    }
}

/// The limits of a configuration; of several for a tag the first one holds.
///
/// # Errors
/// When the option is no mapping of patterns to `rate` and `concurrency`.
pub fn limits(config: &MasterConfig) -> Result<Vec<Limit>, LimitError> {
    let option = config
        .saltern_reactor_limits()
        .node()
        .filter(|node| node.is_truthy());
    let Some(option) = option else {
        return Ok(Vec::new());
    };
    let map = option.as_map().ok_or(LimitError(Fault::NoMapping))?;
    if map.len() > MAX_LIMITS {
        return Err(LimitError(Fault::TooMany));
    }
    let limits = map.iter().map(|(name, entry)| {
        let pattern = name.as_str().ok_or(Fault::NoText)?;
        limit(pattern, &entry.value).map_err(|source| Fault::Entry {
            pattern: pattern.to_owned(),
            source,
        })
    });
    limits.collect::<Result<_, _>>().map_err(LimitError)
}

fn limit(name: &str, node: &Node) -> Result<Limit, EntryFault> {
    let given = node.as_map().ok_or(EntryFault::NoMapping)?;
    for (key, _) in given.iter() {
        if !matches!(key.as_str(), Some("rate" | "concurrency")) {
            return Err(EntryFault::Unknown(format!("{key:?}")));
        }
    }
    let concurrency = given.get("concurrency").map(|node| {
        let number = node.as_i64().filter(|number| *number > 0);
        number.and_then(|number| usize::try_from(number).ok())
    });
    Ok(Limit {
        name: name.to_owned(),
        tags: Pattern::glob(name)?,
        rate: given.get("rate").map(rate).transpose()?,
        concurrency: match concurrency {
            Some(None) => return Err(EntryFault::Concurrency),
            Some(number) => number,
            None => None,
        },
    })
}

/// Events in a second: a number, or `10/s`, `10/m`, `10/h`.
fn rate(node: &Node) -> Result<f64, EntryFault> {
    let number = match (node.as_f64(), node.as_str()) {
        (Some(number), _) => Some(number),
        (None, Some(text)) => {
            let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
            let seconds = match unit.trim() {
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(EntryFault::Rate),
            };
            number
                .trim()
                .parse::<f64>()
                .ok()
                .map(|number| number / seconds)
        }
        _ => None,
    };
    number
        .filter(|rate| rate.is_finite() && *rate > 0.0)
        .ok_or(EntryFault::Rate)
}

#[cfg(test)]
mod tests {
    use saltern_config::yaml::{Limits, parse};

    use super::*;

    #[test]
    fn rate_is_parsed_per_second_minute_or_hour() {
        let table = [
            ("5", Some(5.0)),
            ("0.5", Some(0.5)),
            ("10/s", Some(10.0)),
            ("30/m", Some(0.5)),
            ("3600 / h", Some(1.0)),
            ("0", None),
            ("-1", None),
            ("10/d", None),
            ("many", None),
            (".inf", None),
            ("[1]", None),
        ];
        for (text, expected) in table {
            let node = parse(text, "test", &Limits::DEFAULT).unwrap();
            assert_eq!(rate(&node).ok(), expected, "{text}");
        }
    }

    #[test]
    fn malformed_limit_is_refused() {
        for text in ["{rat: 1}", "{concurrency: 0}", "[]", "{concurrency: x}"] {
            let node = parse(text, "test", &Limits::DEFAULT).unwrap();
            assert!(limit("a/*", &node).is_err(), "{text}");
        }
        let node = parse("{rate: 2/s, concurrency: 3}", "test", &Limits::DEFAULT).unwrap();
        let limit = limit("a/*", &node).unwrap();
        assert_eq!((limit.rate, limit.concurrency), (Some(2.0), Some(3)));
        assert!(limit.is_for("a/b") && !limit.is_for("b"));
    }
}
