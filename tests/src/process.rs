//! Starting, watching and ending processes.
//!
//! Every process leads a group of its own, and the whole group is ended with it: stock Salt is a
//! family of processes. A group that outlives a killed test run is ended by `peers/reaper.sh`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

use crate::forkserver::Forked;

/// Shortest pause between two looks at a condition that is waited for.
const GLANCE: Duration = Duration::from_millis(20);

/// Longest pause between two looks.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// A shell command that lasts until this file is there; ten minutes at most, as it may outlive a test that
/// has failed.
pub fn until_exists(file: &Path) -> String {
    let file = file.display();
    format!("timeout 600 sh -c 'until [ -e {file} ]; do sleep 0.1; done'")
}

/// Waits until `ready` gives a value, looking at short intervals. A look that takes long, such as a
/// command, is followed by a pause five times as long, so that waiting takes no processor from what
/// is waited for.
///
/// # Errors
/// Names `what` when the deadline passes first.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        let began = Instant::now();
        if let Some(value) = ready() {
            return Ok(value);
        }
        if Instant::now() >= end {
            bail!("waited {limit:?} in vain for: {what}");
        }
        std::thread::sleep((began.elapsed() * 5).clamp(GLANCE, MAX_PAUSE));
    }
}

/// A finished command.
#[derive(Debug)]
pub struct Run {
    /// The command line, for messages.
    pub command: String,
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

impl Run {
    /// Fails unless the exit code is `code`.
    ///
    /// # Errors
    /// Shows the command and all its output.
    pub fn expect_code(&self, code: i32) -> Result<&Self> {
        if self.code != Some(code) {
            bail!("expected exit code {code}\n{self}");
        }
        Ok(self)
    }

    /// The jid that it shows: the first number of twenty digits on standard output.
    ///
    /// # Errors
    /// When there is none: shows the command and all its output.
    pub fn jid(&self) -> Result<&str> {
        first_jid(&self.stdout).with_context(|| format!("no jid\n{self}"))
    }

    /// Fails unless standard output, without surrounding blanks, is `text`.
    ///
    /// # Errors
    /// Shows the command and all its output.
    pub fn expect_stdout(&self, text: &str) -> Result<&Self> {
        if self.stdout.trim() != text.trim() {
            bail!("expected this on stdout:\n{text}\n{self}");
        }
        Ok(self)
    }

    /// Fails unless standard output or standard error contains `text`.
    ///
    /// # Errors
    /// Shows the command and all its output.
    pub fn expect_text(&self, text: &str) -> Result<&Self> {
        if !self.stdout.contains(text) && !self.stderr.contains(text) {
            bail!("expected {text:?} in the output\n{self}");
        }
        Ok(self)
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no exit code".to_owned(),
        };
        writeln!(out, "$ {}\n{end} after {:.1?}", self.command, self.took)?;
        writeln!(
            out,
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout.trim(),
            self.stderr.trim()
        )
    }
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// When it cannot be started, or is not done within `limit`: it is then ended with its group.
pub fn run(command: &mut Command, limit: Duration) -> Result<Run> {
    let line = describe(command);
    let started = Instant::now();
    let (stdout, stdout_end) = std::io::pipe()?;
    let (stderr, stderr_end) = std::io::pipe()?;
    let mut child = Process::start(command, null()?, stdout_end.into(), stderr_end.into())?;
    let group = Group::of(child.id());
    let stdout = collect(stdout);
    let stderr = collect(stderr);
    let status = wait_until("the command to finish", limit, || {
        child.try_wait().transpose()
    });
    // Ends what it left behind too; otherwise a stray child would keep the pipes open.
    group.end(Signal::KILL);
    let finished = match status {
        Ok(status) => Some(status?),
        Err(_) => {
            child.wait().ok();
            None
        }
    };
    let result = Run {
        command: line,
        code: finished.and_then(|status| status.code()),
        signal: finished.and_then(|status| status.signal()),
        stdout: stdout.join().expect("reading a pipe does not panic"),
        stderr: stderr.join().expect("reading a pipe does not panic"),
        took: started.elapsed(),
    };
    if finished.is_none() {
        bail!("not done within {limit:?}\n{result}");
    }
    Ok(result)
}

fn collect(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe that breaks has nothing more to say.
        pipe.read_to_end(&mut bytes).ok();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn describe(command: &Command) -> String {
    let mut line = String::new();
    for part in std::iter::once(command.get_program()).chain(command.get_args()) {
        write!(line, "{} ", part.to_string_lossy()).expect("writing to a string cannot fail");
    }
    line.trim_end().to_owned()
}

/// The first number of twenty digits in a text.
pub fn first_jid(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_ascii_digit())
        .find(|part| part.len() == 20)
}

/// A process that runs until it is stopped, with its output in a file.
pub struct Daemon {
    name: String,
    child: Process,
    group: Option<Group>,
    output: PathBuf,
}

impl Daemon {
    /// Starts it; both output streams are appended to the file `output`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, command: &mut Command, output: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(output)?;
        let child = Process::start(command, null()?, file.try_clone()?.into(), file.into())?;
        let group = Some(Group::of(child.id()));
        Ok(Self {
            name: name.to_owned(),
            child,
            group,
            output: output.to_owned(),
        })
    }

    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id().as_raw_nonzero().get().cast_unsigned()
    }

    /// Its share of the machine's memory, in bytes (PSS).
    ///
    /// # Errors
    /// When it is gone.
    pub fn memory(&self) -> Result<u64> {
        let path = format!("/proc/{}/smaps_rollup", self.id());
        let text = std::fs::read_to_string(&path).context(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        let kilobytes = kilobytes.context("no PSS")?;
        Ok(kilobytes.parse::<u64>()? << 10)
    }

    /// The file of its output.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal to the process itself, not to its children.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        rustix::process::kill_process(self.child.id(), signal)
            .with_context(|| format!("cannot signal {}", self.name))
    }

    /// Sends a signal to the process and to all its children.
    ///
    /// # Errors
    /// When they are gone.
    pub fn signal_all(&self, signal: Signal) -> Result<()> {
        rustix::process::kill_process_group(self.child.id(), signal)
            .with_context(|| format!("cannot signal {} and its children", self.name))
    }

    /// Asks it to stop and waits; after the deadline the whole group is killed.
    ///
    /// # Errors
    /// When it did not stop by itself in time.
    pub fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let what = format!("{} to stop", self.name);
        let status = wait_until(&what, limit, || self.ended());
        self.kill();
        status
    }

    /// Ends it and all its children at once, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            group.end(Signal::KILL);
            self.child.wait().ok();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that leads a group of its own: a child of this one, or of the release's forkserver.
