//! `saltern follow JID`: all of a job from anywhere: the returns that were there already, then those
//! that come, and at the end the minions that are silent, each with the reason.
//!
//! Stored rows are read from the job database, so a job that is over can be shown while the master
//! is stopped. New ones are taken from the event socket; no minion is asked.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_cli::page_url;
use saltern_cli::terminal::{JobProgress, ProgressLine};
use saltern_client::{
    ClientConfig, ClientError, FollowNews, JobFollower, LocalClient, MinionOutcome, MinionReturn,
    Tally, job::minion_return,
};
use saltern_config::MasterConfig;
use saltern_model::control::Missing;
use saltern_model::{Jid, MinionId};
use saltern_output::{OutputOptions, Outputter, render_return};
use saltern_sql::{job_database_place, open_reader};
use saltern_store::StoreError;
use saltern_store::jobs::{JobQueries, JobState, StoredJob};
use saltern_wire::msgpack::{Limits, decode_exact};
use tokio::time::timeout;
use tracing_subscriber::filter::LevelFilter;

use super::explain::{self, ExplainError};
use super::{chain, complain, jid_of, load_for_tool, say};
use crate::{ConfigArgument, logging};

/// The master is asked this often whether it still waits for anybody, while nothing happens.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  saltern follow 20261121070622637714             everything of the job, until it is over
  saltern follow --out json 20261121070622637714  the returns as JSON
  saltern follow --all 20261121070622637714       name every silent minion

Exit code: 0 when all minions returned without failure, 1 when one failed or is silent, 2 when the
job had no minion.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Name every silent minion, however many there are.
    #[arg(long)]
    all: bool,
    /// Print returns by this outputter, such as json, yaml or txt.
    #[arg(long, value_name = "OUTPUTTER")]
    out: Option<String>,
    /// Print without colours.
    #[arg(long)]
    no_color: bool,
    /// The job's id.
    jid: String,
}

#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Explain(#[from] ExplainError),
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    logging::start_plain(LevelFilter::WARN);
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let jid = match jid_of(&arguments.jid) {
        Ok(jid) => jid,
        Err(exit) => return exit,
    };
    let outcome = actix_rt::System::new().block_on(async {
        tokio::select! {
            outcome = follow(&loaded.config, &jid, arguments) => outcome,
            _ = tokio::signal::ctrl_c() => {
                complain(&come_back(&jid));
                Ok(Exit::Failure)
            }
        }
    });
    outcome.unwrap_or_else(|error| {
        complain(&chain(&error));
        Exit::Failure
    })
}

/// Hint how to come back to a job that a command no longer waits for.
pub(super) fn come_back(jid: &impl std::fmt::Display) -> String {
    format!(
        "the job {jid} goes on without this command; to come back to it: saltern follow {jid}; to \
         see where it stands: saltern explain {jid}"
    )
}

async fn follow(
    config: &MasterConfig,
    jid: &Jid,
    arguments: &Arguments,
) -> Result<Exit, FollowError> {
    let client = LocalClient::new(ClientConfig::from(config));
    // Before the database is read, so that nothing falls in between.
    let follower = match client.follow_job(jid).await {
        Ok(follower) => Some(follower),
        Err(error) => {
            tracing::debug!(%error, "no events");
            None
        }
    };
    let reader = open_reader(config)?;
    let Some(job) = reader.load(jid)? else {
        complain(&format!(
            "there is no job {jid} in {}",
            job_database_place(config)
        ));
        return Ok(Exit::Failure);
    };
    page_url::report_job(config, jid.as_str());
    let is_colored = !arguments.no_color && std::io::stdout().is_terminal();
    let mut shown = ShownJob {
        reader,
        job,
        outputter: arguments.out.as_deref(),
        options: OutputOptions::new(is_colored),
        seen: HashSet::new(),
        tally: Tally::default(),
    };
    shown.catch_up().await?;
    let ended = match follower {
        _ if shown.job.state != JobState::Open => None,
        Some(follower) => shown.until_end(follower, config).await?,
        None => {
            complain("no master runs here: what comes from now on is not shown");
            None
        }
    };
    let missing = match ended {
        Some(missing) => missing,
        None => explain::missing_of(config, jid)?,
    };
    let most = match arguments.all {
        true => usize::MAX,
        false => explain::NAMED,
    };
    report_silent(&missing, most, "--all");
    shown.tally.silent = missing.len();
    Ok(shown.tally.exit())
}

