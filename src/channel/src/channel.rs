//! The request channel of one minion: a connection to port 4506 and a session, with recovery when
//! either is lost. Like stock's, it has one request in flight at a time.
//!
//! Its owner's counters are notified by [`ChannelObserver`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use saltern_base::clock::Clock;
use saltern_model::MinionId;
use saltern_wire::client::{ClientError, ReqClient, Route};
use saltern_wire::msgpack::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use crate::backoff::Backoff;
use crate::config::MinionConfig;
use crate::envelope::{ReplyError, Sealing, Session, nonce, open, seal};
use crate::error::RequestError;
use crate::keys::{MasterKeyStore, MinionKeys};
use crate::sign_in::{SignInAnswer, SignInError, SignInRequest};

/// libzmq's pause before it connects again, and the longest that stock lets it have
/// (`RECONNECT_IVL` and `RECONNECT_IVL_MAX` in `salt/transport/zeromq.py`).
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Interval in which publications with a wrong signature cause one sign-in, when that gives the same key.
const SAME_KEY_INTERVAL: Duration = Duration::from_secs(2);

/// The identity of this minion.
pub struct Identity {
    /// Its id.
    pub id: MinionId,
    /// How it is set up; the minions of a swarm share one, so its `id` is not looked at.
    pub config: Arc<MinionConfig>,
    /// Its key pair.
    pub keys: Arc<MinionKeys>,
    /// Where the master's key is kept.
    pub store: Arc<dyn MasterKeyStore>,
    /// Wall-clock time.
    pub clock: Clock,
}

/// Counters of a channel's owner; called on the way, so they must not block.
pub trait ChannelObserver: Send + Sync + 'static {
    /// An answer to a sign-in came after this time; whether it passed verification.
    fn signed_in(&self, took: Duration, is_accepted: bool);
    /// A reply or a publication could not be opened, so the channel signs in anew.
    fn session_lost(&self);
    /// A sign-in had no answer.
    fn failed(&self);
    /// A connection to the request port has no TLS.
    fn tls_failed(&self) {}
    /// A minion has a new session.
    fn authenticated(&self, _minion: &str) {}
    /// A publication is not newer than all before it, and therefore not run.
    fn serial_refused(&self, _minion: &str) {}
}

/// Counts nothing.
pub struct Unobserved;

impl ChannelObserver for Unobserved {
    fn signed_in(&self, _took: Duration, _is_accepted: bool) {}
    fn session_lost(&self) {}
    fn failed(&self) {}
}

/// Talks to the master's request port.
pub struct Channel<O> {
    identity: Arc<Identity>,
    stats: Arc<O>,
    route: Route,
    link: Mutex<Option<ReqClient>>,
    session: Arc<SessionCell>,
}

/// Session of a minion, which the channels of one minion share.
#[derive(Default)]
struct SessionCell {
    current: RwLock<Option<Arc<Session>>>,
    /// Held while one of the channels signs in.
    signing_in: Mutex<()>,
    /// The last sign-in failed for want of trust.
    is_refused: AtomicBool,
    /// When a sign-in for a wrong signature gave the key that was known.
    same_key: parking_lot::Mutex<Option<Instant>>,
}

impl<O: ChannelObserver> Channel<O> {
    /// A channel that is not connected yet; it counts into `stats`.
    pub fn new(identity: Identity, route: Route, stats: Arc<O>) -> Self {
        Self {
            identity: Arc::new(identity),
            stats,
            route,
            link: Mutex::new(None),
            session: Arc::default(),
        }
    }

    /// Another channel of the same minion with a connection of its own, so that requests on both are
    /// under way at the same time. They share the session.
    pub fn another(&self) -> Self {
        Self {
            identity: Arc::clone(&self.identity),
            stats: Arc::clone(&self.stats),
            route: self.route.clone(),
            link: Mutex::new(None),
            session: Arc::clone(&self.session),
        }
    }

    /// The identity of the minion.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The id of the minion.
    pub fn id(&self) -> &str {
        self.identity.id.as_str()
    }

    /// The counters of its owner.
    pub const fn stats(&self) -> &Arc<O> {
        &self.stats
    }

    /// The configuration of the minion.
    pub fn config(&self) -> &MinionConfig {
        &self.identity.config
    }

