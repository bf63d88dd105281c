//! The task of a connection: reads requests, hands them on, writes replies.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio_util::sync::WaitForCancellationFuture;

use super::connection::{Connection, Registered, Reply};
use super::{Core, Extras, Incoming, Peer, ReplyHandle, RequestSink};
use crate::zmtp::accept::Admission;
use crate::zmtp::codec::{HEADER_MAX, Item, put_frame_header};
use crate::zmtp::command::{Command, SocketType};
use crate::zmtp::link::{Due, Fill, Link};
use crate::zmtp::metrics::Close;

/// Most frames, and bytes, before the empty delimiter. libzmq's own sockets put there at most an
/// identity for each hop.
const ENVELOPE_FRAMES: usize = 8;
const ENVELOPE_BYTES: usize = 1024;

/// The task of a connection.
pub(super) async fn converse(
    stream: TcpStream,
    mut admission: Admission,
    core: Arc<Core>,
    sink: Arc<dyn RequestSink>,
) {
    let gate = Arc::clone(&core.gate);
    let link = Link::new(
        stream,
        gate,
        core.strangers.clone(),
        core.limits.before_auth,
    );
    let reason = talk(link, &mut admission, core, sink).await;
    admission.ends(reason);
}

async fn talk(
    mut link: Link,
    admission: &mut Admission,
    core: Arc<Core>,
    sink: Arc<dyn RequestSink>,
) -> Close {
    const PEERS: [SocketType; 3] = [SocketType::Req, SocketType::Dealer, SocketType::Router];
    let ready = match link.handshake(&PEERS).await {
        Ok(ready) => ready,
        Err(reason) => return reason,
    };
    admission.opened();
    let connection = Connection::new(core, admission.number, admission.peer);
    // Copied: the bytes that came share a whole read buffer.
    let identity = Bytes::copy_from_slice(&ready.identity);
    let registered = Registered::new(Arc::clone(&connection), &identity);
    let identity = if identity.is_empty() {
        unnamed(admission.number)
    } else {
        identity
    };
    let window = match ready.socket_type {
        Some(SocketType::Req) => 1,
        _ => connection.core.limits.window.max(1),
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
        message: Partial::default(),
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

/// Stands for a peer without identity, in the form of libzmq's ROUTER: a zero and a number.
fn unnamed(number: u64) -> Bytes {
    let [.., a, b, c, d] = number.to_be_bytes();
    Bytes::copy_from_slice(&[0, a, b, c, d])
}

enum Never {}

/// A message while its frames come in.
#[derive(Default)]
struct Partial {
    /// Frames up to the delimiter, which is not among them.
    envelope: Vec<Bytes>,
    delimited: bool,
    payload: Option<Bytes>,
}

impl Partial {
    fn add(&mut self, frame: Bytes) -> Result<(), Close> {
        if self.delimited {
            // Stock uses the frame after the delimiter and ignores what follows.
            self.payload.get_or_insert(frame);
        } else if frame.is_empty() {
            self.delimited = true;
        } else {
            let held: usize = self.envelope.iter().map(Bytes::len).sum();
            if self.envelope.len() >= ENVELOPE_FRAMES || held + frame.len() > ENVELOPE_BYTES {
                return Err(Close::Envelope);
            }
            self.envelope.push(frame);
        }
        Ok(())
    }
}

struct Conversation {
    link: Link,
    peer: Peer,
    connection: Arc<Connection>,
    sink: Arc<dyn RequestSink>,
    message: Partial,
    /// Requests delivered and not replied to.
    unanswered: usize,
    window: usize,
    /// Whether the link has the limits of a known peer.
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
        let gate = Arc::clone(&self.connection.core.gate);
        let mut stopped = pin!(gate.stop.cancelled());
        let mut killed = pin!(gate.kill.cancelled());
        let mut stopping = false;
        loop {
            while let Some(reply) = self.connection.next_reply()? {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.write_reply(&reply).await?;
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
            let Some(item) = self.link.next()? else {
                return Ok(delivered);
            };
            match item {
                Item::Frame { more, payload } => {
                    self.message.add(payload)?;
                    if !more {
                        self.deliver().await?;
                        delivered = true;
                    }
                }
                Item::Command(command) => self.obey(command).await?,
                // The codec gives one greeting, and the handshake took it.
                Item::Greeting(_) => return Err(Close::Handshake),
            }
        }
    }

    async fn obey(&mut self, command: Command) -> Result<(), Close> {
        match command {
            Command::Ping { context, .. } => {
                self.link.spend()?;
                self.link.send_command(&Command::Pong(context)).await
            }
            Command::Error(_) => Err(Close::PeerError),
            Command::Ready(_) => Err(Close::Handshake),
            Command::Pong(_)
            | Command::Subscribe(_)
            | Command::Cancel(_)
            | Command::Unknown { .. } => self.link.spend(),
        }
    }

    async fn deliver(&mut self) -> Result<(), Close> {
        let Partial {
            envelope, payload, ..
        } = std::mem::take(&mut self.message);
        let payload = payload.ok_or(Close::Envelope)?;
        self.connection.core.gate.metrics.messages_in.inc();
        self.unanswered += 1;
        let share = self.link.take_share();
        let extras = (!envelope.is_empty() || !share.is_empty()).then(|| {
            Box::new(Extras {
                envelope,
                _share: share,
            })
        });
        let reply = ReplyHandle {
            connection: Some(Arc::clone(&self.connection)),
            extras,
        };
        let incoming = Incoming {
            peer: self.peer.clone(),
            payload,
            reply,
        };
        if let Err(incoming) = self.sink.try_deliver(incoming) {
            let sink = Arc::clone(&self.sink);
            sink.deliver(incoming).await;
        }
        Ok(())
    }

    async fn write_reply(&mut self, reply: &Reply) -> Result<(), Close> {
        let Reply { envelope, payload } = reply;
        self.connection.core.gate.metrics.messages_out.inc();
        if envelope.is_empty() {
            let mut head = [0; 2 + HEADER_MAX];
            let size = head.len();
            let mut rest = head.as_mut_slice();
            put_frame_header(0, true, &mut rest);
            put_frame_header(payload.len(), false, &mut rest);
            let length = size - rest.remaining_mut();
            return self.link.write(&head[..length], payload).await;
        }
        let held: usize = envelope.iter().map(|frame| HEADER_MAX + frame.len()).sum();
        let mut head = BytesMut::with_capacity(held + 2 * HEADER_MAX);
        for frame in envelope {
            put_frame_header(frame.len(), true, &mut head);
            head.put_slice(frame);
        }
        put_frame_header(0, true, &mut head);
        put_frame_header(payload.len(), false, &mut head);
        self.link.write(&head, payload).await
    }

    /// Sleeps until something is to be done.
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
            // Read even with a full window: a PING wants its PONG, and a peer that leaves is
            // noticed.
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
