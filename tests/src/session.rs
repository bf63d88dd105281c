//! A minion's session with the master in a program of its own (`peers/send_event.py`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::process::Group;

/// An open session; it ends when dropped.
pub struct Session {
    child: Child,
    answers: BufReader<ChildStdout>,
    group: Option<Group>,
}

impl Session {
    pub(crate) fn start(command: &mut Command, errors: &Path) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(errors)?)
            .process_group(0)
            .spawn()?;
        let group = Some(Group::of(&child));
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Ok(Self {
            child,
            answers,
            group,
        })
    }

    /// Sends an event with this tag and waits for the acknowledgement.
    ///
    /// # Errors
    /// When the master refuses it or does not acknowledge it; the session is over then.
    pub fn send(&mut self, tag: &str) -> Result<()> {
        writeln!(self.child.stdin.as_mut().expect("stdin is piped"), "{tag}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.trim() == "ok", "event {tag:?} was not acknowledged");
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            group.end(Signal::KILL);
        }
        self.child.wait().ok();
    }
}
