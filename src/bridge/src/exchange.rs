//! One request and its answers over the pipes of a helper.
//!
//! One thread serves all pipes until the last answer, the deadline or the end of the process,
//! whichever is first. A frame is four bytes of length, big-endian, and MessagePack; its length is
//! checked before anything is kept for it.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use saltern_wire::msgpack::{Limits, Value, decode_exact};
use tokio::time::Instant;

use crate::FrameTooLong;
use crate::relay::Relay;

/// The bytes of a frame's length.
pub(crate) const LENGTH: usize = 4;

/// The longest frame either way; `bridge.py` knows it too.
pub(crate) const MAX_FRAME_BYTES: usize = 64 << 20;

/// Bytes of one read.
const PIECE: usize = 64 << 10;

/// Limits of a helper's frames.
const LIMITS: Limits = Limits {
    bytes: MAX_FRAME_BYTES,
    ..Limits::WIRE
};

/// Writes the length of what follows it into the first bytes of a frame.
///
/// # Errors
/// [`FrameTooLong`]
pub(crate) fn set_length(frame: &mut [u8]) -> Result<(), FrameTooLong> {
    let length = frame.len().saturating_sub(LENGTH);
    let fits = u32::try_from(length)
        .ok()
        .filter(|_| length <= MAX_FRAME_BYTES);
    match (fits, frame.first_chunk_mut()) {
        (Some(length), Some(first)) => {
            *first = length.to_be_bytes();
            Ok(())
        }
        _ => Err(FrameTooLong { bytes: length }),
    }
}

/// Bytes as a frame.
pub(crate) fn frame(bytes: &[u8]) -> Result<Vec<u8>, FrameTooLong> {
    let mut frame = vec![0; LENGTH];
    frame.extend_from_slice(bytes);
    set_length(&mut frame)?;
    Ok(frame)
}

/// One answer of a helper.
pub(crate) enum HelperReply {
    /// It has started; the version of its Salt.
    Up(String),
    /// An event of the call, by the end of its tag; more answers follow.
    Event(String, Value),
    /// The result of the work.
    Value(Value),
    /// It does not exist, or refused.
    Refused(String),
    /// It raised another exception.
    Failed(String),
}

/// Why a helper cannot be used any more.
pub(crate) enum HelperFailure {
    /// The deadline has passed.
    Time,
    /// The process has ended, or closed its pipes.
    Ended,
    /// It sent malformed data.
    HelperReply(String),
    /// A system call failed.
    System(io::Error),
}

impl From<io::Error> for HelperFailure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// The ends of a helper's pipes.
pub(crate) struct Pipes {
    requests: ChildStdin,
    answers: ChildStdout,
    errors: Option<ChildStderr>,
    /// Becomes readable when the process has ended.
    end: OwnedFd,
    /// Buffer of incomplete answers.
    inbox: Vec<u8>,
    /// The relay of its standard error.
    pub(crate) relay: Relay,
    /// Its peak memory in bytes, as it reports itself.
    pub(crate) memory: u64,
}