pub(crate) enum Process {
    Child(Child),
    Forked(Forked),
}

impl Process {
    /// Starts the command with these standard descriptors, of which it keeps no copy.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(
        command: &mut Command,
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> Result<Self> {
        let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        if let Some(forked) = Forked::start(command, stdio)? {
            return Ok(Self::Forked(forked));
        }
        let child = command
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start: {}", describe(command)))?;
        // A copy here would keep a pipe open.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self::Child(child))
    }

    /// Its process id, which stays its own until it is dropped or awaited.
    pub(crate) fn id(&self) -> Pid {
        match self {
            Self::Child(child) => pid(child),
            Self::Forked(forked) => forked.id(),
        }
    }

    pub(crate) fn try_wait(&mut self) -> std::io::Result<Option<ExitStatus>> {
        match self {
            Self::Child(child) => child.try_wait(),
            Self::Forked(forked) => forked.try_wait(),
        }
    }

    pub(crate) fn wait(&mut self) -> std::io::Result<ExitStatus> {
        match self {
            Self::Child(child) => child.wait(),
            Self::Forked(forked) => forked.wait(),
        }
    }
}

/// Standard input without content.
pub(crate) fn null() -> Result<OwnedFd> {
    Ok(File::open("/dev/null")?.into())
}

/// A process group that the reaper knows about until it is ended.
pub(crate) struct Group(Pid);

impl Group {
    pub(crate) fn of(leader: Pid) -> Self {
        let group = Self(leader);
        group.notify_reaper('+');
        group
    }

    pub(crate) fn end(self, signal: Signal) {
        // An error means that all its processes are gone already.
        rustix::process::kill_process_group(self.0, signal).ok();
        self.notify_reaper('-');
    }

    fn notify_reaper(&self, sign: char) {
        static REAPER: OnceLock<Mutex<Child>> = OnceLock::new();
        let reaper = REAPER.get_or_init(|| {
            let child = Command::new("sh")
                .arg(peer("reaper.sh"))
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .expect("sh can be started");
            Mutex::new(child)
        });
        let mut reaper = reaper.lock();
        let pipe = reaper.stdin.as_mut().expect("stdin is piped");
        writeln!(pipe, "{sign}{}", self.0.as_raw_nonzero())
            .expect("the reaper reads until this process ends");
    }
}

fn pid(child: &Child) -> Pid {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .expect("the kernel gives positive process ids")
}

/// A file of `tests/peers`.
pub fn peer(name: impl AsRef<OsStr>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers")
        .join(name.as_ref())
}
