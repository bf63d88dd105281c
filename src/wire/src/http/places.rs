//! The places that connections take: so many in all, so many for one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::limits::HttpLimits;
use super::metrics::Refusal;

/// See the module.
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

/// One connection's place, given back when it is dropped.
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

    /// A place for a connection from `address`, if there is one.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Result<Place, Refusal> {
        // An IPv4 peer of an IPv6 socket is one address, not two.
        let address = address.to_canonical();
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
    fn a_place_is_free_again_when_its_connection_is_gone() {
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
}
