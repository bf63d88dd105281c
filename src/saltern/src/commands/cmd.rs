//! `saltern cmd TARGET FUNCTION [ARGS]`: publishes, follows the events, prints as stock `salt`
//! does. Batches are in `batch`.

use std::collections::{BTreeSet, HashSet};
use std::io::IsTerminal;
use std::time::Duration;

use saltern_base::exit::Exit;
use saltern_client::{
    ClientConfig, ClientError, Job, LocalClient, MinionOutcome, MinionReturn, PublishRequest,
    RunnerRequest, Tally,
};
use saltern_output::{
    NO_MINIONS_MATCHED, NOT_CONNECTED, OutputOptions, Outputter, no_response, render_return,
};
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::{batch, chain, complain, load_for_tool, say};
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

/// How long the master may take to say who is connected.
const PRESENCE_TIMEOUT: Duration = Duration::from_secs(5);

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
        follow(&client, &request, &options).await
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
    request: &PublishRequest,
    options: &OutputOptions,
) -> Result<Exit, ClientError> {
    let mut job = client.run(request).await?;
    let mut waiting = Waiting::new(client, request, &job);
    let mut tally = Tally::default();
    let mut absent = None;
    loop {
        let next = tokio::select! {
            next = waiting.beside(job.next()) => next,
            _ = tokio::signal::ctrl_c() => {
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
            MinionOutcome::NoResponse { id } => {
                if absent.is_none() {
                    absent = Some(absentees(client).await);
                }
                let is_absent = absent.as_ref().is_some_and(|absent| absent.contains(&id));
                let text = match is_absent {
                    true => NOT_CONNECTED.to_owned(),
                    false => no_response(&waiting.jid),
                };
                render_return(&id, Value::from(text), Outputter::NoReturn, options)
            }
        };
        say(&format!("{text}\n"));
    }
    if tally.failed + tally.silent > 0 && tally.returned + tally.silent > 0 {
        complain("minions returned with non-zero exit code");
    }
    Ok(tally.exit())
}

/// Hint how to look up a job that this command no longer waits for.
fn come_back(jid: &str) -> String {
    format!(
        "the job {jid} goes on without this command; to see where it stands: saltern explain {jid}; \
         its returns: saltern run jobs.lookup_jid {jid}"
    )
}

/// Says on a terminal what a command waits for after its timeout: stock's wait goes on for as long
/// as a minion says that it runs the job.
struct Waiting {
    jid: String,
    minions: BTreeSet<String>,
    expected: usize,
    timeout: Duration,
    gather: Duration,
    begun: Instant,
    next: Instant,
    is_terminal: bool,
}

/// Between two such lines.
const AGAIN: Duration = Duration::from_secs(15);

/// Minions named in such a line.
const NAMED: usize = 5;

impl Waiting {
    fn new(client: &LocalClient, request: &PublishRequest, job: &Job<'_>) -> Self {
        let timeout = request.timeout.unwrap_or(client.config().timeout);
        let begun = Instant::now();
        Self {
            jid: job.jid().to_owned(),
            minions: job.expected().clone(),
            expected: job.expected().len(),
            timeout,
            gather: client.config().gather_job_timeout,
            begun,
            next: begun + timeout,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    fn heard(&mut self, answer: &MinionOutcome) {
        let (MinionOutcome::Returned(MinionReturn { id, .. }) | MinionOutcome::NoResponse { id }) =
            answer;
        self.minions.remove(id);
    }

    /// What `work` gives; says meanwhile what it waits for.
    async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout_at(self.next, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.next = Instant::now() + AGAIN,
            }
            if self.is_terminal && !self.minions.is_empty() {
                complain(&self.line(self.begun.elapsed()));
            }
        }
    }

    fn line(&self, after: Duration) -> String {
        let names: Vec<&str> = self
            .minions
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect();
        let more = if self.minions.len() > NAMED {
            ", …"
        } else {
            ""
        };
        format!(
            "{} of {} minions have not returned after {} s ({}{more}): each is asked whether it still \
             runs the job and has {} s to answer (gather_job_timeout); while it does, it has {} s \
             more (timeout)",
            self.minions.len(),
            self.expected,
            after.as_secs(),
            names.join(", "),
            self.gather.as_secs(),
            self.timeout.as_secs(),
        )
    }
}

/// Minions without a connection, from the master's presence. A user who may not ask gets the weaker
/// sentence about minions that are silent.
async fn absentees(client: &LocalClient) -> HashSet<String> {
    let request = RunnerRequest {
        fun: "manage.not_present".to_owned(),
        arg: Vec::new(),
        kwarg: Vec::new(),
        timeout: Some(PRESENCE_TIMEOUT),
    };
    match client.call(&request).await {
        Ok(returned) => {
            let ids = returned.value.as_array().unwrap_or_default();
            let ids = ids.iter().filter_map(Value::as_str);
            ids.map(str::to_owned).collect()
        }
        Err(error) => {
            tracing::debug!(%error, "the master does not say who is connected");
            HashSet::new()
        }
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
            let size = wishes.as_ref().and_then(|wishes| wishes.get("size"));
            let size = size.and_then(Value::as_str).map(str::to_owned);
            (parsed.arguments, size)
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
    fn line_about_a_wait_names_few_minions_and_both_times() {
        let minions: BTreeSet<String> = (1..=7).map(|number| format!("web{number}")).collect();
        let waiting = Waiting {
            jid: String::new(),
            expected: 20,
            minions,
            timeout: Duration::from_secs(3),
            gather: Duration::from_secs(10),
            begun: Instant::now(),
            next: Instant::now(),
            is_terminal: true,
        };
        let line = waiting.line(Duration::from_secs(3));
        let begin = "7 of 20 minions have not returned after 3 s (web1, web2, web3, web4, web5, …)";
        assert!(line.starts_with(begin), "{line}");
        assert!(
            line.contains("has 10 s to answer") && line.contains("has 3 s more"),
            "{line}"
        );
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
