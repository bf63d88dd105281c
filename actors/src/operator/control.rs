//! Control socket for the local operator: `saltern_control.ipc` in `sock_dir`, for the master's
//! own user.
//!
//! One line in, an answer out:
//!
//! - `metrics`: Prometheus' text format;
//! - `actors`: the actors with their restarts;
//! - `minions`: the accepted minions and their state;
//! - `job JID`: what the tracker knows of an open job;
//! - `maintenance_tasks`: the maintenance tasks with their last run; `task NAME` runs one now;
//! - `replay LETTER`: retries a failed reaction;
//! - `log-level`: the levels of the log; `log-level LEVEL [PLACE]` changes them and
//!   `log-level reset` takes that back.
//!
//! Only in builds with the feature `fault-injection`:
//!
//! - `panic NAME [INSTANCE]`: an actor panics at its next poll;
//! - `stall NAME [INSTANCE]`: its thread hangs for ever;
//! - `points`: the crash points; `die POINT COUNT` makes the process die at one.

mod minions;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use saltern_base::fail_point::FailPoint;
use saltern_base::metrics::Registry;
use saltern_config::LogLevel;
use saltern_model::Jid;
use saltern_runners::Fleet;
use saltern_supervise::Tree;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::automation::reactor::ReactionQueue;
use crate::messages::Account;
use crate::messages::Explain;
use crate::messages::MaintenanceTask;
use crate::upkeep::maintenance_tasks::{MaintenanceTasks, Record};

pub use self::minions::{SeenMinion, ask_minions};

/// The socket's name.
pub const SOCKET: &str = "saltern_control.ipc";

/// Why a control request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No connection, or it broke.
    #[error("the control socket does not answer; is the master running?")]
    Socket(#[from] io::Error),
    /// The master refused.
    #[error("the master refused: {0}")]
    Refused(String),
}

/// Sends a request to a running master; gives its answer.
pub fn ask(sock_dir: &Path, line: &str) -> Result<String, ControlError> {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(sock_dir.join(SOCKET))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.strip_prefix("error: ") {
        Some(reason) => Err(ControlError::Refused(reason.trim().to_owned())),
        None => Ok(answer),
    }
}

/// Account of an open job from a running master; `None` when it is not open.
///
/// # Errors
/// No answer, or one that cannot be parsed.
pub fn ask_account(sock_dir: &Path, jid: &Jid) -> Result<Option<Account>, ControlError> {
    let text = ask(sock_dir, &format!("job {jid}"))?;
    if text == CLOSED {
        return Ok(None);
    }
    let account = Account::from_text(&text);
    Ok(Some(
        account.ok_or_else(|| garbled("not an account of a job"))?,
    ))
}

fn garbled(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Log levels, shown and changed at run time.
pub trait LogLevels: Send + Sync {
    /// A line each: `console LEVEL`, `file LEVEL`, and each place with a level of its own.
    fn told(&self) -> String;

    /// Logs at this level from now on: everywhere, or the lines of one place of the program.
    ///
    /// # Errors
    /// Why not, in one line.
    fn set(&self, level: LogLevel, place: Option<&str>) -> Result<(), String>;

    /// Goes back to what the configuration says.
    fn reset(&self);
}

/// The answer about a job that is not open.
const CLOSED: &str = "closed\n";

/// What the control socket gives access to.
pub(crate) struct Control {
    pub(crate) reactor: Option<Arc<ReactionQueue>>,
    pub(crate) tree: Tree,
    pub(crate) registry: Registry,
    pub(crate) maintenance_tasks: Arc<MaintenanceTasks>,
    /// Gives accounts of open jobs.
    pub(crate) tracker: Recipient<Explain>,
    pub(crate) minions: Arc<dyn Fleet>,
    pub(crate) log_levels: Option<Arc<dyn LogLevels>>,
}

/// Longer lines are cut off.
const MAX_LINE: u64 = 1024;

/// Timeout of one request with its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A maintenance task, or a replay, that takes longer goes on in the background. Shorter than
/// [`REQUEST_TIMEOUT`], so that the client gets an answer.
const DUTY_TIME: Duration = Duration::from_secs(9);

/// Concurrent requests.
const MOST_ASKING: usize = 16;

/// Binds the socket; nothing is answered before it is served.
pub(crate) fn bind(sock_dir: &Path) -> io::Result<UnixListener> {
    UnixListener::from_std(crate::events::event_sockets::bind(
        &sock_dir.join(SOCKET),
        0o600,
    )?)
}

/// Serves the socket until `stop`.
pub(crate) fn serve(listener: UnixListener, control: Control, stop: CancellationToken) {
    if cfg!(feature = "fault-injection") {
        tracing::info!("fault injection is built in: this is a test build");
    }
    let control = Arc::new(control);
    let places = Arc::new(Semaphore::new(MOST_ASKING));
    actix_rt::spawn(async move {
        crate::events::event_sockets::accept_all(&listener, &stop, |stream| {
            let Ok(place) = places.clone().try_acquire_owned() else {
                return;
            };
            let control = control.clone();
            actix_rt::spawn(async move {
                // A client that is too slow gets no answer.
                let _ = tokio::time::timeout(REQUEST_TIMEOUT, converse(stream, &control)).await;
                drop(place);
            });
        })
        .await;
    });
}

async fn converse(mut stream: UnixStream, control: &Control) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    BufReader::new(reader.take(MAX_LINE))
        .read_line(&mut line)
        .await?;
    writer
        .write_all(answer(control, &line).await.as_bytes())
        .await
}

