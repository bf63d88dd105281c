//! Metrics of the listeners. Labels come from closed enums, never from addresses.
//!
//! Both listeners use the same names and differ by the constant label `listener`, so one registry
//! takes one listener of each kind. The label `transport` separates its transports.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::framing::Transport;
use super::listen::ListenError;
use crate::zmtp::codec::CodecError;

macro_rules! closed_labels {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $label:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value of the label.
            pub fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }
        }
    };
}

closed_labels! {
    /// Why a connection ended: label `reason` of `saltern_port_closed_total`.
    Close {
        /// The peer closed it, between two messages.
        PeerClosed = "peer_closed",
        /// The peer closed it in the middle of a message or of the handshake.
        Truncated = "truncated",
        /// The connection broke.
        Io = "io",
        /// The kernel gave up: nothing that was sent was acknowledged in time.
        Unreachable = "unreachable",
        /// Handshake not complete in time.
        HandshakeTimeout = "handshake_timeout",
        /// No TLS where it is required, or no valid certificate of the peer.
        Tls = "tls",
        /// First bytes are not ZMTP.
        Signature = "signature",
        /// ZMTP before 3.0.
        Version = "version",
        /// Another mechanism than NULL.
        Mechanism = "mechanism",
        /// Bytes that are no handshake.
        Handshake = "handshake",
        /// A websocket opened by a page in a browser.
        Origin = "origin",
        /// A socket type that this listener does not serve.
        SocketType = "socket_type",
        /// The peer sent ERROR.
        PeerError = "peer_error",
        /// Reserved flags.
        Flags = "flags",
        /// A frame over the limit.
        FrameSize = "frame_size",
        /// A message over the limit.
        MessageSize = "message_size",
        /// Too many frames.
        Frames = "frames",
        /// A command over the limit.
        CommandSize = "command_size",
        /// A malformed command.
        Command = "command",
        /// Too many commands, or other traffic that carries no request.
        Flood = "flood",
        /// Bytes that are no message of the transport.
        Malformed = "malformed",
        /// A request without delimiter or payload.
        Envelope = "envelope",
        /// Too many subscriptions.
        Subscriptions = "subscriptions",
        /// A topic over the limit.
        Topic = "topic",
        /// A message that arrived too slowly.
        SlowMessage = "slow_message",
        /// A reply that was read too slowly.
        SlowReader = "slow_reader",
        /// The oldest unread reply, closed to make room for another.
        AnswerMemory = "answer_memory",
        /// A subscriber that took nothing for too long.
        SlowSubscriber = "slow_subscriber",
        /// No PONG.
        Heartbeat = "heartbeat",
        /// Idle timeout of a peer that cannot be sent a PING.
        Idle = "idle",
        /// No room for a large message in time.
        Memory = "memory",
        /// There was no room for a request.
        Overload = "overload",
        /// Too many of its requests were refused in a row.
        Refused = "refused",
        /// Another connection took over the identity.
        Handover = "handover",
        /// Closed by the master, although its peer did nothing wrong.
        Dismissed = "dismissed",
        /// A relayed connection, for which no member of the cluster is active any more.
        NoActive = "no_active",
        /// A relayed connection: the active member cannot be reached.
        ActiveAway = "active_away",
        /// A relayed connection of a program of this machine: the active member is reached and does not serve
        /// it, for want of room or as it is of an earlier release.
        ActiveRefused = "active_refused",
        /// A relayed connection: this machine has no descriptors, memory or local ports left for the one to
        /// the active member.
        Exhausted = "exhausted",
        /// The listener stopped.
        Shutdown = "shutdown",
        /// The connection's task panicked.
        Panic = "panic",
    }
}

closed_labels! {
    /// Why a connection was not taken: label `reason` of `saltern_port_refused_total`.
    Refusal {
        /// Connections in all.
        Connections = "connections",
        /// Connections of one address, or of one IPv6 network of 64 bits.
        PerAddress = "per_address",
        /// The remaining slots are for known networks.
        Reserved = "reserved",
        /// No file descriptors left; accepting pauses.
        Descriptors = "descriptors",
        /// Another error of accept.
        Accept = "accept",
    }
}

closed_labels! {
    /// State of a connection: label `state` of `saltern_port_connections`.
    State {
        /// Before the handshake is complete.
        Handshake = "handshake",
        /// After it.
        Open = "open",
    }
}

impl From<CodecError> for Close {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Signature => Self::Signature,
            CodecError::Version(_) => Self::Version,
            CodecError::Mechanism => Self::Mechanism,
            CodecError::Flags(_) => Self::Flags,
            CodecError::Frame { .. } => Self::FrameSize,
            CodecError::Message { .. } => Self::MessageSize,
            CodecError::Frames(_) => Self::Frames,
            CodecError::CommandSize { .. } => Self::CommandSize,
            CodecError::Command(_) => Self::Command,
            CodecError::Io(_) => Self::Io,
        }
    }
}

