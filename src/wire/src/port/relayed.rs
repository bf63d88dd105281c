//! Connections that another member relays, on their way from the member port to the listener whose
//! peers they are.
//!
//! They pass the same gate as the listener's own, by the address of their peer, and wait in a bounded
//! queue; whoever puts one in waits for room.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::accept::{Acceptor, Admission, Gate};
use super::framing::Side;
use super::metrics::Close;
use super::stream::RelayedStream;
use crate::member::Door;

/// Connections that wait for the listener's thread.
const MAX_WAITING: usize = 64;

type Relayed = (RelayedStream, Admission);

/// The listener's end.
pub(super) struct RelayedQueue {
    sender: Option<mpsc::Sender<Relayed>>,
    receiver: mpsc::Receiver<Relayed>,
}

impl RelayedQueue {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        Self {
            sender: Some(sender),
            receiver,
        }
    }

    /// The next connection. For ever without one, also without a member port.
    pub(super) async fn next(&mut self) -> Relayed {
        self.sender = None;
        match self.receiver.recv().await {
            Some(relayed) => relayed,
            None => std::future::pending().await,
        }
    }
}

impl Drop for RelayedQueue {
    /// The listener has stopped.
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok((_, mut admission)) = self.receiver.try_recv() {
            admission.ends(Close::Shutdown);
        }
    }
}

/// The member port's end, for one door.
pub(super) struct RelayedDoor {
    pub(super) door: Door,
    gate: Arc<Gate>,
    side: Side,
    sender: mpsc::Sender<Relayed>,
}

impl RelayedDoor {
    /// The door of a listener, unless that is served already.
    pub(super) fn of(acceptor: &Acceptor, side: Side) -> Option<Self> {
        Some(Self {
            door: Door::new(side, acceptor.gate.transport),
            gate: Arc::clone(&acceptor.gate),
            side,
            sender: acceptor.relayed.sender.clone()?,
        })
    }

    /// Treats a connection as if its peer had come here itself.
    pub(super) async fn take(&self, mut stream: RelayedStream, peer: SocketAddr) {
        let Some(mut admission) = self.gate.admit(peer) else {
            return;
        };
        if let Err(reason) = self.greet(&mut stream).await {
            return admission.ends(reason);
        }
        if let Err(unsent) = self.sender.send((stream, admission)).await {
            let (_, mut admission) = unsent.0;
            admission.ends(Close::Shutdown);
        }
    }

    /// Sends the transport's first bytes.
    async fn greet(&self, stream: &mut RelayedStream) -> Result<(), Close> {
        let gate = &self.gate;
        let hello = gate.transport.hello(self.side);
        if hello.is_empty() {
            return Ok(());
        }
        let sending = async {
            stream.write_all(&hello).await?;
            stream.flush().await
        };
        let sending = gate
            .stop
            .run_until_cancelled(timeout(gate.limits.handshake, sending));
        match sending.await {
            None => Err(Close::Shutdown),
            Some(Err(_)) => Err(Close::HandshakeTimeout),
            Some(Ok(Err(_))) => Err(Close::Io),
            Some(Ok(Ok(()))) => {
                let bytes = u64::try_from(hello.len()).unwrap_or(0);
                gate.metrics.bytes_out.inc_by(bytes);
                Ok(())
            }
        }
    }
}
