//! Streams of events over websockets: `/ws` of `rest_cherrypy`, `/all_events` and
//! `/formatted_events` of `rest_tornado`.
//!
//! Messages are those of stock: nothing comes before the client has said that it is ready. A stream
//! that the master ends says why in its close frame. A client that takes nothing for `SEND_TIME` is
//! cut off, and one that falls behind the events that are shared, as on `/events`.
//!
//! With our parameter `last_event_id` each message bears the durable position of its event, and a
//! client that gives its last one resumes behind it, as with `Last-Event-ID` on `/events`. Formatted
//! events have none: each has the whole state in it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use axum::response::Response;
use futures_util::future::BoxFuture;
use futures_util::{SinkExt as _, StreamExt as _};
use saltern_base::form_pairs;
use saltern_http::websocket::{
    CloseCode, CloseFrame, Message, UpgradeError, Utf8Bytes, WebSocket, WebSocketLimits,
    WebSocketUpgrade,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

use super::batch::{GAP, gap_data, message, with_position};
use super::metrics::OpenStream;
use super::sse::{HEARTBEAT, wanted_tags};
use super::{
    CloseReason, Dialect, EventBatch, EventStream, FormattedEvents, LoggedIn, Position, StreamItem,
    StreamRefusal, Streams, TagRules,
};
use crate::api::named_session;

/// Message of a client that wants events.
const READY: &[u8] = b"websocket client ready";

/// Answer of `rest_cherrypy` to each message.
const RECEIVED: &str = "server received message";

/// Longest time for the client to take one message.
const SEND_TIME: Duration = Duration::from_secs(30);

/// Time for the close frame.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Bytes that wait for the client at most: one message, which may be a large return.
const UNSENT_BYTES: usize = 128 << 20;

/// Our parameter: positions are wanted; with a value, the stream begins behind that one.
const LAST_EVENT_ID: &str = "last_event_id";

/// A request for a websocket.
pub(crate) struct SocketRequest<'a> {
    /// The token in the path; without one, the header and the cookie count.
    pub(crate) token: Option<&'a str>,
    /// A page of another origin asks.
    pub(crate) is_foreign: bool,
    /// Formatted events are asked for.
    pub(crate) is_formatted: bool,
    /// Done once the client is ready.
    pub(crate) when_ready: Option<BoxFuture<'static, ()>>,
}

/// Opens a websocket.
pub(super) async fn open(
    streams: Streams,
    parts: &mut Parts,
    request: SocketRequest<'_>,
) -> Result<Response, StreamRefusal> {
    let token = request.token.or_else(|| named_session(&parts.headers));
    let session = streams.session(token).await?;
    let upgrade = WebSocketUpgrade::from_parts(parts);
    if let Err(error @ (UpgradeError::Method | UpgradeError::Headers)) = &upgrade {
        return Err((*error).into());
    }
    if request.is_foreign {
        return Err(StreamRefusal::Foreign);
    }
    let upgrade = upgrade?;
    // Other parameters are tolerated, as in stock.
    let query = parts.uri.query().unwrap_or_default();
    let wanted = wanted_tags(query, Dialect::Tornado)?;
    let positions = positions(query)?;
    if request.is_formatted && positions != Positions::default() {
        return Err(StreamRefusal::FormattedPosition);
    }
    let permit = streams.permit()?;
    let limits = WebSocketLimits {
        unsent_bytes: UNSENT_BYTES,
        ..WebSocketLimits::default()
    };
    let (response, opened) = upgrade.accept(&limits);
    let stream = SocketStream {
        open: OpenStream::new(&streams.metrics),
        formatted: (request.is_formatted).then(|| FormattedEvents::new(streams.dialect)),
        streams,
        session,
        wanted,
        positions,
        events: None,
        when_ready: request.when_ready,
        pending: VecDeque::new(),
        unformatted: None,
        silent_since: Instant::now(),
        _permit: permit,
    };
    tokio::spawn(async move {
        // Without the upgrade, the client has gone.
        if let Ok(socket) = opened.await {
            stream.run(socket).await;
        }
    });
    Ok(response)
}

