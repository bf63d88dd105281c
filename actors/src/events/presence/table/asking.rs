//! Choice of the connections that are probed, and of the time.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::{Asked, Table};

/// Connections are not asked while more of their address come and go.
pub(super) const SETTLED: Duration = Duration::from_secs(2);

/// Timeout of a probe: a silent connection belongs to no known minion.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// Interval at which a silent connection is probed again.
pub(super) const AGAIN: Duration = Duration::from_secs(600);

impl Table {
    /// The connections to probe now, at most `most`. Each is named once, but for those that did
    /// not answer.
    pub(in crate::events::presence) fn take_unasked(
        &mut self,
        most: usize,
        now: Instant,
    ) -> Vec<u64> {
        let is_missed = !self.lacking.is_empty();
        let spare = self.spare.iter().filter(|_| is_missed);
        let addresses: BTreeSet<IpAddr> = self.unclear.iter().chain(spare).copied().collect();
        let mut found = Vec::new();
        for address in addresses {
            self.ask_at(address, most, now, &mut found);
        }
        while found.len() < most
            && let Some((asked, number)) = self.strangers.front().copied()
            && now >= asked + AGAIN
        {
            self.strangers.pop_front();
            let connection = self.connections.get(&number);
            if connection.is_some_and(|connection| connection.minion.is_none()) {
                self.strangers.push_back((now, number));
                found.extend(is_missed.then_some(number));
            }
        }
        found
    }

    fn ask_at(&mut self, address: IpAddr, most: usize, now: Instant, found: &mut Vec<u64>) {
        let Some(place) = self.places.get_mut(&address) else {
            return;
        };
        let since = [place.unclear, place.spare].into_iter().flatten().min();
        if since.is_some_and(|since| now < since + SETTLED) {
            return;
        }
        let mut waits = false;
        let mut strangers = Vec::new();
        for number in &place.connections {
            let Some(connection) = self.connections.get_mut(number) else {
                continue;
            };
            match connection.asked {
                Asked::No if found.len() < most => {
                    connection.asked = Asked::At(now);
                    found.push(*number);
                    waits = true;
                }
                Asked::At(at) if now >= at + ANSWER => {
                    connection.asked = Asked::Stranger;
                    strangers.push(*number);
                }
                Asked::No | Asked::At(_) => waits = true,
                Asked::Stranger => {}
            }
        }
        for stranger in strangers {
            place.connections.remove(&stranger);
            self.strangers.push_back((now, stranger));
        }
        if !waits || place.minions.is_empty() {
            place.unclear = None;
        }
        self.settle(address, now);
    }

    /// The probe of this connection was not sent.
    pub(in crate::events::presence) fn not_asked(&mut self, connection: u64) {
        if let Some(connection) = self.connections.get_mut(&connection)
            && let Asked::At(_) = connection.asked
        {
            connection.asked = Asked::No;
        }
    }
}
