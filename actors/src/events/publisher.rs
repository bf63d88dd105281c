//! Publishes loads to the minions: numbers each, encrypts it with the shared key, signs it, and
//! queues it for every subscriber that it concerns.
//!
//! One actor, because serial numbers must go out in order. The subscribers' connections live in
//! tasks on this actor's thread and survive it.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient, ResponseActFuture};
use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::fail_point::FailPoint;
use saltern_base::metrics::{IntCounter, Registry, counter};
use saltern_base::trace::Kind;
use saltern_crypto::{PrivateKey, SigAlgo};
use saltern_model::{Jid, MinionId};
use saltern_requests::{Publication, Services, Topics};
use saltern_store::StoreError;
use saltern_supervise::Child;
use saltern_wire::msgpack::{Dialect, Encoder};
use saltern_wire::port::{PubHandle, PubListener, PubMessage, PublishCount, SubscriberWatch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::events::presence::Presence;
use crate::events::rotation::Rotation;
use crate::messages::{Ask, Departed, Publish};

/// Seed of a publisher.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) rotation: Rotation,
    /// Notified of probes that were not sent.
    pub(crate) presence: Arc<Presence>,
    pub(crate) subscribers: PubHandle,
    /// Watch of the subscribers, held for as long as the publisher lives.
    pub(crate) _watch: Arc<dyn SubscriberWatch>,
    pub(crate) metrics: PublisherMetrics,
    /// The publish port, until the first publisher has taken it.
    pub(crate) listener: Arc<Mutex<Option<PubListener>>>,
    /// Cancelled, by this actor, when no actor publishes any more.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the last subscriber is gone.
    pub(crate) closed: CancellationToken,
    /// Targeted loads also go to syndics that filter (`order_masters`).
    pub(crate) feeds_syndics: bool,
    /// Notified of departures of jobs.
    pub(crate) tracker: Recipient<Departed>,
}

/// Metrics of the publisher.
#[derive(Clone)]
pub(crate) struct PublisherMetrics {
    loads: IntCounter,
    not_sent: IntCounter,
    queued: IntCounter,
    dropped: IntCounter,
}

impl PublisherMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            loads: counter(
                registry,
                "saltern_publishes_total",
                "Loads sent to minions.",
            ),
            not_sent: counter(
                registry,
                "saltern_publishes_not_sent_total",
                "Loads not sent to minions, because they could not be sealed or only with a key \
                 that was revoked.",
            ),
            queued: counter(
                registry,
                "saltern_deliveries_total",
                "Copies of loads queued for subscribers.",
            ),
            dropped: counter(
                registry,
                "saltern_deliveries_dropped_total",
                "Copies of loads not queued, because a subscriber's queue was full.",
            ),
        }
    }
}

/// Actor that publishes loads.
pub(crate) struct Publisher {
    seed: Seed,
}

impl Child for Publisher {
    type Seed = Seed;

    const NAME: &'static str = "publisher";
    const MAILBOX: usize = 1024;

    fn build(seed: &Seed) -> Self {
        Self { seed: seed.clone() }
    }

    /// All senders have ended; what is queued for the subscribers still goes out.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.seed.stop.cancel();
        let closed = self.seed.closed.clone();
        let gone = async move { closed.cancelled().await };
        Some(Box::pin(actix::fut::wrap_future(gone)))
    }
}

impl Actor for Publisher {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        if let Some(listener) = self.seed.listener.lock().take() {
            let closed = self.seed.closed.clone().drop_guard();
            let serving = listener.serve(self.seed.stop.clone());
            actix_rt::spawn(async move {
                serving.await;
                drop(closed);
            });
        }
    }
}

impl Handler<Publish> for Publisher {
    type Result = ();

    fn handle(&mut self, publish: Publish, _: &mut Self::Context) {
        let Publish {
            jid,
            is_job,
            minions,
            publication,
        } = publish;
        let began = Instant::now();
        let has_left = self.publish(&jid, &publication);
        if let Some(place) = &publication.trace {
            let attributes = [("salt.pub.jid", jid.as_str().into())];
            place.record("salt.pub.send", Kind::Producer, began.elapsed(), attributes);
        }
        if is_job {
            // Never waits: the tracker may be waiting for this actor.
            self.seed.tracker.do_send(Departed {
                jid,
                minions,
                has_left,
            });
        }
    }
}

impl Handler<Ask> for Publisher {
    type Result = ();

