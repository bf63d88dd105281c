//! `saltern audit`: prints the audit trail, the newest last, and verifies its chain of hashes.
//!
//! Both read the job database itself: the master need not run, and is not held up where it does.

use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::{Clock, ZoneName, strftime};
use saltern_base::escaped_for_terminal;
use saltern_base::exit::Exit;
use saltern_client::user::publishing_user;
use saltern_config::MasterConfig;
use saltern_model::{AuditDoor, AuditRow, AuditVerdict};
use saltern_netapi::v1::audit::json_line;
use saltern_requests::{AuditChecks, audit_line};
use saltern_sql::open_reader;
use saltern_store::{AuditHead, AuditPage, JobQueries, StoreError};
use tracing_subscriber::filter::LevelFilter;

use super::{chain, complain, load_for_tool, say};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  saltern audit                                     the newest 100 rows
  saltern audit --user ann --since 86400            what ann did since yesterday
  saltern audit --verdict refused --door api        refused requests of the HTTP API
  saltern audit --limit 1000000 --json > trail      export, a line of JSON each
  saltern audit verify                              recompute the chain of hashes
  saltern audit verify --head 4711:9f86d081…        and compare it with a noted row"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: List,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Recompute the chain of hashes; print the last row, or the first one that was changed.
    Verify(Verify),
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    config: ConfigArgument,
    /// Only what this user or minion asked for.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only requests that came this way.
    #[arg(long, value_name = "DOOR", value_parser = doors())]
    door: Option<String>,
    /// Only functions like this, such as "state.*".
    #[arg(long, value_name = "WILDCARD")]
    fun: Option<String>,
    /// Only rows with this verdict.
    #[arg(long, value_name = "VERDICT", value_parser = verdicts())]
    verdict: Option<String>,
    /// Only rows of the last SECONDS.
    #[arg(long, value_name = "SECONDS")]
    since: Option<u64>,
    /// Only rows older than SECONDS.
    #[arg(long, value_name = "SECONDS")]
    until: Option<u64>,
    /// How many rows at most: the newest.
    #[arg(long, value_name = "NUMBER", default_value_t = NEWEST)]
    limit: usize,
    /// Print each row as a line of JSON, with every column.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Verify {
    #[command(flatten)]
    config: ConfigArgument,
    /// A row that was noted elsewhere, as "verify" or the master's log printed it.
    #[arg(long, value_name = "NUMBER:HASH")]
    head: Option<AuditHead>,
}

fn doors() -> clap::builder::PossibleValuesParser {
    AuditDoor::ALL
        .iter()
        .map(|door| door.as_str())
        .collect::<Vec<_>>()
        .into()
}

fn verdicts() -> clap::builder::PossibleValuesParser {
    AuditVerdict::ALL
        .iter()
        .map(|one| one.as_str())
        .collect::<Vec<_>>()
        .into()
}

/// Default number of rows printed.
const NEWEST: usize = 100;

/// Rows that are read at once.
const SLICE: usize = 1_000;

pub(crate) fn run(arguments: &Arguments) -> Exit {
    logging::start_plain(LevelFilter::WARN);
    let config = match &arguments.action {
        Some(Action::Verify(verify)) => &verify.config,
        None => &arguments.list.config,
    };
    let loaded = match load_for_tool(config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let done = match &arguments.action {
        Some(Action::Verify(arguments)) => verify(&loaded.config, arguments.head),
        None => list(&loaded.config, &arguments.list),
    };
    done.unwrap_or_else(|error| {
        complain(&chain(&error));
        Exit::Failure
    })
}

fn open(config: &MasterConfig) -> Result<Arc<dyn JobQueries>, StoreError> {
    open_reader(config)
}

fn list(config: &MasterConfig, list: &List) -> Result<Exit, StoreError> {
    let reader = open(config)?;
    let ago = |seconds: u64| {
        let age = Duration::from_secs(seconds).as_micros();
        let age = i64::try_from(age).unwrap_or(i64::MAX);
        Clock::system().unix_micros().saturating_sub(age)
    };
    let mut page = AuditPage {
        user: list.user.as_deref(),
        door: list.door.as_deref().and_then(AuditDoor::parse),
        fun: list.fun.as_deref(),
        verdict: list.verdict.as_deref().and_then(AuditVerdict::parse),
        since: list.since.map(ago),
        until: list.until.map(ago),
        before: None,
        after: None,
        limit: list.limit,
    };
    // The newest are found from the end; they are printed from the first one on, a slice at a time.
    let mut ends = Vec::new();
    let mut left = list.limit;
    while left > 0 {
        page.limit = left.min(SLICE);
        let before = page.before;
        let rows = reader.audit(&page)?;
        let Some(last) = rows.last() else { break };
        left -= rows.len();
        page.before = Some(last.number);
        ends.push((before, rows.len()));
    }
    for (before, limit) in ends.into_iter().rev() {
        (page.before, page.limit) = (before, limit);
        for row in reader.audit(&page)?.iter().rev() {
            match list.json {
                true => say(&json_line(audit_line(row.clone()))),
                false => say(&line(row)),
            }
        }
    }
    Ok(Exit::Ok)
}

fn verify(config: &MasterConfig, noted: Option<AuditHead>) -> Result<Exit, StoreError> {
    let check = open(config)?.check_audit(noted)?;
    let by = format!("{}, by saltern audit verify", publishing_user());
    let noted = AuditChecks::of_site(config).note(&check, &by, Clock::system().unix_micros());
    if let Err(error) = noted {
        // The result is printed all the same.
        tracing::warn!(
            error = chain(&error),
            "the console will not show this check"
        );
    }
    let (rows, anchor) = (check.rows, check.anchor.number);
    if let Some(broken) = check.broken {
        complain(&format!(
            "row {} of the audit trail: {}; the {rows} rows before it, behind row {anchor}, are \
             as they were written",
            broken.number, broken.fault
        ));
        return Ok(Exit::Failure);
    }
    say(&format!(
        "{rows} rows behind row {anchor} are as they were written\nhead {}\n",
        check.head
    ));
    Ok(Exit::Ok)
}

/// A row as it is printed for people.
fn line(row: &AuditRow) -> String {
    let record = &row.record;
    let time = time(record.at);
    let user = match &record.backend {
        Some(backend) => format!("{}@{backend}", record.user),
        None => record.user.clone(),
    };
    let origin = record
        .origin
        .map_or("-".to_owned(), |origin| origin.to_string());
    let (door, verdict) = (record.door.as_str(), record.verdict.as_str());
    let mut line = format!(
        "{} {time} {verdict} {door} {origin} {user} {} {}",
        row.number, record.cmd, record.fun
    );
    if let Some(tgt) = &record.tgt {
        line.push_str(&format!(" on {tgt}"));
    }
    if !matches!(record.arguments.as_str(), "" | "[]" | "{}") {
        line.push_str(&format!(" {}", record.arguments));
    }
    if let Some(jid) = &record.jid {
        line.push_str(&format!(" jid {jid}"));
    }
    if let Some(reason) = &record.reason {
        line.push_str(&format!(" ({reason})"));
    }
    if record.suppressed > 0 {
        line.push_str(&format!(
            " (and {} refusals without a row)",
            record.suppressed
        ));
    }
    format!("{}\n", escaped_for_terminal(&line))
}

fn time(at: i64) -> String {
    strftime("%Y-%m-%dT%H:%M:%SZ", at, ZoneName::Utc)
}
