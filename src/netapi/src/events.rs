//! `/events` in the dialects: who is logged in, and until when.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::future::BoxFuture;
use saltern_http::Stopping;
use tokio_util::sync::{CancellationToken, DropGuard};
use zeroize::Zeroizing;

use crate::api::Api;
use crate::stream::{Dialect, LoggedIn, Sessions, Streams};

/// Streams that may be open at a time.
pub(crate) const MAX_STREAMS: usize = 2048;

/// How often the token of an open stream is looked at: other processes may remove it too.
const TOKEN_INTERVAL: Duration = Duration::from_secs(2);

/// Answers `GET /events`; `None` when no events are kept.
pub(crate) async fn answer(api: &Arc<Api>, dialect: Dialect, parts: &Parts) -> Option<Response> {
    let source = api.master().events()?;
    let stopping = parts.extensions.get::<Stopping>();
    let gone = CancellationToken::new();
    let sessions = StreamSession {
        api: api.clone(),
        dialect,
        gone: gone.clone(),
        _guard: gone.drop_guard(),
    };
    let shared = api.streams();
    let followed = api.config().followed();
    let rules = followed.saltern_api_event_acl();
    if let Err(error) = shared.acl.follow(rules.node()) {
        tracing::error!(%error, "the rules of a reload cannot be used; the old ones stay");
    }
    let streams = Streams {
        source,
        sessions: Arc::new(sessions),
        acl: shared.acl.clone(),
        permits: shared.permits.clone(),
        stop: stopping
            .map(|stopping| stopping.0.clone())
            .unwrap_or_default(),
        dialect,
        metrics: shared.metrics.clone(),
    };
    let query = parts.uri.query().map(str::to_owned);
    let headers: HeaderMap = parts.headers.clone();
    Some(streams.serve(query, headers).await)
}

/// The session of one stream, which holds it as long as it is open.
struct StreamSession {
    api: Arc<Api>,
    dialect: Dialect,
    /// Cancelled when the stream is gone.
    gone: CancellationToken,
    _guard: DropGuard,
}

impl Sessions for StreamSession {
    fn find<'a>(&'a self, named: &'a str) -> BoxFuture<'a, Option<LoggedIn>> {
        Box::pin(async move {
            let token = match self.dialect {
                // Stock takes a token of the master here too, where a session is named.
                Dialect::Cherrypy => {
                    let token = self.api.sessions().token(named);
                    token.unwrap_or_else(|| Zeroizing::new(named.to_owned()))
                }
                Dialect::Tornado => Zeroizing::new(named.to_owned()),
            };
            let user = self.api.user_of(&token).await?;
            let ended = CancellationToken::new();
            let watch = watch(self.api.clone(), token, ended.clone());
            tokio::spawn(self.gone.clone().run_until_cancelled_owned(watch));
            Some(LoggedIn { user, ended })
        })
    }
}

/// Waits until a token is good no more.
async fn watch(api: Arc<Api>, token: Zeroizing<String>, ended: CancellationToken) {
    while api.is_good(&token).await {
        tokio::time::sleep(TOKEN_INTERVAL).await;
    }
    ended.cancel();
}