/// What a client wants of positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Positions {
    /// Each message bears its own.
    are_wanted: bool,
    /// The stream begins behind this one.
    after: Option<Position>,
}

/// The positions that a query asks for; of several the last one counts.
fn positions(query: &str) -> Result<Positions, StreamRefusal> {
    let mut positions = Positions::default();
    let named = form_pairs(query).filter(|(name, _)| name == LAST_EVENT_ID);
    for (_, value) in named {
        positions.are_wanted = true;
        positions.after = match value.as_str() {
            "" => None,
            position => Some(position.parse()?),
        };
    }
    Ok(positions)
}

/// Why a websocket ends.
enum End {
    /// The client closed it, or is gone.
    Client,
    /// The master ends it.
    Closed(CloseReason),
}

/// One stream.
struct SocketStream {
    streams: Streams,
    session: LoggedIn,
    /// Empty: all tags.
    wanted: TagRules,
    positions: Positions,
    /// None before the client is ready.
    events: Option<Box<dyn EventStream>>,
    formatted: Option<FormattedEvents>,
    when_ready: Option<BoxFuture<'static, ()>>,
    /// Messages that are next.
    pending: VecDeque<Message>,
    /// Events of which formatted messages are made one by one: each has the whole state in it.
    unformatted: Option<(Arc<EventBatch>, Range<usize>)>,
    /// When the last message went out.
    silent_since: Instant,
    open: OpenStream,
    _permit: OwnedSemaphorePermit,
}

impl SocketStream {
    async fn run(mut self, mut socket: WebSocket) {
        let end = loop {
            if let Err(end) = self.step(&mut socket).await {
                break end;
            }
        };
        let frame = match end {
            End::Client => None,
            End::Closed(reason) => {
                self.open.close(reason);
                Some(close_frame(reason))
            }
        };
        let closed = async {
            socket.close(frame).await?;
            // Until the client has answered with its own.
            while socket.next().await.is_some_and(|message| message.is_ok()) {}
            Ok::<(), saltern_http::websocket::WebSocketError>(())
        };
        // A client that has gone, or takes nothing, hears nothing.
        let _ = timeout(CLOSE_TIME, closed).await;
    }

    /// Waits for whatever happens next, and sends what follows it.
    async fn step(&mut self, socket: &mut WebSocket) -> Result<(), End> {
        tokio::select! {
            biased;
            () = self.streams.stop.cancelled() => return Err(End::Closed(CloseReason::Stopping)),
            () = self.session.ended.cancelled() => {
                return Err(End::Closed(CloseReason::SessionEnded));
            }
            message = socket.next() => self.hear(message.and_then(Result::ok))?,
            item = next_of(&mut self.events) => self.take(item)?,
            () = sleep_until(self.silent_since + HEARTBEAT) => {
                self.pending.push_back(Message::Ping(bytes::Bytes::new()));
            }
        }
        self.send(socket).await
    }

    /// Takes a message of the client; nothing when there is none any more.
    fn hear(&mut self, message: Option<Message>) -> Result<(), End> {
        let (is_ready, is_message) = match &message {
            None | Some(Message::Close(_)) => return Err(End::Client),
            Some(Message::Text(text)) => (text.as_bytes() == READY, true),
            // Tornado's handler compares texts.
            Some(Message::Binary(bytes)) => {
                let is_text = self.streams.dialect == Dialect::Cherrypy;
                (is_text && bytes == READY, true)
            }
            Some(_) => (false, false),
        };
        if is_ready && self.events.is_none() {
            let source = self.streams.source.clone();
            self.events = Some(source.subscribe(self.positions.after));
            if let Some(when_ready) = self.when_ready.take() {
                tokio::spawn(when_ready);
            }
        }
        if is_message && self.streams.dialect == Dialect::Cherrypy {
            let received = Utf8Bytes::from_static(RECEIVED);
            self.pending.push_back(Message::Text(received));
        }
        Ok(())
    }

