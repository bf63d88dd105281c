//! A session with the master in a program of its own: a minion's (`peers/send_event.py`), or that
//! of stock's client (`peers/local_client.py`). Many questions, one start of Python.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

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
        let answer = self.ask(tag)?;
        ensure!(answer == "ok", "event {tag:?} was not acknowledged");
        Ok(())
    }

    /// Calls minions: `call` has what `peers/local_client.py` takes.
    ///
    /// # Errors
    /// When the program ended, or its answer is no JSON.
    pub fn call(&mut self, call: &Value) -> Result<Value> {
        let answer = self.ask(&call.to_string())?;
        serde_json::from_str(&answer).with_context(|| format!("{call} was answered {answer:?}"))
    }

    /// Sends a line and waits for the line that answers it; empty when the program has ended.
    ///
    /// # Errors
    /// When the program does not read.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        writeln!(self.child.stdin.as_mut().expect("stdin is piped"), "{line}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
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
