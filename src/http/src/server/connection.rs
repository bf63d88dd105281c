//! One HTTP connection: TLS if configured, then requests by HTTP/1.1 or HTTP/2 until it is idle for
//! too long, a deadline passes, or the server stops.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::{Activity, Due};
use super::answering::Answering;
use super::certificates::Certificates;
use super::connection_io::{ConnectionIo, InUse, IoParts};
use super::connection_slots::ConnectionSlot;
use super::limits::HttpLimits;
use super::metrics::Refusal;
use super::request_info::Peer;

/// Time for the orderly end of a connection that has no running exchange.
pub(super) const CLOSE_TIME: Duration = Duration::from_millis(400);

/// Silence after which an HTTP/2 peer is asked for a sign of life, and the time it has for it.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Bytes of bodies that an HTTP/2 peer may send on one connection before they are read.
const HTTP2_WINDOW: u32 = 256 << 10;

/// Bytes of one body that it may send so.
const HTTP2_STREAM_WINDOW: u32 = 64 << 10;

/// State shared by all connections of a server.
pub(super) struct Connections {
    pub(super) answering: Arc<Answering>,
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) builder: Builder<TrackedExecutor>,
    /// Lingering connections at most; further ones are closed with their response.
    pub(super) lingering: Arc<Semaphore>,
    /// One handshake at a time: its signature costs a stranger nothing and us a millisecond, in
    /// which no other task of the thread runs.
    pub(super) handshake: tokio::sync::Mutex<()>,
    /// The server stops.
    pub(super) stop: CancellationToken,
    /// The time to stop is over.
    pub(super) cut: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// Runs the tasks of HTTP/2, of which a stopping server waits for each.
#[derive(Clone)]
pub(super) struct TrackedExecutor {
    pub(super) tasks: TaskTracker,
    pub(super) cut: CancellationToken,
}

impl<F> Executor<F> for TrackedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.tasks
            .spawn(self.cut.clone().run_until_cancelled_owned(task));
    }
}

/// The parser for all connections of a server.
pub(super) fn builder(limits: &HttpLimits, executor: TrackedExecutor) -> Builder<TrackedExecutor> {
    let mut builder = Builder::new(executor);
    builder
        .http1()
        .timer(TokioTimer::new())
        // Deadlines are those of `Activity`: this one would also end idle connections.
        .header_read_timeout(None)
        .max_buf_size(limits.head_bytes())
        .max_headers(limits.headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams)
        .max_header_list_size(u32::try_from(limits.head_bytes()).unwrap_or(u32::MAX))
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

impl Connections {
    /// Serves one connection to its end.
    pub(super) async fn run(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: SocketAddr,
        slot: ConnectionSlot,
    ) {
        let meters = &self.answering.meters;
        let in_use = InUse((slot, meters.open()));
        let outcome = match &self.certificates {
            None => self.converse(stream, peer, in_use).await,
            Some(certificates) => match self.accept(stream, certificates).await {
                Ok(Some(stream)) => self.converse(stream, peer, in_use).await,
                Ok(None) => Ok(()),
                Err(refusal) => Err(refusal),
            },
        };
        if let Err(reason) = outcome {
            self.answering.meters.refused(reason);
        }
    }

    /// Does the TLS handshake; `None` if the server stops.
    async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        certificates: &Arc<Certificates>,
    ) -> Result<Option<TlsStream<S>>, Refusal> {
        let accepted = async {
            let greeted = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
            let config = certificates.current().await;
            let turn = self.handshake.lock().await;
            tokio::task::yield_now().await;
            drop(turn);
            greeted.into_stream(config).await
        };
        let accepted = tokio::time::timeout(self.answering.limits.head_time, accepted);
        match self.stop.run_until_cancelled(accepted).await {
            None => Ok(None),
            Some(Ok(Ok(stream))) => Ok(Some(stream)),
            Some(Ok(Err(error))) => {
                tracing::debug!(%error, "no TLS handshake");
                Err(Refusal::Tls)
            }
            Some(Err(_)) => Err(Refusal::Timeout),
        }
    }

    async fn converse<S>(&self, stream: S, peer: SocketAddr, in_use: InUse) -> Result<(), Refusal>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Activity::new(self.answering.limits);
        let (cut, gone) = (self.cut.child_token(), CancellationToken::new());
        let parts = IoParts {
            activity: Arc::clone(&activity),
            in_use,
            lingering: Arc::clone(&self.lingering),
            cut: cut.clone(),
            gone: gone.clone().drop_guard(),
            tracked: self.tasks.token(),
        };
        let stream = TokioIo::new(ConnectionIo::new(stream, parts));
        let service = service_fn(|request| {
            let (answering, activity) = (Arc::clone(&self.answering), Arc::clone(&activity));
            async move { answering.answer(request, Peer(peer), &activity).await }
        });
        let connection = self.builder.serve_connection_with_upgrades(stream, service);
        let mut connection = pin!(connection);
        // Since when it is closed in order.
        let mut closing: Option<Instant> = None;
        loop {
            tokio::select! {
                // What has arrived counts, however late this task has its turn: a deadline that it has moved
                // is over last.
                biased;
                ended = connection.as_mut() => {
                    return match ended {
                        Ok(()) if activity.is_upgraded() => {
                            let watched = self.watch(&activity, &cut);
                            gone.run_until_cancelled(watched).await.unwrap_or(Ok(()))
                        }
                        Err(_) if closing.is_none() && activity.is_incomplete() => {
                            Err(Refusal::Broken)
                        }
                        _ => Ok(()),
                    };
                }
                () = self.stop.cancelled(), if closing.is_none() => {
                    closing = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
                // A peer whose bytes never end uses up the budget of every turn: this asks for none.
                due = unconstrained(over(&activity, closing)) => match due {
                    Due::Idle if closing.is_none() => {
                        closing = Some(Instant::now());
                        connection.as_mut().graceful_shutdown();
                    }
                    Due::Idle => return Ok(()),
                    Due::Cut => return Err(Refusal::Timeout),
                },
            }
        }
    }

    /// Ends an upgraded connection when the server stops, or when its peer reads nothing.
    async fn watch(&self, activity: &Activity, cut: &CancellationToken) -> Result<(), Refusal> {
        let outcome = tokio::select! {
            () = self.stop.cancelled() => {
                tokio::time::sleep(CLOSE_TIME).await;
                Ok(())
            }
            _ = over(activity, None) => Err(Refusal::Timeout),
        };
        cut.cancel();
        outcome
    }
}

/// The next deadline of a connection, which may be closing already.
fn next(activity: &Activity, closing: Option<Instant>) -> Option<(Instant, Due)> {
    match closing {
        Some(since) if !activity.is_answering() => {
            Some((since.max(activity.idle_since()) + CLOSE_TIME, Due::Idle))
        }
        _ => activity.deadline(),
    }
}

/// Waits until the next deadline is over, and says what it is; one that has moved meanwhile is not. A deadline comes
/// before what has changed: a peer may change others in each turn.
async fn over(activity: &Activity, closing: Option<Instant>) -> Due {
    loop {
        let deadline = next(activity, closing);
        let passed = deadline.filter(|(at, _)| *at <= Instant::now());
        if let Some((_, due)) = passed {
            return due;
        }
        tokio::select! {
            biased;
            // It may have moved before this turn came.
            () = until(deadline) => {}
            () = activity.changed() => {}
        }
    }
}

async fn until(deadline: Option<(Instant, Due)>) {
    match deadline {
        Some((at, _)) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