/// Metric families of one listener, with series for each transport.
pub(super) struct Families {
    connections: IntGaugeVec,
    accepted: IntCounterVec,
    refused: IntCounterVec,
    closed: IntCounterVec,
    bytes: IntCounterVec,
    messages: IntCounterVec,
    dropped: IntCounterVec,
    unanswered: IntCounterVec,
}

impl Families {
    pub(super) fn new(registry: &Registry, listener: &'static str) -> Result<Self, ListenError> {
        Self::register(registry, listener)
            .map_err(|source| ListenError::Metrics { listener, source })
    }

    fn register(registry: &Registry, listener: &str) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| {
            Opts::new(format!("saltern_port_{name}"), help).const_label("listener", listener)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let labels = [&["transport"], labels].concat();
            let counters = IntCounterVec::new(opts(name, help), &labels)?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let connections = IntGaugeVec::new(
            opts("connections", "Open connections by state."),
            &["transport", "state"],
        )?;
        registry.register(Box::new(connections.clone()))?;
        Ok(Self {
            connections,
            accepted: counters("accepted_total", "Connections taken.", &[])?,
            refused: counters(
                "refused_total",
                "Connections not taken, and failed accepts.",
                &["reason"],
            )?,
            closed: counters(
                "closed_total",
                "Connections that ended, by reason.",
                &["reason"],
            )?,
            bytes: counters("bytes_total", "Bytes read and written.", &["direction"])?,
            messages: counters(
                "messages_total",
                "Messages read and written.",
                &["direction"],
            )?,
            dropped: counters(
                "dropped_total",
                "Publications not queued for a slow subscriber, and replies to closed connections.",
                &[],
            )?,
            unanswered: counters(
                "unanswered_total",
                "Requests that got the configured reply because none was sent.",
                &[],
            )?,
        })
    }
}

/// The counters of one transport of a listener, each label resolved once.
pub(super) struct Metrics {
    connections: Vec<IntGauge>,
    pub(super) accepted: IntCounter,
    refused: Vec<IntCounter>,
    closed: Vec<IntCounter>,
    pub(super) bytes_in: IntCounter,
    pub(super) bytes_out: IntCounter,
    pub(super) messages_in: IntCounter,
    pub(super) messages_out: IntCounter,
    /// Messages not queued for a slow subscriber, or replies to a connection that is gone.
    pub(super) dropped: IntCounter,
    /// Requests whose reply handle was dropped.
    pub(super) unanswered: IntCounter,
}

impl Metrics {
    pub(super) fn new(families: &Families, transport: Transport) -> Self {
        Self::labelled(families, transport.name())
    }

    /// Those of a listener without a transport, by another name.
    pub(super) fn labelled(families: &Families, transport: &str) -> Self {
        let one = |family: &IntCounterVec| family.with_label_values(&[transport]);
        let of = |family: &IntCounterVec, label| family.with_label_values(&[transport, label]);
        Self {
            connections: State::ALL
                .iter()
                .map(|state| {
                    let labels = [transport, state.label()];
                    families.connections.with_label_values(&labels)
                })
                .collect(),
            accepted: one(&families.accepted),
            refused: Refusal::ALL
                .iter()
                .map(|reason| of(&families.refused, reason.label()))
                .collect(),
            closed: Close::ALL
                .iter()
                .map(|reason| of(&families.closed, reason.label()))
                .collect(),
            bytes_in: of(&families.bytes, "in"),
            bytes_out: of(&families.bytes, "out"),
            messages_in: of(&families.messages, "in"),
            messages_out: of(&families.messages, "out"),
            dropped: one(&families.dropped),
            unanswered: one(&families.unanswered),
        }
    }

    pub(super) fn connections(&self, state: State) -> &IntGauge {
        &self.connections[state as usize]
    }

    pub(super) fn refused(&self, reason: Refusal) -> &IntCounter {
        &self.refused[reason as usize]
    }

    pub(super) fn closed(&self, reason: Close) -> &IntCounter {
        &self.closed[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_registry_takes_one_listener_of_each_kind() {
        let registry = Registry::new();
        let families = Families::new(&registry, "request").expect("first");
        let publish = Families::new(&registry, "publish").expect("second");
        assert!(Families::new(&registry, "request").is_err());
        Metrics::new(&families, Transport::Tcp)
            .closed(Close::Flood)
            .inc();
        Metrics::new(&publish, Transport::ZeroMq);
        let families = registry.gather();
        let closed = families
            .iter()
            .find(|family| family.name() == "saltern_port_closed_total")
            .expect("registered");
        assert_eq!(closed.get_metric().len(), 2 * Close::ALL.len());
    }
}
