//! Origin of a request, as far as it matters to the answer.

use std::net::IpAddr;

use saltern_model::AuditDoor;

/// Peer address of a request, and the publish port of its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The other end of its connection.
    pub address: IpAddr,
    /// The port of the publications over the transport by which the sender asks; the configured
    /// `publish_port` when absent.
    pub publish_port: Option<u16>,
    /// The way in, for the audit trail.
    pub door: AuditDoor,
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            publish_port: None,
            door: AuditDoor::Port,
        }
    }
}
