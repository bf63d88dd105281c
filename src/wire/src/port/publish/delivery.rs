//! Task of a subscriber's connection: reads its subscriptions, writes its messages.

use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFuture;

use super::subscriber::{BATCH, Subscriber};
use super::{Core, PubMessage};
use crate::port::accept::Admission;
use crate::port::framing::{PeerMessage, Side, Transport};
use crate::port::limits::{Progress, Rate, SizeLimits};
use crate::port::link::{Due, Fill, Link};
use crate::port::metrics::Close;
use crate::port::quota::{Bucket, Budget};
use crate::port::stream::{Arrival, Stream};

/// Longest registration, which includes an encrypted token of RSA.
const REGISTRATION: usize = 3 << 10;

/// PONGs that wait for a subscriber to read; further PINGs go unanswered.
const CONTROLS: usize = 16;

/// Removes the subscriber from the index on drop, also if its task panics.
struct Registered {
    core: Arc<Core>,
    subscriber: Arc<Subscriber>,
    /// Whether the watch was notified of it.
    is_announced: bool,
    /// Why it ends; a panic, unless set otherwise.
    reason: Close,
}

impl Registered {
    fn new(core: Arc<Core>, subscriber: Arc<Subscriber>, receives_all: bool) -> Self {
        {
            let mut index = core.index.lock();
            index.insert(Arc::clone(&subscriber));
            if receives_all {
                index.hear(&subscriber);
            }
        }
        let mut registered = Self {
            core,
            subscriber,
            is_announced: false,
            reason: Close::Panic,
        };
        if receives_all {
            registered.announce(b"");
        }
        registered
    }

    /// Notifies the watch of a subscription.
    fn announce(&mut self, topic: &[u8]) {
        if let Some(watch) = self.core.watch() {
            let subscriber = &self.subscriber;
            watch.subscribed(subscriber.number, subscriber.address, topic);
            self.is_announced = true;
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.core.index.lock().remove(self.subscriber.number);
        self.subscriber.close();
        if self.is_announced
            && let Some(watch) = self.core.watch()
        {
            watch.left(self.subscriber.number, self.reason);
        }
    }
}

/// The task of a connection.
pub(super) async fn converse(
    arrival: Arrival,
    mut admission: Admission,
    core: Arc<Core>,
    budget: Budget,
) {
    let reason = match admission.gate.stream(arrival).await {
        Ok(stream) => talk(stream, &mut admission, core, budget).await,
        Err(reason) => reason,
    };
    admission.ends(reason);
}

async fn talk(stream: Stream, admission: &mut Admission, core: Arc<Core>, budget: Budget) -> Close {
    let limits = core.limits;
    // With ZeroMQ a subscription is the longest thing that a subscriber may send. The limit is a
    // little higher, so that a topic that is too long gets its own reason.
    let longest = match admission.gate.transport {
        Transport::ZeroMq => 2 * limits.topic + 64,
        Transport::Tcp | Transport::WebSocket => REGISTRATION,
    };
    let sizes = SizeLimits {
        frame: longest,
        message: longest,
        frames: 1,
        command: longest,
    };
    let gate = Arc::clone(&admission.gate);
    let mut link = Link::new(stream, gate, budget, (Side::Publish, sizes));
    let introduction = match link.handshake().await {
        Ok(introduction) => introduction,
        Err(reason) => return reason,
    };
    admission.opened();
    let subscriber = Subscriber::new(admission);
    let registered = Registered::new(core, subscriber, introduction.receives_all);
    // All subscriptions at once are no flood; endless changes are.
    let changes = Rate {
        burst: u32::try_from(limits.subscriptions)
            .unwrap_or(u32::MAX)
            .saturating_mul(2),
        per_second: limits.peers.commands.per_second,
    };
    let mut delivery = Delivery {
        link,
        registered,
        changes: Bucket::new(changes, Instant::now()),
        sending: VecDeque::new(),
        offset: 0,
        controls: 0,
        blocked: false,
        asked: false,
        behind: None,
    };
    let reason = match delivery.run().await {
        Ok(never) => match never {},
        Err(reason) => reason,
    };
    delivery.registered.reason = reason;
    reason
}

enum Never {}

/// An item to write.
pub(super) enum Outgoing {
    Message(PubMessage, Transport),
    Control(Bytes),
}

impl Outgoing {
    fn parts(&self) -> [&[u8]; 2] {
        match self {
            Self::Message(message, transport) => message.parts(*transport),
            Self::Control(bytes) => [bytes, &[]],
        }
    }

