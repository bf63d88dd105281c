//! The options of `salt`, and the checks that stock makes of a whole command line.

use super::common::{
    ConfigOptions, EauthOptions, LogOptions, MORE_TARGET_WAYS, OutputOptions, TARGET_WAYS,
    TargetOptions, TargetType, eauth, hard_crash, leading, logging, names, output, shares, target,
};
use super::definition::{Action, Group, OptionDefinition};
use super::ending::Ending;
use super::grammar::{Grammar, Parsed};
use super::read::CommandOptions;

/// Exit code of stock for a command line without target or function.
const INCOMPLETE: u8 = 42;

/// The options of `salt`.
#[derive(Clone, Default)]
#[expect(missing_docs, reason = "named as on the command line")]
pub struct SaltOptions {
    pub config: ConfigOptions,
    pub target: TargetOptions,
    pub output: OutputOptions,
    pub logging: LogOptions,
    pub eauth: EauthOptions,
    pub module_executors: Option<String>,
    pub executor_opts: Option<String>,
    /// In seconds.
    pub timeout: Option<i64>,
    pub args_stdin: Option<bool>,
    pub no_parse: Option<String>,
    pub is_static: Option<bool>,
    pub progress: Option<bool>,
    pub failhard: Option<bool>,
    pub is_async: Option<bool>,
    pub subset: Option<i64>,
    pub verbose: Option<bool>,
    /// False by `--hide-timeout`.
    pub show_timeout: Option<bool>,
    pub show_jid: Option<bool>,
    pub batch: Option<String>,
    /// In seconds.
    pub batch_wait: Option<f64>,
    pub batch_safe_limit: Option<i64>,
    pub batch_safe_size: Option<String>,
    pub returner: Option<String>,
    pub return_config: Option<String>,
    pub return_kwargs: Option<String>,
    pub doc: Option<bool>,
    pub args_separator: Option<String>,
    pub summary: Option<bool>,
    pub metadata: Option<String>,
    pub start_event: Option<bool>,
    pub output_diff: Option<bool>,
    pub config_dump: Option<bool>,
    pub preview_target: Option<bool>,
    /// Ours: seconds that minions have to say whether they run the job.
    pub gather_job_timeout: Option<i64>,
    /// Ours: all returns in one JSON object.
    pub one_document: Option<bool>,
}

shares!(SaltOptions:
    config: ConfigOptions,
    target: TargetOptions,
    output: OutputOptions,
    logging: LogOptions,
    eauth: EauthOptions,
);

