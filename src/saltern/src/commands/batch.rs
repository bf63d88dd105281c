//! Batches on the command line: the options of `saltern cmd` that ask the master for one, and `saltern
//! batch`, which follows one that runs already, or has it pause, go on or end.
//!
//! The master drives the batch: it goes on when this program is interrupted, or was called with
//! `--async`.

use std::io::IsTerminal;

use saltern_base::exit::Exit;
use saltern_client::{
    BatchChange, BatchEnd, BatchFollower, BatchNews, BatchWishes, ClientConfig, ClientError,
    LocalClient, MinionOutcome, Tally,
};
use saltern_model::{BatchSize, BatchSizeError};
use saltern_output::{OutputOptions, Outputter, batch_part, render_return};
use saltern_wire::msgpack::Value;

use super::{chain, complain, load_for_tool, say};
use crate::{ConfigArgument, logging};

/// Options that make a job a batch.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Run on this many minions at a time, such as 10 or 25%: the master drives the batch.
    #[arg(short, long, visible_alias = "batch-size", value_name = "SIZE", value_parser = size)]
    batch: Option<String>,
    /// With a batch: seconds to wait after a minion is done before the next one starts.
    #[arg(long, value_name = "SECONDS", value_parser = wait)]
    batch_wait: Option<f64>,
    /// With a batch: stop at the first minion whose return code is not 0.
    #[arg(long)]
    failhard: bool,
    /// With a batch: only this number of the minions, chosen at random.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    subset: Option<u32>,
    /// Make it a batch if at least this many minions match.
    #[arg(long, value_name = "COUNT", conflicts_with = "batch",
          value_parser = clap::value_parser!(u32).range(1..))]
    batch_safe_limit: Option<u32>,
    /// The size of such a batch.
    #[arg(long, value_name = "SIZE", default_value = "8", value_parser = size)]
    batch_safe_size: String,
}

fn size(text: &str) -> Result<String, BatchSizeError> {
    Ok(BatchSize::parse(text)?.to_string())
}

/// A text that is no time to wait.
#[derive(Debug, thiserror::Error)]
#[error("a number of seconds is expected")]
struct WaitError;

fn wait(text: &str) -> Result<f64, WaitError> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.0..1e9).contains(seconds));
    seconds.ok_or(WaitError)
}

