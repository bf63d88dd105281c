//! Connection slots: bounded in total and for each address (of IPv6 for each network of 64 bits).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::limits::HttpLimits;
use super::metrics::Refusal;
use crate::port::network;

/// Bounded slots of connections, in total and by address.
pub(super) struct Places {
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
pub(super) struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    pub(super) fn new(limits: &HttpLimits) -> Arc<Self> {
        Arc::new(Self {
            in_all: limits.connections,
            per_address: limits.per_address,
            taken: Mutex::default(),
        })
    }

    /// Takes a slot for a connection from `address`, if there is one.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Result<Place, Refusal> {
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
        Ok(Place {
            places: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
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
        let places = Places::new(&limits);
        let [here, there, far]: [IpAddr; 3] =
            [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(|address| address.into());
        let first = places.take(here).map_err(|_| ()).expect("a place");
        let _second = places.take(here).map_err(|_| ()).expect("a place");
        assert!(matches!(places.take(here), Err(Refusal::PerAddress)));
        let _third = places.take(there).map_err(|_| ()).expect("a place");
        assert!(matches!(places.take(far), Err(Refusal::Connections)));
        drop(first);
        assert!(places.take(here).is_ok());
        assert_eq!(places.taken.lock().by_address.len(), 2);
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_their_slots() {
        let places = Places::new(&HttpLimits {
            connections: 9,
            per_address: 1,
            ..HttpLimits::default()
        });
        let [one, same, other]: [IpAddr; 3] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
            .map(|address| address.parse().expect("an address"));
        let _first = places.take(one).map_err(|_| ()).expect("a place");
        assert!(matches!(places.take(same), Err(Refusal::PerAddress)));
        assert!(places.take(other).is_ok());
    }
}
