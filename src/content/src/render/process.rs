//! Runs a program with limits on its time and output; beyond them its process group is killed.
//!
//! One thread serves all pipes until the program ends, its time is over, or another thread cancels
//! it. A grandchild that left the program's group may outlive it, but nothing here
//! waits for such a one.

mod cancel;
mod pipes;

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

pub use cancel::Cancel;
use pipes::{Deadline, Failure, Input, Output, Pipes};

/// Why a program has no result.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Its pipes cannot be made.
    #[error(transparent)]
    Pipe(#[from] io::Error),
    /// It cannot be started.
    #[error("cannot start \"{program}\": {error}")]
    Start {
        /// The program.
        program: String,
        /// The error of the system call.
        error: io::Error,
    },
    /// It was killed at the end of its time.
    #[error("\"{program}\" took longer than {} ms", time.as_millis())]
    Time {
        /// The program.
        program: String,
        /// The time it had.
        time: Duration,
    },
    /// It was killed because it printed no progress.
    #[error("\"{program}\" made no progress for {} ms", time.as_millis())]
    Silence {
        /// The program.
        program: String,
        /// How long it was silent.
        time: Duration,
    },
    /// It was killed because of the length of its output.
    #[error("\"{program}\" printed more than {limit} bytes")]
    Output {
        /// The program.
        program: String,
        /// The bound in bytes.
        limit: u64,
    },
    /// It was killed because the master stops.
    #[error("\"{program}\" was stopped, because the master stops")]
    Cancelled {
        /// The program.
        program: String,
    },
    /// A system call about it failed.
    #[error("\"{program}\" cannot be run: {error}")]
    System {
        /// The program.
        program: String,
        /// The error of the system call.
        error: io::Error,
    },
}

/// Result of a program.
pub(crate) struct Finished {
    /// Its id while it ran.
    pub(crate) pid: u32,
    /// The exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Its standard output.
    pub(crate) output: Vec<u8>,
    /// Its standard error, if that was kept apart.
    pub(crate) errors: Vec<u8>,
}

/// Destination of a program's standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    /// As the command configures it.
    AsSet,
    /// It is part of the output.
    Mixed,
    /// It is captured apart from the output.
    Apart,
}

/// Runs a program to its end.
///
/// # Errors
/// [`ProcessError`]: it cannot be started, takes too long or prints too much.
pub(crate) fn run(
    command: Command,
    input: Vec<u8>,
    time: Duration,
    longest: u64,
) -> Result<Finished, ProcessError> {
    run_with(command, input, time, longest, Errors::AsSet)
}

/// Runs a program to its end; `errors` says what becomes of its errors. `longest` holds for each
/// of output and errors.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_with(
    mut command: Command,
    input: Vec<u8>,
    time: Duration,
    longest: u64,
    errors: Errors,
) -> Result<Finished, ProcessError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (stdout, writer) = io::pipe()?;
    let stderr = match errors {
        Errors::AsSet => None,
        Errors::Mixed => {
            command.stderr(writer.try_clone()?);
            None
        }
        Errors::Apart => {
            let (stderr, writer) = io::pipe()?;
            command.stderr(writer);
            Some(stderr)
        }
    };
    let mut child = start(command.stdin(Stdio::piped()).stdout(writer))?;
    // Our copies of the pipes' other ends are in the command; the pipes end when all are closed.
    drop(command);
    let input = child.stdin.take().map(|stdin| Input::new(stdin, input));
    let pipes = Pipes {
        input,
        outputs: [Some(stdout), stderr].map(|pipe| Output::new(pipe, longest, false)),
        ends_with_program: false,
    };
    finish(child, pipes, &name, &Deadline::for_time(time))
}

/// The most bytes of errors that [`run_into`] keeps: the last ones.
const ERRORS: u64 = 64 << 10;

/// Time limits of a program of [`run_into`].
#[derive(Clone, Copy)]
pub(crate) struct Wait<'a> {
    /// In all.
    pub(crate) time: Duration,
    /// Without output on standard error, where a program prints its progress.
    pub(crate) silence: Option<Duration>,
    /// A handle that may end it earlier.
    pub(crate) cancel: Option<&'a Cancel>,
}