    fn size(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

enum Event {
    Work,
    Writable,
    Filled(Result<Fill, Close>),
    Due(Due),
    Stop,
}

struct Delivery {
    link: Link,
    registered: Registered,
    changes: Bucket,
    /// Items being written; of the front one the first `offset` bytes are out.
    sending: VecDeque<Outgoing>,
    offset: usize,
    /// Controls among `sending`.
    controls: usize,
    /// The socket takes nothing now.
    blocked: bool,
    /// A PING is unanswered, and the watch knows.
    asked: bool,
    /// Since when messages wait for the subscriber, and the bytes it took since.
    behind: Option<(Instant, u64)>,
}

impl Delivery {
    async fn run(&mut self) -> Result<Never, Close> {
        let gate = Arc::clone(&self.registered.subscriber.gate);
        let mut stopped = pin!(gate.stop.cancelled());
        let mut killed = pin!(gate.kill.cancelled());
        let mut stopping = false;
        loop {
            if self.registered.subscriber.is_dismissed() {
                return Err(Close::Dismissed);
            }
            self.write_queued()?;
            if stopping {
                if self.sending.is_empty() && !self.blocked {
                    return Err(Close::Shutdown);
                }
            } else if self.read_buffered()? {
                continue;
            }
            let ending = if stopping {
                killed.as_mut()
            } else {
                stopped.as_mut()
            };
            match self.wait(ending, stopping).await {
                Event::Work | Event::Writable => {}
                Event::Filled(Ok(Fill::Some)) => self.answered(),
                Event::Filled(Ok(Fill::End)) => {
                    let whole = !self.link.in_the_middle();
                    return Err(if whole {
                        Close::PeerClosed
                    } else {
                        Close::Truncated
                    });
                }
                // With these limits every item fits one read.
                Event::Filled(Ok(Fill::Starved(_))) => return Err(Close::Memory),
                Event::Filled(Err(reason)) | Event::Due(Due::Close(reason)) => return Err(reason),
                Event::Due(Due::Ping) => {
                    let ping = self.link.ping();
                    self.control(ping);
                    self.asked();
                }
                Event::Stop if stopping => return Err(Close::Shutdown),
                Event::Stop => stopping = true,
            }
        }
    }

    fn asked(&mut self) {
        self.asked = true;
        if let Some(watch) = self.registered.core.watch() {
            watch.asked(self.registered.subscriber.number);
        }
    }

    fn answered(&mut self) {
        if std::mem::take(&mut self.asked)
            && let Some(watch) = self.registered.core.watch()
        {
            watch.answered(self.registered.subscriber.number);
        }
    }

    /// Queues a command, between messages and before those not begun.
    fn control(&mut self, bytes: Bytes) {
        let place = usize::from(self.offset > 0).min(self.sending.len());
        self.sending.insert(place, Outgoing::Control(bytes));
        self.controls += 1;
    }

    /// Writes until the queue is empty or the subscriber takes no more.
    fn write_queued(&mut self) -> Result<(), Close> {
        let (mut messages, mut bytes) = (0, 0);
        loop {
            self.registered
                .subscriber
                .exchange(messages, bytes, &mut self.sending);
            (messages, bytes) = (0, 0);
            if self.sending.is_empty() {
                self.sending = VecDeque::new();
                self.link.try_flush()?;
                self.blocked = self.link.stream.owes();
                if self.blocked {
                    self.behind.get_or_insert_with(|| (Instant::now(), 0));
                } else {
                    self.behind = None;
                }
                return Ok(());
            }
            let mut parts = [IoSlice::new(&[]); 2 * BATCH];
            let mut skip = self.offset;
            let mut count = 0;
            let pieces = self.sending.iter().flat_map(Outgoing::parts);
            for (slot, piece) in parts.iter_mut().zip(pieces) {
                let rest = piece.get(skip..).unwrap_or_default();
                skip = skip.saturating_sub(piece.len());
                *slot = IoSlice::new(rest);
                count += 1;
            }
            let written = self.link.try_write_parts(&parts[..count])?;
            if written == 0 {
                self.blocked = true;
                self.behind.get_or_insert_with(|| (Instant::now(), 0));
                return Ok(());
            }
            if let Some((_, taken)) = &mut self.behind {
                *taken += u64::try_from(written).unwrap_or(u64::MAX);
            }
            self.offset += written;
            while let Some(front) = self.sending.front() {
                let size = front.size();
                if self.offset < size {
                    break;
                }
                self.offset -= size;
                match self.sending.pop_front() {
                    Some(Outgoing::Message(..)) => {
                        messages += 1;
                        bytes += size;
                    }
                    _ => self.controls -= 1,
                }
            }
            let sent = u64::try_from(messages).unwrap_or(0);
            let metrics = &self.registered.subscriber.gate.metrics;
            metrics.messages_out.inc_by(sent);
        }
    }

    /// Handles what is buffered; `true` if there is something to write.
    fn read_buffered(&mut self) -> Result<bool, Close> {
        let mut answered = false;
        while let Some(said) = self.link.next()? {
            match said {
                PeerMessage::Subscribe(topic) => self.subscribe(&topic)?,
                PeerMessage::Cancel(topic) => self.cancel(&topic)?,
                PeerMessage::Registration(words) => self.register(&words)?,
                PeerMessage::Ping(answer) => {
                    self.link.spend()?;
                    if self.controls < CONTROLS {
                        self.control(answer);
                        answered = true;
                    }
                }
                PeerMessage::Close(_) => return Err(Close::PeerClosed),
                // Ignored up to the rate limit.
                PeerMessage::Ignored | PeerMessage::Part | PeerMessage::Request(..) => {
                    self.link.spend()?
                }
            }
        }
        Ok(answered)
    }

    fn subscribe(&mut self, topic: &[u8]) -> Result<(), Close> {
        let Registered {
            core, subscriber, ..
        } = &self.registered;
        core.index
            .lock()
            .subscribe(subscriber, topic, &core.limits)?;
        self.registered.announce(topic);
        self.change()
    }

    /// Passes a registration to the watch, for which it costs more than reading it cost us.
    fn register(&mut self, words: &Bytes) -> Result<(), Close> {
        self.change()?;
        let Registered {
            core, subscriber, ..
        } = &self.registered;
        let name = core
            .watch()
            .and_then(|watch| watch.registers(subscriber.number, words));
        if let Some(name) = name {
            core.index.lock().name(subscriber.number, name);
        }
        Ok(())
    }

    fn cancel(&mut self, topic: &[u8]) -> Result<(), Close> {
        let Registered {
            core, subscriber, ..
        } = &self.registered;
        core.index.lock().cancel(subscriber.number, topic);
        self.change()
    }

    fn change(&mut self) -> Result<(), Close> {
        let metrics = &self.registered.subscriber.gate.metrics;
        metrics.messages_in.inc();
        if self.changes.take(Instant::now()) {
            Ok(())
        } else {
            Err(Close::Flood)
        }
    }

    /// Waits for work.
    async fn wait(
        &mut self,
        mut ending: Pin<&mut WaitForCancellationFuture<'_>>,
        stopping: bool,
    ) -> Event {
        self.link.settle(stopping);
        let (mut deadline, mut due) = self.link.deadline(true, stopping);
        if let Some((since, taken)) = self.behind {
            // A PING would wait behind what the subscriber does not read, so only this counts.
            // Taking a byte now and then is not enough.
            let limits = &self.registered.core.limits;
            let grace = limits.drain_timeout;
            let allowance = Progress {
                grace,
                ..limits.peers.progress
            }
            .allowance(taken);
            (deadline, due) = (since + allowance, Due::Close(Close::SlowSubscriber));
        }
        std::future::poll_fn(|cx| {
            if self.blocked {
                // Readiness errors show in the next write.
                if self.link.stream.poll_writable(cx).is_ready() {
                    return Poll::Ready(Event::Writable);
                }
            } else if self.registered.subscriber.poll_work(cx).is_ready() {
                return Poll::Ready(Event::Work);
            }
            if !stopping && let Poll::Ready(fill) = self.link.poll_fill(cx) {
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