async fn answer(control: &Control, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["metrics"] => control.metrics(),
        ["actors"] => control.actors(),
        ["replay", letter] => control.replay(letter).await,
        ["maintenance"] => control.maintenance_tasks(),
        ["minions"] => minions::answer(&*control.minions),
        ["maintenance", name] => control.task(name).await,
        [fault @ ("panic" | "stall"), name] => control.break_actor(fault, name, 0),
        [fault @ ("panic" | "stall"), name, instance] => match instance.parse() {
            Ok(instance) => control.break_actor(fault, name, instance),
            Err(_) => not_a_number(instance),
        },
        ["job", jid] => match Jid::parse(jid) {
            Ok(jid) => control.job(jid).await,
            Err(error) => format!("error: {error}\n"),
        },
        ["log-level"] => control.log_level(|_| Ok(())),
        ["log-level", "reset"] => control.log_level(|levels| {
            levels.reset();
            Ok(())
        }),
        ["log-level", level] => control.set_log_level(level, None),
        ["log-level", level, place] => control.set_log_level(level, Some(place)),
        ["points"] => points(),
        ["die", point, count] => match count.parse() {
            Ok(count) => die(point, count),
            Err(_) => not_a_number(count),
        },
        _ => UNKNOWN.to_owned(),
    }
}

/// A maintenance task as a line, between tabs: its name, the interval in seconds, when it last
/// began (seconds since 1970, or `never`), the seconds that this took, runs, failures, and `ok` or
/// the reason why the last run failed.
fn line_of(task: MaintenanceTask, record: &Record) -> String {
    let began = record.began.map_or("never".to_owned(), |at| at.to_string());
    let failed = record.failed.as_deref().unwrap_or("ok");
    format!(
        "{}\t{}\t{began}\t{:.6}\t{}\t{}\t{}\n",
        task.name(),
        record.every.as_secs(),
        record.took.as_secs_f64(),
        record.runs,
        record.failures,
        failed.replace(['\t', '\n'], " "),
    )
}

fn not_a_number(word: &str) -> String {
    format!("error: \"{word}\" is not a number\n")
}

fn points() -> String {
    let line = |point: FailPoint| format!("{}\n", point.name());
    FailPoint::ALL.into_iter().map(line).collect()
}

#[cfg(feature = "fault-injection")]
fn die(point: &str, count: u32) -> String {
    match FailPoint::from_name(point) {
        Some(point) => {
            point.arm(count);
            "ok\n".to_owned()
        }
        None => format!("error: there is no place \"{point}\"\n"),
    }
}

#[cfg(not(feature = "fault-injection"))]
fn die(_: &str, _: u32) -> String {
    WITHOUT.to_owned()
}