    /// Wall-clock time.
    pub fn clock(&self) -> &Clock {
        &self.identity.clock
    }

    /// The master's request port, and the address that this minion connects from.
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// The session, if there is one.
    pub fn session(&self) -> Option<Arc<Session>> {
        self.session.current.read().clone()
    }

    /// Whether a sign-in may show that the master has another key; not for a while after one that gave the
    /// same: else whoever has the key of publications, which all minions have, causes one with each.
    pub(crate) fn may_have_changed_key(&self) -> bool {
        let same_key = self.session.same_key.lock();
        same_key.is_none_or(|at| at.elapsed() >= SAME_KEY_INTERVAL)
    }

    /// Takes over that a sign-in for a wrong signature gave the key that was known, or another one.
    pub(crate) fn looked_for_key(&self, is_same: bool) {
        *self.session.same_key.lock() = is_same.then(Instant::now);
    }

    /// Whether the last sign-in failed because one side does not trust the other. What is left of an earlier
    /// session is of no use then.
    pub fn is_refused(&self) -> bool {
        self.session.is_refused.load(Relaxed)
    }

    /// Signs in, waiting while the key is pending; does nothing when the session is another one
    /// than `stale` by now, because somebody else signed in meanwhile.
    pub async fn sign_in(&self, stale: Option<&Arc<Session>>) -> Result<Arc<Session>, SignInError> {
        let mut link = self.link.lock().await;
        self.sign_in_on(&mut link, stale).await
    }

    async fn sign_in_on(
        &self,
        link: &mut Option<ReqClient>,
        stale: Option<&Arc<Session>>,
    ) -> Result<Arc<Session>, SignInError> {
        let _signing_in = self.session.signing_in.lock().await;
        match (self.session(), stale) {
            (Some(current), None) => return Ok(current),
            (Some(current), Some(stale)) if !Arc::ptr_eq(&current, stale) => return Ok(current),
            _ => {}
        }
        let config = self.config();
        let mut wait = config.acceptance_wait_time;
        let mut has_changed_key = false;
        loop {
            let answer = self.sign_in_once(link).await;
            let is_refused = answer.as_ref().is_err_and(SignInError::is_refusal);
            self.session.is_refused.store(is_refused, Relaxed);
            match answer? {
                // The next key is trusted now: under it, once more.
                SignInAnswer::Accepted(session) if session.has_next_key && !has_changed_key => {
                    info!(minion = self.id(), "the master handed over its next key");
                    has_changed_key = true;
                    continue;
                }
                SignInAnswer::Accepted(session) => {
                    if let Some(before) = stale.filter(|before| before.aes.same_as(&session.aes)) {
                        // The serial goes on for as long as the key lives.
                        session.serial.store(before.serial.load(Relaxed), Relaxed);
                    }
                    let session: Arc<Session> = Arc::from(session);
                    *self.session.current.write() = Some(Arc::clone(&session));
                    info!(minion = self.id(), "signed in to the master");
                    self.stats.authenticated(self.id());
                    return Ok(session);
                }
                SignInAnswer::Pending => {
                    info!(
                        wait = wait.as_secs_f64(),
                        "the master has not accepted the key yet"
                    );
                }
                SignInAnswer::RejectedForNow => {
                    warn!(
                        wait = wait.as_secs_f64(),
                        "the master rejects the key; asking again"
                    );
                }
            }
            tokio::time::sleep(wait).await;
            if wait < config.acceptance_wait_time_max {
                wait *= 2;
            }
        }
    }

    async fn sign_in_once(
        &self,
        link: &mut Option<ReqClient>,
    ) -> Result<SignInAnswer, SignInError> {
        let config = self.config();
        let mut reason = String::new();
        for _ in 0..config.auth_tries {
            let begin = Instant::now();
            let request = SignInRequest::new(&self.identity)?;
            match self
                .exchange(link, request.payload.clone(), config.auth_timeout)
                .await
            {
                Ok(reply) => {
                    let answer = request.answer(&reply, &self.identity);
                    self.stats.signed_in(begin.elapsed(), answer.is_ok());
                    return answer;
                }
                Err(error) => {
                    self.stats.failed();
                    debug!("signing in: {error}");
                    reason = error.to_string();
                }
            }
        }
        Err(SignInError::NoAnswer(reason))
    }

