//! The rows of the five views: which there are, which of them the filter means, and what stands in
//! their cells.
//!
//! Cells are only made of rows that are drawn: there may be many more.

use std::borrow::Cow;

use saltern_base::clock::civil;
use saltern_cli::terminal::plain;
use saltern_model::Jid;
use saltern_model::control::SeenMinion;

use super::events::Heard;
use super::jobs::Job;
use super::state::State;
use super::units::{amount, number, rate, share, span};
use super::view::Tab;
use super::workers::{Command, Queue, Worker, commands, queues, workers};

/// How a row is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
    Dim,
}

/// A column: its title, and its width in characters; `None` takes the rest.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: Option<u16>,
}

const fn column(title: &'static str, width: u16) -> Column {
    Column {
        title,
        width: Some(width),
    }
}

const fn rest(title: &'static str) -> Column {
    Column { title, width: None }
}

/// The columns of a view.
pub(super) const fn columns(tab: Tab) -> &'static [Column] {
    const JOBS: &[Column] = &[
        column("JID", 20),
        column("STATE", 8),
        column("RETURNED", 11),
        column("FAILED", 6),
        column("LOST", 6),
        column("TIME", 9),
        column("USER", 10),
        column("FUNCTION", 24),
        rest("TARGET"),
    ];
    const MINIONS: &[Column] = &[
        column("MINION", 40),
        column("ADDRESS", 24),
        column("HEARD", 14),
        rest("STANDING"),
    ];
    const WORKERS: &[Column] = &[
        column("ACTOR OR COMMAND", 26),
        column("UP", 4),
        column("WAITING", 8),
        column("A SECOND", 10),
        column("TIME EACH", 10),
        column("BUSY", 6),
        column("RESTARTS", 8),
    ];
    const QUEUES: &[Column] = &[
        column("QUEUE", 40),
        column("WAITING", 12),
        column("LOST", 12),
        column("LOST A SECOND", 14),
    ];
    const EVENTS: &[Column] = &[
        column("TIME", 12),
        column("SIZE", 9),
        column("TAG", 56),
        rest("DATA"),
    ];
    match tab {
        Tab::Jobs => JOBS,
        Tab::Minions => MINIONS,
        Tab::Workers => WORKERS,
        Tab::Queues => QUEUES,
        Tab::Events => EVENTS,
    }
}

