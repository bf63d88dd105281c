//! `saltern explain JID`: the state of a job, which minions are missing, and why.
//!
//! Read from the job database, so it works while the master is stopped; a running master is asked how the
//! minions that are missing stand at this moment.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use saltern_base::clock::civil;
use saltern_base::exit::Exit;
use saltern_cli::page_url;
use saltern_client::control::{self, ControlError};
use saltern_config::MasterConfig;
use saltern_model::Jid;
use saltern_model::control::Missing;
use saltern_requests::explain::{Evidence, Standing};
use saltern_sql::{job_database_place, open_reader};
use saltern_store::StoreError;
use saltern_store::jobs::{JobState, ReturnHead, StoredJob};

use super::{chain, complain, jid_of, load_for_tool, say, say_json};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Name every minion, however many there are.
    #[arg(long)]
    all: bool,
    /// Print JSON, with every minion.
    #[arg(long)]
    json: bool,
    /// The job's id.
    jid: String,
}

/// Minions named in each list, unless all are asked for.
pub(super) const NAMED: usize = 20;

/// 0 when there is such a job.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let jid = match jid_of(&arguments.jid) {
        Ok(jid) => jid,
        Err(exit) => return exit,
    };
    match look_up(&loaded.config, &jid) {
        Ok(Some(known)) => {
            let most = if arguments.all { usize::MAX } else { NAMED };
            match arguments.json {
                true => say_json(&known.report()),
                false => say(&described(&known, most)),
            }
            page_url::report_job(&loaded.config, jid.as_str());
            Exit::Ok
        }
        Ok(None) => {
            complain(&format!(
                "there is no job {jid} in {}",
                job_database_place(&loaded.config)
            ));
            Exit::Failure
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ExplainError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// The account of a job that is printed, `most` minions named in each list; none when there is no
/// such job.
pub(super) fn explain(
    config: &MasterConfig,
    jid: &Jid,
    most: usize,
) -> Result<Option<String>, ExplainError> {
    let known = look_up(config, jid)?;
    Ok(known.map(|known| described(&known, most)))
}

/// The minions of a job that have not returned, with the evidence for the state of each; none when there
/// is no such job.
pub(super) fn missing_of(config: &MasterConfig, jid: &Jid) -> Result<Vec<Missing>, ExplainError> {
    let known = look_up(config, jid)?;
    Ok(known.map_or_else(Vec::new, |known| known.missing()))
}

/// A list of these minions, `most` of them by name; `hint` names the others.
pub(super) fn silent_list(missing: &[Missing], most: usize, hint: &str) -> String {
    let mut text = String::new();
    let lines = missing
        .iter()
        .map(|one| (one.minion.as_str(), evidence(one)))
        .collect();
    list(&mut text, "not returned", lines, most, hint);
    text
}

fn evidence(one: &Missing) -> String {
    match one.why.as_str() {
        "" => one.state.clone(),
        why => format!("{}: {why}", one.state),
    }
}

fn look_up(config: &MasterConfig, jid: &Jid) -> Result<Option<Evidence>, ExplainError> {
    let reader = open_reader(config)?;
    let Some(job) = reader.load(jid)? else {
        return Ok(None);
    };
    let returns = reader.return_heads(jid)?;
    let paused_since = reader.batch_paused_since(jid)?;
    let standing = match job.state {
        JobState::Open => ask(config, jid)?,
        state if state.is_incomplete_end() => ask_of_ended(config, jid),
        _ => Standing::Over,
    };
    Ok(Some(Evidence {
        job,
        returns,
        paused_since,
        standing,
        // This process has no inventories: what is stored is shown where no master says more.
        outdated: HashSet::new(),
        absent: HashMap::new(),
    }))
}

/// Where no master answers, what is stored has to do.
fn ask_of_ended(config: &MasterConfig, jid: &Jid) -> Standing {
    let missing = control::missing_of_ended(&config.sock_dir, jid);
    missing
        .ok()
        .flatten()
        .map_or(Standing::Over, Standing::Ended)
}

fn ask(config: &MasterConfig, jid: &Jid) -> Result<Standing, ControlError> {
    match control::account(&config.sock_dir, jid) {
        Ok(Some(account)) => Ok(Standing::Open(account)),
        Ok(None) => Ok(Standing::Unknown),
        Err(error) if error.is_no_master() => Ok(Standing::Stopped),
        // The cluster has none that is active.
        Err(error) if config.member_port().is_some() && error.is_unanswered() => {
            Ok(Standing::Stopped)
        }
        Err(error) => Err(error),
    }
}

fn described(known: &Evidence, most: usize) -> String {
    let Evidence {
        job,
        returns,
        paused_since,
        standing,
        ..
    } = known;
    let mut text = head(job);
    text += &progress(job, returns, standing);
    if let Some(since) = paused_since {
        let _ = writeln!(
            text,
            "  its batch pauses since {}; saltern batch resume {} has it go on",
            moment(*since),
            job.record.jid
        );
    }
    let mut failed = Vec::new();
    let mut done = Vec::new();
    for record in returns {
        let after = seconds(record.received.saturating_sub(job.record.created));
        // Sorted, as the store gives them.
        let is_expected = job.record.minions.binary_search(&record.minion).is_ok();
        let unasked = if is_expected {
            ""
        } else {
            ", not expected by the job"
        };
        let line = format!("after {after}, retcode {}{unasked}", record.retcode);
        let lines = if record.retcode == 0 {
            &mut done
        } else {
            &mut failed
        };
        lines.push((record.minion.as_str(), line));
    }
    let missing = known.missing();
    text += &silent_list(&missing, most, "--all");
    list(&mut text, "failed", failed, most, "--all");
    list(&mut text, "returned", done, most, "--all");
    text
}

fn head(job: &StoredJob) -> String {
    let record = &job.record;
    let publisher = job.publisher.as_ref();
    let publisher = publisher.map_or(String::new(), |minion| format!(" for the minion {minion}"));
    let sent = match (job.published, &job.reporter) {
        (_, Some(reporter)) => format!("reported by {reporter}, not published by this master"),
        (Some(at), None) => format!("sent {} later", seconds(at.saturating_sub(record.created))),
        (None, None) => "it is not known to have been sent".to_owned(),
    };
    format!(
        "job {} of {}{publisher}: {} on {} \"{}\"\n  made {}; {sent}\n",
        record.jid,
        record.user,
        record.fun,
        record.tgt_type,
        record.tgt,
        moment(record.created),
    )
}

fn progress(job: &StoredJob, returns: &[ReturnHead], standing: &Standing) -> String {
    let state = match job.state {
        JobState::Open => "open".to_owned(),
        JobState::Complete => over("complete", job),
        JobState::Expired => over("expired", job),
        JobState::Killed => over("killed", job),
    };
    let mut text = format!(
        "  {state}; {} of {} minions have returned\n",
        returns.len(),
        job.record.minions.len().max(returns.len())
    );
    match standing {
        Standing::Over | Standing::Ended(_) => {}
        Standing::Stopped => {
            text += "  no master runs here; the next one asks the minions that are missing\n";
        }
        Standing::Unknown => text += "  the master is just beginning or ending it\n",
        Standing::Open(account) => {
            let _ = write!(
                text,
                "  its silent minions were asked {} times",
                account.rounds
            );
            let next = account.next_look;
            let next = next.map(|time| format!("; it is looked at in {:.1} s", time.as_secs_f64()));
            text += &next.unwrap_or_default();
            text.push('\n');
        }
    }
    text
}

fn over(word: &str, job: &StoredJob) -> String {
    let took = |at: i64| seconds(at.saturating_sub(job.record.created));
    let took = job.finished.map(|at| format!(" after {}", took(at)));
    format!("{word}{}", took.unwrap_or_default())
}

fn list(text: &mut String, title: &str, lines: Vec<(&str, String)>, most: usize, hint: &str) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title} ({}):", lines.len());
    let width = lines
        .iter()
        .take(most)
        .map(|(id, _)| id.len())
        .max()
        .unwrap_or(0);
    for (id, line) in lines.iter().take(most) {
        let _ = writeln!(text, "  {id:width$}  {line}");
    }
    if let Some(more) = lines.len().checked_sub(most).filter(|more| *more > 0) {
        let _ = writeln!(text, "  … and {more} more ({hint})");
    }
}

fn seconds(micros: i64) -> String {
    format!("{:.3} s", micros as f64 / 1e6)
}

fn moment(micros: i64) -> String {
    civil(micros).strftime("%F %T.%6f UTC").to_string()
}
