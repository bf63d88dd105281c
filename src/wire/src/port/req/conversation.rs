//! Task of a request connection: reads requests, passes them on, writes replies.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFuture;

use super::connection::{Connection, Registered, Reply};
use super::{Core, Extras, Incoming, Peer, Receiver, ReplyHandle, RequestSink};
use crate::port::accept::Admission;
use crate::port::framing::{PeerMessage, Side};
use crate::port::link::{Due, Fill, Link};
use crate::port::metrics::Close;
use crate::port::stream::Arrival;

/// Runs a connection to its end.
pub(super) async fn converse(
    arrival: Arrival,
    mut admission: Admission,
    core: Arc<Core>,
    sink: Arc<dyn RequestSink>,
) {
    let reason = match admission.gate.stream(arrival).await {
        Ok(stream) => {
            let gate = Arc::clone(&admission.gate);
            let sizes = (Side::Request, core.limits.before_auth);
            let link = Link::new(stream, gate, core.strangers.clone(), sizes);
            talk(link, &mut admission, core, sink).await
        }
        Err(reason) => reason,
    };
    admission.ends(reason);
}

async fn talk(
    mut link: Link,
    admission: &mut Admission,
    core: Arc<Core>,
    sink: Arc<dyn RequestSink>,
) -> Close {
    let introduction = match link.handshake().await {
        Ok(introduction) => introduction,
        Err(reason) => return reason,
    };
    admission.opened();
    let connection = Connection::new(core, admission);
    let registered = Registered::new(Arc::clone(&connection), &introduction.identity);
    let identity = if introduction.identity.is_empty() {
        unnamed(admission.number)
    } else {
        introduction.identity
    };
    let window = match introduction.lockstep {
        true => 1,
        false => connection.core.limits.window.max(1),
    };
    let mut conversation = Conversation {
        link,
        peer: Peer {
            address: admission.peer,
            connection: admission.number,
            identity,
        },
        connection,
        sink,
        unanswered: 0,
        window,
        known: false,
    };
    let reason = match conversation.run().await {
        Ok(never) => match never {},
        Err(reason) => reason,
    };
    drop(registered);
    reason
}

/// Substitute for a missing identity, in the form of libzmq's ROUTER: a zero and a number.
fn unnamed(number: u64) -> Bytes {
    let [.., a, b, c, d] = number.to_be_bytes();
    Bytes::copy_from_slice(&[0, a, b, c, d])
}

enum Never {}

struct Conversation {
    link: Link,
    peer: Peer,
    connection: Arc<Connection>,
    sink: Arc<dyn RequestSink>,
    /// Requests delivered and not replied to.
    unanswered: usize,
    window: usize,
    /// Whether the link has the limits of an authenticated peer.
    known: bool,
}

enum Event {
    Work,
    Filled(Result<Fill, Close>),
    Due(Due),
    Stop,
}

impl Conversation {
    async fn run(&mut self) -> Result<Never, Close> {
        let gate = Arc::clone(&self.connection.gate);
        let mut stopped = pin!(gate.stop.cancelled());
        let mut killed = pin!(gate.kill.cancelled());
        let mut stopping = false;
        loop {
            while let Some(reply) = self.connection.next_reply()? {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.connection.gate.metrics.messages_out.inc();
                self.write(&reply).await?;
                if self.connection.is_refused_too_often() {
                    return Err(Close::Refused);
                }
            }
            if stopping {
                if self.unanswered == 0 {
                    return Err(Close::Shutdown);
                }
            } else if self.read_buffered().await? {
                // Something was delivered, and may be answered already.
                continue;
            }
            let ending = if stopping {
                killed.as_mut()
            } else {
                stopped.as_mut()
            };
            match self.wait(ending, stopping).await {
                Event::Work | Event::Filled(Ok(Fill::Some)) => {}
                Event::Filled(Ok(Fill::End)) => {
                    let whole = !self.link.in_the_middle();
                    return Err(if whole {
                        Close::PeerClosed
                    } else {
                        Close::Truncated
                    });
                }
                Event::Filled(Ok(Fill::Starved(units))) => self.link.await_budget(units).await?,
                Event::Filled(Err(reason)) | Event::Due(Due::Close(reason)) => return Err(reason),
                Event::Due(Due::Ping) => {
                    let ping = self.link.ping();
                    self.link.write(&ping, &[]).await?;
                }
                Event::Stop if stopping => return Err(Close::Shutdown),
                Event::Stop => stopping = true,
            }
        }
    }

