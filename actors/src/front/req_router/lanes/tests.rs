//! With real connections from several loopback addresses, because only a connection has a standing.

use std::net::Ipv4Addr;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::*;
use crate::shared::testing::{NOT_HANDLED, Port, closed, in_system};

struct Rig {
    lanes: Lanes,
    windows: Arc<Windows>,
    port: Port,
    peers: Vec<JoinHandle<Option<Bytes>>>,
}

impl Rig {
    fn new(places: usize) -> Self {
        Self {
            lanes: Lanes::new(Class::Minion, places),
            windows: Windows::new(1, 256, closed()),
            port: Port::open(),
            peers: Vec::new(),
        }
    }

    /// A request from this machine, whose peer has the standing that `raise` sets.
    async fn request(&mut self, machine: u8, raise: impl Fn(&Incoming)) -> Incoming {
        self.request_of(machine, b"a request", raise).await
    }

    async fn request_of(
        &mut self,
        machine: u8,
        payload: &[u8],
        raise: impl Fn(&Incoming),
    ) -> Incoming {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, machine));
        let (request, peer) = self.port.ask_from(Some(from), payload).await;
        self.peers.push(peer);
        raise(&request);
        request
    }

    /// Pushes requests of these machines; gives the machines whose requests are shed.
    async fn push(&mut self, machines: &[u8], raise: impl Fn(&Incoming) + Copy) -> Vec<u8> {
        let mut given_up = Vec::new();
        for machine in machines {
            let request = self.request(*machine, raise).await;
            let other = self.lanes.push(request);
            given_up.extend(other.as_ref().map(machine_of));
        }
        given_up
    }

    /// The machines in the order in which they are served.
    fn serve_all(&mut self) -> Vec<u8> {
        std::iter::from_fn(|| self.lanes.pop(&self.windows))
            .map(|(request, _)| machine_of(&request))
            .collect()
    }
}

fn machine_of(request: &Incoming) -> u8 {
    match request.peer.address.ip() {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => panic!("an address of another kind"),
    }
}

fn unknown(_: &Incoming) {}

fn proved(request: &Incoming) {
    request.reply.authenticated();
}

fn suspect(request: &Incoming) {
    request.reply.refused();
    request.reply.refused();
}

#[test]
fn addresses_take_turns() {
    in_system(async {
        let mut rig = Rig::new(100);
        rig.push(&[2; 20], unknown).await;
        rig.push(&[3, 4, 3], unknown).await;
        assert_eq!(rig.lanes.len(), 23);
        let served = rig.serve_all();
        assert_eq!(served[..5], [2, 3, 4, 2, 3]);
        assert_eq!(served.len(), 23);
        assert_eq!(rig.lanes.len(), 0);
    });
}

#[test]
fn better_lanes_are_served_more_often_and_none_starves() {
    in_system(async {
        let mut rig = Rig::new(100);
        rig.push(&[5; 6], suspect).await;
        rig.push(&[4; 6], unknown).await;
        rig.push(&[2; 20], proved).await;
        // A connection of its own, from where another one has proved itself.
        rig.push(&[2; 1], unknown).await;
        assert_eq!(
            rig.lanes.lanes.each_ref().map(FairQueue::len),
            [20, 1, 6, 6]
        );
        let served = rig.serve_all();
        assert_eq!(served.len(), 33);
        // Where the turns start is not defined yet.
        let turn = |machine: u8| served.iter().position(|other| *other == machine);
        assert!(turn(2) < turn(4) && turn(4) < turn(5), "{served:?}");
        let early = &served[..16];
        let count = |machine| early.iter().filter(|other| **other == machine).count();
        assert!(
            count(2) >= 8 && count(4) >= 2 && count(5) >= 1,
            "{served:?}"
        );
    });
}

#[test]
fn full_queue_sheds_a_request_of_a_worse_lane() {
    in_system(async {
        let mut rig = Rig::new(4);
        assert!(rig.push(&[5, 5, 5, 5], suspect).await.is_empty());
        // Among equals, the address with more is shed.
        assert_eq!(rig.push(&[6], suspect).await, [5]);
        assert_eq!(rig.push(&[5], suspect).await, [5], "itself");
        assert_eq!(rig.push(&[4, 4, 4, 4], unknown).await.len(), 4);
        assert_eq!(rig.push(&[2], proved).await, [4]);
        assert_eq!(rig.push(&[6], suspect).await, [6], "itself");
        assert_eq!(rig.lanes.len(), 4);
    });
}

#[test]
fn one_address_does_not_keep_strangers_out() {
    in_system(async {
        let mut rig = Rig::new(16);
        rig.push(&[2; 16], proved).await;
        assert_eq!(rig.push(&[4, 4], unknown).await, [2, 2]);
        assert_eq!(rig.push(&[4], unknown).await, [4], "it has an eighth");
        assert_eq!(rig.lanes.len(), 16);
    });
}

#[test]
fn suspects_get_one_worker_slot_at_a_time() {
    in_system(async {
        let mut rig = Rig::new(100);
        rig.push(&[5; 20], suspect).await;
        let windows = rig.windows.clone();
        let held: Vec<_> = std::iter::from_fn(|| rig.lanes.pop(&windows)).collect();
        assert_eq!(held.len(), 1);
        // The others wait, and delay no other lane.
        rig.push(&[2], proved).await;
        let next = rig.lanes.pop(&windows).expect("the next one");
        assert_eq!(machine_of(&next.0), 2);
        assert!(rig.lanes.pop(&windows).is_none());
        drop(held);
        assert!(rig.lanes.pop(&windows).is_some());
    });
}

#[test]
fn large_request_waits_with_suspects_until_its_peer_is_proved() {
    in_system(async {
        let mut rig = Rig::new(10);
        let large = vec![0; LARGE_OF_UNKNOWN];
        for (machine, payload, raise, expected) in [
            (2, &large[1..], unknown as fn(&Incoming), Standing::Unknown),
            (2, &large, unknown, Standing::Suspect),
            (3, &large, proved, Standing::Proved),
            // From an authenticated address, returns may be large.
            (3, &large, unknown, Standing::Known),
            (3, &[0; LARGE_OF_KNOWN], unknown, Standing::Suspect),
        ] {
            let request = rig.request_of(machine, payload, raise).await;
            assert_eq!(standing_of(&request), expected, "{}", payload.len());
        }
    });
}

#[test]
fn request_of_a_disconnected_peer_is_skipped() {
    in_system(async {
        let mut rig = Rig::new(10);
        let left = rig.request(2, unknown).await;
        rig.peers.remove(0).abort();
        // The listener detects the end of the connection; there is no other signal.
        while !left.reply.is_gone() {
            tokio::task::yield_now().await;
        }
        assert!(rig.lanes.push(left).is_none());
        rig.push(&[3], unknown).await;
        assert_eq!(rig.serve_all(), [3]);
        assert_eq!(rig.lanes.len(), 0);
        let reply = rig.peers.remove(0).await.expect("a reply");
        assert_eq!(reply.as_deref(), Some(NOT_HANDLED));
    });
}
