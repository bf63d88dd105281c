//! One HTTP connection: TLS if configured, one request, one answer, within one deadline.
//!
//! Its slot is freed as soon as the answer is sent: a lingering peer costs no other one a
//! connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::Handler;
use super::connection_slots::ConnectionSlot;
use super::limits::HttpLimits;
use super::metrics::{HttpMeters, Open, Refusal};
use saltern_wire::port::Tls;

/// Bytes that a peer may still send after its answer before the connection is closed. Closing with
/// bytes unread makes the kernel reset the connection, and the answer may be lost.
const LINGER_BYTES: u64 = 256 << 10;

/// Time in which it may send them.
const LINGER: Duration = Duration::from_secs(1);

/// State shared by all connections of a server.
pub(super) struct Exchange {
    pub(super) limits: HttpLimits,
    pub(super) tls: Option<Tls>,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) meters: HttpMeters,
    /// Lingering connections at most; further ones are closed with their answer.
    pub(super) lingering: Semaphore,
}

/// A connection in use: its slot, and its part of the gauge.
struct InUse(
    #[expect(dead_code, reason = "held, and given back when dropped")] (ConnectionSlot, Open),
);

impl Exchange {
    /// Serves one connection to its end.
    pub(super) async fn run(&self, stream: TcpStream, peer: SocketAddr, place: ConnectionSlot) {
        let in_use = InUse((place, self.meters.open()));
        let exchange = async {
            match &self.tls {
                None => self.converse(stream, peer, in_use).await,
                Some(tls) => {
                    let acceptor = TlsAcceptor::from(tls.server_config());
                    match acceptor.accept(stream).await {
                        Ok(stream) => self.converse(stream, peer, in_use).await,
                        Err(_) => Err(Refusal::Tls),
                    }
                }
            }
        };
        let outcome = match tokio::time::timeout(self.limits.exchange_time, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Refusal::Timeout),
        };
        if let Err(reason) = outcome {
            self.meters.refused(reason);
        }
    }

    async fn converse<S>(&self, stream: S, peer: SocketAddr, in_use: InUse) -> Result<(), Refusal>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let service = service_fn(|request| async move {
            Ok::<_, Infallible>(self.answer(request, peer).await.map(Full::new))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_time)
            .max_buf_size(self.limits.head_bytes.max(HttpLimits::MIN_HEAD_BYTES))
            .max_headers(self.limits.headers)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
            .without_shutdown();
        let parts = connection.await.map_err(|error| match error.is_timeout() {
            true => Refusal::Timeout,
            false => Refusal::Broken,
        })?;
        let mut stream = parts.io.into_inner();
        // The answer is sent; the rest is a graceful close.
        drop(in_use);
        if let Ok(_lingers) = self.lingering.try_acquire() {
            let lingering = async {
                let _ = stream.shutdown().await;
                let mut rest = stream.take(LINGER_BYTES);
                let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
            };
            let _ = tokio::time::timeout(LINGER, lingering).await;
        }
        Ok(())
    }

    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Bytes> {
        let (head, body) = request.into_parts();
        let body = match self.read(body).await {
            Ok(body) => body,
            Err(status) => {
                self.meters.refused(match status {
                    StatusCode::PAYLOAD_TOO_LARGE => Refusal::BodySize,
                    _ => Refusal::Broken,
                });
                return bare(status);
            }
        };
        let answer = self.handler.answer(Request::from_parts(head, body), peer);
        let answer = AssertUnwindSafe(answer).catch_unwind().await;
        // The panic hook has logged it.
        let answer = answer.unwrap_or_else(|_| bare(StatusCode::INTERNAL_SERVER_ERROR));
        self.meters.answered(answer.status());
        answer
    }

    /// Reads the whole body, if it is within the limit.
    async fn read(&self, body: Incoming) -> Result<Bytes, StatusCode> {
        let most = self.limits.body_bytes;
        // A body over the limit is refused by its announced length, before any of it is read.
        if body.size_hint().lower() > most as u64 {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        match Limited::new(body, most).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
            Err(_) => Err(StatusCode::BAD_REQUEST),
        }
    }
}

fn bare(status: StatusCode) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = status;
    answer
}
