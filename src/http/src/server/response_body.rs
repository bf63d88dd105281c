//! The body of a response: in pieces that a connection can hold, with its request counted until it
//! ends, and, for a long stream, with an end when the server stops.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::answering::Answered;

/// Largest piece handed to a connection at once. HTTP/2 takes a whole piece as soon as its peer
/// takes any byte, so this bounds what a peer that does not read makes a stream buffer.
const PIECE: usize = 64 << 10;

/// Time in which a long stream may end by itself once the server stops.
const STREAM_GRACE: Duration = Duration::from_millis(100);

/// See the head of this file.
pub(super) struct ResponseBody {
    inner: Body,
    /// The unsent rest of the last frame.
    rest: Bytes,
    stop: Option<StreamStop>,
    answered: Answered,
}

/// The end of a long stream.
enum StreamStop {
    Serving(Pin<Box<WaitForCancellationFutureOwned>>),
    Stopping(Pin<Box<Sleep>>),
}

impl StreamStop {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Serving(stop) = self {
            ready!(stop.as_mut().poll(cx));
            *self = Self::Stopping(Box::pin(tokio::time::sleep(STREAM_GRACE)));
        }
        match self {
            Self::Stopping(grace) => grace.as_mut().poll(cx),
            Self::Serving(_) => Poll::Pending,
        }
    }
}

impl ResponseBody {
    /// A body that is no long stream.
    pub(super) fn new(inner: Body, answered: Answered) -> Self {
        Self {
            inner,
            rest: Bytes::new(),
            stop: None,
            answered,
        }
    }

    /// A long stream, which ends when `stop` is cancelled.
    pub(super) fn stream(inner: Body, answered: Answered, stop: CancellationToken) -> Self {
        Self {
            stop: Some(StreamStop::Serving(Box::pin(stop.cancelled_owned()))),
            ..Self::new(inner, answered)
        }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        self.answered.sent(piece.len());
        Frame::data(piece)
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let is_stopped = (this.stop.as_mut()).is_some_and(|stop| stop.poll(cx).is_ready());
        if is_stopped {
            return Poll::Ready(None);
        }
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.piece())));
        }
        let frame = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            end => return Poll::Ready(end),
        };
        match frame.into_data() {
            Ok(data) => {
                this.rest = data;
                Poll::Ready(Some(Ok(this.piece())))
            }
            Err(other) => Poll::Ready(Some(Ok(other))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.stop.is_some() {
            return SizeHint::default();
        }
        let inner = self.inner.size_hint();
        let rest = self.rest.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
