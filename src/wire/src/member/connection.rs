//! Connections that another member relays to a listener that is not one of this crate's: the unix sockets
//! of a master, and its API.
//!
//! They wait in a bounded queue, and without room in it they are closed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::header::RelayedPeer;
use crate::port::RelayedStream;

/// The byte by which the active member says that a local peer is served: a relay passes nothing on
/// before it.
pub(crate) const CONFIRMED: u8 = 1;

/// Connections that wait for their listener.
const MAX_WAITING: usize = 64;

/// A connection that another member relays, decrypted.
pub struct RelayedConnection {
    stream: RelayedStream,
    peer: RelayedPeer,
}

impl RelayedConnection {
    pub(crate) fn new(stream: RelayedStream, peer: RelayedPeer) -> Self {
        Self { stream, peer }
    }

    /// Its peer, as the relay sees it.
    pub fn peer(&self) -> RelayedPeer {
        self.peer
    }
}

/// A peer of a unix socket: of this machine's, or of another member's.
pub trait LocalPeer: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Lets the relay of the peer know that it is served. What the peer does next, on whatever connection,
    /// comes after.
    fn confirm(&mut self) -> impl Future<Output = io::Result<()>>;
}

impl LocalPeer for UnixStream {
    async fn confirm(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LocalPeer for RelayedConnection {
    async fn confirm(&mut self) -> io::Result<()> {
        self.stream.write_all(&[CONFIRMED]).await?;
        self.stream.flush().await
    }
}

impl AsyncRead for RelayedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for RelayedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(context)
    }
}

/// The listener's end.
pub struct RelayedConnections(mpsc::Receiver<RelayedConnection>);

impl Default for RelayedConnections {
    /// Of a master to which nobody relays.
    fn default() -> Self {
        Self::open().1
    }
}

impl RelayedConnections {
    /// Both ends of a queue.
    pub(crate) fn open() -> (RelayedSender, Self) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        (RelayedSender(sender), Self(receiver))
    }

    /// Hands over each connection, for ever.
    pub async fn each(mut self, mut take: impl FnMut(RelayedConnection)) {
        loop {
            take(self.next().await);
        }
    }

    /// The next connection. For ever without one, also without a member port.
    pub async fn next(&mut self) -> RelayedConnection {
        match self.0.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }
}

/// The member port's end.
pub(crate) struct RelayedSender(mpsc::Sender<RelayedConnection>);

impl RelayedSender {
    /// Hands a connection over; `false` when there is no room, or no listener.
    pub(crate) fn send(&self, connection: RelayedConnection) -> bool {
        self.0.try_send(connection).is_ok()
    }
}
