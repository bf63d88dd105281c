//! Byte stream of one connection, plain or through TLS.
//!
//! Both are read and written without waiting, so that one task can do both and watch the timers.
//! Encrypted bytes that are not sent yet are buffered in the stream: [`Stream::owes`].

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use bytes::buf::Limit;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;

use super::accept::Gate;
use super::metrics::Close;
use crate::net::TcpStream;

/// A relayed connection, decrypted. Boxed: its state is larger than everything else of a connection.
pub(crate) type RelayedStream = Box<TlsStream<TcpStream>>;

/// A connection as a listener gets it.
pub(super) enum Arrival {
    /// Of its own port.
    Direct(TcpStream),
    /// Of another member's, by the member port.
    Relayed(RelayedStream),
}

/// Plain or TLS stream.
pub(super) enum Stream {
    Plain(TcpStream),
    /// The peer's TLS, or a relayed peer without any.
    Tls(Box<TlsStream<TcpStream>>),
    /// The TLS of a relayed peer, inside that of the members.
    TlsRelayed(Box<TlsStream<RelayedStream>>),
}

impl Stream {
    /// Completes the TLS handshake, if TLS is configured, within the handshake timeout.
    pub(super) async fn open(
        arrival: Arrival,
        tls: Option<Arc<ServerConfig>>,
        gate: &Arc<Gate>,
    ) -> Result<Self, Close> {
        let Some(tls) = tls else {
            return Ok(match arrival {
                Arrival::Direct(stream) => Self::Plain(stream),
                Arrival::Relayed(stream) => Self::Tls(stream),
            });
        };
        let accepting = async {
            let turn = &gate.tls_turn;
            Ok::<_, io::Error>(match arrival {
                Arrival::Direct(stream) => Self::Tls(Box::new(accept(stream, tls, turn).await?)),
                Arrival::Relayed(stream) => {
                    Self::TlsRelayed(Box::new(accept(stream, tls, turn).await?))
                }
            })
        };
        let accepting = tokio::time::timeout(gate.limits.handshake, accepting);
        let accepted = gate.stop.run_until_cancelled(Box::pin(accepting)).await;
        match accepted {
            None => Err(Close::Shutdown),
            Some(Err(_)) => Err(Close::HandshakeTimeout),
            Some(Ok(Ok(stream))) => Ok(stream),
            Some(Ok(Err(error))) => {
                tracing::debug!(%error, "no TLS handshake");
                Err(Close::Tls)
            }
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
            Self::TlsRelayed(stream) => stream.get_ref().0.get_ref().0,
        }
    }

    /// Whether a read may give something, as far as known without a buffer for it.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(cx),
            // Decrypted bytes do not show at the socket.
            Self::Tls(_) | Self::TlsRelayed(_) => Poll::Ready(Ok(())),
        }
    }

    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        target: &mut Limit<&mut BytesMut>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => pin!(stream.read_buf(target)).poll(cx),
            Self::Tls(stream) => pin!(stream.read_buf(target)).poll(cx),
            Self::TlsRelayed(stream) => pin!(stream.read_buf(target)).poll(cx),
        }
    }

    /// Writes what the socket takes at once, and gives the number of bytes; 0 if none.
    pub(super) fn try_write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = match self {
            Self::Plain(stream) => {
                return match stream.try_write_vectored(parts) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                    written => written,
                };
            }
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(&mut at_once(), parts),
            Self::TlsRelayed(stream) => {
                Pin::new(&mut **stream).poll_write_vectored(&mut at_once(), parts)
            }
        };
        let written = taken(written)?;
        self.try_flush()?;
        Ok(written)
    }

    /// Sends buffered TLS bytes, as far as the socket takes them at once.
    pub(super) fn try_flush(&mut self) -> io::Result<()> {
        let flushed = match self {
            Self::Plain(_) => return Ok(()),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(&mut at_once()),
            Self::TlsRelayed(stream) => Pin::new(&mut **stream).poll_flush(&mut at_once()),
        };
        match flushed {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    /// Whether written bytes are still buffered here.
    pub(super) fn owes(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.wants_write(),
            Self::TlsRelayed(stream) => {
                let (members, peer) = stream.get_ref();
                peer.wants_write() || members.get_ref().1.wants_write()
            }
        }
    }

    /// Whether the socket takes more.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_write_ready(cx)
    }
}

/// Does the TLS handshake. The signature in it costs about a millisecond, for which a stranger
/// pays nothing, so handshakes are serialized: between two of them all other tasks of this thread
/// run.
pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    tls: Arc<ServerConfig>,
    turn: &tokio::sync::Mutex<()>,
) -> io::Result<TlsStream<S>> {
    let greeted = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let turn = turn.lock().await;
    tokio::task::yield_now().await;
    drop(turn);
    greeted.into_stream(tls).await
}

/// No-op waker: a caller that finds no room polls [`Stream::poll_writable`] next.
fn at_once() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn taken(written: Poll<io::Result<usize>>) -> io::Result<usize> {
    match written {
        Poll::Ready(written) => written,
        Poll::Pending => Ok(0),
    }
}
