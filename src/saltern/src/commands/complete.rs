//! `saltern complete KIND PREFIX`: the words that a shell completes another with, one a line; `saltern complete
//! line -- WORD…`: the same for a line that is being typed, which is read by the definition of the
//! arguments. Hidden: the completions of bash, zsh and fish call it.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command, ValueEnum};
use saltern_base::exit::Exit;
use saltern_cli::complete::{self, Kind};
use saltern_config::load_for_tools;

use super::say;
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    kind: Offered,
    /// The beginning of the words; of a line, all its words without the program, the last one being typed.
    words: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Offered {
    Minions,
    Functions,
    Runners,
    Jobs,
    /// The kind of word that the last place takes.
    Line,
}

/// Says nothing of what is wrong: a person is typing a line.
pub(crate) fn run(arguments: &Arguments, program: Command) -> Exit {
    let kind = match arguments.kind {
        Offered::Minions => Kind::Minions,
        Offered::Functions => Kind::Functions,
        Offered::Runners => Kind::Runners,
        Offered::Jobs => Kind::Jobs,
        Offered::Line => {
            let Some(typed) = Typed::read(program, &arguments.words) else {
                return Exit::Ok;
            };
            let config = typed.config.as_deref();
            return offer(
                config.unwrap_or(&arguments.config.config),
                typed.kind,
                typed.prefix,
            );
        }
    };
    let prefix = arguments.words.first().map_or("", String::as_str);
    offer(&arguments.config.config, kind, prefix)
}

fn offer(config: &Path, kind: Kind, prefix: &str) -> Exit {
    let Ok(loaded) = load_for_tools(config) else {
        return Exit::Failure;
    };
    let words = complete::words(&loaded.config, kind, prefix);
    say(&words
        .iter()
        .map(|word| format!("{word}\n"))
        .collect::<String>());
    Exit::Ok
}

/// A line whose last word is one that the master knows words for.
#[derive(Debug, PartialEq)]
struct Typed<'w> {
    kind: Kind,
    prefix: &'w str,
    /// The configuration that the line names.
    config: Option<PathBuf>,
}

impl<'w> Typed<'w> {
    /// Reads a line; nothing where its last word is an option, the value of one, a sub-command or what
    /// the master has no words for.
    fn read(mut program: Command, words: &'w [String]) -> Option<Self> {
        program.build();
        let (prefix, before) = words.split_last()?;
        let mut command = &program;
        let mut config = None;
        let mut place = 0;
        let mut before = before.iter().map(String::as_str).peekable();
        while let Some(word) = before.next() {
            if word == "--" {
                place += before.by_ref().count();
                break;
            }
            let Some((option, glued)) = option_of(command, word) else {
                match command.find_subcommand(word).filter(|_| place == 0) {
                    Some(part) => command = part,
                    None => place += usize::from(!word.starts_with('-')),
                }
                continue;
            };
            // Bash makes a word of its own of the equals sign.
            if glued.is_none() && before.peek() == Some(&"=") {
                before.next();
            }
            let value = match glued {
                Some(value) => value,
                None => before.next()?,
            };
            if option.get_id() == "config" {
                config = Some(PathBuf::from(value));
            }
        }
        if prefix.starts_with('-') {
            return None;
        }
        let positional = command.get_positionals().nth(place)?;
        Some(Self {
            kind: kind_of(command.get_name(), positional)?,
            prefix,
            config,
        })
    }
}

/// The option that a word is, if it takes a value, and the value if the word has that, too.
fn option_of<'c, 'w>(command: &'c Command, word: &'w str) -> Option<(&'c Arg, Option<&'w str>)> {
    let takes_value = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let is_it = |arg: &&Arg| {
            let names = arg.get_long_and_visible_aliases().unwrap_or_default();
            names.contains(&name)
        };
        let option = command.get_opts().filter(takes_value).find(is_it)?;
        return Some((option, value));
    }
    // Flags may stand before the option in the same word.
    let letters = word.strip_prefix('-')?;
    letters.char_indices().find_map(|(at, letter)| {
        let is_it = |arg: &&Arg| arg.get_short() == Some(letter);
        let option = command.get_opts().filter(takes_value).find(is_it)?;
        let rest = letters.get(at + letter.len_utf8()..);
        Some((option, rest.filter(|rest| !rest.is_empty())))
    })
}

/// The kind of words that the master completes an argument with, by its name in the definition.
fn kind_of(command: &str, argument: &Arg) -> Option<Kind> {
    match argument.get_id().as_str() {
        "target" | "keys" => Some(Kind::Minions),
        "function" if command == "run" => Some(Kind::Runners),
        "function" => Some(Kind::Functions),
        "jid" => Some(Kind::Jobs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn typed(line: &str) -> Option<(Kind, String, Option<String>)> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let typed = Typed::read(crate::Arguments::command(), &words)?;
        let config = typed.config.map(|path| path.display().to_string());
        Some((typed.kind, typed.prefix.to_owned(), config))
    }

    #[test]
    fn place_of_a_word_is_found_by_the_definition() {
        use Kind::{Functions, Jobs, Minions, Runners};
        for (line, kind) in [
            ("cmd we", Some(Minions)),
            ("cmd ", Some(Minions)),
            ("cmd web1 te", Some(Functions)),
            ("cmd web1 test.arg x", None),
            ("cmd -t 3 web1 te", Some(Functions)),
            ("cmd -t", None),
            ("cmd -t 3", None),
            ("cmd --timeout 3 we", Some(Minions)),
            ("cmd --timeout=3 we", Some(Minions)),
            ("cmd --timeout = 3 we", Some(Minions)),
            ("cmd -Et3 we", Some(Minions)),
            ("cmd -E --batch 2 we", Some(Minions)),
            ("cmd --batch-size 2 we", Some(Minions)),
            ("cmd --no-color we", Some(Minions)),
            ("cmd -- we", Some(Minions)),
            ("cmd --bat", None),
            ("run jobs.li", Some(Runners)),
            ("run jobs.list_jobs x", None),
            ("key accept we", Some(Minions)),
            ("key acc", None),
            ("key generate we", None),
            ("cp we", Some(Minions)),
            ("cp web1 /et", None),
            ("minions we", Some(Minions)),
            ("follow 2026", Some(Jobs)),
            ("explain 2026", Some(Jobs)),
            ("batch watch 2026", Some(Jobs)),
            ("expl", None),
            ("", None),
        ] {
            assert_eq!(typed(line).map(|typed| typed.0), kind, "{line:?}");
        }
    }

    #[test]
    fn configuration_of_the_line_counts() {
        for line in [
            "cmd -c /conf we",
            "cmd -c/conf we",
            "cmd --config-dir=/conf we",
        ] {
            let found = typed(line);
            let expected = (Kind::Minions, "we".to_owned(), Some("/conf".to_owned()));
            assert_eq!(found, Some(expected), "{line:?}");
        }
    }
}
