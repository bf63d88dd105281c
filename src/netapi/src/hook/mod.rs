//! Hooks: a request to `/hook/…` becomes the event `salt/netapi/hook/…`, as in stock.
//!
//! A path that `saltern_hook_secrets` names takes signed requests only, and needs no session. All
//! others need one, unless `webhook_disable_auth` is on. Each source has a rate. A tag that the
//! command line or the reactor would take for one of the master's own is refused: in stock anyone
//! who may post to a hook can forge a return.
//!
//! Not here: the form of the body, which is that of all requests of the dialect, and the session.

mod rate;
mod signature;

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::metrics::{IntCounterVec, Registry, counter_vec};
use saltern_base::percent_decoded;
use saltern_model::{Tag, TagError};
use saltern_requests::is_tag_of_master;
use saltern_wire::msgpack::Value;

pub use signature::{HookSecrets, SecretsError, SignatureError};

use crate::stream::Dialect;
use rate::SourceRates;
use signature::Replays;

/// Beginning of all tags.
const TAG_BASE: &str = "salt/netapi/hook";

/// Fires events on the bus.
pub trait HookBus: Send + Sync + 'static {
    /// Fires an event, with `_stamp` added to its data; `false` when the bus does not take it.
    fn fire(&self, tag: Tag, data: Value) -> BoxFuture<'_, bool>;
}

/// Why a hook fires nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookRefusal {
    /// Neither a session nor a signature is there.
    #[error("no permission: log in first")]
    NotLoggedIn,
    /// The signature.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Too many requests of one source.
    #[error("too many requests")]
    Rate,
    /// The path cannot be the end of a tag.
    #[error(transparent)]
    Tag(#[from] TagError),
    /// The path is not UTF-8 text.
    #[error("the path is no text")]
    Path,
    /// Only the master itself uses such a tag.
    #[error("the path contains a tag of the master's own")]
    Reserved,
}

impl HookRefusal {
    /// The reason in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotLoggedIn => "not_logged_in",
            Self::Signature(_) => "signature",
            Self::Rate => "rate",
            Self::Tag(_) | Self::Path => "path",
            Self::Reserved => "reserved",
        }
    }

    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::NotLoggedIn | Self::Signature(_) => 401,
            Self::Rate => 429,
            Self::Tag(_) | Self::Path => 400,
            Self::Reserved => 403,
        }
    }
}

/// A request to a hook whose body has not been parsed yet.
#[derive(Clone, Copy, Debug)]
pub struct HookRequest<'a> {
    /// Its address.
    pub peer: IpAddr,
    /// The path behind `webhook_url`, percent-encoded, without a slash at its front.
    pub path: &'a str,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its body.
    pub body: &'a Bytes,
    /// Whether the request bears a session.
    pub is_logged_in: bool,
}

/// Posted request, as the dialect reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Posted {
    /// The body as text; `rest_tornado` does not pass it on.
    pub body: Value,
    /// The parsed body.
    pub post: Value,
    /// The parameters of the query, of `rest_tornado`.
    pub get: Value,
}

/// All hooks.
pub struct Hooks {
    secrets: Arc<HookSecrets>,
    /// `webhook_disable_auth`.
    is_open: bool,
    dialect: Dialect,
    clock: Clock,
    replays: Mutex<Replays>,
    rates: Mutex<SourceRates>,
    metrics: HookMetrics,
}

/// Metrics of the hooks of all servers.
#[derive(Clone)]
pub struct HookMetrics {
    requests: IntCounterVec,
}

impl HookMetrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        Self {
            requests: counter_vec(
                registry,
                "saltern_api_hooks_total",
                "Requests to hooks, by result: fired, lost (the bus took no event), or why they \
                 were refused: not_logged_in, signature, rate, path or reserved.",
                &["result"],
            ),
        }
    }
}

