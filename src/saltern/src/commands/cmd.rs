//! `saltern cmd TARGET FUNCTION [ARGS]`: publishes, follows the events, prints as stock `salt`
//! does. Batches are in `batch`.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::time::Duration;

use saltern_base::exit::Exit;
use saltern_cli::terminal::{JobProgress, ProgressLine};
use saltern_client::{
    ClientConfig, ClientError, Job, LocalClient, MinionOutcome, MinionReturn, PublishRequest, Tally,
};
use saltern_config::MasterConfig;
use saltern_model::Jid;
use saltern_output::{
    NO_MINIONS_MATCHED, NOT_CONNECTED, OutputOptions, Outputter, no_response, render_return,
};
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::follow::{come_back, report_silent};
use super::{batch, chain, complain, explain, load_for_tool, say};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Read the target as a regular expression.
    #[arg(short = 'E', long, conflicts_with = "list")]
    pcre: bool,
    /// Read the target as a list of ids, separated by commas.
    #[arg(short = 'L', long)]
    list: bool,
    /// Seconds to wait before asking who is still running the job.
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print the job's id and do not wait.
    #[arg(long = "async")]
    no_wait: bool,
    #[command(flatten)]
    batch: batch::Options,
    /// Print without colours.
    #[arg(long)]
    no_color: bool,
    /// Which minions.
    target: String,
    /// The function, such as `test.ping`.
    function: String,
    /// Its arguments, read as YAML; `name=value` is an argument with a name. What begins with a
    /// hyphen is an option wherever it stands; after `--` it is an argument.
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> Exit {
    logging::start_plain(tracing_subscriber::filter::LevelFilter::WARN);
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let client = LocalClient::new(ClientConfig::from(&loaded.config));
    let request = request(&arguments);
    let options = OutputOptions::new(!arguments.no_color && std::io::stdout().is_terminal());
    let outcome = actix_rt::System::new().block_on(async {
        if arguments.no_wait {
            let published = client.publish(&request).await?;
            let what = match request.batch {
                Some(_) => "batch command",
                None => "command",
            };
            say(&format!("Executed {what} with job ID: {}\n", published.jid));
            return Ok(Exit::Ok);
        }
        if request.batch.is_some() {
            return batch::begin(&client, &request, &options).await;
        }
        follow(&client, &loaded.config, &request, &options).await
    });
    outcome.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &ClientError) -> Exit {
    if matches!(error, ClientError::NoMinions) {
        say(&format!("{NO_MINIONS_MATCHED}\n"));
    } else {
        complain(&chain(error));
    }
    Exit::NoReturn
}

fn request(arguments: &Arguments) -> PublishRequest {
    let (kind, target) = if arguments.list {
        let names = arguments.target.split(',').filter(|name| !name.is_empty());
        ("list", Value::Array(names.map(Value::from).collect()))
    } else if arguments.pcre {
        ("pcre", Value::from(arguments.target.as_str()))
    } else {
        ("glob", Value::from(arguments.target.as_str()))
    };
    let positional = super::typed(&arguments.arguments);
    let mut request = PublishRequest::new(target, kind, &arguments.function, positional);
    request.timeout = arguments.timeout.map(Duration::from_secs);
    request.batch = arguments.batch.wishes(arguments.timeout);
    request
}

async fn follow(
    client: &LocalClient,
    config: &MasterConfig,
    request: &PublishRequest,
    options: &OutputOptions,
) -> Result<Exit, ClientError> {
    let mut job = client.run(request).await?;
    let mut waiting = Waiting::new(&job);
    let mut tally = Tally::default();
    let mut absent = None;
    loop {
        let next = tokio::select! {
            next = waiting.beside(job.next()) => next,
            _ = tokio::signal::ctrl_c() => {
                waiting.line.erase();
                complain(&come_back(&waiting.jid));
                return Ok(Exit::Failure);
            }
        };
        let answer = match next {
            Ok(Some(answer)) => answer,
            Ok(None) => break,
            Err(error) => {
                complain(&come_back(&waiting.jid));
                return Err(error);
            }
        };
        tally.add(&answer);
        waiting.heard(&answer);
        let text = match answer {
            MinionOutcome::Returned(returned) => {
                let options = options.with_retcode(returned.retcode);
                let outputter = Outputter::for_name(returned.out.as_deref());
                render_return(&returned.id, returned.value, outputter, &options)
            }
            MinionOutcome::NoResponse { id, absence } => {
                let is_absent = match absence {
                    Some(absence) => !absence.is_connected,
                    None if absent.is_none() => absent
                        .insert(client.not_present().await.unwrap_or_default())
                        .contains(&id),
                    None => absent.as_ref().is_some_and(|absent| absent.contains(&id)),
                };
                let text = match is_absent {
                    true => NOT_CONNECTED.to_owned(),
                    false => no_response(&waiting.jid),
                };
                render_return(&id, Value::from(text), Outputter::NoReturn, options)
            }
        };
        say(&format!("{text}\n"));
    }
    if tally.silent > 0 {
        report_reasons(config, &waiting);
    }
    if tally.failed + tally.silent > 0 && tally.returned + tally.silent > 0 {
        complain("minions returned with non-zero exit code");
    }
    Ok(tally.exit())
}

/// Lists why the minions of this job that did not answer are silent, as far as this user may know it.
fn report_reasons(config: &MasterConfig, waiting: &Waiting) {
    let Ok(jid) = Jid::parse(&waiting.jid) else {
        return;
    };
    match explain::missing_of(config, &jid) {
        Ok(mut missing) => {
            missing.retain(|one| waiting.minions.contains(one.minion.as_str()));
            let hint = format!("saltern explain --all {jid}");
            report_silent(&missing, explain::NAMED, &hint);
        }
        Err(error) => tracing::debug!(%error, "no reasons are known"),
    }
}

/// Minions that have not answered, and the progress line.
struct Waiting {
    jid: String,
    minions: BTreeSet<String>,
    progress: JobProgress,
    begun: Instant,
    line: ProgressLine,
}

impl Waiting {
    fn new(job: &Job<'_>) -> Self {
        Self {
            jid: job.jid().to_owned(),
            minions: job.expected().clone(),
            progress: JobProgress {
                expected: job.expected().len(),
                ..JobProgress::default()
            },
            begun: Instant::now(),
            line: ProgressLine::on_stderr(),
        }
    }

    fn heard(&mut self, answer: &MinionOutcome) {
        if let MinionOutcome::Returned(MinionReturn { id, retcode, .. }) = answer {
            self.minions.remove(id);
            self.progress.returned += 1;
            self.progress.failed += usize::from(*retcode != 0);
        }
    }

    /// What `work` gives; shows the progress line meanwhile.
    async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let progress = || JobProgress {
            elapsed: self.begun.elapsed(),
            slowest: self.minions.first().cloned(),
            ..self.progress.clone()
        };
        self.line.beside(work, progress).await
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
        for option in [
            "-1",
            "-x",
            "--static",
            "--out=json",
            "-v",
            "-N",
            "--batch-sizes=1",
        ] {
            for at in 0..=words.len() {
                let words = [&words[..at], &[option], &words[at..]].concat();
                let error = parse(&words).map(|_| ()).unwrap_err();
                assert!(error.contains("unexpected argument"), "{words:?}: {error}");
            }
        }
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