/// A row that has not been written yet.
pub(super) enum Entry<'a> {
    Job(&'a Jid, &'a Job),
    Minion(&'a SeenMinion),
    Worker(Worker<'a>),
    Command(Command<'a>),
    Queue(Queue),
    Event(&'a Heard),
}

/// The rows of a view that hold every word of the filter.
pub(super) fn entries<'a>(state: &'a State, tab: Tab, filter: &str) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = match tab {
        Tab::Jobs => {
            let jobs = state.jobs.newest_first();
            jobs.map(|(jid, job)| Entry::Job(jid, job)).collect()
        }
        Tab::Minions => state.minions.iter().map(Entry::Minion).collect(),
        Tab::Workers => {
            let actors = workers(&state.numbers).map(Entry::Worker);
            actors
                .chain(commands(&state.numbers).map(Entry::Command))
                .collect()
        }
        Tab::Queues => queues(&state.numbers).map(Entry::Queue).collect(),
        Tab::Events => state.events.newest_first().map(Entry::Event).collect(),
    };
    let words: Vec<String> = filter.split_whitespace().map(str::to_lowercase).collect();
    if !words.is_empty() {
        entries.retain(|entry| entry.holds(&words));
    }
    entries
}

impl Entry<'_> {
    /// The identity of a row while others are added and removed.
    pub(super) fn key(&self) -> Cow<'_, str> {
        match self {
            Self::Job(jid, _) => jid.as_str().into(),
            Self::Minion(minion) => minion.id.as_str().into(),
            Self::Worker(worker) => worker.name.into(),
            Self::Command(command) => command.name.into(),
            Self::Queue(queue) => (&*queue.name).into(),
            Self::Event(event) => event.number.to_string().into(),
        }
    }

    fn holds(&self, words: &[String]) -> bool {
        let parts: [&str; 5] = match self {
            Self::Job(jid, job) => [
                jid.as_str(),
                &job.fun,
                &job.target,
                &job.user,
                job.state_word(),
            ],
            Self::Minion(minion) => [minion.id.as_str(), &minion.standing, "", "", ""],
            Self::Worker(worker) => [worker.name, "", "", "", ""],
            Self::Command(command) => [command.name, "", "", "", ""],
            Self::Queue(queue) => [&queue.name, "", "", "", ""],
            Self::Event(event) => [&event.tag, "", "", "", ""],
        };
        let parts = parts.map(str::to_lowercase);
        words
            .iter()
            .all(|word| parts.iter().any(|part| part.contains(word)))
    }

    /// The cells, one a column of its view; `now` in microseconds since 1970.
    pub(super) fn cells(&self, now: i64) -> Vec<String> {
        match self {
            Self::Job(jid, job) => vec![
                jid.to_string(),
                job.state_word().to_owned(),
                format!("{}/{}", job.returned, job.expected),
                job.failed.to_string(),
                job.lost.to_string(),
                span(job.took(now)),
                job.user.clone(),
                job.fun.clone(),
                job.target.clone(),
            ],
            Self::Minion(minion) => vec![
                plain(minion.id.as_str(), MAX_ID_LENGTH),
                minion.address.map_or_else(String::new, |at| at.to_string()),
                heard(minion.last_heard, now),
                minion.standing.clone(),
            ],
            Self::Worker(worker) => vec![
                worker.name.to_owned(),
                number(worker.up),
                number(worker.waiting),
                rate(worker.rate),
                worker.each(),
                share(worker.busy),
                number(worker.restarts),
            ],
            Self::Command(command) => vec![
                command.name.to_owned(),
                String::new(),
                String::new(),
                rate(command.rate),
                command.each(),
                share(command.busy),
                String::new(),
            ],
            Self::Queue(queue) => vec![
                queue.name.clone(),
                number(queue.waiting),
                number(queue.lost),
                rate(queue.lost_rate),
            ],
            Self::Event(event) => vec![
                time_of_day(event.at),
                amount(Some(event.size as f64)),
                event.tag.clone(),
                event.line(MAX_DATA_LENGTH),
            ],
        }
    }

    pub(super) fn tone(&self) -> Tone {
        match self {
            Self::Job(_, job) if job.is_open() && job.lost > 0 => Tone::Warning,
            Self::Job(_, job) if job.is_open() => Tone::Good,
            Self::Job(_, job) if job.failed + job.lost > 0 => Tone::Bad,
            Self::Minion(minion) if minion.standing.starts_with("known") => Tone::Dim,
            Self::Minion(minion) if !minion.is_present => Tone::Bad,
            Self::Minion(minion) if minion.standing != "connected" => Tone::Warning,
            Self::Worker(worker) if worker.up == Some(0.0) => Tone::Bad,
            Self::Worker(worker) if worker.restarts > Some(0.0) => Tone::Warning,
            Self::Command(_) => Tone::Dim,
            Self::Queue(queue) if queue.lost_rate > Some(0.0) => Tone::Bad,
            Self::Queue(queue) if queue.waiting > Some(0.0) => Tone::Warning,
            Self::Event(event) if event.tag.starts_with("saltern/bus/gap") => Tone::Bad,
            _ => Tone::Plain,
        }
    }
}

const MAX_ID_LENGTH: usize = 255;
const MAX_DATA_LENGTH: usize = 300;

fn heard(at: Option<i64>, now: i64) -> String {
    match at {
        Some(at) => format!("{} ago", span(now.saturating_sub(at).max(0))),
        None => "not yet".to_owned(),
    }
}

/// Hours, minutes, seconds and milliseconds, in UTC.
pub(super) fn time_of_day(at: i64) -> String {
    civil(at).strftime("%T.%3f").to_string()
}
