//! Streams to pages: that something has changed, and events themselves.
//!
//! A stream ends with its session and with the master. It is no activity of its user, so an open page
//! keeps no session alive.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use saltern_http::{LongStream, Stopping};
use saltern_netapi::stream::{BusEvent, EventStream, Position, StreamItem, TagRules};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::session::Activity;
use crate::site::{Params, Shared, Visit};

/// How often the session of an open stream is checked; also the longest silence.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum time between two notices of changes: each makes the page ask the master again.
const CHANGE_INTERVAL: Duration = Duration::from_millis(1500);

/// The same for a page whose user waits for something.
const QUICK_INTERVAL: Duration = Duration::from_millis(500);

/// Tags of one stream.
const MAX_TAGS: usize = 16;

/// Why a stream cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoStream {
    /// The master keeps none.
    #[error("this master keeps no events")]
    NoEvents,
    /// A tag is no wildcard.
    #[error("the tag is no wildcard")]
    Wildcard,
    /// The kept ones cannot be read.
    #[error("the kept events cannot be read; the master's log says why")]
    Unreadable,
    /// Too many streams are open.
    #[error("too many pages are open")]
    Full,
}

impl NoStream {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoEvents => StatusCode::NOT_FOUND,
            Self::Wildcard => StatusCode::BAD_REQUEST,
            Self::Full | Self::Unreadable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for NoStream {
    fn into_response(self) -> Response {
        (self.status(), self.to_string()).into_response()
    }
}

/// The wildcards of a page, compiled; nothing for all tags.
pub(crate) fn wanted_tags(tags: &[String]) -> Result<Option<TagRules>, NoStream> {
    if tags.len() > MAX_TAGS {
        return Err(NoStream::Wildcard);
    }
    let wanted = TagRules::compile(tags.iter().map(String::as_str));
    let wanted = wanted.map_err(|_| NoStream::Wildcard)?;
    Ok((!tags.is_empty()).then_some(wanted))
}

/// Whether a tag is of those that a user may see, and of those that a page wants.
pub(crate) fn is_shown(rules: Option<&TagRules>, wanted: Option<&TagRules>, tag: &str) -> bool {
    [rules, wanted]
        .into_iter()
        .flatten()
        .all(|rules| rules.allow(tag))
}

/// Item of a stream.
pub(crate) enum News {
    /// Events that the user may see and asked for, which may be none, and how far they were read.
    Events(Vec<(Position, BusEvent)>, Position),
    /// Events that are no longer kept; nothing where it is not known how many.
    Gap(Option<u64>),
    /// Nothing, for a while.
    Silence,
    /// The end, and why.
    Closed(&'static str),
}

/// The events of one page.
pub(crate) struct Subscription {
    site: Shared,
    user: String,
    session: Zeroizing<String>,
    /// Nothing for all.
    wanted: Option<TagRules>,
    /// Rules of the events that the user may see, read again with each check; `None` for all.
    rules: Option<Arc<TagRules>>,
    events: Box<dyn EventStream>,
    stop: CancellationToken,
    /// Resolves when the session's token is good no more.
    ended: BoxFuture<'static, ()>,
    checked: Instant,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

impl Subscription {
    /// Subscribes to events behind a position, or to those to come.
    pub(crate) fn open(
        site: &Shared,
        visit: &Visit,
        (tags, after): (&[String], Option<Position>),
        stop: CancellationToken,
    ) -> Result<Self, NoStream> {
        let source = site.backend.events().ok_or(NoStream::NoEvents)?;
        let wanted = wanted_tags(tags)?;
        let permit = site.streams.clone().try_acquire_owned();
        let token = site.sessions.token(&visit.session, Activity::Page);
        let ended = match token {
            Some(token) => site.backend.gate().ended(token),
            None => Box::pin(std::future::ready(())),
        };
        Ok(Self {
            site: site.clone(),
            rules: site.backend.event_rules(&visit.user),
            user: visit.user.clone(),
            session: visit.session.clone(),
            wanted,
            events: source.subscribe(after),
            stop,
            ended,
            checked: Instant::now(),
            is_over: false,
            _permit: permit.map_err(|_| NoStream::Full)?,
        })
    }

