//! The backend `pam`: the accounts of this machine (`salt/auth/pam.py`).
//!
//! PAM loads foreign code that may hang, change signal handlers or crash, so it is asked in a
//! process of its own, as stock does: this program, started anew with [`CHECK_COMMAND`]. Name and
//! password go through a pipe, never through arguments or the environment. A process that gives no
//! answer in time is killed, and nobody is known. The service is that of the configuration.
#![allow(
    clippy::disallowed_types,
    reason = "the deadline of another process is in real time"
)]

mod library;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The sub-command by which this program answers one question to PAM, see [`answer_check`].
pub const CHECK_COMMAND: &str = "pam-check";

/// The service that stock asks when the configuration names none.
const DEFAULT_SERVICE: &str = "login";

/// How long PAM may take, directory services included.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most bytes of a question, and of an answer.
const QUESTION_BYTES: u64 = 64 << 10;
const ANSWER_BYTES: usize = 1024;

const GRANTED: &str = "granted";
const REFUSED: &str = "refused";

/// Why PAM says nothing.
#[derive(Debug, thiserror::Error)]
pub enum PamError {
    /// The process that asks cannot be started or spoken to.
    #[error("cannot start \"{CHECK_COMMAND}\"")]
    Process(#[source] io::Error),
    /// It took longer than anybody waits.
    #[error("pam gave no answer within {} seconds", PATIENCE.as_secs())]
    Late,
    /// What the process said instead of an answer.
    #[error("pam gave no answer: {0}")]
    Failed(String),
}

/// See the module.
pub(super) struct Pam {
    service: String,
    has_hinted: AtomicBool,
}

impl Pam {
    pub(super) fn new(service: Option<&str>) -> Self {
        Self {
            service: service.unwrap_or(DEFAULT_SERVICE).to_owned(),
            has_hinted: AtomicBool::new(false),
        }
    }

    /// Whether PAM knows the user by this password, and the account is good.
    pub(super) fn knows(&self, user: &str, password: &str) -> Result<bool, PamError> {
        let parts = [self.service.as_str(), user, password];
        if parts.iter().any(|part| part.contains('\0')) {
            return Ok(false);
        }
        let is_known = ask(&parts.join("\0"))?;
        if !is_known {
            self.hint();
        }
        Ok(is_known)
    }

    /// Says once why nobody may be known: who cannot read the shadow file learns of no account but
    /// the own one.
    fn hint(&self) {
        let is_root = rustix::process::geteuid().is_root();
        let can_read = || std::fs::File::open("/etc/shadow").is_ok();
        if is_root || can_read() || self.has_hinted.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::error!(
            "pam may refuse every user: this master is neither root nor able to read \
             \"/etc/shadow\" (group shadow)"
        );
    }
}

/// Starts this program anew and puts the question to it.
fn ask(question: &str) -> Result<bool, PamError> {
    let deadline = Instant::now() + PATIENCE;
    let child = Command::new("/proc/self/exe")
        .arg(CHECK_COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(PamError::Process)?;
    let mut child = Killed(child);
    if let Some(mut stdin) = child.0.stdin.take() {
        stdin
            .write_all(question.as_bytes())
            .map_err(PamError::Process)?;
    }
    // An exit code alone proves nothing: any program ends with zero.
    let answer = child.answer(deadline)?;
    match answer.as_str() {
        GRANTED => Ok(true),
        REFUSED => Ok(false),
        other => Err(PamError::Failed(other.to_owned())),
    }
}

/// A process that does not outlive its question.
struct Killed(Child);

impl Killed {
    /// The one line that it says.
    fn answer(&mut self, deadline: Instant) -> Result<String, PamError> {
        let Some(stdout) = &mut self.0.stdout else {
            return Err(PamError::Failed("there is no pipe".to_owned()));
        };
        let mut said = Vec::new();
        let mut buffer = [0; ANSWER_BYTES];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut ready = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN)];
            match poll(&mut ready, Some(&left)) {
                Ok(0) => return Err(PamError::Late),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(PamError::Process(error.into())),
            }
            let count = stdout.read(&mut buffer).map_err(PamError::Process)?;
            said.extend_from_slice(buffer.get(..count).unwrap_or_default());
            let line = said.split(|byte| *byte == b'\n').next().unwrap_or_default();
            if count == 0 || line.len() < said.len() || said.len() >= ANSWER_BYTES {
                return Ok(String::from_utf8_lossy(line).into_owned());
            }
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself; then there is only its entry in the process table left.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other end: reads one question from standard input, asks PAM, and says the answer on
/// standard output. For the sub-command [`CHECK_COMMAND`] and nothing else.
///
/// # Errors
/// When there is no question, or nobody to answer to.
pub fn answer_check() -> io::Result<()> {
    let mut question = String::new();
    io::stdin()
        .take(QUESTION_BYTES)
        .read_to_string(&mut question)?;
    let parts: Vec<&str> = question.split('\0').collect();
    let answer = match parts.as_slice() {
        [service, user, password] => match library::authenticate(service, user, password) {
            Ok(true) => GRANTED.to_owned(),
            Ok(false) => REFUSED.to_owned(),
            Err(problem) => problem,
        },
        _ => "the question has not three parts".to_owned(),
    };
    let mut stdout = io::stdout();
    writeln!(stdout, "{answer}")?;
    stdout.flush()
}
