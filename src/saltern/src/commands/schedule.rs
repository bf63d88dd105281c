//! `saltern schedule`: the jobs of the option `schedule` as the master would run them, from the
//! configuration alone. What a running master did of it is among its metrics.

use jiff::Timestamp;
use saltern_automation::schedule::{Outlook, Schedule};
use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_config::{Finding, render_findings};
use serde::Serialize;

use super::{complain, load_for_tool, say, say_json};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The heads of the columns.
const HEAD: [&str; 5] = ["JOB", "FUNCTION", "TIME", "NEXT", "NOTE"];

/// 0 also when a job is wrong: it is not run, and the master starts.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let Ok(now) = Timestamp::try_from(Clock::system().now()) else {
        complain("the clock of this machine shows a year that is beyond reckoning");
        return Exit::Unavailable;
    };
    let (schedule, findings) = Schedule::of_site(&loaded.config);
    if arguments.json {
        say_json(&Report::of(&schedule, &findings, now));
        return Exit::Ok;
    }
    if schedule.is_empty() {
        say("There are no jobs to run.\n");
    } else {
        say(&table(&schedule, now));
    }
    if !findings.is_empty() {
        say(&render_findings(&findings));
    }
    Exit::Ok
}

/// Output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    /// The error.
    findings: Vec<String>,
    jobs: Vec<JobReport<'a>>,
}

#[derive(Serialize)]
struct JobReport<'a> {
    at_start: bool,
    function: &'a str,
    job: &'a str,
    /// In seconds since 1970; null for never.
    next: Option<i64>,
    skipped: Option<&'static str>,
    time: &'a str,
}

impl<'a> Report<'a> {
    fn of(schedule: &'a Schedule, findings: &[Finding], now: Timestamp) -> Self {
        let job = |outlook: Outlook<'a>| JobReport {
            at_start: outlook.at_start,
            function: &outlook.job.function,
            job: &outlook.job.name,
            next: outlook.next.map(Timestamp::as_second),
            skipped: outlook.skip.map(|skip| skip.word()),
            time: outlook.timing,
        };
        Self {
            findings: findings.iter().map(ToString::to_string).collect(),
            jobs: schedule.outlook(now).map(job).collect(),
        }
    }
}

fn table(schedule: &Schedule, now: Timestamp) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(schedule.outlook(now).map(|job| row(&job, schedule)));
    let widths = [0, 1, 2, 3, 4].map(|column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(outlook: &Outlook<'_>, schedule: &Schedule) -> [String; 5] {
    let next = outlook.next.map(|next| {
        let local = next.to_zoned(schedule.zone().clone());
        local.strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
    });
    let mut notes = Vec::new();
    if outlook.at_start {
        notes.push("runs when the master starts".to_owned());
    }
    if let Some(skip) = outlook.skip {
        notes.push(format!("is skipped: {}", skip.word()));
    }
    [
        outlook.job.name.clone(),
        outlook.job.function.clone(),
        outlook.timing.to_owned(),
        next.unwrap_or_else(|| "never".to_owned()),
        notes.join("; "),
    ]
}
