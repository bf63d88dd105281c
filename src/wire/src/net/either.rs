//! A stream of the system or of a simulated network, with what this crate uses of tokio's.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::simulated;

/// A stream of the system or of a simulated network.
pub(crate) enum TcpStream {
    System(tokio::net::TcpStream),
    Simulated(simulated::Stream),
}

impl TcpStream {
    /// The address that the peer has come to; none in a simulated network.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::System(stream) => stream.local_addr(),
            Self::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::System(stream) => stream.poll_read_ready(cx),
            Self::Simulated(stream) => stream.poll_readable(cx).map(Ok),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::System(stream) => stream.poll_write_ready(cx),
            Self::Simulated(stream) => stream.poll_writable(cx).map(Ok),
        }
    }

    pub(crate) fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::System(stream) => stream.try_write_vectored(parts),
            Self::Simulated(stream) => {
                let mut written = 0;
                for part in parts {
                    match stream.try_write(part) {
                        Ok(count) if count == part.len() => written += count,
                        Ok(count) => return Ok(written + count),
                        Err(error) if written == 0 => return Err(error),
                        Err(_) => return Ok(written),
                    }
                }
                Ok(written)
            }
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::System(stream) => stream.readable().await,
            Self::Simulated(stream) => {
                std::future::poll_fn(|cx| stream.poll_readable(cx)).await;
                Ok(())
            }
        }
    }

    pub(crate) fn try_read_buf(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::System(stream) => stream.try_read_buf(buffer),
            Self::Simulated(stream) => stream.try_read(buffer),
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Simulated(stream) => stream.poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Simulated(stream) => stream.poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Simulated(stream) => {
                let first = parts.iter().find(|part| !part.is_empty());
                stream.poll_write(cx, first.map_or(&[], |part| &**part))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::System(stream) => stream.is_write_vectored(),
            Self::Simulated(_) => false,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_flush(cx),
            Self::Simulated(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Simulated(stream) => {
                stream.shutdown();
                Poll::Ready(Ok(()))
            }
        }
    }
}
