//! Serves the pipes of a program until it has ended.

use std::io::{self, ErrorKind, PipeReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::ChildStdin;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::Instant;

use super::cancel::Cancel;

/// As much as a pipe holds, unless somebody has made it larger.
const LEFT: usize = 64 << 10;
/// Bytes of one read.
const PIECE: usize = 16 << 10;

/// Why a program is not waited for any longer.
pub(super) enum Failure {
    Time,
    Silence(Duration),
    Output(u64),
    Cancelled,
    System(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::System(error)
    }
}

/// Time limits of a program.
pub(super) struct Deadline<'a> {
    pub(super) time: Duration,
    pub(super) deadline: Instant,
    pub(super) silence: Option<Duration>,
    pub(super) cancel: Option<&'a Cancel>,
}

impl Deadline<'_> {
    /// From now on.
    pub(super) fn for_time(time: Duration) -> Self {
        Self {
            time,
            deadline: Instant::now() + time,
            silence: None,
            cancel: None,
        }
    }

    /// How long to wait for an event, if the last output came at `last_output`.
    fn left(&self, last_output: Instant) -> Result<Duration, Failure> {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Failure::Cancelled);
        }
        let now = Instant::now();
        let time = self.deadline.saturating_duration_since(now);
        if time.is_zero() {
            return Err(Failure::Time);
        }
        let Some(silence) = self.silence else {
            return Ok(time);
        };
        let quiet = (last_output + silence).saturating_duration_since(now);
        if quiet.is_zero() {
            return Err(Failure::Silence(silence));
        }
        Ok(time.min(quiet))
    }
}

/// Input that the program has not taken yet.
pub(super) struct Input {
    pipe: ChildStdin,
    bytes: Vec<u8>,
    /// How many of them it has.
    given: usize,
}

impl Input {
    pub(super) fn new(pipe: ChildStdin, bytes: Vec<u8>) -> Self {
        Self {
            pipe,
            bytes,
            given: 0,
        }
    }

    /// Writes as much as the program takes. Returns whether there is more.
    fn write(&mut self) -> bool {
        let rest = self.bytes.get(self.given..).unwrap_or_default();
        if rest.is_empty() {
            return false;
        }
        match self.pipe.write(rest) {
            Ok(count) => self.given += count,
            Err(error) if is_passing(&error) => {}
            // It need not take everything.
            Err(_) => return false,
        }
        self.given < self.bytes.len()
    }
}

/// Output of the program so far, and its pipe until that ends.
pub(super) struct Output {
    pipe: Option<PipeReader>,
    pub(super) bytes: Vec<u8>,
    longest: u64,
    /// Whether only the last bytes are kept, instead of too many being an error.
    is_cut: bool,
}

impl Output {
    pub(super) fn new(pipe: Option<PipeReader>, longest: u64, is_cut: bool) -> Self {
        Self {
            pipe,
            bytes: Vec::new(),
            longest,
            is_cut,
        }
    }

    /// Takes what is there, at most a piece; gives how much that was.
    fn read(&mut self) -> Result<usize, Failure> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(0);
        };
        let mut buffer = [0; PIECE];
        match pipe.read(&mut buffer) {
            Ok(0) => {
                self.pipe = None;
                Ok(0)
            }
            Ok(count) => {
                let read = buffer.get(..count).unwrap_or_default();
                self.bytes.extend_from_slice(read);
                self.bound()?;
                Ok(count)
            }
            Err(error) if is_passing(&error) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn bound(&mut self) -> Result<(), Failure> {
        let longest = usize::try_from(self.longest).unwrap_or(usize::MAX);
        match self.bytes.len().checked_sub(longest) {
            None | Some(0) => {}
            Some(_) if !self.is_cut => return Err(Failure::Output(self.longest)),
            Some(surplus) => {
                self.bytes.drain(..surplus);
            }
        }
        Ok(())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// All pipes of a program.
pub(super) struct Pipes {
    pub(super) input: Option<Input>,
    pub(super) outputs: [Output; 2],
    /// Whether outputs that others still hold are given up when the program has ended.
    pub(super) ends_with_program: bool,
}

impl Pipes {
    /// Gives and takes until the program has ended, by `end`, and its outputs have.
    pub(super) fn exchange(
        &mut self,
        end: &OwnedFd,
        patience: &Deadline<'_>,
    ) -> Result<(), Failure> {
        self.never_block()?;
        let mut last_output = Instant::now();
        let mut is_running = true;
        loop {
            let is_open = self.outputs.iter().any(|output| output.pipe.is_some());
            if !is_running && self.ends_with_program {
                return self.take_the_rest();
            }
            if !is_running && !is_open {
                return Ok(());
            }
            if let Some(input) = &mut self.input
                && !input.write()
            {
                self.input = None;
            }
            let left = patience.left(last_output)?;
            is_running = self.wait(is_running.then_some(end), patience.cancel, left)?;
            for output in &mut self.outputs {
                if output.read()? > 0 {
                    last_output = Instant::now();
                }
            }
        }
    }

    fn never_block(&self) -> io::Result<()> {
        if let Some(input) = &self.input {
            rustix::io::ioctl_fionbio(&input.pipe, true)?;
        }
        for pipe in self.outputs.iter().filter_map(|o| o.pipe.as_ref()) {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(())
    }

    /// Takes what the program had printed when it ended, but nothing that is printed from now on
    /// without end.
    fn take_the_rest(&mut self) -> Result<(), Failure> {
        for output in &mut self.outputs {
            for _ in 0..=LEFT / PIECE {
                if output.read()? == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until there is something to do. Returns whether the program is still running; without
    /// `end` it is not.
    fn wait(
        &self,
        end: Option<&OwnedFd>,
        cancel: Option<&Cancel>,
        left: Duration,
    ) -> Result<bool, Failure> {
        let left = Timespec::try_from(left).map_err(|_| Failure::Time)?;
        let input = self.input.iter();
        let outputs = self.outputs.iter().filter_map(|o| o.pipe.as_ref());
        let mut waiting: Vec<PollFd<'_>> = end
            .map(|end| PollFd::new(end, PollFlags::IN))
            .into_iter()
            .chain(cancel.map(Cancel::poll))
            .chain(input.map(|input| PollFd::new(&input.pipe, PollFlags::OUT)))
            .chain(outputs.map(|pipe| PollFd::new(pipe, PollFlags::IN)))
            .collect();
        match poll(&mut waiting, Some(&left)).map_err(io::Error::from) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => return Ok(end.is_some()),
            Err(error) => return Err(error.into()),
        }
        // The end of the program is the first, where it is waited for.
        let has_ended = waiting.first().is_some_and(|end| !end.revents().is_empty());
        Ok(end.is_some() && !has_ended)
    }
}
