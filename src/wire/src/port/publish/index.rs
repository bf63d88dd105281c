//! Subscription index: topics to subscribers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::subscriber::Subscriber;
use crate::port::limits::PubLimits;
use crate::port::metrics::Close;

/// Index of the subscribers by topic prefix.
///
/// A message is looked up once for every *length* that any subscription has. So a publication to
/// one minion among thousands (`zmq_filtering`: 40 hex digits each) costs a few look-ups and not a
/// comparison with each of them.
#[derive(Default)]
pub(super) struct Index {
    subscribers: BTreeMap<u64, Arc<Subscriber>>,
    topics: HashMap<u64, Vec<Bytes>>,
    wanted: HashMap<Bytes, BTreeMap<u64, Arc<Subscriber>>>,
    /// Number of keys of `wanted` by length.
    lengths: BTreeMap<usize, usize>,
    /// Subscribers without topics, which receive what concerns them; each with its name, if it was
    /// registered.
    hearers: BTreeMap<u64, (Arc<Subscriber>, Option<Bytes>)>,
}

impl Index {
    pub(super) fn insert(&mut self, subscriber: Arc<Subscriber>) {
        self.subscribers.insert(subscriber.number, subscriber);
    }

    /// The subscriber receives everything until it is named.
    pub(super) fn hear(&mut self, subscriber: &Arc<Subscriber>) {
        let hearer = (Arc::clone(subscriber), None);
        self.hearers.insert(subscriber.number, hearer);
    }

    /// Sets the subscriber's name, in place of any other.
    pub(super) fn name(&mut self, number: u64, name: Bytes) {
        if let Some((_, current)) = self.hearers.get_mut(&number) {
            *current = Some(name);
        }
    }

    /// Calls `found` once for every subscriber without topics, or for those with one of `names`
    /// and those without any.
    pub(super) fn each_hearer(
        &self,
        names: Option<&[&str]>,
        found: &mut dyn FnMut(&Arc<Subscriber>),
    ) {
        let Some(names) = names else {
            return self.hearers.values().for_each(|(each, _)| found(each));
        };
        let wanted: HashSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        for (subscriber, name) in self.hearers.values() {
            if name
                .as_ref()
                .is_none_or(|name| wanted.contains(name.as_ref()))
            {
                found(subscriber);
            }
        }
    }

    pub(super) fn subscriber(&self, number: u64) -> Option<&Arc<Subscriber>> {
        self.subscribers.get(&number)
    }

    pub(super) fn subscriber_count(&self) -> usize {
        self.subscribers.len()
    }

    /// Every subscriber with its prefixes, in order.
    pub(super) fn subscribers(&self) -> impl Iterator<Item = (&Arc<Subscriber>, &[Bytes])> {
        self.subscribers.values().map(|subscriber| {
            let topics = self.topics.get(&subscriber.number);
            (subscriber, topics.map(Vec::as_slice).unwrap_or_default())
        })
    }

    /// Calls `found` once for every subscriber with a subscription that is a prefix of `first`.
    pub(super) fn each_match(&self, first: &Bytes, found: &mut dyn FnMut(&Arc<Subscriber>)) {
        let mut hits = self
            .lengths
            .keys()
            .map_while(|length| first.get(..*length))
            .filter_map(|prefix| self.wanted.get(prefix));
        let Some(only) = hits.next() else { return };
        let Some(second) = hits.next() else {
            only.values().for_each(found);
            return;
        };
        // Several subscriptions of one subscriber may match: it still gets one copy.
        let mut all = only.clone();
        for more in std::iter::once(second).chain(hits) {
            all.extend(
                more.iter()
                    .map(|(number, each)| (*number, Arc::clone(each))),
            );
        }
        all.values().for_each(found);
    }

    pub(super) fn subscribe(
        &mut self,
        subscriber: &Arc<Subscriber>,
        topic: &[u8],
        limits: &PubLimits,
    ) -> Result<(), Close> {
        if topic.len() > limits.topic {
            return Err(Close::Topic);
        }
        let topics = self.topics.entry(subscriber.number).or_default();
        let Err(place) = topics.binary_search_by(|known| known.as_ref().cmp(topic)) else {
            return Ok(());
        };
        if topics.len() >= limits.subscriptions {
            return Err(Close::Subscriptions);
        }
        let topic = Bytes::copy_from_slice(topic);
        topics.insert(place, topic.clone());
        let length = topic.len();
        let wanting = self.wanted.entry(topic).or_default();
        if wanting.is_empty() {
            *self.lengths.entry(length).or_insert(0) += 1;
        }
        wanting.insert(subscriber.number, Arc::clone(subscriber));
        Ok(())
    }

    pub(super) fn cancel(&mut self, number: u64, topic: &[u8]) {
        let Some(topics) = self.topics.get_mut(&number) else {
            return;
        };
        if let Ok(place) = topics.binary_search_by(|known| known.as_ref().cmp(topic)) {
            topics.remove(place);
            self.unwant(number, topic);
        }
    }

    fn unwant(&mut self, number: u64, topic: &[u8]) {
        let Some(wanting) = self.wanted.get_mut(topic) else {
            return;
        };
        wanting.remove(&number);
        if !wanting.is_empty() {
            return;
        }
        self.wanted.remove(topic);
        if let Some(count) = self.lengths.get_mut(&topic.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&topic.len());
            }
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.subscribers.remove(&number);
        self.hearers.remove(&number);
        for topic in self.topics.remove(&number).unwrap_or_default() {
            self.unwant(number, &topic);
        }
    }
}