    fn handle(&mut self, ask: Ask, _: &mut Self::Context) {
        if !self.ask(&ask) {
            self.seed.presence.not_asked(&ask.jid);
        }
    }
}

impl Publisher {
    /// Sends a probe down one connection; whether it was queued.
    fn ask(&self, ask: &Ask) -> bool {
        let Ask {
            connection,
            jid,
            publication,
        } = ask;
        if !self.seed.rotation.look(&self.seed.services) {
            return false;
        }
        let payloads = match self.sealed(publication) {
            Ok(payloads) => payloads,
            Err(error) => {
                tracing::error!(%jid, %error, "an identity probe cannot be sent");
                return false;
            }
        };
        let mut is_queued = false;
        for payload in payloads {
            let message = match self.seed.services.config.zmq_filtering {
                true => PubMessage::with_topic(BROADCAST, payload),
                false => PubMessage::new(payload),
            };
            is_queued |= self.seed.subscribers.publish_to(*connection, &message);
        }
        tracing::debug!(%jid, connection, is_queued, "an identity probe was sent");
        is_queued
    }

    /// Publishes a load; whether it went to any subscriber.
    fn publish(&self, jid: &Jid, publication: &Publication) -> bool {
        if !self.seed.rotation.look(&self.seed.services) {
            self.seed.metrics.not_sent.inc();
            tracing::error!(%jid, "a job was not published: the shared key is one that was revoked");
            return false;
        }
        let payloads = match self.sealed(publication) {
            Ok(payloads) => payloads,
            Err(error) => {
                self.seed.metrics.not_sent.inc();
                tracing::error!(%jid, %error, "a job was not published");
                return false;
            }
        };
        FailPoint::PublishSealed.pass();
        let (mut queued, mut dropped) = (0, 0);
        for payload in payloads {
            let (now_queued, now_dropped) = self.send(payload, &publication.topics);
            queued += now_queued;
            dropped += now_dropped;
        }
        FailPoint::PublishSent.pass();
        self.seed.metrics.loads.inc();
        tracing::debug!(%jid, queued, dropped, "published");
        queued > 0
    }

    /// The payload for each key of the master that signs publications: one, or two during a rotation.
    fn sealed(&self, publication: &Publication) -> Result<Vec<Bytes>, StoreError> {
        let signers = self.signers().into_iter();
        signers
            .map(|signer| self.sealed_by(signer, publication))
            .collect()
    }

    /// `{"enc": "aes", "load": <ciphertext>, "sig_algo": …, "sig": …}`. Each payload has a serial of
    /// its own: minions take one that comes twice for a replay.
    fn sealed_by(
        &self,
        signer: Option<&PrivateKey>,
        publication: &Publication,
    ) -> Result<Bytes, StoreError> {
        let services = &self.seed.services;
        let (shared, serial) = services.keys.shared.next()?;
        let mut load = Vec::with_capacity(publication.packed.len() + 32);
        Encoder::new(&mut load, Dialect::Raw)
            .map(publication.entries + 1)
            .raw(&publication.packed)
            .str("serial")
            .uint(serial);
        let ciphertext = shared.crypticle.dumps(&load, None);
        let signature = match signer {
            Some(signer) => Some(self.signature(signer, &ciphertext)?),
            None => None,
        };
        let mut payload = Vec::with_capacity(ciphertext.len() + 384);
        let mut encoder = Encoder::new(&mut payload, Dialect::Raw);
        encoder.map(if signature.is_some() { 4 } else { 2 });
        encoder.str("enc").str("aes").str("load").bin(&ciphertext);
        if let Some((algorithm, signature)) = signature {
            encoder
                .str("sig_algo")
                .str(algorithm.wire_name())
                .str("sig")
                .bin(&signature);
        }
        Ok(payload.into())
    }

    /// A load that cannot be signed is not sent: minions would refuse it.
    fn signature(
        &self,
        signer: &PrivateKey,
        ciphertext: &[u8],
    ) -> Result<(SigAlgo, Vec<u8>), StoreError> {
        let name = self.seed.services.config.publish_signing_algorithm.name();
        let algorithm = SigAlgo::from_wire(name).unwrap_or(SigAlgo::Pkcs1v15Sha1);
        match signer.sign(algorithm, ciphertext) {
            Ok(signature) => Ok((algorithm, signature)),
            Err(source) => Err(StoreError::Crypto {
                action: "sign a publication",
                source,
            }),
        }
    }

