//! Conditions on minions: `os = Debian and kernelrelease < 6.1 and not present`.
//!
//! ```text
//! any    = all  *( "or" all )
//! all    = one  *( "and" one )
//! one    = "not" one / "(" any ")" / field [ comparison value ]
//! comparison = "=" / "==" / "!=" / "<" / "<=" / ">" / ">="
//! ```
//!
//! A field alone holds where it has a value other than false, zero and nothing. `=` and `!=` take
//! wildcards; a list has a value where one of its items has it. `<` and its kin compare numbers by size
//! and texts as versions. A time is compared with an age: `last_seen > 2h` means longer ago. A field that
//! a minion does not have is unequal to everything.

use std::cmp::Ordering;

use saltern_python::fnmatch::Glob;
use serde_json::Value as Json;

use super::Minion;
use super::cell::{Cell, natural, text_of};
use super::field::{Field, Fields};

/// How deep conditions may be nested.
const MAX_DEPTH: usize = 64;

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// Something is missing at the end.
    #[error("the condition \"{0}\" ends where more has to come")]
    Incomplete(String),
    /// A word that cannot stand there.
    #[error("\"{word}\" cannot stand where it does in the condition \"{condition}\"")]
    Unexpected {
        /// The word.
        word: String,
        /// The condition.
        condition: String,
    },
    /// A time that is compared with something else than an age.
    #[error("a time is compared with an age, such as 90s, 15m, 2h, 7d or 4w, not with \"{0}\"")]
    Age(String),
    /// Deeper than anybody writes one.
    #[error("the condition is nested too deep")]
    Depth,
}

/// A condition.
#[derive(Debug)]
pub(super) enum Condition {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// The field has a value other than false, zero and nothing.
    Is(Field),
    Test(Field, Comparison, Operand),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Operand that a field is compared with.
#[derive(Debug)]
pub(super) enum Operand {
    Text(String),
    Wildcard(Glob),
    /// In microseconds.
    Age(i64),
}

const COMPARISONS: [(&str, Comparison); 7] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("=", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

/// A word of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// Bare, or in quotes.
    Word {
        text: String,
        is_quoted: bool,
    },
    Compare(Comparison),
    Open,
    Close,
}

impl Condition {
    /// Reads a condition; notes the fields that it needs.
    pub(super) fn parse(text: &str, fields: &mut Fields) -> Result<Self, ConditionError> {
        let mut parser = Parser {
            text,
            tokens: tokens(text)?,
            at: 0,
            fields,
        };
        let condition = parser.any(0)?;
        match parser.tokens.get(parser.at) {
            None => Ok(condition),
            Some(_) => Err(parser.unexpected()),
        }
    }