/// Runs a program to its end, and what it leaves in its group ends with it. It reads `input`, if
/// any; its output goes into `file`, or nowhere; its errors come back, only the last ones of many.
///
/// The end is that of the program itself: what it left elsewhere may hold the pipe for the errors
/// as long as it likes, as the master of a shared connection of ssh does.
///
/// # Errors
/// [`ProcessError`]: it cannot be started, takes too long, or was cancelled.
pub(crate) fn run_into(
    mut command: Command,
    input: Option<File>,
    file: Option<File>,
    wait: Wait<'_>,
) -> Result<Finished, ProcessError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (stderr, writer) = io::pipe()?;
    let stdin = input.map_or_else(Stdio::null, Stdio::from);
    let stdout = file.map_or_else(Stdio::null, Stdio::from);
    let child = start(command.stdin(stdin).stdout(stdout).stderr(writer))?;
    drop(command);
    let pipes = Pipes {
        input: None,
        outputs: [None, Some(stderr)].map(|pipe| Output::new(pipe, ERRORS, true)),
        ends_with_program: true,
    };
    let patience = Deadline {
        silence: wait.silence,
        cancel: wait.cancel,
        ..Deadline::for_time(wait.time)
    };
    finish(child, pipes, &name, &patience)
}

/// Starts a program as the leader of a group.
fn start(command: &mut Command) -> Result<Child, ProcessError> {
    let child = command.process_group(0).spawn();
    child.map_err(|error| ProcessError::Start {
        program: command.get_program().to_string_lossy().into_owned(),
        error,
    })
}

/// Serves a program to its end, or ends it.
fn finish(
    mut child: Child,
    mut pipes: Pipes,
    name: &str,
    patience: &Deadline<'_>,
) -> Result<Finished, ProcessError> {
    let status = serve(&mut child, &mut pipes, patience).map_err(|failure| {
        kill(&child);
        // It has been killed, and only has to be reaped.
        let _ = child.wait();
        let program = name.to_owned();
        match failure {
            Failure::Time => ProcessError::Time {
                program,
                time: patience.time,
            },
            Failure::Silence(time) => ProcessError::Silence { program, time },
            Failure::Output(limit) => ProcessError::Output { program, limit },
            Failure::Cancelled => ProcessError::Cancelled { program },
            Failure::System(error) => ProcessError::System { program, error },
        }
    })?;
    let [output, errors] = pipes.outputs;
    Ok(Finished {
        pid: child.id(),
        code: status.code(),
        output: output.bytes,
        errors: errors.bytes,
    })
}

fn serve(
    child: &mut Child,
    pipes: &mut Pipes,
    patience: &Deadline<'_>,
) -> Result<ExitStatus, Failure> {
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(io::Error::from)?;
    pipes.exchange(&end, patience)?;
    if pipes.ends_with_program {
        // Until it is waited for, nobody else can have its number.
        kill(child);
    }
    Ok(child.wait()?)
}

