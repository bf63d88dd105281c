//! `saltern maintenance`: lists the maintenance tasks of the running master, or runs one now.

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_client::control::{self, ControlError};
use saltern_model::control::{ControlRequest, TaskStatus};

use super::{chain, complain, load_for_tool, say, say_json};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(clap::Subcommand)]
enum Question {
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

fn line(task: &TaskStatus, now: i64) -> String {
    let ago = match task.last_run {
        Some(began) => format!("{} s ago", now.saturating_sub(began).max(0)),
        None => "never".to_owned(),
    };
    format!(
        "{:<16} {:>7} {ago:>12} {:>9.3} s {:>7} {:>7}  {}\n",
        task.task,
        format!("{} s", task.every),
        task.took,
        task.runs,
        task.failures,
        task.result
    )
}

fn print_table(tasks: &[TaskStatus]) {
    let now = Clock::system().unix();
    say(&format!(
        "{:<16} {:>7} {:>12} {:>11} {:>7} {:>7}  {}\n",
        "task", "every", "last run", "took", "runs", "failed", "result"
    ));
    for task in tasks {
        say(&line(task, now));
    }
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    let (Question::List { config, json } | Question::Run { config, json, .. }) =
        &arguments.question;
    let loaded = match load_for_tool(config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let sock_dir = &loaded.config.sock_dir;
    let (is_run, answer) = match &arguments.question {
        Question::List { .. } => (false, control::maintenance_tasks(sock_dir)),
        Question::Run { name, .. } => {
            let request = ControlRequest::RunMaintenanceTask(name.clone());
            (
                true,
                control::ask(sock_dir, &request).map(|task| vec![task]),
            )
        }
    };
    let tasks = match answer {
        Ok(tasks) => tasks,
        Err(error) => {
            complain(&chain(&error));
            return match error {
                ControlError::Refused(_) => Exit::Failure,
                _ => Exit::Unavailable,
            };
        }
    };
    match json {
        true => say_json(&tasks),
        false => print_table(&tasks),
    }
    match is_run && !tasks.iter().all(|task| task.is_ok) {
        true => Exit::Failure,
        false => Exit::Ok,
    }
}
