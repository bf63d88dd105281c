//! A command of low data: its entries, as the clients take them.

use std::time::Duration;

use saltern_client::Credentials;
use saltern_model::Jid;
use saltern_wire::msgpack::Value;

use super::error::{CallError, malformed};

/// The entries that prove a sender.
pub(super) const CREDENTIALS: [&str; 4] = ["eauth", "password", "token", "username"];

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chunk(pub(super) Vec<(Value, Value)>);

impl Chunk {
    /// A command, if the value is a map.
    pub(crate) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Map(entries) => Some(Self(entries)),
            _ => None,
        }
    }

    /// A command of these entries.
    pub(crate) fn new<const N: usize>(entries: [(&str, &str); N]) -> Self {
        let entries = entries.map(|(name, value)| (name.into(), value.into()));
        Self(entries.into())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let mut entries = self.0.iter().rev();
        entries
            .find(|(key, _)| key.as_str() == Some(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        match self
            .0
            .iter_mut()
            .find(|(key, _)| key.as_str() == Some(name))
        {
            Some((_, old)) => *old = value,
            None => self.0.push((name.into(), value)),
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        let mut taken = None;
        self.0.retain_mut(|(key, value)| {
            let is_it = key.as_str() == Some(name);
            if is_it {
                taken = Some(std::mem::take(value));
            }
            !is_it
        });
        taken
    }

    pub(crate) fn into_value(self) -> Value {
        Value::Map(self.0)
    }

    /// Makes `arg` a list.
    pub(crate) fn list_arguments(&mut self) {
        if let Some(arg) = self.take("arg") {
            let arg = match arg {
                list @ Value::Array(_) => list,
                other => Value::Array(vec![other]),
            };
            self.set("arg", arg);
        }
    }

    /// Whether its token, if it has one, is a number of base 16, as Python's `int` reads it.
    pub(crate) fn has_usable_token(&self) -> bool {
        self.get("token").is_none_or(|token| {
            let digits = token.as_str().map(str::trim).unwrap_or_default();
            let digits = digits.strip_prefix("0x").unwrap_or(digits);
            !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        })
    }

    /// Takes the entries that prove its sender.
    pub(super) fn take_credentials(&mut self) -> Credentials {
        let entries = CREDENTIALS.iter();
        let entries = entries.filter_map(|name| Some(((*name).into(), self.take(name)?)));
        Credentials::Given(entries.collect())
    }

    pub(super) fn take_text(&mut self, name: &str) -> Option<String> {
        self.take(name).and_then(|value| match value {
            Value::Str(text) => Some(text),
            _ => None,
        })
    }

    /// Takes a number of seconds, which may be a text.
    pub(super) fn take_seconds(&mut self, name: &str) -> Option<Duration> {
        let value = self.take(name)?;
        let seconds = match &value {
            Value::Str(text) => text.trim().parse().ok(),
            other => other.as_f64(),
        };
        seconds.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
    }

    pub(super) fn take_flag(&mut self, name: &str) -> bool {
        self.take(name).is_some_and(|value| value.is_truthy())
    }
}

pub(super) fn is_named(entries: &[(Value, Value)]) -> bool {
    let mut entries = entries.iter();
    entries.any(|(name, mark)| name.as_str() == Some("__kwarg__") && mark.as_bool() == Some(true))
}

/// The arguments of a job: `arg`, then `kwarg` as a map with a mark. Numbers that are jids are texts.
pub(super) fn arguments(chunk: &mut Chunk) -> Result<Vec<Value>, CallError> {
    chunk.list_arguments();
    let mut arguments = match chunk.take("arg") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    for argument in &mut arguments {
        if let Value::Int(_) | Value::Uint(_) = argument {
            let digits = saltern_python::repr(&*argument);
            if digits.len() == 20 && Jid::parse(&digits).is_ok() {
                *argument = digits.into();
            }
        }
    }
    match chunk.take("kwarg") {
        Some(Value::Map(entries)) if !entries.is_empty() => {
            let mut named = vec![(Value::from("__kwarg__"), true.into())];
            named.extend(entries);
            arguments.push(Value::Map(named));
        }
        None | Some(Value::Nil | Value::Map(_)) => {}
        Some(_) => return Err(malformed("'kwarg' is no mapping")),
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_numbers_of_base_16() {
        for (token, is_usable) in [("0aF", true), ("0x0a", true), ("", false), ("../x", false)] {
            assert_eq!(
                Chunk::new([("token", token)]).has_usable_token(),
                is_usable,
                "{token}"
            );
        }
        assert!(Chunk::new([]).has_usable_token());
        let number = Chunk(vec![("token".into(), 1_i64.into())]);
        assert!(!number.has_usable_token());
    }

    #[test]
    fn arguments_of_a_job_keep_their_types() {
        let mut chunk = Chunk(vec![
            ("arg".into(), 2_026_112_107_062_263_771_u64.into()),
            ("kwarg".into(), Value::map([("a", 1_i64)])),
        ]);
        let arguments = arguments(&mut chunk).unwrap();
        let named = Value::map([("__kwarg__", Value::from(true)), ("a", 1_i64.into())]);
        // Larger than 64 bits of a signed number: still a jid.
        assert_eq!(arguments.last(), Some(&named));
        assert!(chunk.get("arg").is_none() && chunk.get("kwarg").is_none());
    }
}
