//! Turns of a relay's connections to the active member: each begins with a handshake, of which few are
//! made at once.
//!
//! Turns go in order, but one network has no more than half of them at once, and waits for its own
//! before it waits with others. So a flood from one address delays others by a round at most.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Handshakes with the active member at once: fewer than it grants one address.
const MAX_DIALS: usize = 64;

/// Those for peers of one network.
const MAX_DIALS_OF_NETWORK: usize = MAX_DIALS / 2;

pub(super) struct Dials {
    all: Semaphore,
    by_network: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A turn; dropping it ends it.
pub(super) struct Turn<'a> {
    _one_of_all: SemaphorePermit<'a>,
    _of_network: InNetwork<'a>,
}

/// A place in the line of a network, which is gone with the last one.
struct InNetwork<'a> {
    dials: &'a Dials,
    network: IpAddr,
    places: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for InNetwork<'_> {
    fn drop(&mut self) {
        let mut by_network = self.dials.by_network.lock();
        // Before it is counted: it holds the places, too.
        drop(self.permit.take());
        // The map's and ours: nobody else has or wants one.
        if Arc::strong_count(&self.places) <= 2 {
            by_network.remove(&self.network);
        }
    }
}

impl Dials {
    pub(super) fn new() -> Self {
        Self {
            all: Semaphore::new(MAX_DIALS),
            by_network: Mutex::default(),
        }
    }

    /// Waits for a turn of a peer of this network.
    ///
    /// # Errors
    /// Never: the semaphores are not closed.
    pub(super) async fn turn(&self, network: IpAddr) -> Result<Turn<'_>, AcquireError> {
        let mut of_network = self.enter(network);
        let places = Arc::clone(&of_network.places);
        of_network.permit = Some(places.acquire_owned().await?);
        Ok(Turn {
            _one_of_all: self.all.acquire().await?,
            _of_network: of_network,
        })
    }

    fn enter(&self, network: IpAddr) -> InNetwork<'_> {
        let mut by_network = self.by_network.lock();
        let places = by_network
            .entry(network)
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_DIALS_OF_NETWORK)));
        InNetwork {
            dials: self,
            network,
            places: Arc::clone(places),
            permit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn network(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test]
    async fn flood_of_one_network_leaves_turns_to_others() {
        let dials = Dials::new();
        let turn = |last| dials.turn(network(last)).now_or_never();
        let mut flood: Vec<_> = std::iter::from_fn(|| turn(1)).collect();
        assert_eq!(flood.len(), MAX_DIALS_OF_NETWORK);
        let mut late = Box::pin(dials.turn(network(1)));
        assert!(late.as_mut().now_or_never().is_none());
        let other = turn(2).expect("a turn").expect("open");
        flood.pop();
        let last = late.now_or_never().expect("its turn").expect("open");
        drop((flood, other, last));
        assert!(dials.by_network.lock().is_empty());
        assert_eq!(dials.all.available_permits(), MAX_DIALS);
    }

    #[tokio::test]
    async fn peer_that_gives_up_leaves_no_place_behind() {
        let dials = Dials::new();
        let turn = |last| dials.turn(network(last)).now_or_never();
        let held: Vec<_> = std::iter::from_fn(|| turn(1)).collect();
        assert!(turn(1).is_none());
        assert_eq!(dials.by_network.lock().len(), 1);
        drop(held);
        assert!(dials.by_network.lock().is_empty());
    }
}
