//! Where a request came from, as far as it matters to the answer.

use std::net::IpAddr;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The other end of its connection.
    pub address: IpAddr,
    /// Where its sender finds the publications over the transport by which it asks; the
    /// configured `publish_port` when absent.
    pub publish_port: Option<u16>,
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            publish_port: None,
        }
    }
}
