//! Sends loads to the minions: gives each its serial number, encrypts it with the key that all
//! share, signs it, and queues it for every subscriber that it concerns.
//!
//! One actor, because numbers must go out in their order. The subscribers' connections live in
//! tasks on this actor's thread and survive it.

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::metrics::{IntCounter, Registry, counter};
use saltern_crypto::SigAlgo;
use saltern_model::MinionId;
use saltern_requests::{Publication, Services, Topics};
use saltern_store::StoreError;
use saltern_supervise::Child;
use saltern_wire::msgpack::{Dialect, Encoder};
use saltern_wire::zmtp::{PubHandle, PubListener, PubMessage};
use tokio_util::sync::CancellationToken;

use crate::messages::Publish;

/// What a publisher is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) subscribers: PubHandle,
    pub(crate) metrics: PublisherMetrics,
    /// The publish port, until the first publisher has taken it over.
    pub(crate) listener: Arc<Mutex<Option<PubListener>>>,
    pub(crate) stop: CancellationToken,
}

/// What the publisher counts.
#[derive(Clone)]
pub(crate) struct PublisherMetrics {
    loads: IntCounter,
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

/// See the module.
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
}

impl Actor for Publisher {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        if let Some(listener) = self.seed.listener.lock().take() {
            actix_rt::spawn(listener.serve(self.seed.stop.clone()));
        }
    }
}

impl Handler<Publish> for Publisher {
    type Result = ();

    fn handle(&mut self, publish: Publish, _: &mut Self::Context) {
        let Publish { jid, publication } = publish;
        match self.sealed(&publication) {
            Ok(payload) => {
                let (queued, dropped) = self.send(payload, &publication.topics);
                self.seed.metrics.loads.inc();
                tracing::debug!(%jid, queued, dropped, "published");
            }
            Err(error) => tracing::error!(%jid, %error, "a job was not published"),
        }
    }
}

impl Publisher {
    /// `{"enc": "aes", "load": <ciphertext>, "sig_algo": …, "sig": …}`.
    fn sealed(&self, publication: &Publication) -> Result<Bytes, StoreError> {
        let services = &self.seed.services;
        let (shared, serial) = services.shared.next()?;
        let mut load = Vec::with_capacity(publication.packed.len() + 32);
        Encoder::new(&mut load, Dialect::Raw)
            .map(publication.entries + 1)
            .raw(&publication.packed)
            .str("serial")
            .uint(serial);
        let ciphertext = shared.crypticle.dumps(&load, None);
        let signature = self.signature(&ciphertext);
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

    fn signature(&self, ciphertext: &[u8]) -> Option<(SigAlgo, Vec<u8>)> {
        let services = &self.seed.services;
        if !services.config.sign_pub_messages {
            return None;
        }
        let name = services.config.publish_signing_algorithm.name();
        let algorithm = SigAlgo::from_wire(name).unwrap_or(SigAlgo::Pkcs1v15Sha1);
        match services.master.private.sign(algorithm, ciphertext) {
            Ok(signature) => Some((algorithm, signature)),
            Err(error) => {
                tracing::error!(%error, "a publish could not be signed; it goes out unsigned");
                None
            }
        }
    }

    fn send(&self, payload: Bytes, topics: &Topics) -> (usize, usize) {
        let mut totals = (0, 0);
        let mut publish = |message: &PubMessage| {
            let count = self.seed.subscribers.publish(message);
            totals.0 += count.queued;
            totals.1 += count.dropped;
        };
        match topics {
            Topics::Minions(minions) if self.seed.services.config.zmq_filtering => {
                for minion in minions {
                    publish(&PubMessage::with_topic(&topic_of(minion), payload.clone()));
                }
            }
            _ if self.seed.services.config.zmq_filtering => {
                publish(&PubMessage::with_topic(b"broadcast", payload));
            }
            _ => publish(&PubMessage::new(payload)),
        }
        self.seed.metrics.queued.inc_by(totals.0 as u64);
        self.seed.metrics.dropped.inc_by(totals.1 as u64);
        totals
    }
}

/// A minion that filters subscribes to the hex SHA-1 of its id (`salt/transport/zeromq.py`).
fn topic_of(minion: &MinionId) -> Vec<u8> {
    saltern_crypto::sha1_hex(minion.as_str().as_bytes()).into_bytes()
}
