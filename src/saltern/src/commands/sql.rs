//! `saltern sql`: care for the tables of a job cache or of `event_return` in a SQL database.

use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_config::{MasterConfig, SqlStore};
use saltern_sql::{Cutoff, SqlCare, SqlError, purge_steps, tables};

use super::{chain, complain, load_for_tool, say};
use crate::ConfigArgument;

/// Rows of a slice in the statements that are printed; the size of real ones follows their time.
const SHOWN_SLICE: u64 = 500;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Report what the tables lack that the master writes; exit code 1 if there is something.
    Check {
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Make the tables and indexes of stock's returner that are not there.
    Create {
        /// Print the SQL and do nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Add what tables of an older release lack.
    Upgrade {
        /// Print the SQL and do nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Remove jobs by the time in their jids, with all their returns, and events by their time.
    Purge {
        /// Age in seconds from which on a job is removed; without it, that of `keep_jobs_seconds`.
        #[arg(long, value_name = "SECONDS")]
        older_than: Option<u64>,
        /// Print the SQL and do nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        config: ConfigArgument,
    },
}

/// 0 when all is done or nothing is missing; 69 without a connection.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let (Action::Check { config }
    | Action::Create { config, .. }
    | Action::Upgrade { config, .. }
    | Action::Purge { config, .. }) = &arguments.action;
    let loaded = match load_for_tool(config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let stores = &loaded.config.returners.sql;
    if stores.is_empty() {
        complain("no SQL database is in event_return, master_job_cache or ext_job_cache");
        return Exit::Usage;
    }
    let mut worst = Exit::Ok;
    for store in stores {
        let exit = match &arguments.action {
            Action::Check { .. } => check(store),
            Action::Create { dry_run, .. } | Action::Upgrade { dry_run, .. } => {
                create(store, *dry_run)
            }
            Action::Purge {
                older_than,
                dry_run,
                ..
            } => purge(store, &loaded.config, *older_than, *dry_run),
        };
        match exit {
            Ok(Exit::Ok) => {}
            Ok(exit) => worst = exit,
            Err(error) => {
                complain(&format!("{store}: {}", chain(&error)));
                worst = Exit::Unavailable;
            }
        }
    }
    worst
}

fn check(store: &SqlStore) -> Result<Exit, SqlError> {
    let missing = SqlCare::connect(store)?.missing()?;
    if missing.is_empty() {
        say(&format!("{store}: the tables are complete\n"));
        return Ok(Exit::Ok);
    }
    say(&format!("{store}: missing: {}\n", missing.join(", ")));
    Ok(Exit::Failure)
}

fn create(store: &SqlStore, dry_run: bool) -> Result<Exit, SqlError> {
    if dry_run {
        for sql in tables(store.schema) {
            say(&format!("{sql};\n"));
        }
        return Ok(Exit::Ok);
    }
    let mut care = SqlCare::connect(store)?;
    care.create()?;
    let missing = care.missing()?;
    if missing.is_empty() {
        say(&format!("{store}: the tables are complete\n"));
        return Ok(Exit::Ok);
    }
    // A table of that name, with columns that are not stock's: what to do is not ours to decide.
    complain(&format!("{store}: still missing: {}", missing.join(", ")));
    Ok(Exit::Failure)
}

fn purge(
    store: &SqlStore,
    config: &MasterConfig,
    older_than: Option<u64>,
    dry_run: bool,
) -> Result<Exit, SqlError> {
    let kept = config.keep_jobs.map(|keep| keep.as_secs());
    let Some(age) = older_than.or(kept).filter(|age| *age > 0) else {
        say(&format!(
            "{store}: keep_jobs_seconds is 0: everything is kept\n"
        ));
        return Ok(Exit::Ok);
    };
    let now = Clock::system().unix_micros();
    let cutoff = Cutoff::before(now, Duration::from_secs(age));
    let steps = purge_steps(store.schema, cutoff, config.archive_jobs);
    if dry_run {
        for step in &steps {
            for sql in step.statements(SHOWN_SLICE) {
                say(&format!("{sql};\n"));
            }
            say("-- until no row is left\n");
        }
        return Ok(Exit::Ok);
    }
    let mut care = SqlCare::connect(store)?;
    for step in &steps {
        let gone = care.purge(step, |_| false)?;
        if gone > 0 {
            say(&format!("{store}: {}: {gone} rows removed\n", step.table));
        }
    }
    Ok(Exit::Ok)
}
