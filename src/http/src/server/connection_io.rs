//! The byte stream of one connection: it reports to the [`Activity`], holds the connection's slot,
//! and closes so that the last response arrives.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::activity::Activity;
use super::connection_slots::ConnectionSlot;
use super::metrics::Open;

/// Bytes that a peer may still send after its response before the connection is closed. Closing
/// with bytes unread makes the kernel reset the connection, and the response may be lost.
const LINGER_BYTES: usize = 256 << 10;

/// Time in which it may send them.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes read at once of what is ignored.
const DISCARD: usize = 4 << 10;

/// Resources of a connection in use: its slot and its part of the gauge. Both are given back once
/// the last response is sent: a lingering peer costs no other one a connection.
pub(super) struct InUse(
    #[expect(dead_code, reason = "held, and given back when dropped")]
    pub(super)  (ConnectionSlot, Open),
);

/// Parts of the server that the stream of a connection uses.
pub(super) struct IoParts {
    pub(super) activity: Arc<Activity>,
    pub(super) in_use: InUse,
    /// Lingering connections at most; further ones are closed with their response.
    pub(super) lingering: Arc<Semaphore>,
    /// Ends an upgraded connection, whoever has it.
    pub(super) cut: CancellationToken,
    /// Cancelled when the stream is dropped.
    pub(super) gone: DropGuard,
    /// A stopping server waits for it.
    pub(super) tracked: TaskTrackerToken,
}

/// See the head of this file.
pub(super) struct ConnectionIo<S> {
    stream: S,
    activity: Arc<Activity>,
    in_use: Option<InUse>,
    lingering: Arc<Semaphore>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    closing: Closing,
    _gone: DropGuard,
    _tracked: TaskTrackerToken,
}

enum Closing {
    Open,
    Lingering {
        until: Pin<Box<Sleep>>,
        left: usize,
        _permit: OwnedSemaphorePermit,
    },
    Closed,
}

impl<S> ConnectionIo<S> {
    pub(super) fn new(stream: S, parts: IoParts) -> Self {
        Self {
            stream,
            activity: parts.activity,
            in_use: Some(parts.in_use),
            lingering: parts.lingering,
            cut: Box::pin(parts.cut.cancelled_owned()),
            closing: Closing::Open,
            _gone: parts.gone,
            _tracked: parts.tracked,
        }
    }

    /// Whether the server ended this upgraded connection; wakes the task when it does.
    fn is_cut(&mut self, cx: &mut Context<'_>) -> bool {
        self.activity.is_upgraded() && self.cut.as_mut().poll(cx).is_ready()
    }

    fn written<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.set_blocked(written.is_pending());
        written
    }
}

impl<S: AsyncRead + Unpin> ConnectionIo<S> {
    /// Reads and discards until the peer closes, too, or has had its time.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Closing::Lingering { until, left, .. } = &mut self.closing else {
            return Poll::Ready(());
        };
        let mut discarded = [0; DISCARD];
        while until.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut discarded);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 || count > *left {
                break;
            }
            *left -= count;
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_cut(cx) {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let arrived = buffer.filled().get(before..).unwrap_or_default();
        if !arrived.is_empty() {
            self.activity.arrived(arrived);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ConnectionIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_cut(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_cut(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_cut(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(flushed)
    }

    /// Closes our side, then reads what the peer still sends, for a while.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Closing::Open = this.closing {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.activity.set_blocked(false);
            this.in_use = None;
            this.closing = match Arc::clone(&this.lingering).try_acquire_owned() {
                Ok(permit) => Closing::Lingering {
                    until: Box::pin(tokio::time::sleep(LINGER)),
                    left: LINGER_BYTES,
                    _permit: permit,
                },
                Err(_) => Closing::Closed,
            };
        }
        if !this.is_cut(cx) {
            ready!(this.poll_linger(cx));
        }
        this.closing = Closing::Closed;
        Poll::Ready(Ok(()))
    }
}
