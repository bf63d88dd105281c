//! `saltern minions [TARGET]`: the inventory of minions, without a job. What it does is in
//! `saltern-cli`; here are its arguments.

use std::io::IsTerminal;

use clap::ValueEnum;
use saltern_base::exit::Exit;
use saltern_cli::minions::{COLUMNS, Form, Minions, MinionsQuery};
use tracing_subscriber::filter::LevelFilter;

use super::{chain, complain, load_for_tool, say};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  saltern minions                                   every accepted minion
  saltern minions 'G@os:Debian and web*'            those of a compound target
  saltern minions -w 'not present'                  minions without a connection
  saltern minions -w 'os = Debian and kernelrelease < 6.1' --columns id,kernelrelease
  saltern minions --job 'state.*' -w 'job.result = failed' --columns id,job,job.at
  saltern minions -w 'last_seen > 7d' --sort -last_seen --out csv

Fields, in columns, conditions and --sort:
  id present presence address last_seen              of our own
  job job.function job.result job.retcode job.at     the last job that it returned
  anything else                                      a grain, such as os or ip4_interfaces:eth0;
                                                     G@id is the grain of that name

Conditions: FIELD, FIELD = VALUE, !=, <, <=, >, >=, joined by and, or, not and parentheses. = and !=
take wildcards, < and its kin compare versions. A time is compared with an age, such as 90s, 15m, 2h,
7d or 4w.

Grains are those that the master has cached. No job is published.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Only minions of which this holds; may be given several times.
    #[arg(short = 'w', long = "where", value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Fields to show, separated by commas.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    columns: Vec<String>,
    /// Fields to sort by, separated by commas; a hyphen in front: from high to low.
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    sort: Vec<String>,
    /// Only jobs of such functions count as last job, such as "state.*".
    #[arg(long, value_name = "WILDCARD")]
    job: Option<String>,
    /// How to print the list.
    #[arg(long, value_name = "FORM", default_value = "table")]
    out: Output,
    /// The target: a compound expression for minions.
    #[arg(default_value = "*", hide_default_value = true)]
    target: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Csv,
    Json,
}

/// 0 when there are such minions, 1 when there are none.
pub(crate) fn run(arguments: Arguments) -> Exit {
    logging::start_plain(LevelFilter::WARN);
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let mut columns = arguments.columns;
    if columns.is_empty() {
        columns = COLUMNS.map(str::to_owned).to_vec();
    }
    let query = MinionsQuery {
        target: arguments.target,
        conditions: arguments.conditions,
        columns,
        sort: arguments.sort,
        job: arguments.job,
    };
    let minions = match Minions::find(&loaded.config, &query) {
        Ok(minions) => minions,
        Err(error) => {
            complain(&chain(&error));
            return Exit::Failure;
        }
    };
    if !minions.has_master {
        complain("no master runs here: the files of its cache are shown, and no presence");
    }
    let form = match arguments.out {
        Output::Table => Form::Table,
        Output::Csv => Form::Csv,
        Output::Json => Form::Json,
    };
    say(&minions.print(form, std::io::stdout().is_terminal()));
    match minions.is_empty() {
        true => Exit::Failure,
        false => Exit::Ok,
    }
}