    /// Sends an encrypted request and opens its reply. A reply that cannot be opened makes the
    /// minion sign in anew and send the request once more, as stock does.
    pub async fn send(
        &self,
        fields: &[(&str, Value)],
        limit: Duration,
    ) -> Result<Value, RequestError> {
        let mut link = self.link.lock().await;
        let mut session = match self.session() {
            Some(session) => session,
            None => self.sign_in_on(&mut link, None).await?,
        };
        let mut signed_in_anew = false;
        loop {
            let nonce = nonce();
            let request = seal(&session.own, fields, &nonce, &self.sealing());
            let reply = self.exchange(&mut link, request, limit).await?;
            match open(&session.own, &reply, &nonce) {
                Ok(value) => return Ok(value),
                Err(ReplyError::Unopened(reason)) if !signed_in_anew => {
                    debug!("a request was not understood ({reason}); signing in anew");
                    self.stats.session_lost();
                    session = self.sign_in_on(&mut link, Some(&session)).await?;
                    signed_in_anew = true;
                }
                Err(error) => return Err(RequestError::Reply(error.to_string())),
            }
        }
    }

    /// Fields of every request besides its own.
    pub fn sealing(&self) -> Sealing<'_> {
        let config = self.config();
        Sealing {
            id: self.id(),
            keys: &self.identity.keys,
            enc_algo: config.encryption_algorithm,
            sig_algo: config.signing_algorithm,
            sign: config.minion_sign_messages,
            unix: self.identity.clock.unix(),
        }
    }

    /// One request and its reply. After any failure the connection is dropped: a reply that comes
    /// later must not be taken for the next request's.
    async fn exchange(
        &self,
        link: &mut Option<ReqClient>,
        request: Bytes,
        limit: Duration,
    ) -> Result<Bytes, RequestError> {
        // Taken out, so that the connection is also gone if this future is dropped half-way.
        let held = link.take();
        let work = async {
            let mut client = match held {
                Some(client) => client,
                None => self.connect().await.map_err(transport)?,
            };
            let reply = client.request(request).await.map_err(transport)?;
            Ok::<_, RequestError>((client, reply))
        };
        let (client, reply) = timeout(limit, work)
            .await
            .map_err(|_| RequestError::Timeout(limit))??;
        *link = Some(client);
        Ok(reply)
    }

    /// Connects, as long as it takes: libzmq, which stock has below it, goes on behind the back of
    /// a request until the time of that is up. So a request that is made while the master starts
    /// anew is not lost.
    async fn connect(&self) -> Result<ReqClient, ClientError> {
        let mut pauses = Backoff::new(FIRST_PAUSE, MAX_PAUSE, true);
        loop {
            match ReqClient::connect(self.route.clone()).await {
                Err(error @ (ClientError::Io { .. } | ClientError::Closed(_))) => {
                    debug!("the request port is not to be reached: {error}");
                    tokio::time::sleep(pauses.pause()).await;
                }
                connected_or_refused => {
                    if matches!(connected_or_refused, Err(ClientError::Tls { .. })) {
                        self.stats.tls_failed();
                    }
                    return connected_or_refused;
                }
            }
        }
    }

    /// Closes the connection; the next request makes a new one.
    pub async fn disconnect(&self) {
        self.link.lock().await.take();
    }
}

/// The error of a connection.
pub fn transport(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RequestError {
    RequestError::Transport(error.into())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;

    use super::*;
    use crate::keys::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn wrong_signatures_cause_one_sign_in_for_an_interval_while_the_key_is_the_same() {
        let id = MinionId::parse("m1").expect("a minion id");
        let identity = Identity {
            config: Arc::new(MinionConfig::new(id.clone(), Path::new("/"))),
            id,
            keys: Arc::new(MinionKeys::generate(2048).expect("a key pair")),
            store: Arc::new(MemoryStore::default()),
            clock: Clock::system(),
        };
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let channel = Channel::new(identity, nowhere.into(), Arc::new(Unobserved));
        assert!(channel.may_have_changed_key());
        channel.looked_for_key(false);
        assert!(channel.may_have_changed_key());
        channel.looked_for_key(true);
        assert!(!channel.may_have_changed_key() && !channel.another().may_have_changed_key());
        tokio::time::advance(SAME_KEY_INTERVAL).await;
        assert!(channel.may_have_changed_key());
    }
}
