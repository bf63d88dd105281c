//! A TLS connection to the active member whose end is said by TLS alone.
//!
//! The side that closes a TCP connection first keeps its port for a minute. A relay has one port for
//! each connection to the one address of the active member, so it leaves that to the active member:
//! what is shut down here still has its TCP connection, until the other end closes it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The relay's end of a connection to the active member. One that is dropped before the active member
/// has closed it is reset.
pub(crate) struct HalfClosing(TlsStream<TcpStream>);

impl HalfClosing {
    /// Wraps a connection whose handshake is done.
    ///
    /// # Errors
    /// The socket refuses its option.
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> io::Result<Self> {
        SockRef::from(stream.get_ref().0).set_linger(Some(Duration::ZERO))?;
        Ok(Self(stream))
    }
}

impl AsyncRead for HalfClosing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for HalfClosing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Said once, however often it is asked for.
        self.0.get_mut().1.send_close_notify();
        Pin::new(&mut self.0).poll_flush(context)
    }
}
