//! Interface of the API to other pages beside the dialects: log-ins, the user of a session, the
//! events that a user may see.

use std::net::SocketAddr;
use std::sync::Arc;

use saltern_config::ApiServer;
use saltern_wire::msgpack::Value;
use zeroize::Zeroizing;

use crate::api::Api;
use crate::cherrypy;
use crate::low_data::{CallError, Calls, Chunk};
use crate::stream::{EventSource, TagRules};

/// Why a log-in cannot be tried now.
#[derive(Debug, thiserror::Error)]
pub enum LogInError {
    /// The master has no room for it.
    #[error("the master is too busy for a log-in; try again")]
    Busy,
    /// The user may not log in from this address (`api_acl`).
    #[error("this user may not log in from this address")]
    Address,
}

impl Api {
    /// Logs a user of the console in as `/login` does: the entries `username`, `password` and `eauth`. Gives the
    /// token with its user and end; nothing when the master does not know the user.
    ///
    /// # Errors
    /// When it cannot be tried.
    pub async fn log_in(
        &self,
        (server, from): (&ApiServer, SocketAddr),
        entries: Vec<(&'static str, Zeroizing<String>)>,
    ) -> Result<Option<Value>, LogInError> {
        let entries = entries.iter();
        let entries = entries.map(|(name, value)| ((*name).into(), value.as_str().into()));
        let Some(load) = Chunk::of(Value::Map(entries.collect())) else {
            return Ok(None);
        };
        let user = load.text("username").unwrap_or_default();
        if !cherrypy::may_use_api(server, user, from) {
            return Err(LogInError::Address);
        }
        let token = Calls::new(self, from).of_console().log_in(load).await;
        token.or_else(|error| match error {
            CallError::Busy(_) | CallError::Timeout => Err(LogInError::Busy),
            _ => Ok(None),
        })
    }

    /// Whether a server takes requests from an address (`authorized_ips`).
    pub fn admits(server: &ApiServer, from: SocketAddr) -> bool {
        let address = from.ip().to_canonical().to_string();
        server.authorized_ips.is_empty() || server.authorized_ips.contains(&address)
    }

    /// All events; nothing when they are not kept.
    pub fn events(&self) -> Option<Arc<dyn EventSource>> {
        self.master().events()
    }

    /// The events that a user may see, as the configuration says now; nothing for no limit.
    pub fn event_rules(&self, user: &str) -> Option<Arc<TagRules>> {
        let acl = &self.streams().acl;
        let followed = self.config().followed();
        if let Err(error) = acl.follow(followed.saltern_api_event_acl().node()) {
            tracing::error!(%error, "the rules of a reload cannot be used; the old ones stay");
        }
        acl.rules_of(user)
    }
}
