//! The API of one master: what all dialects and servers of it share.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::HeaderMap;
use futures_util::future::BoxFuture;
use saltern_base::blocking;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_client::{ClientConfig, EventSource};
use saltern_config::{ApiDialect, ApiServer, MasterConfig, NetApiOptions};
use saltern_http::Peer;
use saltern_model::Jid;
use saltern_store::shared_state::API_SESSIONS;
use saltern_store::{SharedState, StateKind, StoreError};
use saltern_wire::port::InsideListener;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::hook::{HookMetrics, HookSecrets, SecretsError};
use crate::hooks::SharedHooks;
use crate::master::{Master, Sender, TokenOwner, UncheckedToken};
use crate::proved::ProvedTokens;
use crate::sessions::Sessions;
use crate::stream::{AclError, EventAcl, StreamMetrics};
use crate::stream_ends::StreamEnds;
use crate::{cherrypy, events, stream_ends, tornado, v1, wsgi};

/// Why the API cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The sessions cannot be read.
    #[error("the sessions of the API cannot be opened")]
    Sessions(#[from] StoreError),
    /// The rules of who may see which events cannot be used.
    #[error(transparent)]
    Acl(#[from] AclError),
    /// The secrets of hooks cannot be used.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
}

/// The API of one master.
pub struct Api {
    master: Arc<dyn Master>,
    config: Arc<MasterConfig>,
    client_config: ClientConfig,
    sessions: Arc<Sessions>,
    streams: SharedStreams,
    stream_ends: StreamEnds,
    proved: ProvedTokens,
    hooks: SharedHooks,
}

/// State that all streams of events share.
pub(crate) struct SharedStreams {
    pub(crate) acl: Arc<EventAcl>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) metrics: StreamMetrics,
}

impl Api {
    /// The API of a master, with the sessions that an earlier process left.
    ///
    /// # Errors
    /// When these cannot be read.
    pub fn open(
        config: Arc<MasterConfig>,
        clock: Clock,
        registry: &Registry,
        master: Arc<dyn Master>,
        state: &SharedState,
    ) -> Result<Arc<Self>, OpenError> {
        let hooks = SharedHooks {
            secrets: Arc::new(HookSecrets::read(
                config.command_default("saltern_hook_secrets"),
            )?),
            clock: clock.clone(),
            metrics: HookMetrics::new(registry),
        };
        let dir = config.cachedir.join(API_SESSIONS);
        let sessions = Sessions::open(dir, clock, (state, StateKind::ApiSession))?;
        let streams = SharedStreams {
            acl: Arc::default(),
            permits: Arc::new(Semaphore::new(events::MAX_STREAMS)),
            metrics: StreamMetrics::new(registry),
        };
        streams
            .acl
            .follow(config.command_default("saltern_api_event_acl"))?;
        Ok(Arc::new(Self {
            master,
            client_config: ClientConfig::from(&*config),
            config,
            sessions: Arc::new(sessions),
            streams,
            stream_ends: StreamEnds::default(),
            proved: ProvedTokens::default(),
            hooks,
        }))
    }

    /// The pages of one server, in the dialect of its section.
    ///
    /// `/v1` comes before the dialect, which answers every other path.
    pub fn router(self: &Arc<Self>, server: &ApiServer) -> Router {
        let server = Arc::new(server.clone());
        let api = Arc::clone(self);
        let hooks = Arc::new(self.hooks.of(&server));
        let v1 = || v1::router(self.v1(InsideListener::Api));
        match server.dialect {
            ApiDialect::CherryPy => v1().fallback(move |request: Request| async move {
                cherrypy::answer(&api, (&server, hooks.as_ref().as_ref()), request).await
            }),
            ApiDialect::Tornado => v1().fallback(move |request: Request| async move {
                tornado::answer(&api, (&server, hooks.as_ref().as_ref()), request).await
            }),
            ApiDialect::Wsgi => v1().fallback(move |request: Request| async move {
                wsgi::answer(&api, &server, request).await
            }),
        }
    }

    /// The API as `/v1` and the console ask it.
    pub fn v1(self: &Arc<Self>, listener: InsideListener) -> Arc<dyn v1::Backend> {
        let api = Arc::clone(self);
        Arc::new(V1 { api, listener })
    }

    /// The master.
    pub fn master(&self) -> &Arc<dyn Master> {
        &self.master
    }

    /// The configuration.
    pub fn config(&self) -> &MasterConfig {
        &self.config
    }

    pub(crate) fn client_config(&self) -> &ClientConfig {
        &self.client_config
    }

    pub(crate) fn options(&self) -> &NetApiOptions {
        &self.config.net_api
    }

    pub(crate) fn mint(&self) -> Jid {
        self.master.mint()
    }