const UNKNOWN: &str = "error: say \"metrics\", \"actors\", \"minions\", \"job JID\", \"maintenance\", \
                       \"maintenance NAME\", \"replay LETTER\", \"log-level [LEVEL [PLACE]]\", \"points\", \
                       \"panic NAME [INSTANCE]\", \"stall NAME [INSTANCE]\" or \"die POINT COUNT\"\n";

#[cfg(not(feature = "fault-injection"))]
const WITHOUT: &str = "error: this master was built without fault injection\n";

impl Control {
    async fn job(&self, jid: Jid) -> String {
        match self.tracker.send(Explain(jid)).await {
            Ok(Some(account)) => account.to_text(),
            Ok(None) => CLOSED.to_owned(),
            Err(error) => format!("error: {error}\n"),
        }
    }

    fn metrics(&self) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_else(|error| format!("error: {error}\n"))
    }

    /// A line each, see [`line_of`].
    fn maintenance_tasks(&self) -> String {
        let records = self.maintenance_tasks.records().into_iter();
        let lines = records.map(|(task, record)| line_of(task, &record));
        lines.collect()
    }

    async fn task(&self, name: &str) -> String {
        let Some(task) = MaintenanceTask::from_name(name) else {
            return format!("error: there is no maintenance task \"{name}\"\n");
        };
        match tokio::time::timeout(DUTY_TIME, self.maintenance_tasks.do_now(task)).await {
            Ok(Some(record)) => line_of(task, &record),
            Ok(None) => format!("error: \"{name}\" is not asked for by the configuration\n"),
            Err(_) => format!("error: \"{name}\" was begun and is not done yet\n"),
        }
    }

    fn actors(&self) -> String {
        let children = self.tree.liveness();
        let line = |child: &saltern_supervise::ChildHealth| {
            format!("{} {} {}\n", child.name, child.instance, child.restarts)
        };
        children.iter().map(line).collect()
    }

    fn set_log_level(&self, level: &str, place: Option<&str>) -> String {
        match LogLevel::from_name(level) {
            None => format!("error: \"{level}\" is not {}\n", LogLevel::NAMES),
            Some(level) => self.log_level(|levels| {
                levels.set(level, place)?;
                tracing::info!(%level, place, "the log has another level");
                Ok(())
            }),
        }
    }

    /// Changes the levels, and gives what they are then.
    fn log_level(&self, change: impl FnOnce(&dyn LogLevels) -> Result<(), String>) -> String {
        let Some(levels) = &self.log_levels else {
            return "error: the log of this master cannot be changed\n".to_owned();
        };
        match change(levels.as_ref()) {
            Ok(()) => levels.told(),
            Err(reason) => format!("error: {reason}\n"),
        }
    }

    async fn replay(&self, letter: &str) -> String {
        let Some(reactor) = &self.reactor else {
            return "error: this master has no reactor\n".to_owned();
        };
        let begun = match reactor.replay(letter) {
            Ok(answer) => tokio::time::timeout(DUTY_TIME, answer).await,
            Err(reason) => return format!("error: {reason}\n"),
        };
        match begun {
            Ok(Ok(Ok(()))) => "ok\n".to_owned(),
            Ok(Ok(Err(reason))) => format!("error: {}\n", reason.replace('\n', " ")),
            Ok(Err(_)) => "error: the reactor ended before it was begun\n".to_owned(),
            Err(_) => format!("error: \"{letter}\" waits behind other events\n"),
        }
    }

    /// An actor of a pool may be named without its number: the first one is meant.
    #[cfg(feature = "fault-injection")]
    fn break_actor(&self, fault: &str, name: &str, instance: u32) -> String {
        let break_one = |instance| match fault {
            "stall" => self.tree.inject_stall(name, instance),
            _ => self.tree.inject_panic(name, instance),
        };
        let found = break_one(instance) || (instance == 0 && break_one(1));
        if found {
            "ok\n".to_owned()
        } else {
            format!("error: there is no actor \"{name}\" {instance}\n")
        }
    }

    #[cfg(not(feature = "fault-injection"))]
    #[expect(clippy::unused_self, reason = "the test build needs it")]
    fn break_actor(&self, _: &str, _: &str, _: u32) -> String {
        WITHOUT.to_owned()
    }
}