    fn take(&mut self, item: StreamItem) -> Result<(), End> {
        match item {
            StreamItem::Events { batch, range } if self.formatted.is_some() => {
                self.unformatted = Some((batch, range));
            }
            StreamItem::Events { batch, range } => self.take_events(&batch, range),
            StreamItem::Gap { missed, at } => {
                self.streams.metrics.missed.inc();
                // Formatted events have no form for it: the next event of a job mends its entry.
                if self.formatted.is_none() {
                    let gap = message(GAP, gap_data(missed), self.streams.dialect);
                    let gap = self.positioned(&gap, at);
                    self.pending.push_back(Message::Text(gap));
                }
            }
            StreamItem::Closed(reason) => return Err(End::Closed(reason)),
        }
        Ok(())
    }

    fn take_events(&mut self, batch: &EventBatch, range: Range<usize>) {
        let rules = self.streams.acl.rules_of(&self.session.user);
        let events = batch.events().get(range.clone()).unwrap_or_default();
        let messages = batch.messages(self.streams.dialect).get(range);
        let shown = events.iter().zip(messages.unwrap_or_default());
        let shown = shown.filter(|(event, _)| is_shown(rules.as_deref(), &self.wanted, &event.tag));
        let shown = shown.map(|(event, text)| self.positioned(text, batch.position_of(event)));
        let shown: Vec<Message> = shown.map(Message::Text).collect();
        self.pending.extend(shown);
    }

    /// The message, with its position where the client wants that.
    fn positioned(&self, text: &Utf8Bytes, position: Position) -> Utf8Bytes {
        match self.positions.are_wanted {
            true => with_position(text, position, self.streams.dialect),
            false => text.clone(),
        }
    }

    /// Formats events until there is a message; whether there is one.
    fn fill(&mut self) -> bool {
        while self.pending.is_empty()
            && let Some((batch, range)) = &mut self.unformatted
            && let Some(formatted) = &mut self.formatted
        {
            let next = range.next().and_then(|index| batch.events().get(index));
            let Some(event) = next else {
                self.unformatted = None;
                break;
            };
            let rules = self.streams.acl.rules_of(&self.session.user);
            if is_shown(rules.as_deref(), &self.wanted, &event.tag) {
                let texts = formatted.take_event(event).into_iter();
                self.pending
                    .extend(texts.map(|text| Message::Text(text.into())));
            }
        }
        !self.pending.is_empty()
    }

    /// Sends what is pending.
    async fn send(&mut self, socket: &mut WebSocket) -> Result<(), End> {
        while self.fill() {
            let sent = tokio::select! {
                biased;
                () = self.streams.stop.cancelled() => {
                    return Err(End::Closed(CloseReason::Stopping));
                }
                () = self.session.ended.cancelled() => {
                    return Err(End::Closed(CloseReason::SessionEnded));
                }
                sent = timeout(SEND_TIME, send_next(&mut self.pending, socket)) => sent,
            };
            match sent {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(End::Client),
                Err(_) => return Err(End::Closed(CloseReason::Slow)),
            }
            self.silent_since = Instant::now();
        }
        Ok(())
    }
}

/// Sends the next message, and flushes behind the last one.
async fn send_next(
    pending: &mut VecDeque<Message>,
    socket: &mut WebSocket,
) -> Result<(), saltern_http::websocket::WebSocketError> {
    if let Some(message) = pending.pop_front() {
        socket.feed(message).await?;
    }
    match pending.is_empty() {
        true => socket.flush().await,
        false => Ok(()),
    }
}

/// Whether the user may see events with such a tag, and wants them.
fn is_shown(rules: Option<&TagRules>, wanted: &TagRules, tag: &str) -> bool {
    rules.is_none_or(|rules| rules.allow(tag)) && (wanted.is_empty() || wanted.allow(tag))
}

async fn next_of(events: &mut Option<Box<dyn EventStream>>) -> StreamItem {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

fn close_frame(reason: CloseReason) -> CloseFrame {
    let code = match reason {
        CloseReason::Slow => CloseCode::Again,
        CloseReason::SessionEnded => CloseCode::Policy,
        CloseReason::Stopping => CloseCode::Away,
        CloseReason::Unreadable => CloseCode::Error,
    };
    CloseFrame {
        code,
        reason: Utf8Bytes::from_static(reason.label()),
    }
}

#[cfg(test)]
mod tests;