    pub(crate) fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    pub(crate) fn streams(&self) -> &SharedStreams {
        &self.streams
    }

    pub(crate) fn stream_ends(&self) -> &StreamEnds {
        &self.stream_ends
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> f64 {
        self.hooks.clock.unix_micros() as f64 / 1e6
    }

    /// The owner of a token that is good at this moment.
    ///
    /// # Errors
    /// Nobody knows whether it is good.
    pub async fn owner_of(&self, token: &str) -> Result<Option<TokenOwner>, UncheckedToken> {
        let (master, token) = (Arc::clone(&self.master), Zeroizing::new(token.to_owned()));
        let looked = blocking::run(move || (master.owner_of(&token), token));
        let (owner, token) = looked.await?;
        let owner = owner?;
        match &owner {
            Some(owner) => self.proved.insert(&token, owner.ends, self.now()),
            None => self.proved.remove(&token),
        }
        Ok(owner)
    }

    /// Whether a token was good when it was looked at last.
    pub(crate) fn is_proved(&self, token: &str) -> bool {
        self.proved.contains(token, self.now())
    }

    /// Ends a session, its token, and the streams that are open with it. Blocks: it removes files.
    ///
    /// # Errors
    /// The token may still be good, and the session goes on; unless that [is done here](StoreError::is_done_here).
    pub(crate) fn log_out(&self, id: &str) -> Result<(), StoreError> {
        let token = self.sessions.token(id);
        let revoked = token.map_or(Ok(()), |token| self.revoke(&token));
        if revoked.as_ref().err().is_none_or(StoreError::is_done_here) {
            self.sessions.end(id);
        }
        revoked
    }

    /// Revokes a token and ends the streams that are open with it, in any case. Blocks: it removes a file.
    ///
    /// # Errors
    /// It may still be good: here, or, where that [is done here](StoreError::is_done_here), to another master.
    pub fn revoke(&self, token: &str) -> Result<(), StoreError> {
        let revoked = self.master.revoke(token);
        self.stream_ends.revoked(token);
        self.proved.remove(token);
        revoked
    }

    /// The token behind the session that a request names in `X-Auth-Token` or its cookie, if there
    /// is such a session. Whether the token is still good is another question ([`Api::is_good`]).
    pub(crate) fn session_token(&self, headers: &HeaderMap) -> Option<Zeroizing<String>> {
        let (token, ends) = self.sessions.token_until(&credential(headers)?)?;
        // Who has a session has logged in.
        self.proved.insert(&token, ends, self.now());
        Some(token)
    }

    /// Whether a token is good at this moment.
    ///
    /// # Errors
    /// Nobody knows.
    pub async fn is_good(&self, token: &str) -> Result<bool, UncheckedToken> {
        Ok(self.owner_of(token).await?.is_some())
    }
}

/// The API as the backend of `/v1`.
struct V1 {
    api: Arc<Api>,
    listener: InsideListener,
}

impl v1::Backend for V1 {
    fn ask(
        &self,
        request: Bytes,
        token: &str,
        from: SocketAddr,
    ) -> BoxFuture<'static, Option<Bytes>> {
        let (api, token) = (Arc::clone(&self.api), Zeroizing::new(token.to_owned()));
        let listener = self.listener;
        Box::pin(async move {
            // The gate looks at it again.
            let is_proved = api.is_proved(&token) || api.is_good(&token).await.unwrap_or(false);
            let sender = Sender {
                from,
                listener,
                is_proved,
            };
            api.master.ask(request, sender).await
        })
    }

    /// The text itself where it is no session: the log-in of `rest_tornado` answers with the token.
    fn session_token(&self, id: &str) -> Option<Zeroizing<String>> {
        let token = self.api.sessions.token(id);
        token.or_else(|| Some(Zeroizing::new(id.to_owned())))
    }

    fn listen(&self) -> Box<dyn EventSource> {
        self.api.master.listen()
    }

    fn ended(&self, token: Zeroizing<String>) -> BoxFuture<'static, ()> {
        // Who asks has been looked at.
        let ends = self.api.proved.end(&token).unwrap_or(f64::INFINITY);
        Box::pin(stream_ends::ended(Arc::clone(&self.api), token, ends))
    }
}

/// The header that names a session, or a token.
pub(crate) const TOKEN_HEADER: &str = "x-auth-token";

/// The name of a session, or a token, in `X-Auth-Token` of a request, or else in its cookie.
pub(crate) fn named_session(headers: &HeaderMap) -> Option<&str> {
    let header = headers
        .get(TOKEN_HEADER)
        .and_then(|value| value.to_str().ok());
    let header = header.filter(|value| !value.is_empty());
    header.or_else(|| cookie(headers))
}

