//! Reads a command line by a table, as `optparse.OptionParser.parse_args` of Python 3 does: options
//! anywhere before `--`, long ones abbreviated as long as only one begins so, short ones together.

use std::collections::VecDeque;

use saltern_python::number::{IntError, parse_float, parse_int};
use saltern_python::repr::of_text;

use super::common::Password;
use super::definition::{Action, OptionDefinition, Origin};
use super::ending::Ending;
use super::grammar::{Grammar, Parsed};

impl<T: Default> Grammar<T> {
    /// Reads a command line without the name of the program.
    ///
    /// # Errors
    /// What to print instead of running the command.
    pub fn parse(
        &self,
        line: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Parsed<T>, Ending> {
        let mut rest: VecDeque<String> = line.into_iter().map(Into::into).collect();
        let mut parsed = Parsed {
            options: T::default(),
            arguments: Vec::new(),
        };
        while let Some(word) = rest.pop_front() {
            if word == "--" {
                parsed.arguments.extend(rest);
                break;
            } else if word.starts_with("--") {
                self.long(&word, &mut rest, &mut parsed.options)?;
            } else if word.starts_with('-') && word.len() > 1 {
                self.short(&word, &mut rest, &mut parsed.options)?;
            } else {
                parsed.arguments.push(word);
            }
        }
        Ok(parsed)
    }

    /// One word with two hyphens.
    fn long(&self, word: &str, rest: &mut VecDeque<String>, options: &mut T) -> Result<(), Ending> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        let (name, option) = self.named(name)?;
        let value = match (option.action.takes_value(), value) {
            (true, Some(value)) => Some(value),
            (true, None) => Some(self.next_value(name, rest)?),
            (false, None) => None,
            (false, Some(_)) => {
                return Err(self.refuse(&format!("{name} option does not take a value")));
            }
        };
        self.apply(option, name, value, options)
    }

    /// The option of a full name, or the only one that begins so.
    fn named(&self, name: &str) -> Result<(&'static str, &OptionDefinition<T>), Ending> {
        let all = || {
            let options = self.definitions();
            options.flat_map(|option| option.long.iter().map(move |long| (*long, option)))
        };
        if let Some(found) = all().find(|(long, _)| *long == name) {
            return Ok(found);
        }
        let mut found: Vec<_> = all()
            .filter(|(long, option)| long.starts_with(name) && option.origin != Origin::Own)
            .collect();
        match found.as_slice() {
            [] => Err(self.refuse(&format!("no such option: {name}"))),
            [one] => Ok(*one),
            _ => {
                found.sort_by_key(|(long, _)| *long);
                let names: Vec<&str> = found.iter().map(|(long, _)| *long).collect();
                let message = format!("ambiguous option: {name} ({}?)", names.join(", "));
                Err(self.refuse(&message))
            }
        }
    }

    /// One word with one hyphen: flags together, at most one option with a value, last.
    fn short(
        &self,
        word: &str,
        rest: &mut VecDeque<String>,
        options: &mut T,
    ) -> Result<(), Ending> {
        let mut letters = word.chars();
        letters.next();
        while let Some(letter) = letters.next() {
            let name = format!("-{letter}");
            let option = self
                .definitions()
                .find(|option| option.short.contains(&letter))
                .ok_or_else(|| self.refuse(&format!("no such option: {name}")))?;
            if !option.action.takes_value() {
                self.apply(option, &name, None, options)?;
                continue;
            }
            let value = match letters.as_str() {
                "" => self.next_value(&name, rest)?,
                glued => glued.to_owned(),
            };
            return self.apply(option, &name, Some(value), options);
        }
        Ok(())
    }

    /// The next word, whatever it looks like.
    fn next_value(&self, name: &str, rest: &mut VecDeque<String>) -> Result<String, Ending> {
        let value = rest.pop_front();
        value.ok_or_else(|| self.refuse(&format!("{name} option requires 1 argument")))
    }

    fn apply(
        &self,
        option: &OptionDefinition<T>,
        name: &str,
        value: Option<String>,
        options: &mut T,
    ) -> Result<(), Ending> {
        let value = value.unwrap_or_default();
        match &option.action {
            Action::Help => return Err(Ending::ok(self.help())),
            Action::Version => return Err(Ending::ok(self.version())),
            Action::Flag(field, constant) => *field(options) = Some(*constant),
            Action::Text(field) => *field(options) = Some(value),
            Action::Secret(field) => *field(options) = Some(Password::new(value)),
            Action::Integer(field) => {
                let number = integer(&value);
                let number = number.ok_or_else(|| self.invalid(name, "integer", &value))?;
                *field(options) = Some(number);
            }
            Action::Float(field) => {
                let number = parse_float(&value);
                let number = number.ok_or_else(|| self.invalid(name, "floating-point", &value))?;
                *field(options) = Some(number);
            }
            Action::Choice(words, field) => {
                let word = words.iter().find(|word| **word == value);
                let word = word.ok_or_else(|| self.no_choice(name, words, &value))?;
                *field(options) = Some(word);
            }
            Action::Target(field, kind) => {
                field(options).chosen.insert(*kind);
            }
        }
        Ok(())
    }

    fn invalid(&self, name: &str, what: &str, value: &str) -> Ending {
        let value = of_text(value);
        self.refuse(&format!("option {name}: invalid {what} value: {value}"))
    }

    fn no_choice(&self, name: &str, words: &[&str], value: &str) -> Ending {
        let words: Vec<String> = words.iter().map(|word| of_text(word)).collect();
        self.refuse(&format!(
            "option {name}: invalid choice: {} (choose from {})",
            of_text(value),
            words.join(", ")
        ))
    }
}

/// A whole number as `optparse` reads it: `0x` is hexadecimal, `0b` binary, any other leading zero
/// octal.
fn integer(text: &str) -> Option<i64> {
    let prefix: String = text.chars().take(2).flat_map(char::to_lowercase).collect();
    let parsed = match prefix.as_str() {
        "0x" => parse_int(text, 16),
        "0b" => match text.get(2..).unwrap_or_default() {
            "" => Ok(0),
            digits => parse_int(digits, 2),
        },
        _ if text.starts_with('0') => parse_int(text, 8),
        _ => parse_int(text, 10),
    };
    match parsed {
        Ok(number) => Some(number.clamp(i64::MIN.into(), i64::MAX.into()) as i64),
        Err(IntError::TooLarge) if text.trim_start().starts_with('-') => Some(i64::MIN),
        Err(IntError::TooLarge) => Some(i64::MAX),
        Err(IntError::Invalid) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_the_base_of_their_prefix() {
        let cases = [
            ("10", Some(10)),
            ("-1", Some(-1)),
            ("0x1F", Some(31)),
            ("0b101", Some(5)),
            ("0b", Some(0)),
            ("010", Some(8)),
            ("0", Some(0)),
            ("08", None),
            ("1.5", None),
            ("", None),
            (" 7 ", Some(7)),
            ("1_000", Some(1000)),
            ("99999999999999999999999999", Some(i64::MAX)),
        ];
        for (text, expected) in cases {
            assert_eq!(integer(text), expected, "{text:?}");
        }
    }
}