/// Lists the minions that did not return, with the reason of each, on standard error.
pub(super) fn report_silent(missing: &[Missing], most: usize, hint: &str) {
    use std::io::Write;
    let list = explain::silent_list(missing, most, hint);
    let _ = std::io::stderr().write_all(list.as_bytes());
}

/// A job of which a part was shown.
struct ShownJob<'a> {
    reader: Arc<dyn JobQueries>,
    job: StoredJob,
    outputter: Option<&'a str>,
    options: OutputOptions,
    /// Minions whose returns were shown.
    seen: HashSet<MinionId>,
    tally: Tally,
}

impl ShownJob<'_> {
    /// Shows what the database has and was not shown, in the order of its arrival; one return at a time
    /// is in memory.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let jid = self.job.record.jid.clone();
        if let Some(job) = self.reader.load(&jid)? {
            self.job = job;
        }
        for head in self.reader.return_heads(&jid)? {
            if self.seen.contains(&head.minion) {
                continue;
            }
            let Some(record) = self.reader.return_of(&jid, &head.minion)? else {
                continue;
            };
            let load = decode_exact(record.load.bytes(), &Limits::WIRE).ok();
            let returned = load.as_ref().and_then(minion_return);
            // A return that cannot be read counts all the same.
            let returned = returned.unwrap_or_else(|| MinionReturn {
                id: head.minion.to_string(),
                value: saltern_wire::msgpack::Value::Nil,
                out: None,
                retcode: head.retcode,
            });
            self.show(head.minion, returned);
            // Ctrl-C counts between two returns, too.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn show(&mut self, minion: MinionId, returned: MinionReturn) {
        if !self.seen.insert(minion) {
            return;
        }
        let options = self.options.with_retcode(returned.retcode);
        let outputter = Outputter::choose(self.outputter, returned.out.as_deref());
        let outcome = MinionOutcome::Returned(returned);
        self.tally.add(&outcome);
        if let MinionOutcome::Returned(returned) = outcome {
            let outputter = outputter.unwrap_or_default();
            let text = render_return(&returned.id, returned.value, outputter, &options);
            say(&format!("{text}\n"));
        }
    }

    /// Shows what comes until the job is over, or all that have not returned are given up; gives the
    /// silent minions, unless only the database has them.
    async fn until_end(
        &mut self,
        mut follower: JobFollower,
        config: &MasterConfig,
    ) -> Result<Option<Vec<Missing>>, FollowError> {
        let mut line = ProgressLine::on_stderr();
        loop {
            let next = timeout(LOOK_INTERVAL, follower.next());
            let news = match line.beside(next, || self.progress()).await {
                Ok(news) => news.inspect_err(|_| complain(&come_back(&self.job.record.jid)))?,
                Err(_) => FollowNews::Unsure,
            };
            match news {
                FollowNews::Returned(returned) => match MinionId::parse(&returned.id) {
                    Ok(minion) => self.show(minion, returned),
                    Err(_) => self.catch_up().await?,
                },
                FollowNews::Over(missing) => {
                    self.catch_up().await?;
                    return Ok(Some(missing));
                }
                FollowNews::Unsure => {
                    self.catch_up().await?;
                    if self.job.state != JobState::Open || self.is_given_up(config)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Whether nobody is waited for any more, though the master keeps the job open for late returns.
    fn is_given_up(&self, config: &MasterConfig) -> Result<bool, ExplainError> {
        if self.elapsed() < config.timeout {
            return Ok(false);
        }
        let missing = explain::missing_of(config, &self.job.record.jid)?;
        let is_lost = |one: &Missing| ["unreachable", "unknown"].contains(&one.state.as_str());
        Ok(!missing.is_empty() && missing.iter().all(is_lost))
    }

    fn elapsed(&self) -> Duration {
        let elapsed = Clock::system().unix_micros();
        let elapsed = elapsed.saturating_sub(self.job.record.created);
        Duration::from_micros(u64::try_from(elapsed).unwrap_or(0))
    }

    fn progress(&self) -> JobProgress {
        let record = &self.job.record;
        let mut awaited = record.minions.iter().filter(|id| !self.seen.contains(*id));
        JobProgress {
            expected: record.minions.len().max(self.seen.len()),
            returned: self.seen.len(),
            failed: self.tally.failed,
            elapsed: self.elapsed(),
            slowest: awaited.next().map(ToString::to_string),
        }
    }
}
