//! `GET /events`: events as server-sent events.
//!
//! The blocks are stock's, with an `id` behind them. A comment keeps a silent stream alive. The
//! stream ends with its session and with the master; the last block says why.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use saltern_base::form_pairs;
use saltern_http::LongStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::batch::{closed_block, gap_block};
use super::metrics::OpenStream;
use super::{
    CloseReason, Dialect, EventBatch, EventStream, LoggedIn, Position, StreamItem, StreamRefusal,
    Streams, TagRules,
};
use crate::api::named_session;

/// Silence after which a comment is sent: well below what proxies wait for.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Tags in the query of one stream.
const MAX_TAGS: usize = 64;

/// Our parameter: only events with such a tag.
const TAG: &str = "tag";

/// Opens a stream.
pub(super) async fn events(
    State(streams): State<Streams>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    match open(&streams, query.as_deref().unwrap_or_default(), &headers).await {
        Ok(stream) => response(stream, streams.dialect),
        Err(refusal) => refusal.into_response_of(streams.dialect),
    }
}

async fn open(
    streams: &Streams,
    query: &str,
    headers: &HeaderMap,
) -> Result<SseStream, StreamRefusal> {
    let wanted = wanted_tags(query, streams.dialect)?;
    let session = streams.session(named_session(headers)).await?;
    let after = last_position(headers)?;
    let permit = streams.permit()?;
    Ok(SseStream {
        events: streams.source.clone().subscribe(after),
        open: OpenStream::new(&streams.metrics),
        stop: streams.stop.clone(),
        streams: streams.clone(),
        session,
        wanted,
        pending: VecDeque::from([Bytes::from_static(b"retry: 400\n")]),
        silent_since: Instant::now(),
        is_over: false,
        _permit: permit,
    })
}

fn response(stream: SseStream, dialect: Dialect) -> Response {
    let chunks = stream::unfold(stream, |mut stream| async move {
        let chunk = stream.next().await?;
        Some((Ok::<_, Infallible>(chunk), stream))
    });
    let content_type = match dialect {
        Dialect::Cherrypy => "text/event-stream;charset=utf-8",
        Dialect::Tornado => "text/event-stream",
    };
    let mut response = Response::new(Body::from_stream(chunks));
    response.extensions_mut().insert(LongStream);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The wildcards of the query. `rest_cherrypy` refuses every parameter of another name.
pub(super) fn wanted_tags(query: &str, dialect: Dialect) -> Result<TagRules, StreamRefusal> {
    let mut tags = Vec::new();
    for (name, value) in form_pairs(query) {
        match name.as_str() {
            TAG => tags.push(value),
            _ if dialect == Dialect::Tornado => {}
            _ => return Err(StreamRefusal::QueryParameter),
        }
    }
    if tags.len() > MAX_TAGS {
        return Err(StreamRefusal::Wildcard);
    }
    let tags = tags.iter().map(String::as_str);
    TagRules::compile(tags).map_err(|_| StreamRefusal::Wildcard)
}

fn last_position(headers: &HeaderMap) -> Result<Option<Position>, StreamRefusal> {
    let Some(last) = headers.get("last-event-id").filter(|id| !id.is_empty()) else {
        return Ok(None);
    };
    let last = last.to_str().map_err(|_| super::PositionError)?;
    Ok(Some(last.parse()?))
}

/// One stream.
struct SseStream {
    streams: Streams,
    session: LoggedIn,
    /// Empty: all tags.
    wanted: TagRules,
    events: Box<dyn EventStream>,
    /// Chunks that are next.
    pending: VecDeque<Bytes>,
    /// When the last chunk went out.
    silent_since: Instant,
    is_over: bool,
    open: OpenStream,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl SseStream {
    /// The next chunk; nothing when the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        while self.pending.is_empty() && !self.is_over {
            let waited = tokio::select! {
                biased;
                () = self.stop.cancelled() => Some(StreamItem::Closed(CloseReason::Stopping)),
                () = self.session.ended.cancelled() => {
                    Some(StreamItem::Closed(CloseReason::SessionEnded))
                }
                item = self.events.next() => Some(item),
                () = sleep_until(self.silent_since + HEARTBEAT) => None,
            };
            match waited {
                Some(item) => self.take(item),
                None => self.pending.push_back(Bytes::from_static(b":\n\n")),
            }
        }
        self.silent_since = Instant::now();
        self.pending.pop_front()
    }

    fn take(&mut self, item: StreamItem) {
        match item {
            StreamItem::Events { batch, range } => self.take_events(&batch, range),
            // What is missing may have had any tag, so no filter applies.
            StreamItem::Gap { missed, at } => {
                self.streams.metrics.missed.inc();
                self.pending.push_back(gap_block(missed, at));
            }
            StreamItem::Closed(reason) => {
                self.open.close(reason);
                self.is_over = true;
                self.pending.push_back(closed_block(reason));
            }
        }
    }

    fn take_events(&mut self, batch: &EventBatch, range: Range<usize>) {
        let rules = self.streams.acl.rules_of(&self.session.user);
        if rules.is_none() && self.wanted.is_empty() {
            self.pending.push_back(batch.sse().slice(range));
            return;
        }
        let is_shown = |tag: &str| {
            rules.as_ref().is_none_or(|rules| rules.allow(tag))
                && (self.wanted.is_empty() || self.wanted.allow(tag))
        };
        let events = batch.events().get(range.clone()).unwrap_or_default();
        let shown: Vec<bool> = events.iter().map(|event| is_shown(&event.tag)).collect();
        let mut start = range.start;
        for run in shown.chunk_by(|one, next| one == next) {
            let end = start + run.len();
            if run.first() == Some(&true) {
                self.pending.push_back(batch.sse().slice(start..end));
            }
            start = end;
        }
    }
}
