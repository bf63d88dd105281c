//! Where a relay carries its connections: the active member, as the cluster and its own probes know it.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Address of the active member's port. Clones share it.
#[derive(Clone, Default)]
pub struct RelayTarget(Arc<Mutex<Target>>);

#[derive(Default)]
struct Target {
    /// `host:port`, and the epoch under which it is active. Without a port nothing is relayed to it.
    active: Option<(String, i64)>,
    /// Where it was reached last; at once where the host is no name.
    socket: Option<SocketAddr>,
    is_reached: bool,
    /// Ends the connections to it.
    cut: CancellationToken,
}

impl RelayTarget {
    /// Sets the address and the epoch of the active member, and cuts connections to another one.
    pub fn set(&self, active: Option<(String, i64)>) {
        let mut target = self.0.lock();
        if target.active != active {
            target.cut.cancel();
            let address = active.as_ref().map(|(address, _)| address.as_str());
            if let Some(address) = address.filter(|address| !has_port(address)) {
                warn!(
                    "the active member \"{address}\" has no member_port: nothing is relayed to it"
                );
            }
            *target = Target {
                socket: address.and_then(|address| address.parse().ok()),
                active,
                ..Target::default()
            };
        }
    }

    /// Whether the active member has answered on its member port lately.
    pub fn is_reached(&self) -> bool {
        self.0.lock().is_reached
    }

    pub(super) fn address(&self) -> Option<String> {
        let target = self.0.lock();
        let (address, _) = target.active.as_ref()?;
        has_port(address).then(|| address.clone())
    }

    /// Where the active member was reached last, and the end of connections to it.
    pub(super) fn socket(&self) -> Option<(SocketAddr, CancellationToken)> {
        let target = self.0.lock();
        Some((target.socket?, target.cut.clone()))
    }

    /// Records where an address answered, if it is still the one; whether it answers is news then.
    pub(super) fn record(&self, address: &str, reached: Option<SocketAddr>) -> bool {
        let mut target = self.0.lock();
        if (target.active.as_ref()).is_none_or(|(current, _)| current != address) {
            return false;
        }
        let is_new = target.is_reached != reached.is_some();
        target.is_reached = reached.is_some();
        target.socket = reached.or(target.socket);
        is_new
    }
}

/// Whether an address of a member ends with a port, as those have that others relay to.
fn has_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let is_host = !host.is_empty() && (host.starts_with('[') || !host.contains(':'));
    is_host && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_with_a_port_are_relayed_to() {
        for (address, is_one) in [
            ("192.0.2.1:4508", true),
            ("[2001:db8::1]:4508", true),
            ("master.example:4508", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("master.example", false),
            (":4508", false),
            ("master.example:x", false),
        ] {
            assert_eq!(has_port(address), is_one, "{address}");
        }
    }

    #[test]
    fn address_of_the_last_answer_is_kept_until_another_member_is_active() {
        let target = RelayTarget::default();
        let socket = "192.0.2.1:4508".parse().expect("an address");
        target.set(Some(("master.example:4508".to_owned(), 1)));
        assert!(target.socket().is_none());
        assert!(target.record("master.example:4508", Some(socket)));
        assert!(target.record("master.example:4508", None));
        assert!(!target.is_reached());
        assert_eq!(target.socket().expect("kept").0, socket);
        target.set(Some(("other.example:4508".to_owned(), 2)));
        assert!(!target.record("master.example:4508", Some(socket)));
        assert!(target.socket().is_none());
    }
}