impl Options {
    /// The batch that the master is asked to drive; none for a plain job.
    pub(super) fn wishes(&self, timeout: Option<u64>) -> Option<BatchWishes> {
        if self.batch.is_none() && self.batch_safe_limit.is_none() && self.subset.is_none() {
            return None;
        }
        let everybody = || {
            let is_plain = self.batch_safe_limit.is_none();
            is_plain.then(|| "100%".to_owned())
        };
        Some(BatchWishes {
            size: self.batch.clone().or_else(everybody),
            safe_limit: self.batch_safe_limit,
            safe_size: Some(self.batch_safe_size.clone()),
            subset: self.subset,
            wait: self.batch_wait,
            failhard: self.failhard,
            timeout,
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Follow a batch that the master drives to its end.
    Watch(Watch),
    /// Have a batch pause: minions that were sent their part go on, the others wait.
    Pause(Named),
    /// Have a paused batch go on.
    Resume(Named),
    /// End a batch: minions that were sent their part go on, the others are sent nothing.
    Stop(Stop),
}

/// A batch.
#[derive(clap::Args)]
struct Named {
    #[command(flatten)]
    config: ConfigArgument,
    /// The job id of the batch.
    jid: String,
}

#[derive(clap::Args)]
struct Stop {
    #[command(flatten)]
    batch: Named,
    /// Also end what minions run of it.
    #[arg(long)]
    kill: bool,
}

#[derive(clap::Args)]
struct Watch {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print without colours.
    #[arg(long)]
    no_color: bool,
    /// The job id of the batch.
    jid: String,
}

pub(crate) fn run(Arguments { action }: &Arguments) -> Exit {
    logging::start_plain(tracing_subscriber::filter::LevelFilter::WARN);
    match action {
        Action::Watch(Watch {
            config,
            no_color,
            jid,
        }) => with_client(config, async |client| {
            let options = OutputOptions::new(!no_color && std::io::stdout().is_terminal());
            watch(client, jid, &options).await
        }),
        Action::Pause(batch) => change(batch, BatchChange::Pause, "pauses"),
        Action::Resume(batch) => change(batch, BatchChange::Resume, "goes on"),
        Action::Stop(Stop { batch, kill }) => {
            change(batch, BatchChange::Stop { kill: *kill }, "is stopped")
        }
    }
}

fn with_client(
    config: &ConfigArgument,
    then: impl AsyncFnOnce(&LocalClient) -> Result<Exit, ClientError>,
) -> Exit {
    let loaded = match load_for_tool(config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let client = LocalClient::new(ClientConfig::from(&loaded.config));
    let outcome = actix_rt::System::new().block_on(then(&client));
    outcome.unwrap_or_else(|error| {
        complain(&chain(&error));
        Exit::Failure
    })
}

/// Asks the master for a change of the batch, and says what it `does` then.
fn change(Named { config, jid }: &Named, change: BatchChange, does: &str) -> Exit {
    with_client(config, async |client| {
        Ok(match client.change_batch(jid, change).await? {
            true => {
                say(&format!("the batch {jid} {does}\n"));
                Exit::Ok
            }
            false => {
                complain(&format!(
                    "there is no batch {jid} that the master drives, or it is over"
                ));
                Exit::Failure
            }
        })
    })
}

/// Prints the state of the batch, then its progress.
async fn watch(
    client: &LocalClient,
    jid: &str,
    options: &OutputOptions,
) -> Result<Exit, ClientError> {
    // Before the master is asked, so that nothing falls in between.
    let follower = client.follow_batch(jid).await?;
    let status = client.batch_status(jid).await?;
    let count = |name: &str| status.get(name).and_then(Value::as_u64).unwrap_or(0);
    if status.get("jid").is_none() {
        complain(&format!("the master knows no batch with the job id {jid}"));
        return Ok(Exit::Failure);
    }
    if status.get("paused_since").is_some() {
        complain(&format!(
            "it pauses; saltern batch resume {jid} has it go on"
        ));
    }
    say(&format!(
        "{} of {} minions have returned, {} run, {} are still to come, {} were given up\n",
        count("completed"),
        count("total"),
        count("active"),
        count("pending"),
        count("failed"),
    ));
    match BatchEnd::of_status(&status) {
        None => follow(jid, follower, options).await,
        Some(end) => Ok(exit(&end, &Tally::default())),
    }
}

/// Prints what happens until the batch is over.
async fn follow(
    jid: &str,
    mut batch: BatchFollower<'_>,
    options: &OutputOptions,
) -> Result<Exit, ClientError> {
    let mut tally = Tally::default();
    loop {
        match batch.next().await? {
            BatchNews::Part(minions) => say(&format!("{}\n", batch_part(minions))),
            BatchNews::Returned(returned) => {
                tally.add(&MinionOutcome::Returned(returned.clone()));
                let options = options.with_retcode(returned.retcode);
                let outputter = Outputter::for_name(returned.out.as_deref());
                let text = render_return(&returned.id, returned.value, outputter, &options);
                say(&format!("{text}\n"));
            }
            BatchNews::Over(end) => return Ok(exit(&end, &tally)),
            BatchNews::Missed(end) => {
                complain(&format!(
                    "the batch is over, but events of it were missed; see: saltern run \
                     jobs.lookup_jid {jid}"
                ));
                exit(&end, &tally);
                return Ok(Exit::Failure);
            }
        }
    }
}

fn exit(end: &BatchEnd, tally: &Tally) -> Exit {
    if let Some(reason) = &end.halted {
        complain(&format!(
            "the batch was stopped ({reason}); {} minions had no turn",
            end.abandoned
        ));
    }
    if end.failed > 0 {
        complain(&format!("{} minions did not return in time", end.failed));
    }
    match end.halted.is_some() || end.failed > 0 || tally.failed > 0 {
        true => Exit::Failure,
        false => Exit::Ok,
    }
}