    /// Writes a reply, unless the connection is closed meanwhile. The reply's share of the budget
    /// is freed when it is dropped, after this.
    async fn write(&mut self, reply: &Reply) -> Result<(), Close> {
        let connection = &self.connection;
        let moved = || reply.moved();
        let writing = self.link.reply(&reply.envelope, &reply.payload, &moved);
        let mut writing = pin!(writing);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(written) = writing.as_mut().poll(cx) {
                return Poll::Ready(written);
            }
            connection.poll_ending(cx).map(Err)
        })
        .await
    }

    /// Handles what is buffered; `true` if a request was among it. Stops in front of a message
    /// when the window is full.
    async fn read_buffered(&mut self) -> Result<bool, Close> {
        let mut delivered = false;
        loop {
            if self.unanswered >= self.window && self.link.at_message() {
                return Ok(delivered);
            }
            if !self.known && self.connection.is_known() {
                self.known = true;
                let core = &self.connection.core;
                self.link
                    .promote(core.limits.after_auth, core.known.clone());
            }
            match self.link.next()? {
                None => return Ok(delivered),
                Some(PeerMessage::Part) => {}
                Some(PeerMessage::Request(envelope, payload)) => {
                    self.deliver(envelope, payload).await?;
                    delivered = true;
                }
                Some(PeerMessage::Ping(answer)) => {
                    self.link.spend()?;
                    self.link.write(&answer, &[]).await?;
                }
                Some(PeerMessage::Close(answer)) => {
                    self.link.write(&answer, &[]).await?;
                    return Err(Close::PeerClosed);
                }
                Some(
                    PeerMessage::Ignored
                    | PeerMessage::Subscribe(_)
                    | PeerMessage::Cancel(_)
                    | PeerMessage::Registration(_),
                ) => self.link.spend()?,
            }
        }
    }

    async fn deliver(&mut self, envelope: Vec<Bytes>, payload: Bytes) -> Result<(), Close> {
        self.connection.gate.metrics.messages_in.inc();
        self.unanswered += 1;
        let share = self.link.take_share();
        let extras = (!envelope.is_empty() || !share.is_empty()).then(|| {
            Box::new(Extras {
                envelope,
                _share: share,
            })
        });
        let reply = ReplyHandle {
            receiver: Some(Receiver::Connection(Arc::clone(&self.connection))),
            extras,
        };
        let incoming = Incoming {
            peer: self.peer.clone(),
            payload,
            received: Instant::now(),
            reply,
        };
        if let Err(incoming) = self.sink.try_deliver(incoming) {
            let sink = Arc::clone(&self.sink);
            sink.deliver(incoming).await;
        }
        Ok(())
    }

    /// Waits for work.
    async fn wait(
        &mut self,
        mut ending: Pin<&mut WaitForCancellationFuture<'_>>,
        stopping: bool,
    ) -> Event {
        let full = self.unanswered >= self.window;
        let paused = stopping || (full && self.link.at_message());
        self.link.settle(paused);
        let (deadline, due) = self.link.deadline(self.unanswered == 0, paused);
        std::future::poll_fn(|cx| {
            if self.connection.poll_work(cx).is_ready() {
                return Poll::Ready(Event::Work);
            }
            // Read even with a full window: a PING needs its PONG, and the end of the connection
            // is noticed.
            if !paused && let Poll::Ready(fill) = self.link.poll_fill(cx) {
                return Poll::Ready(Event::Filled(fill));
            }
            if ending.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Stop);
            }
            self.link.poll_alarm(cx, deadline).map(|()| Event::Due(due))
        })
        .await
    }
}
