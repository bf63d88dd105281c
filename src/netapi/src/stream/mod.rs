//! Streams of events over HTTP: `/events` as server-sent events, and websockets.
//!
//! A stream is a cursor into the events that are shared by all streams. What goes out is encoded
//! once for each batch of events, and all streams send the same bytes. Each event has a durable
//! position; a client that names its last one (`Last-Event-ID`, or `last_event_id` of a websocket) misses nothing that is kept, and gets
//! the size of a gap.
//!
//! Not here: how events are kept and joined with the live ones ([`EventSource`]), and who is logged
//! in ([`Sessions`]).

mod acl;
mod batch;
mod formatted;
mod metrics;
mod position;
mod socket;
mod sse;

use std::ops::Range;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use saltern_http::websocket::UpgradeError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::master::UncheckedToken;

pub use acl::{AclError, EventAcl, TagRules};
pub use batch::{BusEvent, EventBatch};
pub use formatted::FormattedEvents;
pub use metrics::StreamMetrics;
pub use position::{Position, PositionError};
pub(crate) use socket::SocketRequest;

/// Where events come from.
pub trait EventSource: Send + Sync + 'static {
    /// A stream of the events behind a position, or of those to come.
    fn subscribe(self: Arc<Self>, after: Option<Position>) -> Box<dyn EventStream>;

    /// The position of the newest event; nothing where that is not known.
    fn newest(&self) -> Option<Position> {
        None
    }

    /// Kept events up to a position, the newest first: at most `count`, fewer where they are large.
    ///
    /// # Errors
    /// [`CloseReason::Unreadable`].
    fn backwards(
        &self,
        through: i64,
        count: usize,
    ) -> BoxFuture<'_, Result<EarlierEvents, CloseReason>> {
        let _ = (through, count);
        Box::pin(std::future::ready(Ok(EarlierEvents::default())))
    }
}

/// Kept events, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierEvents {
    /// The events.
    pub events: Vec<BusEvent>,
    /// The position up to which there may be more; 0 where there are none.
    pub rest: i64,
}

/// The events of one subscriber.
pub trait EventStream: Send {
    /// The next item. Dropped before it is ready, nothing is lost. Behind [`StreamItem::Closed`]
    /// there is none.
    fn next(&mut self) -> BoxFuture<'_, StreamItem>;
}

/// Item of a stream of events.
#[derive(Clone, Debug)]
pub enum StreamItem {
    /// Events that follow each other without a gap.
    Events {
        /// They and others, shared by all streams.
        batch: Arc<EventBatch>,
        /// Which of them.
        range: Range<usize>,
    },
    /// Events that the stream cannot give.
    Gap {
        /// How many; `None` when the position of the subscriber is of another history.
        missed: Option<u64>,
        /// The position of the last of them.
        at: Position,
    },
    /// The end of the stream.
    Closed(CloseReason),
}

/// Why a stream ends before its client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client read too slowly.
    Slow,
    /// The session was revoked, or has expired.
    SessionEnded,
    /// The master stops.
    Stopping,
    /// Kept events cannot be read.
    Unreadable,
}

impl CloseReason {
    /// The reason in metrics, and for the client.
    pub fn label(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::SessionEnded => "session_ended",
            Self::Stopping => "stopping",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Sessions of users who are logged in.
pub trait Sessions: Send + Sync + 'static {
    /// The session of a token, if there is one and it has not ended.
    ///
    /// # Errors
    /// Nobody knows.
    fn find<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<LoggedIn>, UncheckedToken>>;
}

/// A session that has not ended.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// The user.
    pub user: String,
    /// Cancelled when the session is revoked or expires.
    pub ended: CancellationToken,
}

/// Dialect of streams: stock's servers differ in their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `rest_cherrypy`.
    Cherrypy,
    /// `rest_tornado`.
    Tornado,
}