impl CommandOptions for SaltOptions {
    fn grammar() -> Grammar<Self> {
        let mut first = leading();
        first.extend(execution());
        let ways: Vec<_> = TARGET_WAYS
            .iter()
            .chain(MORE_TARGET_WAYS)
            .copied()
            .collect();
        let [target, more] = target(&ways);
        Grammar {
            program: "salt",
            usage: "[options] '<target>' <function> [arguments]",
            description: "Run a function on minions and print what they return.",
            groups: vec![
                Group {
                    title: "",
                    description: "",
                    options: first,
                },
                target,
                more,
                eauth("-a --auth --eauth --external-auth"),
                output(),
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

#[expect(clippy::too_many_lines, reason = "a table")]
fn execution() -> Vec<OptionDefinition<SaltOptions>> {
    use Action::{Flag, Float, Integer, Text};
    let own = OptionDefinition::<SaltOptions>::new;
    vec![
        own(
            "--module-executors",
            "module_executors",
            Text(|all| &mut all.module_executors),
            "Executors that the minions use instead of their configured ones.",
        )
        .metavar("EXECUTOR_LIST"),
        own(
            "--executor-opts",
            "executor_opts",
            Text(|all| &mut all.executor_opts),
            "Options for the executors.",
        ),
        own(
            "-t --timeout",
            "timeout",
            Integer(|all| &mut all.timeout),
            "Seconds to wait before asking who still runs the job. Default: 5.",
        ),
        own(
            "--args-stdin",
            "args_stdin",
            Flag(|all| &mut all.args_stdin, true),
            "Read more options and arguments from standard input, one a line.",
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
            "-s --static",
            "static",
            Flag(|all| &mut all.is_static, true),
            "Print all returns together, after the last.",
        ),
        own(
            "-p --progress",
            "progress",
            Flag(|all| &mut all.progress, true),
            "Show a progress bar.",
        ),
        own(
            "--failhard",
            "failhard",
            Flag(|all| &mut all.failhard, true),
            "End a batch at the first return that failed.",
        ),
        own(
            "--async",
            "async",
            Flag(|all| &mut all.is_async, true),
            "Print the job's id and do not wait.",
        ),
        own(
            "--subset",
            "subset",
            Integer(|all| &mut all.subset),
            "Run on this many of the targeted minions, chosen at random among those that have the \
             function.",
        ),
        own(
            "-v --verbose",
            "verbose",
            Flag(|all| &mut all.verbose, true),
            "Print the job's id first.",
        ),
        own(
            "--hide-timeout",
            "show_timeout",
            Flag(|all| &mut all.show_timeout, false),
            "Do not print minions that did not return.",
        ),
        own(
            "--show-jid",
            "show_jid",
            Flag(|all| &mut all.show_jid, true),
            "Print the job's id before each return.",
        ),
        own(
            "-b --batch --batch-size",
            "batch",
            Text(|all| &mut all.batch),
            "Run on this many minions at a time, such as 10 or 25%.",
        ),
        own(
            "--batch-wait",
            "batch_wait",
            Float(|all| &mut all.batch_wait),
            "Seconds between the end of one minion of a batch and the start of the next.",
        ),
        own(
            "--batch-safe-limit",
            "batch_safe_limit",
            Integer(|all| &mut all.batch_safe_limit),
            "Make it a batch if at least this many minions match.",
        ),
        own(
            "--batch-safe-size",
            "batch_safe_size",
            Text(|all| &mut all.batch_safe_size),
            "The size of such a batch.",
        ),
        own(
            "--return",
            "return",
            Text(|all| &mut all.returner),
            "Returners that the minions send their returns to, too; separated by commas.",
        )
        .metavar("RETURNER"),
        own(
            "--return_config",
            "return_config",
            Text(|all| &mut all.return_config),
            "The alternative configuration of the returners.",
        )
        .metavar("RETURNER_CONF"),
        own(
            "--return_kwargs",
            "return_kwargs",
            Text(|all| &mut all.return_kwargs),
            "Options of the returners, as a YAML map.",
        )
        .metavar("RETURNER_KWARGS"),
        own(
            "-d --doc --documentation",
            "doc",
            Flag(|all| &mut all.doc, true),
            "Print the documentation of a function, of a module, or of all.",
        ),
        own(
            "--args-separator",
            "args_separator",
            Text(|all| &mut all.args_separator),
            "What separates the arguments of several functions. Default: ','.",
        ),
        own(
            "--summary",
            "cli_summary",
            Flag(|all| &mut all.summary, true),
            "Print a summary at the end.",
        )
        .metavar(""),
        own(
            "--metadata",
            "metadata",
            Text(|all| &mut all.metadata),
            "Data kept with the job, as YAML.",
        ),
        own(
            "--start-event",
            "start_event",
            Flag(|all| &mut all.start_event, true),
            "Let each minion fire an event when it begins (minions since 3008).",
        )
        .since_3008(),
        own(
            "--output-diff",
            "state_output_diff",
            Flag(|all| &mut all.output_diff, true),
            "Print only the states that changed something.",
        ),
        own(
            "--config-dump",
            "config_dump",
            Flag(|all| &mut all.config_dump, true),
            "Print the master's configuration and exit.",
        ),
        own(
            "--preview-target",
            "preview_target",
            Flag(|all| &mut all.preview_target, true),
            "Print the minions that the target matches, and send nothing.",
        ),
        own(
            "--gather-job-timeout",
            "gather_job_timeout",
            Integer(|all| &mut all.gather_job_timeout),
            "Seconds the minions have to say whether they run the job (Saltern only).",
        )
        .own(),
        own(
            "--one-document",
            "one_document",
            Flag(|all| &mut all.one_document, true),
            "Print all returns as one JSON object, each as it comes (Saltern only).",
        )
        .own(),
    ]
}

/// The call of a command line, with the arguments as they were typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// One function.
    One(String, Vec<String>),
    /// Several, each with its arguments; the arguments may be fewer than the functions only where
    /// stock lets that pass.
    Several(Vec<String>, Vec<Vec<String>>),
    /// The configuration, printed after this text.
    ConfigDump(String),
}

/// A target as it goes on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetText {
    /// An expression.
    Text(String),
    /// Ids (`-L`).
    List(Vec<String>),
}

/// A command line of `salt` that was accepted.
#[derive(Clone)]
pub struct SaltCommand {
    /// The options.
    pub options: SaltOptions,
    /// How the target is read; a glob when `None`.
    pub target_type: Option<TargetType>,
    /// The target.
    pub target: TargetText,
    /// The functions to call there.
    pub call: Call,
    /// Named arguments that are not read as YAML.
    pub no_parse: Vec<String>,
}

impl SaltCommand {
    /// Checks a command line as a whole.
    ///
    /// # Errors
    /// What stock prints instead of running it.
    pub fn check(parsed: Parsed<SaltOptions>) -> Result<Self, Ending> {
        let Parsed {
            options,
            mut arguments,
        } = parsed;
        let grammar = SaltOptions::grammar();
        let target_type = options.target.selected();
        let target_type = target_type.map_err(|error| grammar.refuse(&error.to_string()))?;
        let is_on = |flag: Option<bool>| flag == Some(true);
        let is_short = arguments.len() <= 1 && !is_on(options.doc);
        let help = match is_short && !is_on(options.preview_target) {
            true => grammar.help(),
            false => String::new(),
        };
        let no_parse = names(options.no_parse.as_deref());
        if is_on(options.config_dump) {
            return Ok(Self {
                options,
                target_type,
                target: TargetText::List(Vec::new()),
                call: Call::ConfigDump(help),
                no_parse,
            });
        }
        if is_on(options.preview_target) {
            arguments.push("not_a_valid_command".to_owned());
        }
        if is_on(options.doc) {
            arguments = documented(arguments).ok_or_else(|| {
                grammar.refuse("You can only get documentation for one method at one time.")
            })?;
        }
        let incomplete = |text: &str| Ending::failed(INCOMPLETE, text).after(help.clone());
        let mut arguments = arguments.into_iter();
        let target = arguments
            .next()
            .ok_or_else(|| incomplete("\nCannot execute command without defining a target.\n\n"))?;
        let function = arguments
            .next()
            .ok_or_else(|| incomplete("\nIncomplete options passed.\n\n"))?;
        let target = match target_type {
            Some(TargetType::List) => TargetText::List(ids(&target)),
            _ => TargetText::Text(target),
        };
        let separator = options.args_separator.as_deref().unwrap_or(",");
        let call = call(&grammar, function, arguments.collect(), separator)?;
        Ok(Self {
            options,
            target_type,
            target,
            call,
            no_parse,
        })
    }
}

/// The arguments of `-d`: the target may be left out, and the function is `sys.doc`. Nothing where
/// there are too many.
fn documented(mut arguments: Vec<String>) -> Option<Vec<String>> {
    if arguments.is_empty() {
        arguments.push("*".to_owned());
    }
    if arguments
        .get(1)
        .is_none_or(|function| function != "sys.doc")
    {
        arguments.insert(1, "sys.doc".to_owned());
    }
    (arguments.len() <= 3).then_some(arguments)
}

/// The ids of `-L`: separated by commas, else by white space.
pub(super) fn ids(text: &str) -> Vec<String> {
    match text.contains(',') {
        true => text
            .replace(' ', "")
            .split(',')
            .map(str::to_owned)
            .collect(),
        false => saltern_python::text::split(text)
            .map(str::to_owned)
            .collect(),
    }
}

/// One function, or several with commas between them.
fn call(
    grammar: &Grammar<SaltOptions>,
    function: String,
    arguments: Vec<String>,
    separator: &str,
) -> Result<Call, Ending> {
    if !function.contains(',') {
        return Ok(Call::One(function, arguments));
    }
    let functions: Vec<String> = function.split(',').map(str::to_owned).collect();
    let standing = arguments.iter().filter(|word| *word == separator).count();
    if standing + 1 == functions.len() {
        let lists = arguments.split(|word| word == separator);
        return Ok(Call::Several(
            functions,
            lists.map(<[String]>::to_vec).collect(),
        ));
    }
    if separator.is_empty() && !arguments.is_empty() {
        return Err(grammar.refuse("the separator of arguments is empty"));
    }
    let lists = lists_with_separator_inside(&arguments, separator);
    let text = match lists.len().cmp(&functions.len()) {
        std::cmp::Ordering::Equal => return Ok(Call::Several(functions, lists)),
        std::cmp::Ordering::Less => {
            "Cannot execute compound command without defining all arguments.\n"
        }
        std::cmp::Ordering::Greater => {
            "Cannot execute compound command with more arguments than commands.\n"
        }
    };
    Err(Ending::failed(INCOMPLETE, text))
}

/// Stock's older form: the separator may be part of an argument, and empty parts count for nothing.
fn lists_with_separator_inside(arguments: &[String], separator: &str) -> Vec<Vec<String>> {
    let mut lists = vec![Vec::new()];
    for argument in arguments {
        for (index, part) in argument.split(separator).enumerate() {
            if index > 0 {
                lists.push(Vec::new());
            }
            let is_whole = !argument.contains(separator);
            if let Some(list) = lists.last_mut()
                && (is_whole || !part.is_empty())
            {
                list.push(part.to_owned());
            }
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str]) -> Result<SaltCommand, Ending> {
        let parsed = SaltOptions::grammar().parse(words.iter().copied())?;
        SaltCommand::check(parsed)
    }

    fn refusal(words: &[&str]) -> (u8, String) {
        let ending = check(words).map(|_| ()).unwrap_err();
        (ending.code, ending.stderr)
    }

    #[test]
    fn options_are_taken_in_any_place_and_form() {
        for words in [
            &["-t", "7", "*", "test.arg", "-x5"][..],
            &["*", "--timeout", "7", "test.arg", "--", "-x5"],
            &["*", "test.arg", "--timeo=7", "--", "-x5"],
            &["*", "test.arg", "-vt7", "--", "-x5"],
            &["-vt7", "--", "*", "test.arg", "-x5"],
        ] {
            let Ok(command) = check(words) else {
                assert_eq!(words.last(), Some(&"-x5"));
                assert!(!words.contains(&"--"), "{words:?}");
                continue;
            };
            assert_eq!(command.options.timeout, Some(7), "{words:?}");
            let expected = Call::One("test.arg".into(), vec!["-x5".into()]);
            assert_eq!(command.call, expected, "{words:?}");
        }
    }

    #[test]
    fn bad_command_lines_are_refused_with_stocks_words() {
        let usage = "Usage: salt [options] '<target>' <function> [arguments]\n\nsalt: error: ";
        let cases: &[(&[&str], &str)] = &[
            (&["--nope"], "no such option: --nope\n"),
            (&["-Z"], "no such option: -Z\n"),
            (&["--timeout"], "--timeout option requires 1 argument\n"),
            (
                &["--timeout=x"],
                "option --timeout: invalid integer value: 'x'\n",
            ),
            (&["--static=1"], "--static option does not take a value\n"),
            (
                &["--no-col", "*", "f"],
                "ambiguous option: --no-col (--no-color, --no-colour?)\n",
            ),
            (
                &["-E", "-L", "*", "f"],
                "The options --pcre/--list are mutually exclusive. Please only choose one of them\n",
            ),
            (
                &["-d", "*", "a", "b", "c"],
                "You can only get documentation for one method at one time.\n",
            ),
            // Ours alone is not abbreviated.
            (&["--gather", "1"], "no such option: --gather\n"),
        ];
        for (words, message) in cases {
            assert_eq!(
                refusal(words),
                (64, format!("{usage}{message}")),
                "{words:?}"
            );
        }
    }

    #[test]
    fn incomplete_command_lines_end_with_42() {
        let none = "\nCannot execute command without defining a target.\n\n";
        assert_eq!(refusal(&[]), (42, none.to_owned()));
        let ending = check(&["*"]).map(|_| ()).unwrap_err();
        assert_eq!(ending.stderr, "\nIncomplete options passed.\n\n");
        assert!(ending.stdout.starts_with("Usage: salt "));
        assert_eq!(refusal(&["*", "a,b"]).0, 42);
        assert_eq!(refusal(&["*", "a,b", "x,y,z"]).0, 42);
    }

    #[test]
    fn arguments_of_several_functions_are_divided() {
        let lists = |words: &[&str]| match check(words).map(|command| command.call) {
            Ok(Call::Several(_, lists)) => lists,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            lists(&["*", "a,b,c", "x y", ",", ",", "z"]),
            [vec!["x y"], vec![], vec!["z"]]
        );
        assert_eq!(
            lists(&["*", "a,b,c", "x,,z"]),
            [vec!["x"], vec![], vec!["z"]]
        );
        assert_eq!(
            lists(&["*", "a,b", "--args-separator", "::", "1,2", "::", "3"]),
            [vec!["1,2"], vec!["3"]]
        );
    }

    #[test]
    fn documentation_needs_no_target() {
        let call = |words: &[&str]| check(words).map(|command| command.call).unwrap();
        let doc = |arguments: &[&str]| {
            let arguments = arguments.iter().map(|word| (*word).to_owned());
            Call::One("sys.doc".to_owned(), arguments.collect())
        };
        assert_eq!(call(&["-d"]), doc(&[]));
        assert_eq!(call(&["*", "-d", "test.ping"]), doc(&["test.ping"]));
        assert_eq!(call(&["*", "-d", "sys.doc", "test"]), doc(&["test"]));
    }
}
