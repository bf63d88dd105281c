//! Streams of events in the dialects: who is logged in, and until when.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::response::Response;
use futures_util::future::BoxFuture;
use saltern_base::form_text;
use saltern_http::Stopping;
use tokio_util::sync::{CancellationToken, DropGuard};
use zeroize::Zeroizing;

use crate::api::Api;
use crate::master::{TokenOwner, UncheckedToken};
use crate::stream::{Dialect, LoggedIn, Sessions, SocketRequest, Streams};
use crate::stream_ends;

/// Streams that may be open at a time.
pub(crate) const MAX_STREAMS: usize = 2048;

/// Answers `GET /events`; `None` when no events are kept.
pub(crate) async fn answer(api: &Arc<Api>, dialect: Dialect, parts: &Parts) -> Option<Response> {
    let streams = streams(api, dialect, parts)?;
    let query = parts.uri.query().map(str::to_owned);
    Some(streams.serve(query, parts.headers.clone()).await)
}

/// Answers a request for a websocket; `None` when no events are kept.
pub(crate) async fn socket(
    api: &Arc<Api>,
    dialect: Dialect,
    parts: &mut Parts,
    request: SocketRequest<'_>,
) -> Option<Response> {
    let streams = streams(api, dialect, parts)?;
    Some(streams.serve_socket(parts, request).await)
}

/// The token in the path of a websocket, if it has one; `None` when the path is another.
pub(crate) fn socket_token(path: &str, name: &str) -> Option<Option<String>> {
    let rest = path.trim_matches('/').strip_prefix(name)?;
    match rest.strip_prefix('/') {
        None => rest.is_empty().then_some(None),
        Some(token) if !token.contains('/') => Some(Some(form_text(token))),
        Some(_) => None,
    }
}

/// Dependencies of one stream.
fn streams(api: &Arc<Api>, dialect: Dialect, parts: &Parts) -> Option<Streams> {
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
    Some(Streams {
        source,
        sessions: Arc::new(sessions),
        acl: shared.acl.clone(),
        permits: shared.permits.clone(),
        stop: stopping
            .map(|stopping| stopping.0.clone())
            .unwrap_or_default(),
        dialect,
        metrics: shared.metrics.clone(),
    })
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
    fn find<'a>(
        &'a self,
        named: &'a str,
    ) -> BoxFuture<'a, Result<Option<LoggedIn>, UncheckedToken>> {
        Box::pin(async move {
            let token = match self.dialect {
                // Stock takes a token of the master here too, where a session is named.
                Dialect::Cherrypy => {
                    let token = self.api.sessions().token(named);
                    token.unwrap_or_else(|| Zeroizing::new(named.to_owned()))
                }
                Dialect::Tornado => Zeroizing::new(named.to_owned()),
            };
            let Some(TokenOwner { user, ends }) = self.api.owner_of(&token).await? else {
                return Ok(None);
            };
            let ended = CancellationToken::new();
            let watched = {
                let (api, ended) = (self.api.clone(), ended.clone());
                async move {
                    stream_ends::ended(api, token, ends).await;
                    ended.cancel();
                }
            };
            tokio::spawn(self.gone.clone().run_until_cancelled_owned(watched));
            Ok(Some(LoggedIn { user, ended }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, SystemTime};

    use saltern_base::clock::Clock;
    use tokio::time::Instant;

    use super::*;
    use crate::api::tests::{ENDS, TOKEN, Trusting, open};

    /// The end is known from the log-in, and needs no look.
    #[tokio::test(start_paused = true)]
    async fn stream_ends_with_its_token_though_nobody_can_look_at_it() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(ENDS - 10.0));
        let master = Arc::<Trusting>::default();
        let api = open(dir.path(), "rest_tornado", (clock.clone(), &master));
        let gone = CancellationToken::new();
        let session = StreamSession {
            api: api.clone(),
            dialect: Dialect::Tornado,
            gone: gone.clone(),
            _guard: gone.drop_guard(),
        };
        let found = session.find(TOKEN).await.unwrap().unwrap();
        let other = api.v1(saltern_wire::port::InsideListener::Console);
        let other = other.ended(Zeroizing::new(TOKEN.to_owned()));
        master.is_broken.store(true, Ordering::SeqCst);
        clock.advance(Duration::from_secs(20));
        let began = Instant::now();
        found.ended.cancelled().await;
        other.await;
        assert!(began.elapsed() < Duration::from_secs(1));
        // That of the log-in, and one of each stream, which may not have begun when the end comes.
        let looks = master.looks.load(Ordering::SeqCst);
        assert!((1..=3).contains(&looks), "{looks} looks");
    }

    #[test]
    fn token_of_a_websocket_is_the_rest_of_its_path() {
        let token = |text: &str| Some(Some(text.to_owned()));
        for (path, expected) in [
            ("/ws", Some(None)),
            ("/ws/", Some(None)),
            ("/ws/abc", token("abc")),
            ("/ws/abc/", token("abc")),
            ("/ws/a%20b", token("a b")),
            ("/ws/a/b", None),
            ("/wsx", None),
            ("/w", None),
            ("/", None),
        ] {
            assert_eq!(socket_token(path, "ws"), expected, "{path}");
        }
    }
}