    /// The next item; `None` behind the end. Dropped before it is ready, nothing is lost.
    pub(crate) async fn next(&mut self) -> Option<News> {
        if self.is_over {
            return None;
        }
        loop {
            if self.checked.elapsed() >= CHECK_INTERVAL {
                self.checked = Instant::now();
                self.rules = self.site.backend.event_rules(&self.user);
                // A look may hang, as the disk does.
                let has_session = tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return Some(self.close("the master stops")),
                    () = &mut self.ended => false,
                    has_session = has_session(&self.site, &self.session) => has_session,
                };
                return Some(match has_session {
                    true => News::Silence,
                    false => self.close("session ended"),
                });
            }
            let item = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Some(self.close("the master stops")),
                () = &mut self.ended => return Some(self.close("session ended")),
                item = self.events.next() => item,
                () = sleep_until(self.checked + CHECK_INTERVAL) => continue,
            };
            match item {
                StreamItem::Events { batch, range } => {
                    let (rules, wanted) = (self.rules.as_deref(), self.wanted.as_ref());
                    let is_shown = |event: &&BusEvent| is_shown(rules, wanted, &event.tag);
                    let events = batch.events().get(range).unwrap_or_default();
                    let Some(last) = events.last() else { continue };
                    let through = batch.position_of(last);
                    let events = events.iter().filter(is_shown);
                    let events = events.map(|event| (batch.position_of(event), event.clone()));
                    return Some(News::Events(events.collect(), through));
                }
                StreamItem::Gap { missed, .. } => return Some(News::Gap(missed)),
                StreamItem::Closed(reason) => return Some(self.close(reason.label())),
            }
        }
    }

    fn close(&mut self, reason: &'static str) -> News {
        self.is_over = true;
        News::Closed(reason)
    }
}

async fn has_session(site: &Shared, session: &str) -> bool {
    match site.sessions.token(session, Activity::Page) {
        // Where that cannot be known now, it is looked at again at the next check.
        Some(token) => !matches!(site.backend.user_of(&token).await, Ok(None)),
        None => false,
    }
}

/// When the server stops.
pub(crate) fn stop_of(stopping: Option<Extension<Stopping>>) -> CancellationToken {
    stopping
        .map(|Extension(Stopping(stop))| stop)
        .unwrap_or_default()
}

/// One block of a stream.
pub(crate) fn block(event: &str, data: &impl serde::Serialize, id: Option<Position>) -> Bytes {
    // JSON has no line breaks in it, so the data is one line.
    let data = serde_json::to_string(data).unwrap_or_default();
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {event}\ndata: {data}\n\n").into()
}

/// The position of a stream that has nothing to show up to there.
pub(crate) fn position_block(id: Position) -> Bytes {
    format!("id: {id}\n\n").into()
}

/// A comment, which keeps a silent stream alive.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// Makes the chunks of a stream.
pub(crate) trait Chunks: Send + 'static {
    /// The next chunk; nothing at the end.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// The response of a stream.
pub(crate) fn response(chunks: impl Chunks) -> Response {
    let retry = Bytes::from_static(b"retry: 1000\n\n");
    let chunks = stream::unfold((chunks, Some(retry)), |(mut chunks, first)| async move {
        let chunk = match first {
            Some(first) => first,
            None => chunks.next().await?,
        };
        Some((Ok::<_, Infallible>(chunk), (chunks, None)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that collect what a server sends keep it back otherwise.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Extension(LongStream), Body::from_stream(chunks)).into_response()
}

/// Notices that something has changed, for the script of a page. The tags are in the query.
pub(crate) async fn changes(
    State(site): State<Shared>,
    visit: Visit,
    stopping: Option<Extension<Stopping>>,
    Params(params): Params,
) -> Response {
    let wanted = (params.all("tag"), None);
    match Subscription::open(&site, &visit, wanted, stop_of(stopping)) {
        Ok(subscription) => response(Changes {
            subscription,
            interval: match params.is_on("quick") {
                true => QUICK_INTERVAL,
                false => CHANGE_INTERVAL,
            },
            is_changed: false,
            sent: Instant::now(),
        }),
        Err(refused) => refused.into_response(),
    }
}

/// Notices of one page.
struct Changes {
    subscription: Subscription,
    interval: Duration,
    is_changed: bool,
    sent: Instant,
}

impl Chunks for Changes {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let news = tokio::select! {
                news = self.subscription.next() => news?,
                () = sleep_until(self.sent + self.interval), if self.is_changed => {
                    self.is_changed = false;
                    self.sent = Instant::now();
                    return Some(block("change", &true, None));
                }
            };
            match news {
                News::Events(events, _) => self.is_changed |= !events.is_empty(),
                News::Gap(_) => self.is_changed = true,
                News::Silence => return Some(COMMENT),
                News::Closed(reason) => return Some(block("closed", &reason, None)),
            }
        }
    }
}
