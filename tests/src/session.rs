//! A session with the master in a program of its own: a minion's (`peers/send_event.py`), or that
//! of stock's client (`peers/local_client.py`). Many requests, one start of Python.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Group, Process};

/// An open session; it ends when dropped.
pub struct Session {
    child: Process,
    questions: PipeWriter,
    answers: BufReader<PipeReader>,
    group: Option<Group>,
}

impl Session {
    pub(crate) fn start(command: &mut Command, errors: &Path) -> Result<Self> {
        let (stdin, questions) = std::io::pipe()?;
        let (answers, stdout) = std::io::pipe()?;
        let errors = std::fs::File::create(errors)?;
        let child = Process::start(command, stdin.into(), stdout.into(), errors.into())?;
        let group = Some(Group::of(child.id()));
        Ok(Self {
            child,
            questions,
            answers: BufReader::new(answers),
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

    /// Whether the master refuses an event with this tag. Stock's channel waits for a key to be accepted
    /// again: ten seconds without an answer are a refusal.
    ///
    /// # Errors
    /// When the session is over already.
    pub fn is_refused(&mut self, tag: &str) -> Result<bool> {
        let event = json!({"tag": tag, "data": {}, "patience": 10});
        Ok(self.ask(&event.to_string())? != "ok")
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
        writeln!(self.questions, "{line}")?;
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
