//! One option of a table, and the groups they stand in.

use super::common::{Password, TargetOptions, TargetType};

/// Command lines that know an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Stock's, in all three releases.
    Stock,
    /// Stock's since 3008; taken whatever the release.
    Since3008,
    /// Ours alone: taken by its full name only, so that stock's abbreviations keep their meaning.
    Own,
}

/// Effect of an option; each variant names the field that it sets.
pub enum Action<T> {
    /// Prints the help and ends.
    Help,
    /// Prints the version and ends.
    Version,
    /// Sets a flag to a constant.
    Flag(fn(&mut T) -> &mut Option<bool>, bool),
    /// Takes a text.
    Text(fn(&mut T) -> &mut Option<String>),
    /// Takes a text that is kept secret.
    Secret(fn(&mut T) -> &mut Option<Password>),
    /// Takes a whole number; one beyond 64 bits becomes the nearest.
    Integer(fn(&mut T) -> &mut Option<i64>),
    /// Takes a number.
    Float(fn(&mut T) -> &mut Option<f64>),
    /// Takes one of these words.
    Choice(
        &'static [&'static str],
        fn(&mut T) -> &mut Option<&'static str>,
    ),
    /// Chooses how the target is read.
    Target(fn(&mut T) -> &mut TargetOptions, TargetType),
}

impl<T> Action<T> {
    /// Whether an argument belongs to the option.
    #[must_use]
    pub const fn takes_value(&self) -> bool {
        !matches!(
            self,
            Self::Help | Self::Version | Self::Flag(..) | Self::Target(..)
        )
    }
}

/// The value of a field, whatever its type.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// A flag.
    Flag(bool),
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
}

/// One option.
pub struct OptionDefinition<T> {
    /// The letters behind one hyphen.
    pub short: Vec<char>,
    /// The names with their two hyphens, the first of them the one that messages use.
    pub long: Vec<&'static str>,
    /// The name of the value in stock's configuration (`dest`).
    pub dest: &'static str,
    /// Its effect.
    pub action: Action<T>,
    /// Placeholder of the value in the help.
    pub metavar: String,
    /// One sentence of help.
    pub help: String,
    /// The command line that knows it.
    pub origin: Origin,
}

impl<T> OptionDefinition<T> {
    /// An option with all its names, as `-t --timeout`.
    #[must_use]
    pub fn new(names: &'static str, dest: &'static str, action: Action<T>, help: &str) -> Self {
        let (long, short): (Vec<&str>, Vec<&str>) = names
            .split_whitespace()
            .partition(|name| name.starts_with("--"));
        let short = short.iter().filter_map(|name| name.chars().nth(1));
        Self {
            short: short.collect(),
            long,
            dest,
            action,
            metavar: dest.to_uppercase(),
            help: help.to_owned(),
            origin: Origin::Stock,
        }
    }

    /// The same with another word for the value.
    #[must_use]
    pub fn metavar(mut self, metavar: &str) -> Self {
        metavar.clone_into(&mut self.metavar);
        self
    }

    /// The same, known since 3008.
    #[must_use]
    pub const fn since_3008(mut self) -> Self {
        self.origin = Origin::Since3008;
        self
    }

    /// The same, ours alone.
    #[must_use]
    pub const fn own(mut self) -> Self {
        self.origin = Origin::Own;
        self
    }

    /// The name that messages use.
    #[must_use]
    pub fn name(&self) -> String {
        match (self.long.first(), self.short.first()) {
            (Some(long), _) => (*long).to_owned(),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => String::new(),
        }
    }

    /// The field's value, where it has one.
    pub fn value(&self, options: &mut T) -> Option<OptionValue> {
        match &self.action {
            Action::Help | Action::Version => None,
            Action::Flag(field, _) => field(options).map(OptionValue::Flag),
            Action::Text(field) => field(options).clone().map(OptionValue::Text),
            Action::Secret(field) => {
                let password = field(options).as_ref()?;
                Some(OptionValue::Text(password.reveal().to_owned()))
            }
            Action::Integer(field) => field(options).map(OptionValue::Integer),
            Action::Float(field) => field(options).map(OptionValue::Float),
            Action::Choice(_, field) => {
                field(options).map(|word| OptionValue::Text(word.to_owned()))
            }
            Action::Target(field, kind) => {
                let is_chosen = field(options).chosen.contains(kind);
                is_chosen.then_some(OptionValue::Flag(true))
            }
        }
    }
}

/// Options under one heading of the help.
pub struct Group<T> {
    /// The heading; empty for those that stand first.
    pub title: &'static str,
    /// A sentence below it.
    pub description: &'static str,
    /// The options, in the order of the help.
    pub options: Vec<OptionDefinition<T>>,
}