impl Pipes {
    pub(crate) fn new(
        (requests, answers, errors): (ChildStdin, ChildStdout, ChildStderr),
        end: OwnedFd,
        relay: Relay,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&requests, true)?;
        rustix::io::ioctl_fionbio(&answers, true)?;
        rustix::io::ioctl_fionbio(&errors, true)?;
        Ok(Self {
            requests,
            answers,
            errors: Some(errors),
            end,
            inbox: Vec::new(),
            relay,
            memory: 0,
        })
    }

    /// Sends `request` and gives each answer to `take`, until that returns something.
    ///
    /// # Errors
    /// [`HelperFailure`]; then the process must be ended.
    pub(crate) fn exchange<T>(
        &mut self,
        request: &[u8],
        deadline: Instant,
        take: &mut dyn FnMut(HelperReply) -> Option<T>,
    ) -> Result<T, HelperFailure> {
        let mut rest = request;
        // Whatever it has said before is no answer to this.
        if !self.read()? {
            return Err(HelperFailure::Ended);
        }
        if !self.inbox.is_empty() {
            return Err(HelperFailure::HelperReply("it spoke unasked".to_owned()));
        }
        loop {
            while let Some(answer) = self.answer()? {
                if let Some(done) = take(answer) {
                    return Ok(done);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HelperFailure::Time);
            }
            let has_ended = self.wait(left, !rest.is_empty())?;
            let is_open = self.read()?;
            if !is_open || has_ended {
                // Answers that are already buffered still count.
                while let Some(answer) = self.answer()? {
                    if let Some(done) = take(answer) {
                        return Ok(done);
                    }
                }
                return Err(HelperFailure::Ended);
            }
            rest = self.write(rest)?;
        }
    }

    /// Whether the process ends within a time.
    pub(crate) fn has_ended(&self, within: Duration) -> bool {
        let Ok(within) = Timespec::try_from(within) else {
            return false;
        };
        let mut end = [PollFd::new(&self.end, PollFlags::IN)];
        poll(&mut end, Some(&within)).is_ok_and(|ready| ready > 0)
    }

    /// Waits for input, room for output, or the end of the process. Returns whether the process has ended.
    fn wait(&self, left: Duration, is_writing: bool) -> Result<bool, HelperFailure> {
        let left = Timespec::try_from(left).map_err(|_| HelperFailure::Time)?;
        let mut waiting = vec![
            PollFd::new(&self.end, PollFlags::IN),
            PollFd::new(&self.answers, PollFlags::IN),
        ];
        let errors = self.errors.iter().map(|errors| errors.as_fd());
        waiting.extend(errors.map(|errors| PollFd::from_borrowed_fd(errors, PollFlags::IN)));
        if is_writing {
            waiting.push(PollFd::new(&self.requests, PollFlags::OUT));
        }
        match poll(&mut waiting, Some(&left)).map_err(io::Error::from) {
            Ok(_) => Ok(waiting.first().is_some_and(|end| !end.revents().is_empty())),
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads available bytes. Returns whether more answers can come.
    fn read(&mut self) -> Result<bool, HelperFailure> {
        let mut buffer = [0; PIECE];
        if let Some(errors) = &mut self.errors {
            match errors.read(&mut buffer) {
                Ok(0) => self.errors = None,
                Ok(count) => self.relay.take(buffer.get(..count).unwrap_or_default()),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // No more than a frame and a piece is ever kept.
        while self.missing()? > 0 {
            match self.answers.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    let read = buffer.get(..count).unwrap_or_default();
                    self.inbox.extend_from_slice(read);
                }
                Err(error) if is_passing(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Writes as much of `rest` as the process takes; returns the remainder.
    fn write<'a>(&mut self, rest: &'a [u8]) -> Result<&'a [u8], HelperFailure> {
        if rest.is_empty() {
            return Ok(rest);
        }
        match self.requests.write(rest) {
            Ok(count) => Ok(rest.get(count..).unwrap_or_default()),
            Err(error) if is_passing(&error) => Ok(rest),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(HelperFailure::Ended),
            Err(error) => Err(error.into()),
        }
    }

    /// The length of the next frame, once it is known.
    fn next_length(&self) -> Result<Option<usize>, HelperFailure> {
        let Some(first) = self.inbox.first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*first)).unwrap_or(usize::MAX);
        if length > MAX_FRAME_BYTES {
            let problem = format!("it announces {length} bytes, {MAX_FRAME_BYTES} are allowed");
            return Err(HelperFailure::HelperReply(problem));
        }
        Ok(Some(length))
    }

    /// Bytes that the next frame still lacks, at least.
    fn missing(&self) -> Result<usize, HelperFailure> {
        let wanted = LENGTH + self.next_length()?.unwrap_or(0);
        Ok(wanted.saturating_sub(self.inbox.len()))
    }

    /// The next answer, if it is complete.
    fn answer(&mut self) -> Result<Option<HelperReply>, HelperFailure> {
        let Some(length) = self.next_length()? else {
            return Ok(None);
        };
        let Some(packed) = self.inbox.get(LENGTH..LENGTH + length) else {
            return Ok(None);
        };
        let value = decode_exact(packed, &LIMITS)
            .map_err(|error| HelperFailure::HelperReply(format!("it cannot be read: {error}")));
        self.inbox.drain(..LENGTH + length);
        let Value::Map(mut entries) = value? else {
            return Err(HelperFailure::HelperReply("it is no answer".to_owned()));
        };
        let mut take = |name: &str| {
            let at = entries
                .iter()
                .position(|(key, _)| key.as_str() == Some(name))?;
            Some(entries.swap_remove(at).1)
        };
        if let Some(memory) = take("memory").and_then(|memory| memory.as_u64()) {
            self.memory = memory;
        }
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        let answer = if let Some(value) = take("ok") {
            HelperReply::Value(value)
        } else if let Some(problem) = take("refused") {
            HelperReply::Refused(text(problem))
        } else if let Some(problem) = take("failed") {
            HelperReply::Failed(text(problem))
        } else if let Some(suffix) = take("event") {
            HelperReply::Event(text(suffix), take("data").unwrap_or(Value::Nil))
        } else if let Some(version) = take("up") {
            HelperReply::Up(text(version))
        } else {
            return Err(HelperFailure::HelperReply("it is no answer".to_owned()));
        };
        Ok(Some(answer))
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
