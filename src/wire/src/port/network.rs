//! Peers by network: the unit of address limits, and the networks in which minions have
//! authenticated.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// Minimum time that a network stays known after the last proof; at most twice as long.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// Capacity of one generation. A site with more networks loses only the head start of a new
/// connection.
const KNOWN_NETWORKS: usize = 1 << 16;

/// The unit of address limits: an IPv4 address, or the 64-bit network of an IPv6 address, which a
/// single machine has for itself.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
        address @ IpAddr::V4(_) => address,
    }
}

/// Networks in which a minion has lately authenticated. Clones share them: the publish port uses
/// what the request port learns.
#[derive(Clone)]
pub struct KnownNetworks(Arc<Shared>);

struct Shared {
    generations: RwLock<Generations>,
    watches: Mutex<Vec<Weak<dyn NetworkWatch>>>,
}

/// Observer of networks that become known.
pub(super) trait NetworkWatch: Send + Sync {
    /// A network (see [`network`]) is known that may not have been before.
    fn became_known(&self, network: IpAddr);
}

/// Two sets, of which the older one is dropped as a whole: no entry has a time of its own.
struct Generations {
    current: HashSet<IpAddr>,
    previous: HashSet<IpAddr>,
    began: Instant,
}

impl Default for KnownNetworks {
    fn default() -> Self {
        let generations = Generations {
            current: HashSet::new(),
            previous: HashSet::new(),
            began: Instant::now(),
        };
        Self(Arc::new(Shared {
            generations: RwLock::new(generations),
            watches: Mutex::default(),
        }))
    }
}

impl KnownNetworks {
    /// Records that a minion has authenticated from this address, or that one which did is still
    /// connected.
    pub fn remember(&self, address: IpAddr) {
        let network = network(address);
        let is_current = {
            let generations = self.0.generations.read();
            generations.began.elapsed() < LIFETIME && generations.current.contains(&network)
        };
        if is_current {
            return;
        }
        {
            let mut generations = self.0.generations.write();
            generations.age();
            if generations.current.len() >= KNOWN_NETWORKS {
                generations.begin();
            }
            generations.current.insert(network);
        }
        self.announce(network);
    }

    /// Restores addresses from which minions authenticated before this process began, the latest
    /// first: these networks stay known for 12 hours. Addresses beyond the bound are skipped.
    pub fn restore(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        for address in addresses {
            let network = network(address);
            {
                let mut generations = self.0.generations.write();
                if generations.previous.len() >= KNOWN_NETWORKS {
                    return;
                }
                generations.previous.insert(network);
            }
            self.announce(network);
        }
    }

    /// The known networks, the latest generation first, as many as one has.
    fn all(&self) -> Vec<IpAddr> {
        let generations = self.0.generations.read();
        let all = generations.current.iter().chain(&generations.previous);
        all.copied().take(KNOWN_NETWORKS).collect()
    }

    /// Notifies `watch` of networks that become known from now on, for as long as it lives.
    pub(super) fn watch(&self, watch: Weak<dyn NetworkWatch>) {
        self.0.watches.lock().push(watch);
    }

    fn announce(&self, network: IpAddr) {
        let watches = self.0.watches.lock().clone();
        for watch in watches.iter().filter_map(Weak::upgrade) {
            watch.became_known(network);
        }
    }

    /// Whether a minion has authenticated from this address, or its network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let network = network(address);
        {
            let generations = self.0.generations.read();
            if generations.began.elapsed() < LIFETIME {
                return generations.contains(&network);
            }
        }
        let mut generations = self.0.generations.write();
        generations.age();
        generations.contains(&network)
    }
}