    /// Whether it holds of a minion at a time in microseconds since 1970.
    pub(super) fn holds(&self, minion: &Minion, now: i64) -> bool {
        match self {
            Self::All(conditions) => conditions.iter().all(|one| one.holds(minion, now)),
            Self::Any(conditions) => conditions.iter().any(|one| one.holds(minion, now)),
            Self::Not(condition) => !condition.holds(minion, now),
            Self::Is(field) => is_true(&field.of(minion)),
            Self::Test(field, comparison, operand) => {
                compare(&field.of(minion), *comparison, operand, now)
            }
        }
    }
}

fn is_true(cell: &Cell) -> bool {
    match cell {
        Cell::Absent => false,
        Cell::Time(_) => true,
        Cell::Value(value) => match value {
            Json::Null => false,
            Json::Bool(flag) => *flag,
            Json::Number(number) => number.as_f64() != Some(0.0),
            Json::String(text) => !text.is_empty(),
            Json::Array(items) => !items.is_empty(),
            Json::Object(entries) => !entries.is_empty(),
        },
    }
}

fn compare(cell: &Cell, comparison: Comparison, operand: &Operand, now: i64) -> bool {
    let is_equal = || match cell {
        Cell::Value(Json::Array(items)) => items.iter().any(|item| is_same(item, operand)),
        Cell::Value(value) => is_same(value, operand),
        Cell::Absent | Cell::Time(_) => order(cell, operand, now).is_some_and(Ordering::is_eq),
    };
    let ordered = |holds: fn(Ordering) -> bool| order(cell, operand, now).is_some_and(holds);
    match comparison {
        Comparison::Equal => is_equal(),
        Comparison::Unequal => !is_equal(),
        Comparison::Less => ordered(Ordering::is_lt),
        Comparison::AtMost => ordered(Ordering::is_le),
        Comparison::Greater => ordered(Ordering::is_gt),
        Comparison::AtLeast => ordered(Ordering::is_ge),
    }
}

fn is_same(value: &Json, operand: &Operand) -> bool {
    match operand {
        Operand::Wildcard(glob) => glob.matches(&text_of(value)),
        Operand::Age(_) => false,
        Operand::Text(text) => match value {
            Json::Bool(flag) => {
                let name = if *flag { "true" } else { "false" };
                text.eq_ignore_ascii_case(name)
            }
            Json::Number(number) => number.as_f64() == text.parse().ok(),
            value => text_of(value) == *text,
        },
    }
}

fn order(cell: &Cell, operand: &Operand, now: i64) -> Option<Ordering> {
    match (cell, operand) {
        (Cell::Time(time), Operand::Age(age)) => Some(now.saturating_sub(*time).cmp(age)),
        (Cell::Value(_), Operand::Text(text)) => {
            let numbers = cell.number().zip(text.parse::<f64>().ok());
            Some(match numbers {
                Some((one, other)) => one.total_cmp(&other),
                None => natural(&cell.text(), text),
            })
        }
        _ => None,
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, ConditionError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let comparison = COMPARISONS
            .iter()
            .find_map(|(mark, comparison)| Some((rest.strip_prefix(mark)?, *comparison)));
        let tail = rest.get(first.len_utf8()..).unwrap_or_default();
        let (after, token) = match (first, comparison) {
            (_, Some((after, comparison))) => (after, Token::Compare(comparison)),
            ('(', _) => (tail, Token::Open),
            (')', _) => (tail, Token::Close),
            ('"' | '\'', _) => {
                let quoted = tail.split_once(first);
                let (inside, after) =
                    quoted.ok_or_else(|| ConditionError::Incomplete(text.to_owned()))?;
                (after, word(inside, true))
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || "()<>=\"'".contains(c);
                let end = rest.find(ends).unwrap_or(rest.len());
                let (inside, after) = rest.split_at(end);
                // `a!=b` without spaces.
                match inside.strip_suffix('!').filter(|_| after.starts_with('=')) {
                    Some(inside) => (rest.get(end - 1..).unwrap_or_default(), word(inside, false)),
                    None => (after, word(inside, false)),
                }
            }
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn word(text: &str, is_quoted: bool) -> Token {
    Token::Word {
        text: text.to_owned(),
        is_quoted,
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    fields: &'a mut Fields,
}

impl Parser<'_> {
    fn any(&mut self, depth: usize) -> Result<Condition, ConditionError> {
        let mut conditions = vec![self.all(depth)?];
        while self.takes("or") {
            conditions.push(self.all(depth)?);
        }
        Ok(Condition::Any(conditions))
    }

    fn all(&mut self, depth: usize) -> Result<Condition, ConditionError> {
        let mut conditions = vec![self.one(depth)?];
        while self.takes("and") {
            conditions.push(self.one(depth)?);
        }
        Ok(Condition::All(conditions))
    }

    fn one(&mut self, depth: usize) -> Result<Condition, ConditionError> {
        if depth > MAX_DEPTH {
            return Err(ConditionError::Depth);
        }
        if self.takes("not") {
            return Ok(Condition::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.tokens.get(self.at) == Some(&Token::Open) {
            self.at += 1;
            let inside = self.any(depth + 1)?;
            return match self.tokens.get(self.at) {
                Some(Token::Close) => {
                    self.at += 1;
                    Ok(inside)
                }
                _ => Err(self.unexpected()),
            };
        }
        let (name, _) = self.word()?;
        let field = self.fields.field(&name);
        let Some(Token::Compare(comparison)) = self.tokens.get(self.at) else {
            return Ok(Condition::Is(field));
        };
        let comparison = *comparison;
        self.at += 1;
        let (value, is_quoted) = self.word()?;
        let operand = match (field.is_time(), comparison) {
            (true, _) => Operand::Age(age(&value)?),
            (false, Comparison::Equal | Comparison::Unequal)
                if !is_quoted && value.contains(['*', '?', '[']) =>
            {
                Operand::Wildcard(Glob::new(&value))
            }
            (false, _) => Operand::Text(value),
        };
        Ok(Condition::Test(field, comparison, operand))
    }

    fn word(&mut self) -> Result<(String, bool), ConditionError> {
        let Some(Token::Word { text, is_quoted }) = self.tokens.get(self.at) else {
            return Err(self.unexpected());
        };
        let found = (text.clone(), *is_quoted);
        self.at += 1;
        Ok(found)
    }

    fn takes(&mut self, keyword: &str) -> bool {
        let is_it = matches!(
            self.tokens.get(self.at),
            Some(Token::Word { text, is_quoted: false }) if text == keyword
        );
        self.at += usize::from(is_it);
        is_it
    }

    fn unexpected(&self) -> ConditionError {
        let condition = self.text.to_owned();
        let word = match self.tokens.get(self.at) {
            None => return ConditionError::Incomplete(condition),
            Some(Token::Word { text, .. }) => text.clone(),
            Some(Token::Open) => "(".to_owned(),
            Some(Token::Close) => ")".to_owned(),
            Some(Token::Compare(comparison)) => {
                let named = COMPARISONS.iter().find(|(_, known)| known == comparison);
                named.map_or_else(String::new, |(mark, _)| (*mark).to_owned())
            }
        };
        ConditionError::Unexpected { word, condition }
    }
}

/// `90s`, `15m`, `2h`, `7d`, `4w` in microseconds; a bare number is seconds.
fn age(text: &str) -> Result<i64, ConditionError> {
    let none = || ConditionError::Age(text.to_owned());
    let (number, seconds) = match text.chars().last() {
        Some(unit @ ('s' | 'm' | 'h' | 'd' | 'w')) => {
            let seconds = match unit {
                's' => 1,
                'm' => 60,
                'h' => 3600,
                'd' => 86_400,
                _ => 604_800,
            };
            (text.strip_suffix(unit).unwrap_or(text), seconds)
        }
        _ => (text, 1),
    };
    let number: i64 = number.parse().map_err(|_| none())?;
    number.checked_mul(seconds * 1_000_000).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use saltern_model::MinionId;
    use saltern_model::control::{InventoryRow, SeenMinion};
    use serde_json::json;

    use super::super::last_job::LastJob;
    use super::*;

    const NOW: i64 = 1_000_000_000_000_000;

    /// Whether a condition holds of a Debian that was seen an hour ago and whose last job failed.
    fn holds(text: &str) -> Result<bool, ConditionError> {
        let mut fields = Fields::default();
        let condition = Condition::parse(text, &mut fields)?;
        let grains = json!({
            "os": "Debian", "kernelrelease": "6.1.0-13-amd64", "num_cpus": 4, "empty": "",
            "roles": ["web", "db"], "ipv4": ["10.0.0.1"], "id": "grain", "nullable": null,
            "virtual": true,
        });
        let grains = fields
            .grains()
            .iter()
            .map(|path| grains.get(path).cloned())
            .collect();
        let minion = Minion {
            cells: Vec::new(),
            row: InventoryRow {
                minion: SeenMinion {
                    id: MinionId::parse("web1").unwrap(),
                    is_present: true,
                    last_heard: Some(NOW - 3_600_000_000),
                    address: None,
                    standing: "connected".to_owned(),
                },
                grains,
            },
            job: Some(LastJob {
                jid: "20260102030405060708".into(),
                fun: "state.apply".into(),
                received: NOW - 60_000_000,
                retcode: 2,
            }),
        };
        Ok(condition.holds(&minion, NOW))
    }

    #[test]
    fn conditions_hold_as_they_read() {
        for (text, expected) in [
            ("os = Debian", true),
            ("os=Debian", true),
            ("os!=Debian", false),
            ("os = Deb*", true),
            ("os = \"Deb*\"", false),
            ("os = debian", false),
            ("os = Debian and num_cpus >= 4", true),
            ("num_cpus < 10", true),
            ("num_cpus = 4.0", true),
            ("kernelrelease < 6.12", true),
            ("kernelrelease > 6.0.9", true),
            ("roles = db", true),
            ("roles != db", false),
            ("roles = d*", true),
            ("virtual = True and virtual", true),
            ("present", true),
            ("not present or os = Debian", true),
            ("not (present or os = Debian)", false),
            ("os = Arch or os = Debian and present", true),
            ("(os = Arch or os = Debian) and not present", false),
            ("nothing", false),
            ("nothing = x", false),
            ("nothing != x", true),
            ("nothing < 3", false),
            ("nullable", false),
            ("empty", false),
            ("id = web1", true),
            ("G@id = grain and grains.id = grain", true),
            ("last_seen > 30m and last_seen < 2h", true),
            ("job.at <= 60", true),
            ("job.result = failed and job.function = state.*", true),
            ("job.retcode != 0 and job = 2026*", true),
            ("address", false),
        ] {
            assert_eq!(holds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_condition_are_refused() {
        for text in [
            "",
            "os =",
            "os = = x",
            "(os",
            "os)",
            "and",
            "os = Debian present",
            "os = 'x",
            "not",
            "last_seen > yesterday",
            "= x",
            "last_seen > 99999999999999999w",
        ] {
            // `and` alone is a grain of that name.
            assert_eq!(holds(text).is_err(), text != "and", "{text}");
        }
        let deep = format!("{}os{}", "(".repeat(100), ")".repeat(100));
        assert_eq!(holds(&deep), Err(ConditionError::Depth));
        let deep = format!("{}os", "not ".repeat(100_000));
        assert_eq!(holds(&deep), Err(ConditionError::Depth));
    }
}
