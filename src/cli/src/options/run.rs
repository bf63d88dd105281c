//! The options of `salt-run`.

use saltern_python::number::parse_int;

use super::common::{
    ConfigOptions, EauthOptions, LogOptions, OutputOptions, eauth, hard_crash, leading, logging,
    names, output, shares,
};
use super::definition::{Action, Group, OptionDefinition};
use super::ending::Ending;
use super::grammar::{Grammar, Parsed};
use super::read::CommandOptions;

/// Digits of a jid.
const JID_LENGTH: usize = 20;

/// The options of `salt-run`.
#[derive(Clone, Default)]
#[expect(missing_docs, reason = "named as on the command line")]
pub struct RunOptions {
    pub config: ConfigOptions,
    pub output: OutputOptions,
    pub logging: LogOptions,
    pub eauth: EauthOptions,
    /// In seconds.
    pub timeout: Option<i64>,
    pub args_stdin: Option<bool>,
    pub jid: Option<String>,
    pub no_parse: Option<String>,
    pub doc: Option<bool>,
    pub is_async: Option<bool>,
    pub skip_grains: Option<bool>,
    pub profiling_path: Option<String>,
    pub profiling_enabled: Option<bool>,
    pub quiet: Option<bool>,
}

shares!(RunOptions:
    config: ConfigOptions,
    output: OutputOptions,
    logging: LogOptions,
    eauth: EauthOptions,
);

impl CommandOptions for RunOptions {
    fn grammar() -> Grammar<Self> {
        let mut first = leading();
        first.extend(general());
        let mut output = output();
        output.options.push(OptionDefinition::new(
            "--quiet",
            "quiet",
            Action::Flag(|all: &mut Self| &mut all.quiet, true),
            "Do not print the result.",
        ));
        Grammar {
            program: "salt-run",
            usage: "[options] <function> [arguments]",
            description: "Run a function of the master and print what it returns.",
            groups: vec![
                Group {
                    title: "",
                    description: "",
                    options: first,
                },
                eauth("-a --auth --eauth --external-auth"),
                output,
                Group {
                    title: "Profiling support",
                    description: "",
                    options: profiling(),
                },
                logging("-l --log-level", "log_file", "/var/log/salt/master"),
            ],
        }
    }

    fn config(&self) -> &ConfigOptions {
        &self.config
    }

    fn reads_stdin(&self) -> bool {
        self.args_stdin == Some(true)
    }
}

fn general() -> Vec<OptionDefinition<RunOptions>> {
    use Action::{Flag, Integer, Text};
    let own = OptionDefinition::<RunOptions>::new;
    vec![
        own(
            "-t --timeout",
            "timeout",
            Integer(|all| &mut all.timeout),
            "Seconds that functions wait for minions. Default: 1.",
        ),
        own(
            "--args-stdin",
            "args_stdin",
            Flag(|all| &mut all.args_stdin, true),
            "Read more options and arguments from standard input, one a line.",
        ),
        own(
            "--jid",
            "jid",
            Text(|all| &mut all.jid),
            "Id for the call, instead of a new one.",
        ),
        hard_crash(),
        own(
            "--no-parse",
            "no_parse",
            Text(|all| &mut all.no_parse),
            "Named arguments, separated by commas, that stay texts instead of being read as YAML.",
        )
        .metavar("argname1,argname2,..."),
        own(
            "-d --doc --documentation",
            "doc",
            Flag(|all| &mut all.doc, true),
            "Print the documentation of a function, of a module, or of all.",
        ),
        own(
            "--async",
            "async",
            Flag(|all| &mut all.is_async, true),
            "Start the function and do not wait for its end.",
        ),
        own(
            "--skip-grains",
            "skip_grains",
            Flag(|all| &mut all.skip_grains, true),
            "Do not load the master's grains.",
        ),
    ]
}

fn profiling() -> Vec<OptionDefinition<RunOptions>> {
    let own = OptionDefinition::<RunOptions>::new;
    vec![
        own(
            "--profiling-path",
            "profiling_path",
            Action::Text(|all| &mut all.profiling_path),
            "Directory for the profiles of Python. Default: '/tmp/stats'.",
        ),
        own(
            "--enable-profiling",
            "profiling_enabled",
            Action::Flag(|all| &mut all.profiling_enabled, true),
            "Write a profile of Python.",
        ),
    ]
}

/// A command line of `salt-run` that was accepted.
#[derive(Clone)]
pub struct RunCommand {
    /// The options.
    pub options: RunOptions,
    /// The function; stock prints its help without one.
    pub function: Option<String>,
    /// Its arguments, as typed.
    pub arguments: Vec<String>,
    /// Named arguments that are not read as YAML.
    pub no_parse: Vec<String>,
}

impl RunCommand {
    /// Checks a command line as a whole.
    ///
    /// # Errors
    /// What stock prints instead of running it.
    pub fn check(parsed: Parsed<RunOptions>) -> Result<Self, Ending> {
        let Parsed { options, arguments } = parsed;
        let refuse = |message: &str| Err(RunOptions::grammar().refuse(message));
        if let Some(jid) = options.jid.as_deref().filter(|jid| !is_jid(jid)) {
            return refuse(&format!("'{jid}' is not a valid JID"));
        }
        if options.doc == Some(true) && arguments.len() > 1 {
            return refuse("You can only get documentation for one method at one time");
        }
        let no_parse = names(options.no_parse.as_deref());
        let mut arguments = arguments.into_iter();
        Ok(Self {
            options,
            function: arguments.next(),
            arguments: arguments.collect(),
            no_parse,
        })
    }
}

/// As `salt.utils.jid.is_jid`: 20 digits, and more only behind an underscore.
fn is_jid(text: &str) -> bool {
    let mut letters = text.chars();
    let digits: String = letters.by_ref().take(JID_LENGTH).collect();
    let rest = letters.as_str();
    let has_form = digits.chars().count() == JID_LENGTH
        && (rest.is_empty() || (rest.starts_with('_') && rest.len() > 1));
    has_form && parse_int(&digits, 10).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str]) -> Result<RunCommand, Ending> {
        RunCommand::check(RunOptions::grammar().parse(words.iter().copied())?)
    }

    #[test]
    fn jid_has_the_form_of_stock() {
        for (jid, code) in [
            ("20261121070622637714", None),
            ("20261121070622637714_x", None),
            ("20261121070622637714x", Some(64)),
            ("20261121070622637714_", Some(64)),
            ("2026112107062263771x", Some(64)),
            ("1", Some(64)),
        ] {
            let ending = check(&["--jid", jid, "f"]).map(|_| ());
            assert_eq!(ending.err().map(|ending| ending.code), code, "{jid}");
        }
    }

    #[test]
    fn documentation_is_of_one_function() {
        assert_eq!(check(&["-d", "a", "b"]).map(|_| ()).unwrap_err().code, 64);
        let command = check(&["-d"]).map_err(|e| e.stderr).unwrap();
        assert_eq!(command.function, None);
    }
}