/// Writes known networks for another member: their number, then each as the bytes of an IPv6 address.
pub(super) async fn write_networks(
    stream: &mut (impl AsyncWrite + Unpin),
    known: &KnownNetworks,
) -> io::Result<()> {
    let networks = known.all();
    let number = u32::try_from(networks.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(4 + 16 * networks.len());
    bytes.extend(number.to_be_bytes());
    for network in networks {
        bytes.extend(match network {
            IpAddr::V4(network) => network.to_ipv6_mapped().octets(),
            IpAddr::V6(network) => network.octets(),
        });
    }
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Reads what `write_networks` has written.
pub(super) async fn read_networks(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Vec<IpAddr>> {
    let number = stream.read_u32().await?;
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    if number > KNOWN_NETWORKS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut networks = Vec::new();
    for _ in 0..number {
        let mut network = [0; 16];
        stream.read_exact(&mut network).await?;
        networks.push(IpAddr::V6(network.into()).to_canonical());
    }
    Ok(networks)
}

impl Generations {
    fn contains(&self, network: &IpAddr) -> bool {
        self.current.contains(network) || self.previous.contains(network)
    }

    fn age(&mut self) {
        let age = self.began.elapsed();
        if age >= LIFETIME {
            self.begin();
        }
        if age >= 2 * LIFETIME {
            self.previous.clear();
        }
    }

    fn begin(&mut self) {
        self.previous = std::mem::take(&mut self.current);
        self.began = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn network_of_ipv6_is_64_bits() {
        let same = ["2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"];
        assert_eq!(network(address(same[0])), network(address(same[1])));
        assert_ne!(
            network(address("2001:db8:0:1::1")),
            network(address(same[0]))
        );
        assert_eq!(network(address("::ffff:10.0.0.1")), address("10.0.0.1"));
        assert_ne!(network(address("10.0.0.2")), address("10.0.0.1"));
    }

    #[tokio::test(start_paused = true)]
    async fn known_network_is_forgotten_after_two_lifetimes() {
        let known = KnownNetworks::default();
        known.remember(address("2001:db8::1"));
        assert!(known.contains(address("2001:db8::2")));
        assert!(!known.contains(address("10.0.0.1")));
        tokio::time::advance(LIFETIME).await;
        assert!(known.contains(address("2001:db8::1")), "the older of two");
        tokio::time::advance(LIFETIME).await;
        assert!(!known.contains(address("2001:db8::1")));
        known.remember(address("10.0.0.1"));
        tokio::time::advance(3 * LIFETIME).await;
        assert!(!known.contains(address("10.0.0.1")));
    }

    #[tokio::test(start_paused = true)]
    async fn restored_network_is_known_for_one_lifetime() {
        let known = KnownNetworks::default();
        known.restore([address("2001:db8::1"), address("10.0.0.1")]);
        assert!(known.contains(address("2001:db8::2")) && known.contains(address("10.0.0.1")));
        known.remember(address("10.0.0.1"));
        tokio::time::advance(LIFETIME).await;
        assert!(!known.contains(address("2001:db8::1")));
        assert!(known.contains(address("10.0.0.1")));
    }

    #[tokio::test]
    async fn networks_are_read_as_they_were_written() {
        let (known, learned) = (KnownNetworks::default(), KnownNetworks::default());
        let addresses = ["2001:db8::1", "10.0.0.1"].map(address);
        for address in addresses {
            known.remember(address);
        }
        let mut bytes = Vec::new();
        let written = write_networks(&mut bytes, &known).await;
        written.expect("written");
        let read = read_networks(&mut bytes.as_slice()).await;
        learned.restore(read.expect("read"));
        assert!(addresses.iter().all(|address| learned.contains(*address)));
        assert!(!learned.contains(address("10.0.0.2")));
        let cut = bytes.len() - 1;
        assert!(read_networks(&mut &bytes[..cut]).await.is_err());
        assert!(read_networks(&mut &[255; 64][..]).await.is_err());
    }

    #[test]
    fn known_networks_are_bounded() {
        let known = KnownNetworks::default();
        for number in 0..u32::try_from(3 * KNOWN_NETWORKS).expect("a small number") {
            known.remember(IpAddr::V4(number.into()));
        }
        known.restore((0..u32::MAX).rev().map(|number| IpAddr::V4(number.into())));
        let generations = known.0.generations.read();
        assert!(generations.current.len() <= KNOWN_NETWORKS);
        assert!(generations.previous.len() <= KNOWN_NETWORKS);
    }
}