    /// The master's keys that sign a publication; `None` alone where none does. A minion that
    /// verifies it takes the payload by the key that it knows, any other runs the first one: the jid
    /// of the second is no longer new. The previous key comes first: a minion that gets the present one
    /// in between takes the second, where in the other order it would find both refused. A syndic
    /// would pass both on, so with syndics below it is the present key alone.
    fn signers(&self) -> Vec<Option<&PrivateKey>> {
        let services = &self.seed.services;
        if !services.config.sign_pub_messages {
            return vec![None];
        }
        match services.both_master_keys() {
            Some(keys) if !self.seed.feeds_syndics => {
                vec![Some(keys.previous.private), Some(keys.current.private)]
            }
            _ => vec![Some(services.keys.master.current().private)],
        }
    }

    fn send(&self, payload: Bytes, topics: &Topics) -> (usize, usize) {
        let subscribers = &self.seed.subscribers;
        let mut totals = (0, 0);
        let mut add = |count: PublishCount| {
            totals.0 += count.queued;
            totals.1 += count.dropped;
        };
        let message = PubMessage::new(payload.clone());
        let names = names(topics, self.seed.feeds_syndics);
        add(subscribers.publish_to_hearers(&message, names.as_deref()));
        if self.seed.services.config.zmq_filtering {
            for topic in filters(topics, self.seed.feeds_syndics) {
                add(subscribers.publish(&PubMessage::with_topic(&topic, payload.clone())));
            }
        } else {
            add(subscribers.publish(&message));
        }
        self.seed.metrics.queued.inc_by(totals.0 as u64);
        self.seed.metrics.dropped.inc_by(totals.1 as u64);
        totals
    }
}

/// The minions to which a load is restricted among subscribers without topics; `None` is all. With
/// syndics below it is all, as in stock (`salt/channel/server.py`): their minions are not known.
fn names(topics: &Topics, feeds_syndics: bool) -> Option<Vec<&str>> {
    match topics {
        Topics::Exactly(ids) => Some(ids.iter().map(MinionId::as_str).collect()),
        Topics::Minions(minions) if !feeds_syndics => {
            Some(minions.iter().map(MinionId::as_str).collect())
        }
        _ => None,
    }
}

/// The topic that every filtering minion subscribes to.
const BROADCAST: &[u8] = b"broadcast";

/// The topics under which a load goes out when minions filter (`salt/transport/zeromq.py`): the
/// hex SHA-1 of each minion's id, and `syndic` once, or else `broadcast`.
fn filters(topics: &Topics, feeds_syndics: bool) -> Vec<Vec<u8>> {
    let (minions, feeds_syndics) = match topics {
        Topics::Broadcast => return vec![BROADCAST.to_vec()],
        Topics::Minions(minions) => (minions, feeds_syndics),
        Topics::Exactly(ids) => (ids, false),
    };
    let of_minion = |minion: &MinionId| saltern_crypto::sha1_hex(minion.as_str().as_bytes());
    let of_minions = minions.iter().map(|minion| of_minion(minion).into_bytes());
    let of_syndics = feeds_syndics.then(|| b"syndic".to_vec());
    of_minions.chain(of_syndics).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_of_stock() {
        let minions: Vec<MinionId> = ["m1", "web-1.example"]
            .iter()
            .map(|id| MinionId::parse(id).unwrap())
            .collect();
        let of_minions = [
            "ae23b94ccaf714337e4ce5ba99ef3dc257e300df",
            "7258bb244a288d615fb5b348db2d6eb1d49617b7",
        ];
        let table: [(Topics, bool, Vec<&str>); 5] = [
            (Topics::Exactly(minions.clone()), true, of_minions.to_vec()),
            (Topics::Broadcast, false, vec!["broadcast"]),
            (Topics::Broadcast, true, vec!["broadcast"]),
            (Topics::Minions(minions.clone()), false, of_minions.to_vec()),
            (
                Topics::Minions(minions),
                true,
                vec![of_minions[0], of_minions[1], "syndic"],
            ),
        ];
        for (topics, feeds_syndics, expected) in table {
            let found = filters(&topics, feeds_syndics);
            let found: Vec<&str> = found
                .iter()
                .map(|topic| std::str::from_utf8(topic).unwrap())
                .collect();
            assert_eq!(found, expected, "{topics:?} {feeds_syndics}");
        }
    }
}
