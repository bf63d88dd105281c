//! Metrics of the actors, of the commands that they serve, and of all queues.

use saltern_cli::terminal::plain;

use super::numbers::{Numbers, said};
use super::units::moment;

/// An actor, or all of a pool.
pub(super) struct Worker<'a> {
    pub(super) name: &'a str,
    /// How many of them run.
    pub(super) up: Option<f64>,
    /// Messages in their mailboxes.
    pub(super) waiting: Option<f64>,
    /// Messages that were handled, a second.
    pub(super) rate: Option<f64>,
    /// The share of their time that they are busy.
    pub(super) busy: Option<f64>,
    pub(super) restarts: Option<f64>,
    /// Seconds spent in a second, by all of them.
    spent: Option<f64>,
}

/// A command of the request port.
pub(super) struct Command<'a> {
    pub(super) name: &'a str,
    /// Requests, a second.
    pub(super) rate: Option<f64>,
    /// The share of one worker's time that it takes.
    pub(super) busy: Option<f64>,
}

/// Something that waits for its turn.
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) waiting: Option<f64>,
    /// Requests and events that were refused or dropped since the master started.
    pub(super) lost: Option<f64>,
    pub(super) lost_rate: Option<f64>,
}

/// Time for each of a rate, as text; the placeholder when the rate is 0.
fn each(spent: Option<f64>, rate: Option<f64>) -> String {
    let rate = rate.filter(|rate| *rate > 0.0);
    moment(spent.zip(rate).map(|(spent, rate)| spent / rate))
}

impl Worker<'_> {
    /// How long they are busy with a message.
    pub(super) fn each(&self) -> String {
        each(self.spent, self.rate)
    }
}

impl Command<'_> {
    /// How long a worker is busy with a request.
    pub(super) fn each(&self) -> String {
        each(self.busy, self.rate)
    }
}

/// The actors by name.
pub(super) fn workers(numbers: &Numbers) -> impl Iterator<Item = Worker<'_>> {
    numbers
        .family("saltern_actor_up")
        .filter_map(move |(labels, up)| {
            let of = |metric: &str| format!("saltern_actor_{metric}{labels}");
            let spent = numbers.rate(&of("handling_seconds_sum"));
            Some(Worker {
                name: labels.split('"').nth(1)?,
                up: Some(up),
                waiting: numbers.get(&of("mailbox_depth")),
                // What an actor does by itself counts, too: it is part of the time.
                rate: numbers.rate(&of("handling_seconds_count")),
                busy: spent.map(|spent| spent / up.max(1.0)),
                restarts: numbers.get(&of("restarts_total")),
                spent,
            })
        })
}

/// The commands that were asked for since the master started, by name.
pub(super) fn commands(numbers: &Numbers) -> impl Iterator<Item = Command<'_>> {
    numbers
        .family("saltern_request_handling_seconds_count")
        .filter_map(move |(labels, _)| {
            let of = |part: &str| format!("saltern_request_handling_seconds_{part}{labels}");
            Some(Command {
                name: labels.split('"').nth(1)?,
                rate: numbers.rate(&of("count")),
                busy: numbers.rate(&of("sum")),
            })
        })
}

/// A queue's name, what waits in it, and what was lost of it, if that is counted.
const QUEUES: &[(&str, &str, Option<&str>)] = &[
    (
        "requests",
        "saltern_requests_waiting",
        Some("saltern_requests_shed_total"),
    ),
    (
        "pillars",
        "saltern_renderings_waiting",
        Some("saltern_renderings_shed_total"),
    ),
    (
        "runner functions",
        "saltern_runs_waiting",
        Some("saltern_runs_shed_total"),
    ),
    (
        "wheel functions",
        "saltern_wheels_waiting",
        Some("saltern_wheels_shed_total"),
    ),
    (
        "log-ins",
        "saltern_logins_waiting",
        Some("saltern_logins_shed_total"),
    ),
    ("calls of minions", "saltern_peer_calls_waiting", None),
    ("Python", "saltern_bridge_waiting", None),
    (
        "reactor",
        "saltern_reactor_waiting",
        Some("saltern_reactor_dropped_total"),
    ),
    (
        "event bus, the longest",
        "saltern_bus_longest_queue",
        Some("saltern_bus_events_dropped_total"),
    ),
    (
        "publications, bytes",
        "saltern_port_queued_bytes",
        Some("saltern_deliveries_dropped_total"),
    ),
    ("event returner", "saltern_event_return_waiting", None),
    ("job cache, rows", "saltern_job_cache_lag_rows", None),
    ("job files, rows", "saltern_mirror_lag_rows", None),
];

/// Characters of a queue's name: some have the name of an option's value in it.
const MAX_NAME_LENGTH: usize = 60;

/// The queues that this master has.
pub(super) fn queues(numbers: &Numbers) -> impl Iterator<Item = Queue> {
    QUEUES.iter().flat_map(move |(title, waiting, lost)| {
        let series = numbers.family(waiting);
        series.map(move |(labels, waiting)| {
            // A queue without labels may lose things for several reasons.
            let lost_of = |lost: &str| match labels {
                "" => (numbers.sum(lost), numbers.rate_of_all(lost)),
                labels => {
                    let series = format!("{lost}{labels}");
                    (numbers.get(&series), numbers.rate(&series))
                }
            };
            let (lost, lost_rate) = lost.map_or((None, None), lost_of);
            let name = match said(labels) {
                labels if labels.is_empty() => (*title).to_owned(),
                labels => plain(&format!("{title}: {labels}"), MAX_NAME_LENGTH),
            };
            Queue {
                name,
                waiting: Some(waiting),
                lost,
                lost_rate,
            }
        })
    })
}
