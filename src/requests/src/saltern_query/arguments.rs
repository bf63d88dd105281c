//! Arguments of a query by name. A wrong one is refused by its name, before anything is read.

use saltern_model::query::MAX_ROWS;
use saltern_python::expression::Pattern;
use saltern_runners::Arguments;
use saltern_wire::msgpack::Value;

use super::QueryError;

/// Rows of a page unless the query says how many.
const ROWS: usize = 100;

/// The longest text, in bytes.
const MAX_TEXT: usize = 4_096;

/// The named arguments of a query, and the user who sent it.
pub(super) struct QueryArguments<'a>(&'a Arguments, &'a str);

impl<'a> QueryArguments<'a> {
    /// The arguments, if the query has parameters of these names.
    pub(super) fn new(
        (arguments, user): (&'a Arguments, &'a str),
        parameters: &[&'static str],
    ) -> Result<Self, QueryError> {
        if let Some(unnamed) = arguments.positional.first() {
            let text = saltern_python::str(unnamed).into_owned();
            return Err(QueryError::NoSuchArgument(text));
        }
        let names = arguments.named.iter().map(|(name, _)| name);
        let mut unknown = names.filter(|name| !parameters.contains(&name.as_str()));
        match unknown.next() {
            Some(name) => Err(QueryError::NoSuchArgument(name.clone())),
            None => Ok(Self(arguments, user)),
        }
    }

    /// The user who sent the query.
    pub(super) fn user(&self) -> &'a str {
        self.1
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.0.named.iter().find(|(known, _)| known == name)?;
        Some(&found.1).filter(|value| !value.is_nil())
    }

    /// A text.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<&'a str>, QueryError> {
        let wrong = || QueryError::argument(name, "has to be a text of at most 4,096 bytes");
        let text = |value: &'a Value| value.as_str().filter(|text| text.len() <= MAX_TEXT);
        self.get(name)
            .map(|value| text(value).ok_or_else(wrong))
            .transpose()
    }

    /// A text that has to be there, read by `parse`.
    pub(super) fn needed<T, E: std::fmt::Display>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, QueryError> {
        let missing = || QueryError::argument(name, "is missing");
        let text = self.text(name)?.ok_or_else(missing)?;
        parse(text).map_err(|error| QueryError::argument(name, format!("is none: {error}")))
    }

    /// A text, read by `parse`.
    pub(super) fn parsed<T, E: std::fmt::Display>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, QueryError> {
        let refused = |error: E| QueryError::argument(name, format!("is none: {error}"));
        let text = self.text(name)?;
        text.map(|text| parse(text).map_err(refused)).transpose()
    }

    /// A pattern with `*`, `?` and `[`.
    pub(super) fn glob(&self, name: &'static str) -> Result<Option<Pattern>, QueryError> {
        self.parsed(name, Pattern::glob)
    }

    /// One of some words.
    pub(super) fn one_of<T: Copy>(
        &self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, QueryError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let found = words.iter().find(|(word, _)| *word == text);
        let wrong = || {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            QueryError::argument(name, format!("has to be one of {}", words.join(", ")))
        };
        found.map(|(_, value)| Some(*value)).ok_or_else(wrong)
    }

    /// A flag.
    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, QueryError> {
        let wrong = || QueryError::argument(name, "has to be true or false");
        self.get(name)
            .map(|value| value.as_bool().ok_or_else(wrong))
            .transpose()
    }

    /// A time in microseconds since 1970.
    pub(super) fn time(&self, name: &'static str) -> Result<Option<i64>, QueryError> {
        let wrong = || QueryError::argument(name, "has to be microseconds since 1970");
        self.get(name)
            .map(|value| value.as_i64().ok_or_else(wrong))
            .transpose()
    }

    /// Texts in a list.
    pub(super) fn texts(&self, name: &'static str) -> Result<Vec<String>, QueryError> {
        let wrong = || QueryError::argument(name, "has to be a list of texts");
        let Some(list) = self.get(name) else {
            return Ok(Vec::new());
        };
        let texts = list.as_array().ok_or_else(wrong)?.iter();
        let texts = texts.map(|text| text.as_str().map(str::to_owned).ok_or_else(wrong));
        texts.collect()
    }

    /// How many rows a page has at most.
    pub(super) fn rows(&self) -> Result<usize, QueryError> {
        let wrong = || QueryError::argument("limit", format!("has to be from 1 to {MAX_ROWS}"));
        let Some(limit) = self.get("limit") else {
            return Ok(ROWS);
        };
        let rows = limit.as_u64().and_then(|rows| usize::try_from(rows).ok());
        rows.filter(|rows| (1..=MAX_ROWS).contains(rows))
            .ok_or_else(wrong)
    }
}
