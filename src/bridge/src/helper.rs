//! One helper process: its start, its requests, its end.
//!
//! It leads a process group, which is killed as a whole, and it gets nothing of ours but three
//! pipes: every other descriptor is closed when it begins, and the system closes ours in it
//! (`O_CLOEXEC`). The program goes to it over the pipe, so nobody needs to find or guard a file.

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use saltern_wire::msgpack::Value;
use serde::Serialize;
use tokio::time::Instant;

use crate::FrameTooLong;
use crate::exchange::{HelperFailure, HelperReply, Pipes, frame};
use crate::lane::Lane;
use crate::relay::Relay;

/// Program of the command line, which reads the real one.
const BOOT: &str = include_str!("boot.py");
/// The real one.
const PROGRAM: &str = include_str!("bridge.py");

/// Calls after which a helper is replaced, in whatever state it is.
const MAX_CALLS: u32 = 1000;

/// How long a helper may take to exit after it closed its pipes.
pub(crate) const EXIT_GRACE: Duration = Duration::from_secs(5);

/// Settings of all helpers.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The master's configuration file.
    pub(crate) conf_file: PathBuf,
    /// The most address space of a helper in bytes; 0 for no bound.
    pub(crate) memory: usize,
}

/// Settings that a helper reads from its standard input at its start.
#[derive(Serialize)]
struct HelperSettings<'a> {
    conf_file: &'a str,
    memory: usize,
    forks: bool,
    umask: Option<u32>,
}

/// The result of a request.
pub(crate) type Given = Result<Value, Problem>;

/// An exception.
pub(crate) enum Problem {
    Refused(String),
    Failed(String),
}

/// A running helper; dropping it kills its process group.
pub(crate) struct Helper {
    child: Child,
    pipes: Pipes,
    /// Its exit status, once it was reaped.
    reaped: Option<Option<ExitStatus>>,
    calls: u32,
    /// The compilation whose loaders it holds.
    pub(crate) token: Option<u64>,
    /// Number of the configuration's reading it was started with, as its pool counts them.
    pub(crate) reading: u64,
}

impl Helper {
    /// Starts one, which has to [`come_up`](Self::come_up) then.
    pub(crate) fn spawn(python: &Path, lane: &str) -> io::Result<Self> {
        let mut child = Command::new(python)
            .args(["-I", "-W", "ignore::DeprecationWarning", "-c", BOOT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let relay = Relay::new(lane, child.id());
        let ends = child.stdin.take().zip(child.stdout.take());
        let ends = ends.zip(child.stderr.take());
        let piped = ends.ok_or_else(|| io::Error::other("it has no pipes"));
        let pipes = piped.and_then(|((requests, answers), errors)| {
            let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
            Pipes::new((requests, answers, errors), end, relay)
        });
        match pipes {
            Ok(pipes) => Ok(Self {
                child,
                pipes,
                reaped: None,
                calls: 0,
                token: None,
                reading: 0,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Waits until the helper has loaded Salt.
    pub(crate) fn come_up(
        &mut self,
        forks: bool,
        settings: &Settings,
        deadline: Instant,
    ) -> Result<(), HelperFailure> {
        let first = opening(forks, settings)
            .map_err(|error| HelperFailure::HelperReply(error.to_string()))?;
        let version = self
            .pipes
            .exchange(&first, deadline, &mut |answer| match answer {
                HelperReply::Up(version) => Some(version),
                _ => None,
            })?;
        let (lane, pid) = (self.pipes.relay.lane(), self.pid());
        tracing::info!(lane, pid, version, "a Python helper is up");
        Ok(())
    }

    /// Its process id, which is also that of its group.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a request; its events go to `on_event` as they come.
    pub(crate) fn call(
        &mut self,
        request: &[u8],
        deadline: Instant,
        on_event: &mut dyn FnMut(&str, Value),
    ) -> Result<Given, HelperFailure> {
        self.calls = self.calls.saturating_add(1);
        // Output of earlier calls is no reason for its end now.
        self.pipes.relay.last_error();
        self.pipes
            .exchange(request, deadline, &mut |answer| match answer {
                HelperReply::Value(value) => Some(Ok(value)),
                HelperReply::Refused(problem) => Some(Err(Problem::Refused(problem))),
                HelperReply::Failed(problem) => Some(Err(Problem::Failed(problem))),
                HelperReply::Event(suffix, data) => {
                    on_event(&suffix, data);
                    None
                }
                HelperReply::Up(_) => None,
            })
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        !self.pipes.has_ended(Duration::ZERO)
    }

    /// Whether the helper is due for replacement, by its number of calls or its memory.
    pub(crate) fn is_worn(&self, lane: Lane, settings: &Settings) -> bool {
        let half = (settings.memory / 2) as u64;
        let is_large = !lane.forks() && half > 0 && self.pipes.memory > half;
        is_large || self.calls >= MAX_CALLS
    }

    /// Takes the number of lines that the rate limit dropped.
    pub(crate) fn dropped_lines(&mut self) -> u64 {
        self.pipes.relay.dropped()
    }

    /// Gives a process that closed its pipes time to exit, with a status that says more. Until
    /// [`exit_report`](Self::exit_report) its id is its own, so that a stop can still kill it.
    pub(crate) fn wait_for_exit(&self, broken: &HelperFailure, deadline: Instant) {
        if matches!(broken, HelperFailure::Ended) {
            let left = deadline.saturating_duration_since(Instant::now());
            self.pipes.has_ended(left.min(EXIT_GRACE));
        }
    }

    /// Ends the helper; returns its exit status as the end of a sentence.
    pub(crate) fn exit_report(mut self, broken: &HelperFailure) -> String {
        let status = self.reap();
        let said = self.pipes.relay.last_error();
        let said = said.map_or_else(String::new, |line| format!(": {line}"));
        match broken {
            HelperFailure::Time => "took too long".to_owned(),
            HelperFailure::Ended => format!("{}{said}", how(status)),
            HelperFailure::HelperReply(problem) => format!("gave a malformed answer: {problem}"),
            HelperFailure::System(error) => format!("cannot be spoken to: {error}"),
        }
    }

    /// Kills the group, and waits for the process only then: until it is reaped, its id is
    /// not reused.
    fn reap(&mut self) -> Option<ExitStatus> {
        if self.reaped.is_none() {
            // It may be gone already, which is what is wanted.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.reaped = Some(self.child.wait().ok());
        }
        self.reaped.flatten()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.reap();
    }
}

/// First frames for every helper: the program and its settings.
pub(crate) fn opening(forks: bool, settings: &Settings) -> Result<Vec<u8>, FrameTooLong> {
    let settings = HelperSettings {
        conf_file: &settings.conf_file.to_string_lossy(),
        memory: settings.memory,
        forks,
        umask: saltern_base::umask::of_children(),
    };
    let settings = serde_json::to_string(&settings).expect("invariant: texts and numbers are JSON");
    let mut first = frame(PROGRAM.as_bytes())?;
    first.extend(frame(settings.as_bytes())?);
    Ok(first)
}

fn how(status: Option<ExitStatus>) -> String {
    let signal = status.and_then(|status| status.signal());
    let code = status.and_then(|status| status.code());
    match (signal, code) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}
