//! Interface of the console to the API that serves it.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use saltern_config::ApiServer;
use saltern_netapi::stream::{EventSource, TagRules};
use saltern_netapi::{Api, LogInError, UncheckedToken, v1};
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;
use saltern_wire::port::InsideListener;
use zeroize::Zeroizing;

/// Name, password and backend of a user who logs in. Has no `Debug`.
pub struct LogIn {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: Zeroizing<String>,
    /// The backend of `external_auth`.
    pub eauth: String,
}

/// A token that a log-in made. Has no `Debug`.
pub struct NewToken {
    /// The token.
    pub token: Zeroizing<String>,
    /// When it ends, in seconds since 1970.
    pub expire: f64,
}

/// The API of one server.
pub trait Backend: Send + Sync + 'static {
    /// The way to the master: each request is checked there.
    fn gate(&self) -> Arc<dyn v1::Backend>;

    /// Whether requests from this address are answered at all.
    fn admits(&self, from: SocketAddr) -> bool;

    /// The backends that users can log in with.
    fn eauths(&self) -> Vec<String>;

    /// Logs a user in; nothing when the master does not know him.
    fn log_in(
        &self,
        log_in: LogIn,
        from: SocketAddr,
    ) -> BoxFuture<'_, Result<Option<NewToken>, LogInError>>;

    /// The user of a token that is good at this moment.
    ///
    /// # Errors
    /// Nobody knows whether it is good.
    fn user_of<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, UncheckedToken>>;

    /// Revokes a token. Blocks: it removes a file.
    ///
    /// # Errors
    /// It may still be good, if only to another master ([`StoreError::is_done_here`]).
    fn revoke(&self, token: &str) -> Result<(), StoreError>;

    /// All events; nothing when they are not kept.
    fn events(&self) -> Option<Arc<dyn EventSource>>;

    /// The events that a user may see; nothing for no limit.
    fn event_rules(&self, user: &str) -> Option<Arc<TagRules>>;
}

/// The API behind one of its servers.
pub(crate) struct ServedApi {
    pub(crate) api: Arc<Api>,
    pub(crate) server: ApiServer,
}

impl Backend for ServedApi {
    fn gate(&self) -> Arc<dyn v1::Backend> {
        self.api.v1(InsideListener::Console)
    }

    fn admits(&self, from: SocketAddr) -> bool {
        Api::admits(&self.server, from)
    }

    fn eauths(&self) -> Vec<String> {
        let followed = self.api.config().followed();
        let external = followed.external_auth();
        let backends = external.node().and_then(|node| node.as_map());
        let names = backends.into_iter().flat_map(|backends| backends.iter());
        names.map(|(name, _)| name.to_string()).collect()
    }

    fn log_in(
        &self,
        log_in: LogIn,
        from: SocketAddr,
    ) -> BoxFuture<'_, Result<Option<NewToken>, LogInError>> {
        Box::pin(async move {
            let entries = vec![
                ("username", Zeroizing::new(log_in.user)),
                ("password", log_in.password),
                ("eauth", Zeroizing::new(log_in.eauth)),
            ];
            let made = self.api.log_in((&self.server, from), entries).await?;
            Ok(made.and_then(|made| {
                let token = made.get("token").and_then(Value::as_str)?;
                Some(NewToken {
                    token: Zeroizing::new(token.to_owned()),
                    expire: made.get("expire").and_then(Value::as_f64)?,
                })
            }))
        })
    }

    fn user_of<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, UncheckedToken>> {
        Box::pin(async move { Ok(self.api.owner_of(token).await?.map(|owner| owner.user)) })
    }

    fn revoke(&self, token: &str) -> Result<(), StoreError> {
        self.api.revoke(token)
    }

    fn events(&self) -> Option<Arc<dyn EventSource>> {
        self.api.events()
    }

    fn event_rules(&self, user: &str) -> Option<Arc<TagRules>> {
        self.api.event_rules(user)
    }
}