/// The same, kept.
pub(crate) fn credential(headers: &HeaderMap) -> Option<Zeroizing<String>> {
    named_session(headers).map(|text| Zeroizing::new(text.to_owned()))
}

/// The cookie `session_id`, which some clients quote.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    saltern_http::cookie(headers, "session_id").map(|value| value.trim_matches('"'))
}

/// The client's address.
pub(crate) fn peer(request: &Request) -> SocketAddr {
    Peer::of(request.extensions())
}

/// The whole body, if it is no longer than `max`. The server has limited the time for it.
pub(crate) async fn whole_body(body: axum::body::Body, max: usize) -> Option<Bytes> {
    axum::body::to_bytes(body, max).await.ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use axum::body::Body;
    use axum::http::{StatusCode, header};
    use saltern_client::control::ControlError;
    use saltern_crypto::{SecretBytes, StateCipher};
    use saltern_model::control::Account;
    use saltern_model::{Compat, Tag};
    use saltern_store::Tokens;
    use saltern_store::shared_state::{RowId, SealedRow, StateBatch, StateTable};
    use saltern_wire::msgpack::Value;
    use tokio::runtime::{Builder, Runtime};
    use tower_service::Service;

    use super::*;
    use crate::stream;

    /// The end of each token, in seconds since 1970.
    pub(crate) const ENDS: f64 = 4e9;

    /// A master to which every token is good until it is revoked.
    #[derive(Default)]
    pub(crate) struct Trusting {
        revoked: parking_lot::Mutex<Vec<String>>,
        /// Its disk gives errors.
        pub(crate) is_broken: AtomicBool,
        /// Times that it was asked about a token.
        pub(crate) looks: AtomicUsize,
        /// Looks hang while this is so.
        is_held: parking_lot::Mutex<bool>,
        released: parking_lot::Condvar,
        /// Its tokens, if it shares them.
        tokens: Option<Tokens>,
    }

    /// Looks at tokens hang until this is dropped.
    pub(crate) struct Held(Arc<Trusting>);

    impl Drop for Held {
        fn drop(&mut self) {
            *self.0.is_held.lock() = false;
            self.0.released.notify_all();
        }
    }

    /// The table of a cluster in which another master is active by now.
    struct OtherOwner;

    impl StateTable for OtherOwner {
        fn first_version(&self) -> i64 {
            1
        }

        fn write(&self, _: &StateBatch) -> Result<bool, StoreError> {
            Ok(false)
        }

        fn read_after(&self, _: Option<&RowId>) -> Result<Vec<SealedRow>, StoreError> {
            Ok(Vec::new())
        }
    }

    impl Trusting {
        /// A member of a cluster, which has tokens below a directory.
        pub(crate) fn with_other_owner(dir: &Path) -> Self {
            let cipher = StateCipher::new(&SecretBytes::new(vec![1; 32]), "saltern").unwrap();
            let patience = std::time::Duration::from_secs(600);
            let place = (Path::new("memory"), patience);
            let shared = SharedState::start(Arc::new(OtherOwner), Arc::new(cipher), place);
            let tokens = Tokens::at(&dir.join("tokens"), Compat::V3008, Clock::system());
            Self {
                tokens: Some(tokens.unwrap().shared_by(&shared.unwrap())),
                ..Self::default()
            }
        }

        /// Has looks at tokens hang.
        pub(crate) fn hold(self: &Arc<Self>) -> Held {
            *self.is_held.lock() = true;
            Held(self.clone())
        }

        fn look(&self) -> Result<(), StoreError> {
            self.looks.fetch_add(1, Ordering::SeqCst);
            self.released
                .wait_while(&mut self.is_held.lock(), |is_held| *is_held);
            match self.is_broken.load(Ordering::SeqCst) {
                true => Err(StoreError::io("read", "token", io::ErrorKind::Other)),
                false => Ok(()),
            }
        }
    }

    impl Master for Trusting {
        fn ask(&self, _: Bytes, _: Sender) -> BoxFuture<'static, Option<Bytes>> {
            Box::pin(std::future::ready(None))
        }

        fn listen(&self) -> Box<dyn EventSource> {
            unreachable!("no job is waited for")
        }

        fn account(&self, _: Jid) -> BoxFuture<'static, Result<Option<Account>, ControlError>> {
            Box::pin(std::future::ready(Ok(None)))
        }

        fn fire(&self, _: Tag, _: Value) -> BoxFuture<'static, bool> {
            Box::pin(std::future::ready(false))
        }

        fn events(&self) -> Option<Arc<dyn stream::EventSource>> {
            None
        }

        fn mint(&self) -> Jid {
            Jid::parse("20260102030405060708").unwrap()
        }

        fn revoke(&self, token: &str) -> Result<(), StoreError> {
            self.look()?;
            self.revoked.lock().push(token.to_owned());
            let removed = self.tokens.as_ref().map(|tokens| tokens.remove(token));
            removed.unwrap_or(Ok(false)).map(drop)
        }

        fn owner_of(&self, token: &str) -> Result<Option<TokenOwner>, StoreError> {
            self.look()?;
            let is_revoked = self.revoked.lock().iter().any(|revoked| revoked == token);
            Ok((!is_revoked).then(|| TokenOwner {
                user: "ann".to_owned(),
                ends: ENDS,
            }))
        }
    }

    pub(crate) const TOKEN: &str =
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// The API of a master, below a directory, with a server by this section.
    pub(crate) fn open(
        dir: &Path,
        section: &str,
        (clock, master): (Clock, &Arc<Trusting>),
    ) -> Arc<Api> {
        let root = dir.display();
        let text =
            format!("root_dir: {root}\nid: m\n{section}:\n  port: 8000\n  disable_ssl: true\n");
        std::fs::write(dir.join("master"), text).unwrap();
        let loaded = saltern_config::load_master(dir);
        let config = Arc::new(loaded.unwrap_or_else(|errors| panic!("{errors}")).config);
        let api = Api::open(
            config,
            clock,
            &Registry::new(),
            master.clone(),
            &SharedState::default(),
        );
        api.unwrap()
    }

    /// The first answer of each dialect's pages, with what the master revoked.
    fn first_answer(
        runtime: &Runtime,
        master: &Arc<Trusting>,
        (section, mut request): (&str, Request),
    ) -> (axum::response::Response, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let api = open(dir.path(), section, (Clock::system(), master));
        let server = api.config().net_api.servers.first().unwrap().clone();
        let session = api.sessions().create(TOKEN, 4e9).unwrap();
        let from = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        request.extensions_mut().insert(Peer(from));
        let named = match server.dialect {
            ApiDialect::CherryPy => session.as_str(),
            _ => TOKEN,
        };
        let headers = request.headers_mut();
        headers.insert(TOKEN_HEADER, named.parse().unwrap());
        let answer = runtime.block_on(api.router(&server).call(request));
        // A session ends with its token only.
        let is_over = api.sessions().token(&session).is_none();
        let revoked = master.revoked.lock().clone();
        assert_eq!(is_over, revoked.iter().any(|revoked| revoked == TOKEN));
        (answer.unwrap(), revoked)
    }

    /// Runtimes and masters by which nobody learns anything about a token.
    fn blind() -> [(Runtime, Arc<Trusting>); 2] {
        let broken = Trusting {
            is_broken: AtomicBool::new(true),
            ..Trusting::default()
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        [
            (blocking::without_threads().build().unwrap(), Arc::default()),
            (runtime, Arc::new(broken)),
        ]
    }

    #[test]
    fn token_that_cannot_be_revoked_is_not_said_to_be() {
        for (runtime, master) in blind() {
            let request = Request::post("/logout").body(Body::empty()).unwrap();
            let (answer, revoked) = first_answer(&runtime, &master, ("rest_cherrypy", request));
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(!answer.headers().contains_key(header::SET_COOKIE));
            assert!(revoked.is_empty());
        }
    }

    #[test]
    fn session_ends_with_its_token() {
        let request = Request::post("/logout").body(Body::empty()).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let asked = ("rest_cherrypy", request);
        let (answer, revoked) = first_answer(&runtime, &Arc::default(), asked);
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(revoked, [TOKEN]);
    }

    /// Its next request would be refused here, so the session and the cookie are no good any more.
    #[test]
    fn token_that_only_this_master_has_removed_is_not_said_to_be_valid() {
        let dir = tempfile::tempdir().unwrap();
        let master = Arc::new(Trusting::with_other_owner(dir.path()));
        let request = Request::post("/logout").body(Body::empty()).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let asked = ("rest_cherrypy", request);
        let (answer, revoked) = first_answer(&runtime, &master, asked);
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        assert!(answer.headers().contains_key(header::SET_COOKIE));
        assert_eq!(revoked, [TOKEN]);
        let body = runtime.block_on(whole_body(answer.into_body(), 1 << 10));
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        assert!(body.contains("another master may still take it"), "{body}");
    }

    #[test]
    fn token_that_cannot_be_looked_at_is_not_refused() {
        for (runtime, master) in blind() {
            let request = Request::get("/minions").header("accept", "application/json");
            let request = request.body(Body::empty()).unwrap();
            let (answer, _) = first_answer(&runtime, &master, ("rest_tornado", request));
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        }
    }
}
