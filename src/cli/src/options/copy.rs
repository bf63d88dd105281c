//! The options of `salt-cp`.

use super::common::{
    ConfigOptions, LogOptions, OutputOptions, TARGET_WAYS, TargetOptions, TargetType, hard_crash,
    leading, logging, output, shares, target,
};
use super::definition::{Action, Group, OptionDefinition};
use super::ending::Ending;
use super::grammar::{Grammar, Parsed};
use super::read::CommandOptions;
use super::salt::TargetText;

/// The options of `salt-cp`.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "named as on the command line")]
pub struct CopyOptions {
    pub config: ConfigOptions,
    pub target: TargetOptions,
    pub output: OutputOptions,
    pub logging: LogOptions,
    /// In seconds.
    pub timeout: Option<i64>,
    pub chunked: Option<bool>,
    /// False by `--no-compression`.
    pub gzip: Option<bool>,
}

shares!(CopyOptions:
    config: ConfigOptions,
    target: TargetOptions,
    output: OutputOptions,
    logging: LogOptions,
);

impl CommandOptions for CopyOptions {
    fn grammar() -> Grammar<Self> {
        let own = OptionDefinition::<Self>::new;
        let mut first = leading();
        first.push(own(
            "-t --timeout",
            "timeout",
            Action::Integer(|all| &mut all.timeout),
            "Seconds to wait for the minions. Default: 5.",
        ));
        first.push(hard_crash());
        let [target, more] = target(TARGET_WAYS);
        let files = vec![
            own(
                "-C --chunked",
                "chunked",
                Action::Flag(|all| &mut all.chunked, true),
                "Copy in parts: large files, and directories with all they contain.",
            ),
            own(
                "-n --no-compression",
                "gzip",
                Action::Flag(|all| &mut all.gzip, false),
                "Do not compress.",
            ),
        ];
        Grammar {
            program: "salt-cp",
            usage: "[options] '<target>' SOURCE DEST",
            description: "Copy files of this machine to minions.",
            groups: vec![
                Group {
                    title: "",
                    description: "",
                    options: first,
                },
                target,
                more,
                output(),
                Group {
                    title: "File Options",
                    description: "",
                    options: files,
                },
                logging("-l --log-level", "log_file", "/var/log/salt/master"),
            ],
        }
    }

    fn config(&self) -> &ConfigOptions {
        &self.config
    }
}

/// A command line of `salt-cp` that was accepted.
#[derive(Debug, Clone)]
pub struct CopyCommand {
    /// The options.
    pub options: CopyOptions,
    /// How the target is read; a glob when `None`.
    pub target_type: Option<TargetType>,
    /// The target.
    pub target: TargetText,
    /// The files and directories, as typed.
    pub sources: Vec<String>,
    /// The path on the minions.
    pub destination: String,
}

impl CopyCommand {
    /// Checks a command line as a whole. Without sources it is accepted, as by stock.
    ///
    /// # Errors
    /// What stock prints instead of running it.
    pub fn check(parsed: Parsed<CopyOptions>) -> Result<Self, Ending> {
        let Parsed { options, arguments } = parsed;
        let grammar = CopyOptions::grammar();
        let target_type = options.target.selected();
        let target_type = target_type.map_err(|error| grammar.refuse(&error.to_string()))?;
        let [target, sources @ .., destination] = arguments.as_slice() else {
            return Err(grammar
                .refuse("Insufficient arguments")
                .after(grammar.help()));
        };
        let target = match target_type {
            // Unlike `salt`, spaces beside the commas stay.
            Some(TargetType::List) if target.contains(',') => {
                TargetText::List(target.split(',').map(str::to_owned).collect())
            }
            Some(TargetType::List) => TargetText::List(
                saltern_python::text::split(target)
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => TargetText::Text(target.clone()),
        };
        Ok(Self {
            target_type,
            target,
            sources: sources.to_vec(),
            destination: destination.clone(),
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str]) -> Result<CopyCommand, Ending> {
        CopyCommand::check(CopyOptions::grammar().parse(words.iter().copied())?)
    }

    #[test]
    fn last_argument_is_the_destination() {
        let command = check(&["-C", "*", "/a", "/b", "/to"]).map_err(|e| e.stderr);
        let command = command.unwrap();
        assert_eq!(command.sources, ["/a", "/b"]);
        assert_eq!(
            (command.destination.as_str(), command.options.chunked),
            ("/to", Some(true))
        );
        let ending = check(&["*"]).map(|_| ()).unwrap_err();
        assert_eq!(ending.code, 64);
        assert!(ending.stdout.starts_with("Usage: salt-cp"));
        assert!(
            ending
                .stderr
                .ends_with("salt-cp: error: Insufficient arguments\n")
        );
    }

    #[test]
    fn list_keeps_its_spaces() {
        let target = |words: &[&str]| check(words).map(|command| command.target).unwrap();
        let list = |ids: &[&str]| TargetText::List(ids.iter().map(|id| (*id).to_owned()).collect());
        assert_eq!(target(&["-L", "a, b", "/x", "/y"]), list(&["a", " b"]));
        assert_eq!(target(&["-L", "a b", "/x", "/y"]), list(&["a", "b"]));
    }
}
