//! Runs a program with bounds: it gets its input, and so much time and output; then it and all
//! that it started are killed.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::Instant;

/// What a program left.
pub(crate) struct Finished {
    /// Its id while it ran.
    pub(crate) pid: u32,
    /// The exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// What it printed.
    pub(crate) output: Vec<u8>,
    /// What it printed as errors, if that was kept apart.
    pub(crate) errors: Vec<u8>,
}

/// What becomes of what a program prints as errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    /// What the command says.
    AsSet,
    /// It is part of the output.
    Mixed,
    /// It is kept apart.
    Apart,
}

/// Runs a program to its end.
///
/// # Errors
/// A text: it cannot be started, takes too long or prints too much.
pub(crate) fn run(
    command: Command,
    input: Vec<u8>,
    time: Duration,
    longest: u64,
) -> Result<Finished, String> {
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
) -> Result<Finished, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (stdout, writer) = io::pipe().map_err(|error| error.to_string())?;
    let stderr = match errors {
        Errors::AsSet => None,
        Errors::Mixed => {
            command.stderr(writer.try_clone().map_err(|error| error.to_string())?);
            None
        }
        Errors::Apart => {
            let (stderr, writer) = io::pipe().map_err(|error| error.to_string())?;
            command.stderr(writer);
            Some(stderr)
        }
    };
    let mut child = start(command.stdin(Stdio::piped()).stdout(writer))?;
    // Our ends of the pipes are in the command; the readers wait for the last one to close.
    drop(command);
    let mut stdin = child.stdin.take().ok_or("the program has no input")?;
    // Threads of their own, so that no pipe can block another. They end when the pipes do, which
    // the kill below brings about at the latest.
    let writer = thread::spawn(move || stdin.write_all(&input));
    let reader = thread::spawn(move || read_up_to(stdout, longest));
    let error_reader = stderr.map(|stderr| thread::spawn(move || read_up_to(stderr, longest)));
    let is_read = || {
        reader.is_finished()
            && error_reader
                .as_ref()
                .is_none_or(|reader| reader.is_finished())
    };
    let pid = child.id();
    let status = wait(&mut child, Instant::now() + time, is_read)?;
    let _ = writer.join();
    let read = |reader: JoinHandle<io::Result<Vec<u8>>>| {
        let bytes = reader.join().map_err(|_| "reading the output failed")?;
        bytes.map_err(|error| error.to_string())
    };
    let output = read(reader)?;
    let errors = error_reader.map(read).transpose()?.unwrap_or_default();
    match status {
        None => Err(too_long(&name, time)),
        Some(_) if output.len().max(errors.len()) as u64 > longest => {
            Err(format!("\"{name}\" printed more than {longest} bytes"))
        }
        Some(status) => Ok(Finished {
            pid,
            code: status.code(),
            output,
            errors,
        }),
    }
}

/// The most bytes of errors that [`run_into`] keeps.
const ERRORS: u64 = 64 << 10;

/// Runs a program without input to its end. Its output goes into `file`, or nowhere; its errors
/// come back, cut at a bound.
///
/// # Errors
/// A text: it cannot be started, or takes too long.
pub(crate) fn run_into(
    mut command: Command,
    file: Option<File>,
    time: Duration,
) -> Result<Finished, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut stderr, writer) = io::pipe().map_err(|error| error.to_string())?;
    let stdout = file.map_or_else(Stdio::null, Stdio::from);
    let mut child = start(command.stdin(Stdio::null()).stdout(stdout).stderr(writer))?;
    drop(command);
    let reader: JoinHandle<io::Result<Vec<u8>>> = thread::spawn(move || {
        let mut errors = Vec::new();
        stderr.by_ref().take(ERRORS).read_to_end(&mut errors)?;
        // The program must not stop because nobody reads on.
        io::copy(&mut stderr, &mut io::sink())?;
        Ok(errors)
    });
    let pid = child.id();
    let status = wait(&mut child, Instant::now() + time, || reader.is_finished())?;
    let errors = reader.join().map_err(|_| "reading the errors failed")?;
    let errors = errors.map_err(|error| error.to_string())?;
    let status = status.ok_or_else(|| too_long(&name, time))?;
    Ok(Finished {
        pid,
        code: status.code(),
        output: Vec::new(),
        errors,
    })
}

fn too_long(name: &str, time: Duration) -> String {
    format!("\"{name}\" took longer than {} ms", time.as_millis())
}

/// Starts a program as the leader of a group.
fn start(command: &mut Command) -> Result<Child, String> {
    command.process_group(0).spawn().map_err(|error| {
        let name = command.get_program().to_string_lossy().into_owned();
        format!("cannot start \"{name}\": {error}")
    })
}

/// Waits until the program has ended and its output is read; a program in the background may still
/// hold that. At the deadline the whole group is killed, and there is no status.
fn wait(
    child: &mut Child,
    deadline: Instant,
    is_read: impl Fn() -> bool,
) -> Result<Option<ExitStatus>, String> {
    loop {
        let exited = child.try_wait().map_err(|error| error.to_string())?;
        match exited {
            Some(status) if is_read() => return Ok(Some(status)),
            _ if Instant::now() >= deadline => break,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // It may be gone already, which is what is wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    Ok(None)
}

/// One byte more than allowed tells that there was more.
fn read_up_to(pipe: PipeReader, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.take(longest + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{Errors, run, run_with};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_reads_prints_and_ends() {
        let long = Duration::from_secs(30);
        let done = run(shell("cat; exit 3"), b"abc".to_vec(), long, 100).expect("it runs");
        assert_eq!((done.code, done.output.as_slice()), (Some(3), &b"abc"[..]));
    }

    #[test]
    fn errors_go_where_they_are_wanted() {
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
    fn a_program_that_goes_on_is_killed_with_its_children() {
        let short = Duration::from_millis(100);
        for script in ["sleep 600", "sleep 600 & exit 0", "yes"] {
            assert!(
                run(shell(script), Vec::new(), short, 100).is_err(),
                "{script}"
            );
        }
    }
}
