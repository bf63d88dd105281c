//! `saltern maintenance`: lists the maintenance tasks of the running master, or runs one now.

use saltern_actors::control;
use saltern_base::clock::Clock;
use saltern_base::exit::Exit;

use super::{chain, complain, load_for_tool, say};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: ControlRequest,
}

#[derive(clap::Subcommand)]
enum ControlRequest {
    /// List the maintenance tasks, with when each last ran, how long that took and what came of it.
    List {
        #[command(flatten)]
        config: ConfigArgument,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a maintenance task now and wait for its end; exit code 1 if it fails.
    Run {
        /// Its name, as `list` prints it.
        name: String,
        #[command(flatten)]
        config: ConfigArgument,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Status of one maintenance task.
pub(crate) struct TaskStatus {
    pub(crate) name: String,
    /// Seconds between two runs.
    pub(crate) every: i64,
    /// When it last began, in seconds since 1970; `None` before the first time.
    pub(crate) began: Option<i64>,
    took: f64,
    runs: u64,
    failures: u64,
    /// `ok`, or why the last run failed.
    pub(crate) result: String,
}

impl TaskStatus {
    /// Parses a line of the control socket's answer; `None` for an unknown form, of another
    /// release.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split('\t');
        let mut next = || words.next();
        Some(Self {
            name: next()?.to_owned(),
            every: next()?.parse().ok()?,
            began: next()?.parse().ok(),
            took: next()?.parse().ok()?,
            runs: next()?.parse().ok()?,
            failures: next()?.parse().ok()?,
            result: next()?.to_owned(),
        })
    }

    /// Whether the last run did what it should, as far as there was one.
    pub(crate) fn is_ok(&self) -> bool {
        self.result == "ok"
    }

    /// Times in seconds; `last_run` since 1970, null before the first time.
    fn as_json(&self) -> serde_json::Value {
        serde_json::json!({
            "task": self.name,
            "every": self.every,
            "last_run": self.began,
            "took": self.took,
            "runs": self.runs,
            "failures": self.failures,
            "is_ok": self.is_ok(),
            "result": self.result,
        })
    }

    fn line(&self, now: i64) -> String {
        let ago = match self.began {
            Some(began) => format!("{} s ago", now.saturating_sub(began).max(0)),
            None => "never".to_owned(),
        };
        format!(
            "{:<16} {:>7} {ago:>12} {:>9.3} s {:>7} {:>7}  {}\n",
            self.name,
            format!("{} s", self.every),
            self.took,
            self.runs,
            self.failures,
            self.result
        )
    }
}

fn print_table(tasks: &[TaskStatus]) {
    let now = Clock::system().unix();
    say(&format!(
        "{:<16} {:>7} {:>12} {:>11} {:>7} {:>7}  {}\n",
        "task", "every", "last run", "took", "runs", "failed", "result"
    ));
    for task in tasks {
        say(&task.line(now));
    }
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    let (config, json, question) = match &arguments.question {
        ControlRequest::List { config, json } => (config, *json, "maintenance".to_owned()),
        ControlRequest::Run { name, config, json } => {
            (config, *json, format!("maintenance {name}"))
        }
    };
    let loaded = match load_for_tool(config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let answer = match control::ask(&loaded.config.sock_dir, &question) {
        Ok(answer) => answer,
        Err(error @ control::ControlError::Refused(_)) => {
            complain(&chain(&error));
            return Exit::Failure;
        }
        Err(error) => {
            complain(&chain(&error));
            return Exit::Unavailable;
        }
    };
    let tasks: Vec<TaskStatus> = answer.lines().filter_map(TaskStatus::parse).collect();
    if json {
        let statuses: Vec<_> = tasks.iter().map(TaskStatus::as_json).collect();
        say(&format!("{}\n", serde_json::Value::from(statuses)));
    } else {
        print_table(&tasks);
    }
    let is_run = matches!(arguments.question, ControlRequest::Run { .. });
    match is_run && !tasks.iter().all(TaskStatus::is_ok) {
        true => Exit::Failure,
        false => Exit::Ok,
    }
}