/// Ends the program and what it started.
fn kill(child: &Child) {
    // It may be gone already, which is what is wanted.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::{Cancel, Errors, Wait, run, run_into, run_with};

    const LONG: Duration = Duration::from_secs(600);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn program_input_and_output_are_passed() {
        let long = Duration::from_secs(30);
        let done = run(shell("cat; exit 3"), b"abc".to_vec(), long, 100).expect("it runs");
        assert_eq!((done.code, done.output.as_slice()), (Some(3), &b"abc"[..]));
    }

    #[test]
    fn large_input_and_output_do_not_deadlock() {
        let long = Duration::from_secs(30);
        let input = vec![b'x'; 1 << 20];
        let done = run(shell("cat"), input.clone(), long, 1 << 20).expect("it runs");
        assert!(
            done.output == input,
            "{} bytes came back",
            done.output.len()
        );
        let done = run(shell("echo a"), input, long, 100).expect("it need not read");
        assert_eq!(done.output, b"a\n");
    }

    #[test]
    fn standard_error_is_kept_or_merged_as_asked() {
        let script = "echo a; echo b >&2; echo c";
        let run = |errors| {
            let done = run_with(
                shell(script),
                Vec::new(),
                Duration::from_secs(30),
                100,
                errors,
            );
            let done = done.expect("it runs");
            (done.output, done.errors)
        };
        assert_eq!(run(Errors::Mixed), (b"a\nb\nc\n".to_vec(), Vec::new()));
        assert_eq!(run(Errors::Apart), (b"a\nc\n".to_vec(), b"b\n".to_vec()));
    }

    #[test]
    fn program_beyond_its_timeout_is_killed_with_its_children() {
        let short = Duration::from_millis(100);
        // The last one leaves the group and keeps the output open.
        let scripts = [
            "sleep 600",
            "sleep 600 & exit 0",
            "yes",
            "setsid sleep 5 & exit 0",
        ];
        for script in scripts {
            assert!(
                run(shell(script), Vec::new(), short, 100).is_err(),
                "{script}"
            );
        }
    }

    #[test]
    fn ended_program_is_not_awaited_for_its_orphans() {
        let top = tempfile::tempdir().expect("a directory");
        let (left, held) = (top.path().join("left"), top.path().join("held"));
        let script = format!(
            "mkfifo {0} {1}; setsid sh -c 'echo >{0}; exec cat {1}' & \
             cat {0}; sleep 600 & echo said >&2; exit 3",
            left.display(),
            held.display()
        );
        // The process that left the group holds the pipe until the test writes to it, which is
        // later; a wait for it here would never end.
        let wait = Wait {
            time: LONG,
            silence: None,
            cancel: None,
        };
        let done = run_into(shell(&script), None, None, wait).expect("it ends");
        assert_eq!(
            (done.code, done.errors.as_slice()),
            (Some(3), &b"said\n"[..])
        );
        std::fs::write(&held, "").expect("it was still there");
    }

    #[test]
    fn silent_program_is_killed_before_its_timeout() {
        let wait = Wait {
            time: LONG,
            silence: Some(Duration::from_millis(50)),
            cancel: None,
        };
        let error = run_into(shell("sleep 600"), None, None, wait).err();
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some("\"/bin/sh\" made no progress for 50 ms")
        );
    }

    #[test]
    fn last_bytes_of_standard_error_are_kept() {
        let wait = Wait {
            time: LONG,
            silence: None,
            cancel: None,
        };
        let script = "head -c 300000 /dev/zero >&2; echo last >&2";
        let done = run_into(shell(script), None, None, wait).expect("it ends");
        assert_eq!(done.errors.len(), 64 << 10);
        assert!(done.errors.ends_with(b"last\n"));
    }

    #[test]
    fn cancel_kills_the_program_and_its_children() {
        let top = tempfile::tempdir().expect("a directory");
        let (started, held) = (top.path().join("started"), top.path().join("held"));
        // The child of the program opens the one for good and so holds it until it is killed.
        let script = format!(
            "mkfifo {0} {1}; (exec 5>{1}; echo >{0}; exec sleep 600) & wait",
            started.display(),
            held.display()
        );
        let cancel = Arc::new(Cancel::new().expect("a pipe"));
        let shared = Arc::clone(&cancel);
        let running = thread::spawn(move || {
            let wait = Wait {
                time: LONG,
                silence: None,
                cancel: Some(&shared),
            };
            run_into(shell(&script), None, None, wait).err()
        });
        while !held.exists() {
            thread::yield_now();
        }
        let mut reader = std::fs::File::open(&held).expect("the child opens it too");
        std::fs::read(&started).expect("the child has started");
        cancel.cancel();
        let error = running.join().expect("no panic").expect("it was ended");
        assert!(error.to_string().contains("was stopped"), "{error}");
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut rest).expect("it ends with the child");
        // And nothing is started under it again.
        let wait = Wait {
            time: LONG,
            silence: None,
            cancel: Some(&cancel),
        };
        assert!(run_into(shell("sleep 600"), None, None, wait).is_err());
    }
}
