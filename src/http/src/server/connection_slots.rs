//! Connection slots: bounded in total and for each address (of IPv6 for each network of 64 bits).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::limits::HttpLimits;
use super::metrics::Refusal;
use saltern_wire::port::network;

/// Bounded slots of connections, in total and by address.
pub(super) struct ConnectionSlots {
    in_all: usize,
    per_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    in_all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One connection's slot, freed on drop.
pub(super) struct ConnectionSlot {
    connection_slots: Arc<ConnectionSlots>,
    address: IpAddr,
}

impl ConnectionSlots {
    pub(super) fn new(limits: &HttpLimits) -> Arc<Self> {
        Arc::new(Self {
            in_all: limits.connections,
            per_address: limits.per_address,
            taken: Mutex::default(),
        })
    }

    /// Takes a slot for a connection from `address`, if there is one.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionSlot, Refusal> {
        let address = network(address);
        let mut taken = self.taken.lock();
        if taken.in_all >= self.in_all {
            return Err(Refusal::Connections);
        }
        let here = taken.by_address.get(&address).copied().unwrap_or(0);
        if here >= self.per_address {
            return Err(Refusal::PerAddress);
        }
        taken.by_address.insert(address, here + 1);
        taken.in_all += 1;
        Ok(ConnectionSlot {
            connection_slots: Arc::clone(self),
            address,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.connection_slots.taken.lock();
        taken.in_all -= 1;
        if let Some(here) = taken.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_freed_with_its_connection() {
        let limits = HttpLimits {
            connections: 3,
            per_address: 2,
            ..HttpLimits::default()
        };
        let connection_slots = ConnectionSlots::new(&limits);
        let [here, there, far]: [IpAddr; 3] =
            [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(|address| address.into());
        let first = connection_slots
            .take(here)
            .map_err(|_| ())
            .expect("a place");
        let _second = connection_slots
            .take(here)
            .map_err(|_| ())
            .expect("a place");
        assert!(matches!(
            connection_slots.take(here),
            Err(Refusal::PerAddress)
        ));
        let _third = connection_slots
            .take(there)
            .map_err(|_| ())
            .expect("a place");
        assert!(matches!(
            connection_slots.take(far),
            Err(Refusal::Connections)
        ));
        drop(first);
        assert!(connection_slots.take(here).is_ok());
        assert_eq!(connection_slots.taken.lock().by_address.len(), 2);
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_their_slots() {
        let connection_slots = ConnectionSlots::new(&HttpLimits {
            connections: 9,
            per_address: 1,
            ..HttpLimits::default()
        });
        let [one, same, other]: [IpAddr; 3] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
            .map(|address| address.parse().expect("an address"));
        let _first = connection_slots.take(one).map_err(|_| ()).expect("a place");
        assert!(matches!(
            connection_slots.take(same),
            Err(Refusal::PerAddress)
        ));
        assert!(connection_slots.take(other).is_ok());
    }
}
