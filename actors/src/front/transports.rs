//! Transports of the configuration, and the port of each.

use saltern_config::{MasterConfig, TransportName};
use saltern_wire::port::Transport;

/// The port of publications over a transport, unless it is that of `publish_port`.
pub(crate) fn publish_port(config: &MasterConfig, transport: Transport) -> Option<u16> {
    let mut others = config.saltern_also_listen.iter();
    let also = others.find(|also| transport_of(also.transport) == transport)?;
    Some(also.publish_port)
}

/// The transport of this name.
pub(crate) fn transport_of(name: TransportName) -> Transport {
    match name {
        TransportName::ZeroMq => Transport::ZeroMq,
        TransportName::Tcp => Transport::Tcp,
        TransportName::Ws => Transport::WebSocket,
    }
}