/// Why no stream is opened. An extension of the response, for a dialect that words it otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamRefusal {
    /// `rest_cherrypy` takes no parameters here; a token in one would be in every log.
    #[error("the only query parameter of this resource is \"tag\"; tokens belong into a header")]
    QueryParameter,
    /// Nobody is logged in.
    #[error("no permission: log in first")]
    NotLoggedIn,
    /// `Last-Event-ID` is no position.
    #[error(transparent)]
    Position(#[from] PositionError),
    /// A formatted stream has no positions.
    #[error("formatted events have no position")]
    FormattedPosition,
    /// A tag in a parameter is no wildcard.
    #[error("the parameter \"tag\" is no wildcard")]
    Wildcard,
    /// Too many streams are open.
    #[error("too many streams are open")]
    Full,
    /// Nobody knows whether the token is good.
    #[error("the token cannot be checked now; try again later")]
    Unchecked,
    /// A page of another origin asks for a websocket.
    #[error("Cross origin websockets not allowed")]
    Foreign,
    /// The request is not one for a websocket.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
}

impl StreamRefusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::QueryParameter | Self::Position(_) | Self::FormattedPosition | Self::Wildcard => {
                StatusCode::BAD_REQUEST
            }
            Self::NotLoggedIn => StatusCode::UNAUTHORIZED,
            Self::Full | Self::Unchecked => StatusCode::SERVICE_UNAVAILABLE,
            Self::Foreign => StatusCode::FORBIDDEN,
            // The response of the error has its own.
            Self::Upgrade(_) => StatusCode::BAD_REQUEST,
        }
    }

    fn into_response_of(self, dialect: Dialect) -> Response {
        let mut response = match (&self, dialect) {
            (Self::NotLoggedIn, Dialect::Tornado) => {
                (StatusCode::FOUND, [(header::LOCATION, "/login")]).into_response()
            }
            (Self::Full | Self::Unchecked, _) => (
                self.status(),
                [(header::RETRY_AFTER, "5")],
                self.to_string(),
            )
                .into_response(),
            // The sentence of Tornado.
            (Self::Upgrade(UpgradeError::Headers), Dialect::Tornado) => {
                (self.status(), "Can \"Upgrade\" only to \"WebSocket\".").into_response()
            }
            (Self::Upgrade(error), _) => (*error).into_response(),
            _ => (self.status(), self.to_string()).into_response(),
        };
        response.extensions_mut().insert(self);
        response
    }
}

/// State that all streams share.
#[derive(Clone)]
pub struct Streams {
    /// Where events come from.
    pub source: Arc<dyn EventSource>,
    /// Sessions of users who are logged in.
    pub sessions: Arc<dyn Sessions>,
    /// Permissions to see events.
    pub acl: Arc<EventAcl>,
    /// A permit for each stream that may be open at a time.
    pub permits: Arc<Semaphore>,
    /// Cancelled when the master stops.
    pub stop: CancellationToken,
    /// Dialect of these streams.
    pub dialect: Dialect,
    /// Metrics of all streams.
    pub metrics: StreamMetrics,
}

impl Streams {
    /// Answers `GET /events`.
    pub(crate) async fn serve(self, query: Option<String>, headers: HeaderMap) -> Response {
        sse::events(State(self), RawQuery(query), headers).await
    }

    /// Answers a request for a websocket.
    pub(crate) async fn serve_socket(
        self,
        parts: &mut Parts,
        request: SocketRequest<'_>,
    ) -> Response {
        let dialect = self.dialect;
        let opened = socket::open(self, parts, request).await;
        opened.unwrap_or_else(|refusal| refusal.into_response_of(dialect))
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, StreamRefusal> {
        self.permits.clone().try_acquire_owned().map_err(|_| {
            self.metrics.refused.inc();
            StreamRefusal::Full
        })
    }

    async fn session(&self, token: Option<&str>) -> Result<LoggedIn, StreamRefusal> {
        let token = token.ok_or(StreamRefusal::NotLoggedIn)?;
        let found = self.sessions.find(token).await;
        found
            .map_err(|_| StreamRefusal::Unchecked)?
            .filter(|session| !session.ended.is_cancelled())
            .ok_or(StreamRefusal::NotLoggedIn)
    }
}

#[cfg(test)]
mod tests;
