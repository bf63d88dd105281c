//! Runs a program with bounds: it gets its input, and so much time and output; then it and all
//! that it started are killed.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::Instant;

/// What a program left.
pub(crate) struct Finished {
    /// The exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// What it printed.
    pub(crate) output: Vec<u8>,
}

/// Runs a program to its end.
///
/// # Errors
/// A text: it cannot be started, takes too long or prints too much.
pub(crate) fn run(
    mut command: Command,
    input: Vec<u8>,
    time: Duration,
    longest: u64,
) -> Result<Finished, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let deadline = Instant::now() + time;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start \"{name}\": {error}"))?;
    let mut stdin = child.stdin.take().ok_or("the program has no input")?;
    let stdout = child.stdout.take().ok_or("the program has no output")?;
    // Threads of their own, so that neither pipe can block the other. Both end when the pipes do,
    // which the kill below brings about at the latest.
    let writer = thread::spawn(move || stdin.write_all(&input));
    let reader = thread::spawn(move || {
        let mut output = Vec::new();
        stdout
            .take(longest + 1)
            .read_to_end(&mut output)
            .map(|_| output)
    });
    let status = loop {
        let exited = child.try_wait().map_err(|error| error.to_string())?;
        match exited {
            // A program in the background may still hold the output.
            Some(status) if reader.is_finished() => break Some(status),
            _ if Instant::now() >= deadline => break None,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    };
    if status.is_none() {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // It may be gone already, which is what is wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
    }
    let _ = writer.join();
    let output = reader.join().map_err(|_| "reading the output failed")?;
    let output = output.map_err(|error| error.to_string())?;
    match status {
        None => Err(format!(
            "\"{name}\" took longer than {} ms",
            time.as_millis()
        )),
        Some(_) if output.len() as u64 > longest => {
            Err(format!("\"{name}\" printed more than {longest} bytes"))
        }
        Some(status) => Ok(Finished {
            code: status.code(),
            output,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::run;

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
