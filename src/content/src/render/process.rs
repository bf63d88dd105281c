//! Runs a program with bounds: it gets its input, and so much time and output; then it and all
//! that it started are killed.
//!
//! One thread serves all pipes and waits for no longer than the time. A grandchild that left the
//! program's group may outlive it, but nothing here waits for such a one.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
    // Our copies of the pipes' other ends are in the command; the pipes end when all are closed.
    drop(command);
    let input = child.stdin.take().map(|stdin| Input {
        pipe: stdin,
        rest: input,
    });
    let outputs = [Some(stdout), stderr].map(|pipe| Output {
        pipe,
        bytes: Vec::new(),
        is_cut: false,
    });
    finish(child, Pipes { input, outputs }, &name, time, longest)
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
    let (stderr, writer) = io::pipe().map_err(|error| error.to_string())?;
    let stdout = file.map_or_else(Stdio::null, Stdio::from);
    let child = start(command.stdin(Stdio::null()).stdout(stdout).stderr(writer))?;
    drop(command);
    let outputs = [None, Some(stderr)].map(|pipe| Output {
        pipe,
        bytes: Vec::new(),
        is_cut: true,
    });
    let pipes = Pipes {
        input: None,
        outputs,
    };
    finish(child, pipes, &name, time, ERRORS)
}

/// Starts a program as the leader of a group.
fn start(command: &mut Command) -> Result<Child, String> {
    command.process_group(0).spawn().map_err(|error| {
        let name = command.get_program().to_string_lossy().into_owned();
        format!("cannot start \"{name}\": {error}")
    })
}

/// Serves a program to its end, or ends it.
fn finish(
    mut child: Child,
    mut pipes: Pipes,
    name: &str,
    time: Duration,
    longest: u64,
) -> Result<Finished, String> {
    let deadline = Instant::now() + time;
    let status = pipes
        .exchange(deadline, longest)
        .and_then(|()| exit_of(&mut child, deadline));
    let status = status.map_err(|failure| {
        kill(&mut child);
        match failure {
            Failure::Time => format!("\"{name}\" took longer than {} ms", time.as_millis()),
            Failure::Output => format!("\"{name}\" printed more than {longest} bytes"),
            Failure::System(error) => format!("\"{name}\" cannot be run: {error}"),
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

enum Failure {
    Time,
    Output,
    System(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::System(error)
    }
}

/// What the program is still to be given.
struct Input {
    pipe: ChildStdin,
    rest: Vec<u8>,
}

/// What the program has printed; its pipe until that ends.
struct Output {
    pipe: Option<PipeReader>,
    bytes: Vec<u8>,
    /// Whether what is too much is thrown away, instead of being an error.
    is_cut: bool,
}

impl Output {
    /// Takes what is there.
    fn read(&mut self, longest: u64) -> Result<(), Failure> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let mut buffer = [0; 1 << 14];
        match pipe.read(&mut buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                let read = buffer.get(..count).unwrap_or_default();
                self.bytes.extend_from_slice(read);
                let is_too_long = self.bytes.len() as u64 > longest;
                match self.is_cut {
                    true => self
                        .bytes
                        .truncate(usize::try_from(longest).unwrap_or(usize::MAX)),
                    false if is_too_long => return Err(Failure::Output),
                    false => {}
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

struct Pipes {
    input: Option<Input>,
    outputs: [Output; 2],
}

impl Pipes {
    /// Gives and takes until the program has closed its outputs.
    fn exchange(&mut self, deadline: Instant, longest: u64) -> Result<(), Failure> {
        if let Some(input) = &self.input {
            rustix::io::ioctl_fionbio(&input.pipe, true).map_err(io::Error::from)?;
        }
        for pipe in self
            .outputs
            .iter()
            .filter_map(|output| output.pipe.as_ref())
        {
            rustix::io::ioctl_fionbio(pipe, true).map_err(io::Error::from)?;
        }
        while self.outputs.iter().any(|output| output.pipe.is_some()) {
            self.write();
            self.wait(deadline)?;
            for output in &mut self.outputs {
                output.read(longest)?;
            }
        }
        Ok(())
    }

    /// Waits until there is something to do.
    fn wait(&self, deadline: Instant) -> Result<(), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Time);
        }
        let left = Timespec::try_from(left).map_err(|_| Failure::Time)?;
        let input = self
            .input
            .iter()
            .map(|input| PollFd::new(&input.pipe, PollFlags::OUT));
        let outputs = self
            .outputs
            .iter()
            .filter_map(|output| output.pipe.as_ref());
        let outputs = outputs.map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let mut waiting: Vec<PollFd<'_>> = input.chain(outputs).collect();
        match poll(&mut waiting, Some(&left)).map_err(io::Error::from) {
            Ok(0) => Err(Failure::Time),
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives as much as the program takes; it need not take everything.
    fn write(&mut self) {
        let Some(input) = &mut self.input else { return };
        if !input.rest.is_empty() {
            match input.pipe.write(&input.rest) {
                Ok(count) => {
                    input.rest.drain(..count);
                }
                Err(error) if is_passing(&error) => return,
                Err(_) => input.rest.clear(),
            }
        }
        if input.rest.is_empty() {
            self.input = None;
        }
    }
}

/// The exit of a program that has closed its outputs, which it mostly does by exiting.
fn exit_of(child: &mut Child, deadline: Instant) -> Result<ExitStatus, Failure> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Err(Failure::Time);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the program and what it started.
fn kill(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // It may be gone already, which is what is wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
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
    fn large_inputs_and_outputs_pass_each_other() {
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
}
