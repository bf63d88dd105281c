//! The backend `pam`: the accounts of this machine (`salt/auth/pam.py`).
//!
//! PAM loads foreign code that may hang, change signal handlers or crash, so it is asked in a
//! process of its own, as stock does: this program, started anew with [`CHECK_COMMAND`]. Name and
//! password go through a pipe, never through arguments or the environment. A process that gives no
//! answer in time is killed, and nobody is known. The service is that of the configuration.
//!
//! The same process gives the groups of a known user (`get_group_list` in `salt/utils/user.py`):
//! they come from the same directory services, and may take as long.
#![allow(
    clippy::disallowed_types,
    reason = "the deadline of another process is in real time"
)]

mod library;

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::{Group, User, getgrouplist};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The sub-command by which this program answers one question to PAM, see [`answer_check`].
pub const CHECK_COMMAND: &str = "pam-check";

/// The service that stock asks when the configuration names none.
const DEFAULT_SERVICE: &str = "login";

/// How long PAM may take, directory services included.
const PAM_TIMEOUT: Duration = Duration::from_secs(30);

/// The most bytes of a question, and of an answer.
const QUESTION_BYTES: u64 = 64 << 10;
const ANSWER_BYTES: usize = 256 << 10;

/// Characters of a malformed answer that are logged.
const SHOWN: usize = 256;

const GRANTED: &str = "granted";
const REFUSED: &str = "refused";

/// Why PAM gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum PamError {
    /// The helper process cannot be started, or its pipes failed.
    #[error("cannot start \"{CHECK_COMMAND}\"")]
    Process(#[source] io::Error),
    /// It took longer than `PAM_TIMEOUT`.
    #[error("pam gave no answer within {} seconds", PAM_TIMEOUT.as_secs())]
    Late,
    /// Output of the process instead of an answer.
    #[error("pam gave no answer: {0}")]
    Failed(String),
}

/// The backend `pam`: asks one service of PAM, in a process for each log-in.
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

    /// The groups of the user if PAM knows the user by this password, and the account is good.
    pub(super) fn knows(
        &self,
        user: &str,
        password: &str,
    ) -> Result<Option<Vec<String>>, PamError> {
        let parts = [self.service.as_str(), user, password];
        if parts.iter().any(|part| part.contains('\0')) {
            return Ok(None);
        }
        let known = ask(&parts.join("\0"))?;
        if known.is_none() {
            self.hint();
        }
        Ok(known)
    }

    /// Says once why nobody may be known.
    fn hint(&self) {
        let is_root = rustix::process::geteuid().is_root();
        if self.is_to_hint(is_root, Path::new("/etc/shadow")) {
            tracing::error!(
                "pam may refuse every user: this master is neither root nor able to read \
                 \"/etc/shadow\" (group shadow)"
            );
        }
    }

    /// Whether nobody may be known: without the shadow file, PAM knows no account but the own one.
    fn is_to_hint(&self, is_root: bool, shadow: &Path) -> bool {
        let is_blind = !is_root && std::fs::File::open(shadow).is_err();
        is_blind && !self.has_hinted.swap(true, Ordering::Relaxed)
    }
}

/// Starts this program anew and puts the question to it.
fn ask(question: &str) -> Result<Option<Vec<String>>, PamError> {
    let mut program = Command::new("/proc/self/exe");
    program.arg(CHECK_COMMAND);
    ask_program(program, question, PAM_TIMEOUT)
}

fn ask_program(
    mut program: Command,
    question: &str,
    limit: Duration,
) -> Result<Option<Vec<String>>, PamError> {
    let deadline = Instant::now() + limit;
    let child = program
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
    read_answer(&child.answer(deadline)?)
}

