//! Link to one peer of a listener: bounded reads, writes with a deadline, timers.
//!
//! An idle connection holds no read buffer; a large message grows its buffer only as bytes arrive,
//! and charges it to the listener's budget first. There is one timer for each connection, moved
//! only when a deadline comes nearer. The meaning of the items is up to the listener.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::{Instant, Sleep};

use super::accept::Gate;
use super::framing::{Framing, Greeted, Introduction, PeerMessage, Side};
use super::limits::SizeLimits;
use super::metrics::Close;
use super::quota::{Bucket, Budget, Share};
use super::stream::Stream;

/// Size of a read while no large frame is incoming; also the part of a message that is not charged
/// to the budget.
const READ_CHUNK: usize = 4 << 10;

/// Largest read of a large frame, so that other connections get their turn.
const READ_MOST: usize = 1 << 20;

/// Stands for "no deadline".
const FAR: Duration = Duration::from_secs(24 * 3600);

/// Result of a read.
pub(super) enum Fill {
    /// Bytes came.
    Some,
    /// The peer closed its side.
    End,
    /// The budget must grant this many units first.
    Starved(u32),
}

/// Due action of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send a PING.
    Ping,
    /// Close the connection.
    Close(Close),
}

pub(super) struct Link {
    pub(super) stream: Stream,
    gate: Arc<Gate>,
    budget: Budget,
    framing: Box<dyn Framing>,
    buffer: BytesMut,
    /// The buffer's share of the budget.
    share: Share,
    /// The share of the frames that were cut from it, until their message is complete.
    message_share: Share,
    /// Whether the peer answers a PING.
    can_be_asked: bool,
    heard: Instant,
    pinged: Option<Instant>,
    /// When the incoming message began, and its bytes so far.
    started: Option<(Instant, u64)>,
    tokens: Bucket,
    alarm: Pin<Box<Sleep>>,
}

impl Link {
    pub(super) fn new(
        stream: Stream,
        gate: Arc<Gate>,
        budget: Budget,
        (side, sizes): (Side, SizeLimits),
    ) -> Self {
        let now = Instant::now();
        let limits = gate.limits;
        Self {
            stream,
            budget,
            framing: gate.transport.framing(side, sizes),
            buffer: BytesMut::new(),
            share: Share::default(),
            message_share: Share::default(),
            can_be_asked: false,
            heard: now,
            pinged: None,
            started: None,
            tokens: Bucket::new(limits.commands, now),
            alarm: Box::pin(tokio::time::sleep_until(now + limits.handshake)),
            gate,
        }
    }

    /// Sets the size limits, and the budget for large messages.
    pub(super) fn promote(&mut self, sizes: SizeLimits, budget: Budget) {
        self.framing.set_sizes(sizes);
        self.budget = budget;
    }

