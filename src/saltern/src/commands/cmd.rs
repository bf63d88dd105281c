//! `saltern cmd TARGET FUNCTION [ARGS]`: runs a function on minions and prints what they return. What it
//! does is in `saltern-cli`, which `salt` shares; here are its arguments, and the reasons for silence.

use std::collections::BTreeSet;
use std::process::{ExitCode, Termination};

use saltern_base::exit::Exit;
use saltern_cli::options::{Ending, Parsed, SaltCommand, SaltOptions};
use saltern_cli::salt::OwnManner;
use saltern_config::MasterConfig;
use saltern_model::Jid;
use tracing_subscriber::filter::LevelFilter;

use super::arguments::{CommonArguments, TargetArguments};
use super::follow::report_silent;
use super::{batch, complain, explain, load_for_tool};
use crate::logging;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  saltern cmd '*' test.ping                       every minion
  saltern cmd -G os:Debian pkg.version openssl    those with a grain
  saltern cmd -C 'web* and not I@role:test' state.apply
  saltern cmd 'db*' cmd.run 'df -h /' --one-document | jq
  saltern cmd '*' state.apply --out summary       one line a minion
  saltern cmd -b 10% '*' service.restart nginx    a tenth of them at a time
  saltern cmd --async '*' state.apply             print the job's id; then: saltern follow JID

The reasons why minions are silent stand on standard error. Ctrl-C ends this command, not the job.

Exit code: 0 when all minions returned without failure, 1 when one failed or is silent, 2 when there
was no minion or no job.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    kind: TargetArguments,
    /// Seconds to wait before asking who is still running the job.
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Print the job's id and do not wait.
    #[arg(long = "async")]
    no_wait: bool,
    /// Print all returns as one JSON object, each as it comes.
    #[arg(long, conflicts_with = "no_wait")]
    one_document: bool,
    /// Print a summary at the end.
    #[arg(long)]
    summary: bool,
    /// Data kept with the job, as YAML.
    #[arg(long, value_name = "YAML")]
    metadata: Option<String>,
    /// Returners that the minions send their returns to, too; separated by commas.
    #[arg(long = "return", value_name = "RETURNERS")]
    returners: Option<String>,
    #[command(flatten)]
    batch: batch::Options,
    /// The target: an expression for minions.
    target: String,
    /// The function, such as `test.ping`; several are separated by commas, and so are their arguments.
    function: String,
    /// Its arguments, read as YAML; `name=value` is an argument with a name. What begins with a
    /// hyphen is an option wherever it stands; after `--` it is an argument.
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    logging::start_plain(LevelFilter::WARN);
    let config = match load_for_tool(&arguments.common.config) {
        Ok(loaded) => loaded.config,
        Err(exit) => return exit.report(),
    };
    let own = OwnManner {
        batch: arguments.batch.wishes(arguments.timeout.map(u64::from)),
        report: &|jid, silent| report_reasons(&config, jid, silent),
    };
    match command(arguments) {
        Ok(command) => saltern_cli::salt::call(&config, command, own),
        Err(ending) => {
            complain(ending.stderr.trim());
            Exit::Usage.report()
        }
    }
}

/// As `salt` has it.
fn command(arguments: Arguments) -> Result<SaltCommand, Ending> {
    let mut options = SaltOptions {
        target: arguments.kind.options(),
        output: arguments.common.print.options(),
        eauth: arguments.common.login.options(),
        timeout: arguments.timeout.map(i64::from),
        is_async: Some(arguments.no_wait),
        one_document: Some(arguments.one_document),
        summary: Some(arguments.summary),
        metadata: arguments.metadata,
        returner: arguments.returners,
        ..SaltOptions::default()
    };
    let directory = arguments.common.config.config.display();
    options.config.config_dir = Some(directory.to_string());
    let mut words = vec![arguments.target, arguments.function];
    words.extend(arguments.arguments);
    SaltCommand::check(Parsed {
        options,
        arguments: words,
    })
}