/// Parses the line that [`answer_to`] made: the groups of a known user.
fn read_answer(line: &str) -> Result<Option<Vec<String>>, PamError> {
    let mut parts = line.split('\0');
    match (parts.next(), parts.next_back()) {
        // The word at the end proves that nothing is cut off.
        (Some(GRANTED), Some(GRANTED)) => Ok(Some(parts.map(str::to_owned).collect())),
        (Some(REFUSED), None) => Ok(None),
        _ => Err(PamError::Failed(line.chars().take(SHOWN).collect())),
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
        let mut buffer = [0; 4096];
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
/// When there is no question, or standard output is closed.
pub fn answer_check() -> io::Result<()> {
    let answer = answer_to(&read_question(io::stdin())?);
    let mut stdout = io::stdout();
    writeln!(stdout, "{answer}")?;
    stdout.flush()
}

fn read_question(input: impl Read) -> io::Result<String> {
    let mut question = String::new();
    input.take(QUESTION_BYTES).read_to_string(&mut question)?;
    Ok(question)
}

fn answer_to(question: &str) -> String {
    let parts: Vec<&str> = question.split('\0').collect();
    let [service, user, password] = parts.as_slice() else {
        return "the question has not three parts".to_owned();
    };
    match library::authenticate(service, user, password) {
        Ok(true) => granted(user),
        Ok(false) => REFUSED.to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The answer for a user who is known: the names of the groups between two words. Where they cannot
/// be found out, it is not known what the user may do, and nobody is known.
fn granted(user: &str) -> String {
    let groups = match system_groups(user) {
        Ok(groups) => groups,
        Err(error) => return format!("the groups of a user cannot be found out: {error}"),
    };
    let groups = groups.iter().map(String::as_str);
    // A name with a line in it would end the answer.
    let groups = groups.filter(|name| !name.contains(['\n', '\0']));
    let words = [GRANTED].into_iter().chain(groups).chain([GRANTED]);
    words.collect::<Vec<_>>().join("\0")
}

/// The groups of a user of this machine; none for a user that it does not have.
fn system_groups(user: &str) -> nix::Result<Vec<String>> {
    let name = CString::new(user).map_err(|_| nix::Error::EINVAL)?;
    let Some(found) = User::from_name(user)? else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for gid in getgrouplist(&name, found.gid)? {
        // One without a name is nobody's in any rule.
        names.extend(Group::from_gid(gid)?.map(|group| group.name));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pam_answer_contains_the_groups() {
        let root = read_answer(&granted("root")).unwrap().unwrap();
        assert!(root.iter().any(|group| group == "root"));
        let nobody = read_answer(&granted("nobody-of-this-name")).unwrap();
        assert_eq!(nobody, Some(Vec::new()));
        assert_eq!(read_answer(REFUSED).unwrap(), None);
    }

    #[test]
    fn truncated_pam_answer_is_an_error() {
        let cut = [
            "",
            GRANTED,
            "granted\0root",
            "granted\0ro\0gran",
            "refused\0",
            "hello",
        ];
        for line in cut {
            assert!(read_answer(line).is_err(), "{line:?}");
        }
    }

    /// A program in place of the one that asks PAM.
    fn shell(script: &str) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]);
        shell
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn pam_process_gets_the_question_and_is_read_to_the_end_of_its_line() {
        // More than is read at a time.
        let long = "g".repeat(10_000);
        let table = [
            (
                r"printf 'granted\0'; cat; printf '\0granted\n'",
                Some(vec!["login", long.as_str(), "secret"]),
            ),
            // It need not end,
            (r"cat >&2; printf 'refused\n'; exec sleep 600", None),
            // and its line need not.
            (r"cat >&2; printf refused", None),
        ];
        for (script, groups) in table {
            let known = ask_program(shell(script), &format!("login\0{long}\0secret"), LONG);
            let groups: Option<Vec<String>> =
                groups.map(|groups| groups.into_iter().map(str::to_owned).collect());
            assert_eq!(known.unwrap(), groups, "{script}");
        }
    }

    #[test]
    fn pam_process_without_end_or_answer_is_an_error() {
        let endless = ask_program(shell(r"yes | tr -d '\n'"), "", LONG);
        let Err(PamError::Failed(shown)) = endless else {
            panic!("{endless:?}");
        };
        assert_eq!(shown, "y".repeat(SHOWN));
        let silent = ask_program(shell("exec sleep 600"), "", Duration::from_millis(20));
        assert!(matches!(silent, Err(PamError::Late)), "{silent:?}");
    }

    #[test]
    fn pam_process_does_not_outlive_its_question() {
        let child = shell("exec sleep 600").spawn().unwrap();
        let process = rustix::process::Pid::from_child(&child);
        drop(Killed(child));
        let sent = rustix::process::test_kill_process(process);
        assert_eq!(sent, Err(rustix::io::Errno::SRCH));
    }

    #[test]
    fn hint_is_for_masters_that_cannot_read_the_shadow_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let none = Path::new("/does/not/exist");
        for (is_root, shadow, expected) in [
            (true, none, false),
            (false, file.path(), false),
            (false, none, true),
        ] {
            let pam = Pam::new(None);
            assert_eq!(pam.is_to_hint(is_root, shadow), expected, "{is_root}");
            assert!(!pam.is_to_hint(is_root, shadow), "once");
        }
    }

    const THREE_PARTS: &str = "the question has not three parts";

    #[test]
    fn question_without_three_parts_is_refused() {
        for question in ["", "login", "login\0ana", "login\0ana\0secret\0more"] {
            assert_eq!(answer_to(question), THREE_PARTS);
        }
        let long = "x".repeat((64 << 10) + 1);
        let question = read_question(long.as_bytes()).unwrap();
        assert_eq!(question.len(), 64 << 10, "it is cut off");
    }

    /// Set in the process that the test below starts.
    const IS_HELPER: &str = "SALTERN_TEST_IS_PAM_HELPER";

    /// The test starts itself anew, and is the sub-command there.
    #[test]
    fn check_reads_a_question_and_writes_an_answer() {
        if std::env::var_os(IS_HELPER).is_some() {
            return answer_check().unwrap();
        }
        let name = "eauth::pam::tests::check_reads_a_question_and_writes_an_answer";
        let helper = Command::new("/proc/self/exe")
            .args(["--exact", name, "--nocapture"])
            .env(IS_HELPER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut helper = helper.unwrap();
        let stdin = helper.stdin.take();
        stdin.unwrap().write_all(b"login\0ana").unwrap();
        let output = helper.wait_with_output().unwrap();
        assert!(output.status.success());
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(THREE_PARTS), "{said}");
    }

    /// A caller could have another service of PAM asked, with other rules for accounts.
    #[test]
    fn cve_2016_3176_service_is_that_of_the_configuration() {
        let pam = Pam::new(Some("salt"));
        assert_eq!(pam.service, "salt");
        assert_eq!(Pam::new(None).service, DEFAULT_SERVICE);
        // Neither a name nor a password reaches the place of the service: nobody is asked.
        for (user, password) in [("su\0root", "x"), ("root", "x\0su"), ("\0", "\0")] {
            assert!(matches!(pam.knows(user, password), Ok(None)), "{user:?}");
        }
    }
}
