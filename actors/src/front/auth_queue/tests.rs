//! With real connections from several loopback addresses, because only a connection has a way back.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::*;
use crate::shared::testing::{Port, in_system};

const PAYLOAD: &[u8] = b"an authentication";

struct Rig {
    queue: AuthQueue,
    metrics: AuthMetrics,
    port: Port,
    /// Outcomes on the peers' side, in the order of the requests.
    peers: Vec<JoinHandle<Option<Bytes>>>,
}

impl Rig {
    fn new(places: usize) -> Self {
        let metrics = AuthMetrics::new(&Registry::new());
        Self {
            queue: AuthQueue::new(places, metrics.clone()),
            metrics,
            port: Port::open(),
            peers: Vec::new(),
        }
    }

    /// One request each from these machines, which have addresses of their own.
    async fn ask(&mut self, machines: &[u8]) {
        for machine in machines {
            let request = self.request(*machine).await;
            self.queue.push(request);
        }
    }

    async fn request(&mut self, machine: u8) -> Incoming {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, machine));
        let (request, peer) = self.port.ask_from(Some(from), PAYLOAD).await;
        self.peers.push(peer);
        request
    }

    /// A minion has authenticated on each of these machines.
    async fn know(&mut self, machines: &[u8]) {
        for machine in machines {
            self.request(*machine).await.reply.authenticated();
        }
    }

    /// Drains the queue: which machine, which treatment. All are answered.
    fn serve_all(&mut self) -> Vec<(u8, Treatment)> {
        std::iter::from_fn(|| self.queue.pop())
            .map(|(request, treatment)| {
                let IpAddr::V4(address) = request.peer.address.ip() else {
                    panic!("an address of another kind");
                };
                request.reply.send(Bytes::from_static(b"done"));
                (address.octets()[3], treatment)
            })
            .collect()
    }
}

#[test]
fn addresses_take_turns() {
    in_system(async {
        let mut rig = Rig::new(10);
        rig.ask(&[2, 2, 2, 2, 3, 4, 4]).await;
        assert_eq!(rig.queue.len(), 7);
        let served: Vec<u8> = rig
            .serve_all()
            .iter()
            .map(|(machine, _)| *machine)
            .collect();
        assert_eq!(served, [2, 3, 4, 2, 4, 2, 2]);
        assert_eq!(rig.queue.len(), 0);
    });
}

#[test]
fn full_queue_is_shared_evenly_and_some_may_retry_later() {
    in_system(async {
        let mut rig = Rig::new(4);
        // The flood has all places until others come; then its share is two, then one.
        rig.ask(&[2, 2, 2, 2, 2, 3, 3, 3, 4]).await;
        assert_eq!(rig.queue.len(), 9);
        let mut served: BTreeMap<u8, usize> = BTreeMap::new();
        let mut maintenance_tasks = Vec::new();
        for (machine, treatment) in rig.serve_all() {
            *served.entry(machine).or_default() += usize::from(treatment == Treatment::Handle);
            maintenance_tasks.push(treatment);
        }
        let (handle, retry) = (Treatment::Handle, Treatment::RetryLater);
        assert_eq!(
            maintenance_tasks,
            [
                handle, retry, handle, retry, handle, retry, handle, retry, retry
            ]
        );
        assert_eq!(served[&4], 1);
        assert!((1..=2).contains(&served[&2]), "{served:?}");
        assert!((1..=2).contains(&served[&3]), "{served:?}");
        assert_eq!(rig.metrics.retry_later.get(), 5);
        assert_eq!(rig.metrics.hung_up.get(), 0);
    });
}

#[test]
fn shed_requests_beyond_the_bound_are_hung_up() {
    in_system(async {
        let mut rig = Rig::new(1);
        rig.ask(&[2]).await;
        rig.ask(&[2; MAX_TURNED_AWAY]).await;
        rig.ask(&[2, 2]).await;
        assert_eq!(rig.metrics.hung_up.get(), 2);
        for hung_up in rig.peers.split_off(1 + MAX_TURNED_AWAY) {
            assert_eq!(hung_up.await.unwrap(), None, "the connection was closed");
        }
        assert_eq!(rig.serve_all().len(), 1 + MAX_TURNED_AWAY);
        for peer in rig.peers {
            assert_eq!(peer.await.unwrap().as_deref(), Some(&b"done"[..]));
        }
    });
}

#[test]
fn disconnected_sender_is_skipped_and_frees_its_slot() {
    in_system(async {
        let mut rig = Rig::new(3);
        rig.ask(&[2, 2, 2]).await;
        for peer in rig.peers.drain(..2) {
            peer.abort();
        }
        let is_gone = |rig: &Rig| {
            let mut count = 0;
            rig.queue
                .strangers
                .for_each(|request| count += u8::from(request.reply.is_gone()));
            count == 2
        };
        while !is_gone(&rig) {
            tokio::task::yield_now().await;
        }
        rig.ask(&[3]).await;
        assert_eq!(
            rig.metrics.gone.get(),
            2,
            "looked for when there was no room"
        );
        assert_eq!(
            rig.serve_all(),
            [(2, Treatment::Handle), (3, Treatment::Handle)]
        );
        assert_eq!(rig.metrics.retry_later.get(), 0);
    });
}

/// However many addresses a flood comes from.
#[test]
fn known_network_is_served_before_strangers_of_many_addresses() {
    in_system(async {
        let mut rig = Rig::new(100);
        rig.know(&[2, 3]).await;
        let strangers: Vec<u8> = (10..30).collect();
        rig.ask(&strangers).await;
        rig.ask(&[2, 2, 2, 3, 3, 3]).await;
        let served = rig.serve_all();
        let served: Vec<u8> = served.iter().map(|(machine, _)| *machine).collect();
        // A stranger has its turn all the same.
        assert_eq!(served[..8], [2, 3, 2, 3, 10, 2, 3, 11]);
        assert_eq!(served.len(), 26);
    });
}

#[test]
fn strangers_give_way_to_known_networks_but_for_a_few_places() {
    in_system(async {
        let mut rig = Rig::new(16);
        rig.know(&[2]).await;
        let strangers: Vec<u8> = (10..26).collect();
        rig.ask(&strangers).await;
        rig.ask(&[2; 20]).await;
        assert_eq!((rig.queue.known.len(), rig.queue.strangers.len()), (14, 2));
        // The last come is shed first, and not the one that is served next.
        let served = rig.serve_all();
        let mut handled = served
            .iter()
            .filter(|(_, treatment)| *treatment == Treatment::Handle);
        assert!(handled.any(|(machine, _)| *machine == 10), "{served:?}");
        // Nor is the queue full of known ones for strangers.
        rig.ask(&[2; 16]).await;
        rig.ask(&[40, 41, 42]).await;
        assert_eq!((rig.queue.known.len(), rig.queue.strangers.len()), (14, 2));
        rig.serve_all();
    });
}