/// Lists why the minions of this job that did not return are silent, as far as this user may know it.
fn report_reasons(config: &MasterConfig, jid: &str, silent: &BTreeSet<String>) {
    let Ok(jid) = Jid::parse(jid) else {
        return;
    };
    match explain::missing_of(config, &jid) {
        Ok(mut missing) => {
            missing.retain(|one| silent.contains(one.minion.as_str()));
            let hint = format!("saltern explain --all {jid}");
            report_silent(&missing, explain::NAMED, &hint);
        }
        Err(error) => tracing::debug!(%error, "no reasons are known"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, String> {
        let words = ["saltern", "cmd"].iter().chain(words);
        let parsed = crate::Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        match parsed.command {
            crate::Command::Cmd(arguments) => Ok(arguments),
            _ => Err("another command".to_owned()),
        }
    }

    /// Stock's `optparse` reads options between and behind the arguments, too.
    #[test]
    fn options_behind_the_function_count_as_options() {
        let batch = |words: &[&str]| {
            let parsed = parse(words).unwrap();
            let wishes = parsed.batch.wishes(None);
            (parsed.arguments, wishes.and_then(|wishes| wishes.size))
        };
        let restart = ["*", "service.restart", "nginx"];
        for option in [
            &["-b", "10%"][..],
            &["-b10%"],
            &["--batch", "10%"],
            &["--batch-size=10%"],
        ] {
            for at in 0..=restart.len() {
                let words = [&restart[..at], option, &restart[at..]].concat();
                let (arguments, size) = batch(&words);
                assert_eq!(arguments, ["nginx"], "{words:?}");
                assert_eq!(size.as_deref(), Some("10%"), "{words:?}");
            }
        }
        let (arguments, size) = batch(&["*", "f", "a", "-b", "2", "c"]);
        assert_eq!(arguments, ["a", "c"]);
        assert_eq!(size.as_deref(), Some("2"));
    }

    #[test]
    fn unknown_options_are_refused_in_any_position() {
        let words = ["*", "test.arg", "one"];
        for option in ["-1", "-x", "--static", "-v", "-Z", "--batch-sizes=1"] {
            for at in 0..=words.len() {
                let words = [&words[..at], &[option], &words[at..]].concat();
                let error = parse(&words).map(|_| ()).unwrap_err();
                assert!(error.contains("unexpected argument"), "{words:?}: {error}");
            }
        }
    }

    #[test]
    fn every_kind_of_target_is_that_of_salt() {
        for (option, name) in [
            ("-E", "pcre"),
            ("-L", "list"),
            ("-G", "grain"),
            ("-P", "grain_pcre"),
            ("-C", "compound"),
            ("-I", "pillar"),
            ("-J", "pillar_pcre"),
            ("-N", "nodegroup"),
            ("-R", "range"),
            ("-S", "ipcidr"),
        ] {
            let made = command(parse(&[option, "a,b", "test.arg", "x"]).unwrap()).unwrap();
            let kind = made.target_type.map(saltern_cli::options::TargetType::name);
            assert_eq!(kind, Some(name));
            assert!(parse(&[option, "-H", "a", "test.ping"]).is_err());
        }
        assert!(parse(&["-E", "-G", "a", "test.ping"]).is_err());
    }

    #[test]
    fn double_hyphen_ends_options_and_single_is_an_argument() {
        let arguments = |words: &[&str]| parse(words).unwrap().arguments;
        let given = arguments(&["*", "test.arg", "--", "-1", "-b", "10%", "--"]);
        assert_eq!(given, ["-1", "-b", "10%", "--"]);
        let parsed = parse(&["-t", "3", "--", "*", "test.arg", "-t"]).unwrap();
        assert_eq!(
            (parsed.timeout, parsed.arguments),
            (Some(3), vec!["-t".to_owned()])
        );
        assert_eq!(
            arguments(&["*", "test.arg", "a=-b", "-", "n=-1"]),
            ["a=-b", "-", "n=-1"]
        );
    }
}
