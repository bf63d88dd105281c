//! One connection to a listener, on the client side: a stream, plain or in TLS, and what was read ahead
//! of it. The clients of all transports read and write by it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;

use super::{ClientError, Route};
use crate::net::{TcpStream, connect};
use crate::port::TlsError;

/// Bytes reserved ahead of those that arrive.
pub(crate) const READ_AHEAD: usize = 256 << 10;

/// Least room of a read.
const MIN_READ: usize = 4096;

/// A connection, and the bytes that have arrived.
pub(crate) struct Connection {
    stream: Stream,
    address: SocketAddr,
    pub(crate) buffer: BytesMut,
}

enum Stream {
    Plain(TcpStream),
    /// Boxed: its state is larger than everything else of a connection.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Connects, and completes the handshake of TLS where the route has it.
    pub(crate) async fn connect(route: &Route) -> Result<Self, ClientError> {
        let address = route.to;
        let plain = connect(route.to, route.from, route.keepalive).await;
        let plain = plain.map_err(|source| broken(address, source))?;
        let stream = match &route.tls {
            None => Stream::Plain(plain),
            Some(tls) => {
                let stream = tls.connect(plain).await;
                Stream::Tls(Box::new(stream.map_err(|source| broken(address, source))?))
            }
        };
        Ok(Self {
            stream,
            address,
            buffer: BytesMut::new(),
        })
    }

    /// The other end.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes all of it.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let written = writing.await;
        written.map_err(|source| broken(self.address, source))
    }

    /// Writes what is pending, and takes it out as far as it is written; cancel safe.
    pub(crate) async fn write_pending(
        &mut self,
        pending: &mut BytesMut,
    ) -> Result<(), ClientError> {
        let writing = async {
            while !pending.is_empty() {
                self.stream.write_buf(pending).await?;
            }
            match self.stream.owes() {
                true => self.stream.flush().await,
                false => Ok(()),
            }
        };
        let written = writing.await;
        written.map_err(|source| broken(self.address, source))
    }

    /// Reads into the buffer, which lacks at least `missing` bytes; cancel safe.
    pub(crate) async fn fill(&mut self, missing: usize) -> Result<(), ClientError> {
        let address = self.address;
        if self.buffer.is_empty() {
            // An idle connection holds no memory.
            self.buffer = BytesMut::new();
            let readable = self.stream.readable().await;
            readable.map_err(|source| broken(address, source))?;
        }
        self.buffer.reserve(missing.clamp(MIN_READ, READ_AHEAD));
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err(ClientError::Closed(address)),
            Ok(_) => Ok(()),
            Err(source) => Err(broken(address, source)),
        }
    }

    /// Whether the connection is of no use after a pause between two requests: the peer closed it, or sent
    /// more than [`READ_AHEAD`] that it was not asked for. Reads what it sent meanwhile.
    pub(crate) fn closed_meanwhile(&mut self) -> bool {
        loop {
            match self.stream.try_read_buf(&mut self.buffer) {
                Ok(0) => return true,
                Ok(_) if self.buffer.len() > READ_AHEAD => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}

fn broken(address: SocketAddr, source: io::Error) -> ClientError {
    if source
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>() || inner.is::<TlsError>())
    {
        return ClientError::Tls { address, source };
    }
    match source.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        // The end of the stream inside TLS, without a farewell.
        | io::ErrorKind::UnexpectedEof => ClientError::Closed(address),
        _ => ClientError::Io { address, source },
    }
}

impl Stream {
    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.readable().await,
            // Decrypted bytes do not show at the socket.
            Self::Tls(_) => Ok(()),
        }
    }

    fn try_read_buf(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_read_buf(buffer),
            Self::Tls(stream) => {
                let mut at_once = Context::from_waker(Waker::noop());
                match pin!(stream.read_buf(buffer)).poll(&mut at_once) {
                    Poll::Ready(read) => read,
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }

    /// Whether written bytes are still buffered here.
    fn owes(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.wants_write(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