    /// Completes the handshake of the transport. Our first bytes were sent when the connection was
    /// accepted.
    pub(super) async fn handshake(&mut self) -> Result<Introduction, Close> {
        let deadline = self.heard + self.gate.limits.handshake;
        let gate = Arc::clone(&self.gate);
        let mut stopped = pin!(gate.stop.cancelled());
        loop {
            match self.framing.greet(&mut self.buffer)? {
                Greeted::Incomplete => {}
                Greeted::Refused(answer, reason) => {
                    self.write(&answer, &[]).await?;
                    return Err(reason);
                }
                Greeted::Done(introduction, answer) => {
                    self.can_be_asked = self.framing.ping().is_some();
                    if !answer.is_empty() {
                        self.write(&answer, &[]).await?;
                    }
                    return Ok(introduction);
                }
            }
            let event = std::future::poll_fn(|cx| {
                if let Poll::Ready(fill) = self.poll_fill(cx) {
                    return Poll::Ready(fill);
                }
                if stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Err(Close::Shutdown));
                }
                self.poll_alarm(cx, deadline)
                    .map(|()| Err(Close::HandshakeTimeout))
            });
            match event.await? {
                Fill::Some => {}
                Fill::End if self.buffer.is_empty() => return Err(Close::PeerClosed),
                Fill::End => return Err(Close::Truncated),
                // Nothing in a handshake exceeds one read.
                Fill::Starved(_) => return Err(Close::Memory),
            }
        }
    }

    /// The next complete item in the buffer.
    pub(super) fn next(&mut self) -> Result<Option<PeerMessage>, Close> {
        let said = self.framing.next(&mut self.buffer)?;
        if matches!(said, Some(PeerMessage::Part | PeerMessage::Request(..))) {
            self.hand_over_share();
        }
        if said.is_some() && !self.framing.in_message() {
            self.started = None;
        }
        Ok(said)
    }

    /// Charges the large frame that was cut from the buffer to its message. Bytes behind it, one
    /// read's at most, leave its allocation, which nothing pays for once the message is answered.
    fn hand_over_share(&mut self) {
        if self.share.is_empty() {
            return;
        }
        self.message_share.add(std::mem::take(&mut self.share));
        if !self.buffer.is_empty() {
            self.regrow(self.buffer.len().max(READ_CHUNK));
        }
    }

    /// Whether something other than a command is buffered.
    pub(super) fn at_message(&self) -> bool {
        self.framing.at_message(&self.buffer)
    }

    /// Takes over the last message's share of the budget.
    pub(super) fn take_share(&mut self) -> Share {
        std::mem::take(&mut self.message_share)
    }

    /// Takes one token; `Err` if the peer sends commands faster than the rate allows.
    pub(super) fn spend(&mut self) -> Result<(), Close> {
        if self.tokens.take(Instant::now()) {
            Ok(())
        } else {
            Err(Close::Flood)
        }
    }

    /// Records received bytes, PONGs included, for [`Self::poll_fill`].
    fn hear(&mut self, bytes: usize) {
        self.heard = Instant::now();
        self.pinged = None;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.gate.metrics.bytes_in.inc_by(bytes);
        if let Some((_, arrived)) = &mut self.started {
            *arrived += bytes;
        }
    }

    /// Reads once. Call it only when [`Self::next`] has nothing more.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fill, Close>> {
        if let Err(error) = ready!(self.stream.poll_readable(cx)) {
            return Poll::Ready(Err(broken(&error)));
        }
        let room = match self.make_room() {
            Ok(room) => room,
            Err(units) => return Poll::Ready(Ok(Fill::Starved(units))),
        };
        let mut target = (&mut self.buffer).limit(room);
        let read = self.stream.poll_read(cx, &mut target);
        match read {
            Poll::Pending => {
                self.release();
                Poll::Pending
            }
            Poll::Ready(Ok(0)) => Poll::Ready(Ok(Fill::End)),
            Poll::Ready(Ok(count)) => {
                self.hear(count);
                Poll::Ready(Ok(Fill::Some))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(broken(&error))),
        }
    }

    /// Frees an empty buffer.
    fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            self.share = Share::default();
        }
    }

    /// Makes room for a read; gives its size, or the units of the budget that are needed.
    fn make_room(&mut self) -> Result<usize, u32> {
        let held = self.buffer.len();
        let missing = self.framing.missing(&self.buffer);
        if held + missing <= READ_CHUNK {
            // Small items: read ahead into one chunk.
            let spare = self.buffer.capacity() - held;
            if spare < missing.max(256) {
                self.regrow(held + READ_CHUNK.max(missing));
            }
            return Ok(READ_CHUNK);
        }
        // A large frame: twice what has arrived, never more than was announced. A small `missing`
        // may be an underestimate (TCP announces no lengths), so it is no bound.
        let announced = match missing > READ_CHUNK {
            true => held + missing,
            false => usize::MAX,
        };
        let target = announced.min((2 * held).max(2 * READ_CHUNK));
        if self.buffer.capacity() - held < missing && self.buffer.capacity() < target {
            let units = Budget::units(target).saturating_sub(self.share.units());
            if units > 0 {
                self.share.add(self.budget.try_take(units).ok_or(units)?);
            }
            self.regrow(target);
        }
        let room = self.buffer.capacity() - held;
        Ok(room.min(missing.max(READ_CHUNK)).min(READ_MOST))
    }

    fn regrow(&mut self, capacity: usize) {
        // Not `reserve`: that may double the requested size, past what was charged.
        let mut bigger = BytesMut::with_capacity(capacity);
        bigger.extend_from_slice(&self.buffer);
        self.buffer = bigger;
    }

    /// Waits until the budget grants `units`, at most until the message is too slow.
    pub(super) async fn await_budget(&mut self, units: u32) -> Result<(), Close> {
        let deadline = match self.started {
            Some((at, bytes)) => at + self.gate.limits.progress.allowance(bytes),
            None => Instant::now() + self.gate.limits.progress.grace,
        };
        let acquire = self.budget.take(units);
        let kill = self.gate.kill.clone();
        let share = tokio::select! {
            share = tokio::time::timeout_at(deadline, acquire) => share,
            () = kill.cancelled() => return Err(Close::Shutdown),
        };
        match share {
            Ok(Some(share)) => {
                self.share.add(share);
                Ok(())
            }
            _ => Err(Close::Memory),
        }
    }

    /// Records, before a wait, whether a transfer is incomplete. `paused`: we do not read at the
    /// moment.
    pub(super) fn settle(&mut self, paused: bool) {
        if paused || (self.buffer.is_empty() && !self.framing.in_message()) {
            self.started = None;
        } else if self.started.is_none() {
            let held = u64::try_from(self.buffer.len()).unwrap_or(u64::MAX);
            self.started = Some((Instant::now(), held));
        }
        self.release();
    }

    /// Whether a transfer is incomplete, as recorded by [`Self::settle`].
    pub(super) fn in_the_middle(&self) -> bool {
        self.started.is_some()
    }

    /// The next deadline with its action. `silent`: the peer is owed nothing, so that its silence
    /// counts as idleness. `paused`: we do not read.
    pub(super) fn deadline(&self, silent: bool, paused: bool) -> (Instant, Due) {
        let limits = &self.gate.limits;
        let mut next = (self.heard + FAR, Due::Ping);
        let mut nearer = |at: Instant, due: Due| {
            if at < next.0 {
                next = (at, due);
            }
        };
        if let Some((at, bytes)) = self.started {
            nearer(
                at + limits.progress.allowance(bytes),
                Due::Close(Close::SlowMessage),
            );
        }
        if paused {
            return next;
        }
        let heartbeat = limits.heartbeat;
        if self.can_be_asked && !heartbeat.interval.is_zero() {
            match self.pinged {
                Some(at) => nearer(at + heartbeat.timeout, Due::Close(Close::Heartbeat)),
                None => nearer(self.heard + heartbeat.interval, Due::Ping),
            }
        } else if let (Some(idle), true) = (limits.idle, silent) {
            nearer(self.heard + idle, Due::Close(Close::Idle));
        }
        next
    }

    /// Whether `deadline` has passed.
    pub(super) fn poll_alarm(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        loop {
            // A timer that is early only wakes us once too often; moving it for every message
            // would cost more.
            if deadline < self.alarm.deadline() {
                self.alarm.as_mut().reset(deadline);
            }
            ready!(self.alarm.as_mut().poll(cx));
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            self.alarm.as_mut().reset(deadline);
        }
    }

    /// A PING, as bytes; records that an answer is due.
    pub(super) fn ping(&mut self) -> Bytes {
        self.pinged = Some(Instant::now());
        self.framing.ping().unwrap_or_default()
    }

    /// Writes a reply; `moved` is called whenever a slow peer takes more of it.
    pub(super) async fn reply(
        &mut self,
        envelope: &[Bytes],
        payload: &[u8],
        moved: &(dyn Fn() + Sync),
    ) -> Result<(), Close> {
        let held: usize = envelope.iter().map(Bytes::len).sum();
        let mut head = BytesMut::with_capacity(32 + held + 10 * envelope.len());
        self.framing
            .put_reply_head(envelope, payload.len(), &mut head);
        self.write_watched(&head, payload, moved).await
    }

    /// Writes both parts; a peer that takes them too slowly is closed.
    pub(super) async fn write(&mut self, head: &[u8], body: &[u8]) -> Result<(), Close> {
        self.write_watched(head, body, &|| ()).await
    }

    async fn write_watched(
        &mut self,
        head: &[u8],
        body: &[u8],
        moved: &(dyn Fn() + Sync),
    ) -> Result<(), Close> {
        let written = self.try_write(head, body)?;
        if written == head.len() + body.len() && !self.stream.owes() {
            return Ok(());
        }
        // Boxed: the rare case must not make every connection's task larger.
        Box::pin(self.write_slowly((head, body), written, moved)).await
    }

    /// Writes once, without waiting; 0 if the socket takes nothing now.
    fn try_write(&mut self, head: &[u8], body: &[u8]) -> Result<usize, Close> {
        let parts = [io::IoSlice::new(head), io::IoSlice::new(body)];
        self.try_write_parts(&parts)
    }

    /// As [`Self::try_write`], for any number of parts.
    pub(super) fn try_write_parts(&mut self, parts: &[io::IoSlice<'_>]) -> Result<usize, Close> {
        let written = self.stream.try_write(parts);
        let written = written.map_err(|error| broken(&error))?;
        let bytes = u64::try_from(written).unwrap_or(0);
        self.gate.metrics.bytes_out.inc_by(bytes);
        Ok(written)
    }

    /// Sends what TLS has buffered, as far as the socket takes it.
    pub(super) fn try_flush(&mut self) -> Result<(), Close> {
        self.stream.try_flush().map_err(|error| broken(&error))
    }

    async fn write_slowly(
        &mut self,
        (head, body): (&[u8], &[u8]),
        mut written: usize,
        moved: &(dyn Fn() + Sync),
    ) -> Result<(), Close> {
        let started = Instant::now();
        let gate = Arc::clone(&self.gate);
        let mut killed = pin!(gate.kill.cancelled());
        let total = head.len() + body.len();
        // Bytes that the kernel took at once say nothing about the peer.
        let buffered = written;
        while written < total || self.stream.owes() {
            let through = u64::try_from(written - buffered).unwrap_or(u64::MAX);
            let deadline = started + gate.limits.progress.allowance(through);
            std::future::poll_fn(|cx| {
                if killed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Err(Close::Shutdown));
                }
                match self.stream.poll_writable(cx) {
                    Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(broken(&error))),
                    Poll::Pending => {}
                }
                self.poll_alarm(cx, deadline)
                    .map(|()| Err(Close::SlowReader))
            })
            .await?;
            self.try_flush()?;
            if written == total {
                continue;
            }
            let more = match written.checked_sub(head.len()) {
                Some(done) => self.try_write(&[], body.get(done..).unwrap_or_default())?,
                None => self.try_write(head.get(written..).unwrap_or_default(), body)?,
            };
            if more > 0 {
                moved();
            }
            written += more;
        }
        // The peer read, so it is alive; a PONG may wait behind what it had to read first.
        self.heard = Instant::now();
        self.pinged = None;
        Ok(())
    }
}

fn broken(error: &io::Error) -> Close {
    match error.kind() {
        // The errors of a peer that closes during a write.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Close::PeerClosed,
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => Close::Unreachable,
        _ => Close::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_and_unreachable_peers_have_different_reasons() {
        use rustix::io::Errno;
        for (errno, reason) in [
            (Errno::CONNRESET, Close::PeerClosed),
            (Errno::PIPE, Close::PeerClosed),
            // What TCP_USER_TIMEOUT and keepalive end a connection with.
            (Errno::TIMEDOUT, Close::Unreachable),
            (Errno::HOSTUNREACH, Close::Unreachable),
            (Errno::NETUNREACH, Close::Unreachable),
            (Errno::NOMEM, Close::Io),
        ] {
            assert_eq!(broken(&errno.into()), reason, "{errno}");
        }
    }
}
