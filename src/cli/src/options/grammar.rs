//! A command's table of options, and what a command line becomes by it.

use saltern_config::yaml::Node;

use super::definition::{Action, Group, OptionDefinition, OptionValue};
use super::ending::Ending;

/// The options of a command.
pub struct Grammar<T> {
    /// The name of the command, such as `salt-key`.
    pub program: &'static str,
    /// How it is called, after the name.
    pub usage: &'static str,
    /// The description in the help.
    pub description: &'static str,
    /// The options, in the order of the help.
    pub groups: Vec<Group<T>>,
}

/// A command line that was accepted.
pub struct Parsed<T> {
    /// The options.
    pub options: T,
    /// The positional arguments.
    pub arguments: Vec<String>,
}

impl<T> Grammar<T> {
    /// All options, in the order of the help.
    pub fn definitions(&self) -> impl Iterator<Item = &OptionDefinition<T>> {
        self.groups.iter().flat_map(|group| &group.options)
    }

    /// The usage with the name.
    #[must_use]
    pub fn usage(&self) -> String {
        format!("{} {}", self.program, self.usage)
    }

    /// The end of a command line that is refused with this message.
    #[must_use]
    pub fn refuse(&self, message: &str) -> Ending {
        Ending::refused(self.program, &self.usage(), message)
    }

    /// Fills options that were not given with values by their names (`dest`), as from a Saltfile or
    /// the master's configuration. A value of a type that the option cannot hold is left alone.
    pub fn fill<'n>(&self, options: &mut T, look_up: impl Fn(&str) -> Option<&'n Node>) {
        for option in self.definitions().filter(|option| !option.dest.is_empty()) {
            if option.value(options).is_none()
                && let Some(node) = look_up(option.dest)
            {
                option.set(options, node);
            }
        }
    }

    /// Each option that has a value, by its name (`dest`).
    pub fn values(&self, options: &mut T) -> Vec<(&'static str, OptionValue)> {
        let values = self.definitions();
        let values = values.filter_map(|option| Some((option.dest, option.value(options)?)));
        values.collect()
    }
}

impl<T> OptionDefinition<T> {
    fn set(&self, options: &mut T, node: &Node) {
        match &self.action {
            Action::Help | Action::Version | Action::Target(..) => {}
            Action::Flag(field, _) => *field(options) = Some(node.is_truthy()),
            Action::Text(field) => *field(options) = text(node),
            Action::Secret(field) => {
                *field(options) = text(node).map(super::common::Password::new);
            }
            Action::Integer(field) => *field(options) = node.as_i64(),
            Action::Float(field) => *field(options) = node.as_f64(),
            Action::Choice(words, field) => {
                let word = node.as_str().unwrap_or_default();
                *field(options) = words.iter().find(|one| **one == word).copied();
            }
        }
    }
}

/// A scalar as Python's `str` writes it.
fn text(node: &Node) -> Option<String> {
    let number = || node.as_i64().map(|number| number.to_string());
    let float = || node.as_f64().map(saltern_python::number::float_repr);
    match (node.as_str(), node.as_bool()) {
        (Some(text), _) => Some(text.to_owned()),
        (None, Some(true)) => Some("True".to_owned()),
        (None, Some(false)) => Some("False".to_owned()),
        (None, None) => number().or_else(float),
    }
}
