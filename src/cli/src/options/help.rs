//! The help of a command, laid out as `optparse` does it, and the versions.

use super::definition::OptionDefinition;
use super::grammar::Grammar;

/// Columns where nobody says how many there are.
const COLUMNS: usize = 80;

/// The column the help of an option begins in, at most.
const MAX_HELP_COLUMN: usize = 24;

/// The newest release that the commands follow.
const RELEASE: &str = "3008.3";

impl<T> Grammar<T> {
    /// The line of `--version`: stock's first words, for scripts, and ours.
    #[must_use]
    pub fn version(&self) -> String {
        format!(
            "{} {RELEASE} (Saltern {})\n",
            self.program,
            env!("CARGO_PKG_VERSION")
        )
    }

    /// The whole help, for a terminal as wide as `COLUMNS` says.
    #[must_use]
    pub fn help(&self) -> String {
        let columns = std::env::var("COLUMNS").ok();
        let columns = columns.and_then(|columns| columns.parse().ok());
        self.help_for(columns.unwrap_or(COLUMNS))
    }

    fn help_for(&self, columns: usize) -> String {
        let width = columns.saturating_sub(2);
        let column = self.help_column(width);
        let mut text = format!("Usage: {}\n\n", self.usage());
        text += &paragraph(self.description, width, 0);
        text += "\nOptions:\n";
        for group in &self.groups {
            let indent = if group.title.is_empty() { 2 } else { 4 };
            if !group.title.is_empty() {
                text += &format!("\n  {}:\n", group.title);
            }
            if !group.description.is_empty() {
                text += &paragraph(group.description, width, indent);
                text.push('\n');
            }
            for option in &group.options {
                text += &described(option, indent, column, width);
            }
        }
        text
    }

    fn help_column(&self, width: usize) -> usize {
        let groups = self.groups.iter();
        let widths = groups.flat_map(|group| {
            let indent = if group.title.is_empty() { 2 } else { 4 };
            let options = group.options.iter();
            options.map(move |option| names(option).len() + indent)
        });
        let longest = widths.max().unwrap_or(0) + 2;
        longest.min(MAX_HELP_COLUMN.min(width.saturating_sub(20).max(4)))
    }
}

/// `-t TIMEOUT, --timeout=TIMEOUT`.
fn names<T>(option: &OptionDefinition<T>) -> String {
    let takes_value = option.action.takes_value();
    let metavar = &option.metavar;
    let short = option.short.iter().map(|letter| match takes_value {
        true => format!("-{letter} {metavar}"),
        false => format!("-{letter}"),
    });
    let long = option.long.iter().map(|name| match takes_value {
        true => format!("{name}={metavar}"),
        false => (*name).to_owned(),
    });
    short.chain(long).collect::<Vec<_>>().join(", ")
}

fn described<T>(
    option: &OptionDefinition<T>,
    indent: usize,
    column: usize,
    width: usize,
) -> String {
    let names = names(option);
    let room = column.saturating_sub(indent + 2);
    let lines = wrapped(&option.help, width.saturating_sub(column).max(11));
    let mut text = format!("{:indent$}{names}", "");
    let mut lines = lines.iter();
    if names.len() <= room
        && let Some(first) = lines.next()
    {
        text += &format!("{:padding$}  {first}", "", padding = room - names.len());
    }
    text.push('\n');
    for line in lines {
        text += &format!("{:column$}{line}\n", "");
    }
    text
}

fn paragraph(text: &str, width: usize, indent: usize) -> String {
    let lines = wrapped(text, width.saturating_sub(indent).max(11));
    lines
        .iter()
        .map(|line| format!("{:indent$}{line}\n", ""))
        .collect()
}

/// The words in lines of at most this many columns; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{
        CommandOptions, CopyOptions, KeyOptions, MasterOptions, RunOptions, SaltOptions,
    };
    use super::*;

    #[test]
    fn help_keeps_the_width_and_names_every_option() {
        fn check<T>(grammar: &Grammar<T>) {
            for columns in [60, 80, 120] {
                let help = grammar.help_for(columns);
                assert!(help.starts_with(&format!("Usage: {} ", grammar.program)));
                for option in grammar.definitions() {
                    for name in &option.long {
                        assert!(help.contains(name), "{name} in {help}");
                    }
                }
                let is_sentence = |line: &&str| line.starts_with("           ");
                for line in help.lines().filter(is_sentence) {
                    assert!(line.chars().count() <= columns, "{line}");
                }
            }
        }
        check(&SaltOptions::grammar());
        check(&KeyOptions::grammar());
        check(&RunOptions::grammar());
        check(&CopyOptions::grammar());
        check(&MasterOptions::grammar());
    }
}