impl Hooks {
    /// The hooks of a configuration.
    pub fn new(
        secrets: Arc<HookSecrets>,
        is_open: bool,
        dialect: Dialect,
        clock: Clock,
        metrics: HookMetrics,
    ) -> Self {
        Self {
            secrets,
            is_open,
            dialect,
            clock,
            replays: Mutex::default(),
            rates: Mutex::default(),
            metrics,
        }
    }

    /// The tag of a request that may fire; checked before its body is parsed.
    ///
    /// # Errors
    /// [`HookRefusal`], which is counted.
    pub fn admit(&self, request: &HookRequest<'_>) -> Result<Tag, HookRefusal> {
        self.check(request)
            .inspect_err(|refusal| self.count(refusal.label()))
    }

    fn check(&self, request: &HookRequest<'_>) -> Result<Tag, HookRefusal> {
        let now = self.clock.unix();
        if !self.rates.lock().admit(request.peer, now) {
            return Err(HookRefusal::Rate);
        }
        let path = String::from_utf8(percent_decoded(request.path));
        let path = path.map_err(|_| HookRefusal::Path)?;
        match self.secrets.of_path(&path) {
            Some(secret) => {
                let signature = secret.verify(request.headers, request.body, now)?;
                if let Some(signature) = signature {
                    self.replays.lock().admit(signature, now)?;
                }
            }
            None if self.is_open || request.is_logged_in => {}
            None => return Err(HookRefusal::NotLoggedIn),
        }
        let tag = match path.trim_end_matches('/') {
            "" => Tag::parse(TAG_BASE)?,
            path => Tag::parse(&format!("{TAG_BASE}/{path}"))?,
        };
        match is_tag_of_master(tag.as_str().strip_prefix(TAG_BASE).unwrap_or_default()) {
            true => Err(HookRefusal::Reserved),
            false => Ok(tag),
        }
    }

    /// Fires the event of an admitted request; whether the bus took it.
    pub async fn fire(
        &self,
        bus: &dyn HookBus,
        tag: Tag,
        request: &HookRequest<'_>,
        posted: Posted,
    ) -> bool {
        let headers = headers(request, self.dialect);
        let data = match self.dialect {
            Dialect::Cherrypy => Value::map([
                ("body", posted.body),
                ("post", posted.post),
                ("headers", headers),
            ]),
            Dialect::Tornado => Value::map([
                ("post", posted.post),
                ("get", posted.get),
                ("headers", headers),
            ]),
        };
        let is_fired = bus.fire(tag, data).await;
        self.count(if is_fired { "fired" } else { "lost" });
        is_fired
    }

    fn count(&self, result: &str) {
        self.metrics.requests.with_label_values(&[result]).inc();
    }
}

/// Headers that are credentials of this master: never on the bus, which many read.
const CREDENTIALS: [&str; 4] = ["x-auth-token", "cookie", "authorization", "x-gitlab-token"];

/// Headers as stock's servers give them: words of names begin with a capital, a repeated header has
/// all values in one text, and CherryPy adds the address of the peer.
fn headers(request: &HookRequest<'_>, dialect: Dialect) -> Value {
    let (between, peer) = match dialect {
        Dialect::Cherrypy => (", ", Some(request.peer.to_string())),
        Dialect::Tornado => (",", None),
    };
    let names = request.headers.keys();
    let names = names.filter(|name| !CREDENTIALS.contains(&name.as_str()));
    let named = names.map(|name| {
        let values = request.headers.get_all(name).iter();
        // One byte is one letter there.
        let values = values.map(|value| value.as_bytes().iter().copied().map(char::from).collect());
        let values: Vec<String> = values.collect();
        (capitals(name.as_str()), values.join(between))
    });
    let peer = peer.map(|peer| ("Remote-Addr".to_owned(), peer));
    let all = named.chain(peer);
    Value::Map(
        all.map(|(name, value)| (name.as_str().into(), value.as_str().into()))
            .collect(),
    )
}

fn capitals(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests;
