//! The publish side of a channel: where a master is, the subscription to its publications, and the
//! publications themselves, opened and verified.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use saltern_base::clock::civil;
use saltern_base::{blocking, hex};
use saltern_wire::client::{ClientError, SubClient};
use saltern_wire::msgpack::{MapView, Value};
use sha1::{Digest, Sha1};
use tokio::time::timeout;
use tracing::{error, warn};

use crate::backoff::Backoff;
use crate::channel::{Channel, ChannelObserver};
use crate::config::MinionConfig;
use crate::envelope::{PublicationError, Session, open_publication, registration};
use crate::error::RequestError;

/// Stock takes the port from the sign-in unless its own option differs from this.
const UNSET_PUBLISH_PORT: u16 = 4506;

/// How long an event may take to be accepted.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The address of a master; asks the resolver again until it knows one. `None` when the name has no
/// address.
pub async fn resolve(host: &str, port: u16, config: &MinionConfig) -> Option<SocketAddr> {
    let mut pauses = Backoff::new(
        config.recon_default,
        config.recon_max,
        config.recon_randomize,
    );
    loop {
        match blocking::lookup_host(host, port).await {
            Ok(found) => return found.first().copied(),
            Err(error) => warn!("the master \"{host}\" has no address: {error}"),
        }
        tokio::time::sleep(pauses.pause()).await;
    }
}

impl<O: ChannelObserver> Channel<O> {
    /// Subscribes to the master's publications, on the port of the configuration or of the session.
    ///
    /// # Errors
    /// The publish port is not reached, or the connection does not stand after the time that a request may take.
    pub async fn subscribe(&self, session: &Session) -> Result<SubClient, ClientError> {
        let topics = topics(self.config(), self.id());
        let topics: Vec<&[u8]> = topics.iter().map(String::as_bytes).collect();
        let mut route = self.route().clone();
        let configured = self.config().publish_port;
        route.to.set_port(match configured {
            UNSET_PUBLISH_PORT => session.publish_port,
            port => port,
        });
        let registration = registration(session, &self.sealing());
        let address = route.to;
        let connecting = SubClient::connect(route, &topics, &registration);
        let limit = self.config().request_channel_timeout;
        // A peer that accepts connections and says nothing would hold up whoever waits here.
        timeout(limit, connecting).await.unwrap_or_else(|_| {
            let source = io::ErrorKind::TimedOut.into();
            Err(ClientError::Io { address, source })
        })
    }

    /// Opens a publication; when it is encrypted with a key that is not known, or a syndic's is signed with
    /// another one, signs in anew and opens the same one with the new key. `None` when it is not to be followed, which is logged.
    pub async fn open(&self, payload: Bytes) -> Option<MapView> {
        let signed = self.config().sign_pub_messages;
        let session = self.session()?;
        let is_key_doubted = match open_publication(&session, payload.clone(), signed) {
            Ok(load) => return self.next_only(&session, load),
            Err(PublicationError::OtherKey) => false,
            // The master above may have another key by now, which the sign-in trusts or refuses.
            Err(PublicationError::BadSignature)
                if self.config().is_syndic && self.may_have_changed_key() =>
            {
                true
            }
            Err(error) => {
                warn!("a publication is not run: {error}");
                return None;
            }
        };
        self.stats().session_lost();
        let key = session.master.pem().to_owned();
        // Boxed, because it is large and rare, and every minion of a swarm would hold its space.
        let session = match Box::pin(self.sign_in(Some(&session))).await {
            Ok(session) => session,
            Err(error) => {
                error!("a publication cannot be opened, and signing in failed: {error}");
                return None;
            }
        };
        if is_key_doubted {
            self.looked_for_key(session.master.pem() == key);
        }
        match open_publication(&session, payload, signed) {
            Ok(load) => self.next_only(&session, load),
            Err(error) => {
                warn!("a publication is not run, not even after signing in anew: {error}");
                None
            }
        }
    }

    /// A publication that is newer than all before it.
    fn next_only(&self, session: &Session, load: MapView) -> Option<MapView> {
        if session.is_next(&load) {
            return Some(load);
        }
        self.stats().serial_refused(self.id());
        None
    }

    /// Fires one event on the master's bus.
    ///
    /// # Errors
    /// The master did not take it.
    pub async fn fire(&self, tag: &str, data: Value) -> Result<(), RequestError> {
        self.fire_with(tag, data, []).await
    }

    /// The same, with more fields beside the data.
    ///
    /// # Errors
    /// The master did not take it.
    pub async fn fire_with(
        &self,
        tag: &str,
        data: Value,
        more: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<(), RequestError> {
        let mut fields = vec![
            ("id", Value::from(self.id())),
            ("cmd", Value::from("_minion_event")),
            ("pretag", Value::Nil),
            ("data", data),
            ("tag", Value::from(tag)),
        ];
        fields.extend(more);
        self.send(&fields, EVENT_TIMEOUT).await.map(drop)
    }
}

/// Topics to subscribe to (protocol.md, section 5).
fn topics(config: &MinionConfig, id: &str) -> Vec<String> {
    if !config.zmq_filtering {
        return vec![String::new()];
    }
    let own = Sha1::digest(id.as_bytes());
    let mut topics = vec!["broadcast".to_owned(), hex(&own)];
    if config.is_syndic {
        // What goes to named minions goes to syndics by this topic (`salt/transport/zeromq.py`).
        topics.push("syndic".to_owned());
    }
    topics
}

/// A time as C's `asctime` writes it, in UTC: `Sat Nov 21 07:06:22 2026`.
pub fn asctime(unix_micros: i64) -> String {
    civil(unix_micros).strftime("%a %b %e %T %Y").to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use saltern_model::MinionId;

    use super::*;

    #[test]
    fn topics_follow_zmq_filtering() {
        let id = MinionId::parse("m1").expect("a minion id");
        let mut config = MinionConfig::new(id, Path::new("/"));
        assert_eq!(topics(&config, "m1"), [""]);
        config.zmq_filtering = true;
        // sha1 of "m1"
        assert_eq!(
            topics(&config, "m1"),
            ["broadcast", "ae23b94ccaf714337e4ce5ba99ef3dc257e300df"]
        );
        config.is_syndic = true;
        assert_eq!(
            topics(&config, "m1").last().map(String::as_str),
            Some("syndic")
        );
    }

    #[test]
    fn start_times_read_as_c_writes_them() {
        assert_eq!(asctime(1_795_244_782_637_714), "Sat Nov 21 07:06:22 2026");
        assert_eq!(asctime(0), "Thu Jan  1 00:00:00 1970");
    }
}
