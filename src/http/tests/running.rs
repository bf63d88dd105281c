//! A server for the tests, and its clients.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prometheus::Registry;
use saltern_http::axum::Router;
use saltern_http::axum::body::{Body, to_bytes};
use saltern_http::axum::extract::State;
use saltern_http::axum::response::IntoResponse;
use saltern_http::axum::routing::get;
use saltern_http::websocket::{WebSocket, WebSocketError, WebSocketLimits, WebSocketUpgrade};
use saltern_http::{
    HttpLimits, HttpMetrics, HttpServer, LongStream, Method, Peer, Request, Response, StatusCode,
};
use saltern_wire::port::Tls;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Timeout of what should happen at once.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Signals between the handler of `/hold` and its test.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) asked: Notify,
    pub(crate) go_on: Notify,
}

/// Echoes the body. `/panic` panics; `/hold` signals and waits; the answer of `/large` exceeds the
/// kernel's buffers; `/stream` never ends by itself, `/flood` neither, and always has more;
/// `/headers` shows what the handler knows.
fn router(echo: &Arc<Echo>) -> Router {
    Router::new()
        .route("/panic", get(panics))
        .route("/hold", get(hold))
        .route("/large", get(async || Bytes::from(vec![b'x'; 64 << 20])))
        .route("/text", get(async || "a long text ".repeat(1000)))
        .route(
            "/stream",
            get(async || long(futures_util::stream::pending())),
        )
        .route("/flood", get(async || long(flood())))
        .route("/ws", get(websocket))
        .route("/secret/{token}", get(async || "secret"))
        .fallback(body)
        .with_state(Arc::clone(echo))
}

async fn panics() -> StatusCode {
    panic!("as asked")
}

async fn hold(State(echo): State<Arc<Echo>>) -> &'static str {
    echo.asked.notify_one();
    echo.go_on.notified().await;
    "held"
}

/// 64 KiB whenever it is asked.
fn flood() -> impl futures_util::Stream<Item = Bytes> + Send + 'static {
    futures_util::stream::repeat(Bytes::from(vec![b'x'; 64 << 10]))
}

fn long(stream: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    use futures_util::StreamExt;
    let first = futures_util::stream::iter([Bytes::from_static(b"first\n")]);
    let stream = first.chain(stream).map(Ok::<_, Infallible>);
    let mut response = Body::from_stream(stream).into_response();
    response.extensions_mut().insert(LongStream);
    response
}

/// Echoes messages.
async fn websocket(upgrade: WebSocketUpgrade) -> Response<Body> {
    let (response, opened) = upgrade.accept(&WebSocketLimits::default());
    tokio::spawn(async move {
        let _ = talk(opened.await.expect("upgraded")).await;
    });
    response
}

async fn talk(mut socket: WebSocket) -> Result<(), WebSocketError> {
    use futures_util::{SinkExt, StreamExt};
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

async fn body(request: Request<Body>) -> Response<Body> {
    let peer = request.extensions().get::<Peer>().expect("a peer");
    assert!(peer.0.ip().is_loopback());
    match *request.method() {
        Method::GET => "hello".into_response(),
        Method::POST => {
            let body = to_bytes(request.into_body(), usize::MAX).await;
            body.expect("a complete body").into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) echo: Arc<Echo>,
    registry: Registry,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    pub(crate) fn start(limits: HttpLimits) -> Self {
        Self::start_with(limits, None)
    }

    pub(crate) fn start_with(limits: HttpLimits, tls: Option<Tls>) -> Self {
        let registry = Registry::new();
        let echo = Arc::new(Echo::default());
        let meters = HttpMetrics::new(&registry).of("test");
        let loopback = ([127, 0, 0, 1], 0).into();
        let server = HttpServer::bind(loopback, tls, limits, router(&echo), meters);
        let server = server.expect("a free port");
        let stop = CancellationToken::new();
        Self {
            address: server.address(),
            echo,
            registry,
            stop: stop.clone(),
            task: tokio::spawn(server.serve(stop)),
        }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }

    /// A connection on which these bytes are sent.
    pub(crate) async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.expect("written");
        stream
    }

    /// Sends these bytes and gives all that arrives until the connection ends.
    pub(crate) async fn say(&self, bytes: &[u8]) -> String {
        rest(self.send(bytes).await).await
    }

    /// A connection whose request the handler holds back until `go_on`.
    pub(crate) async fn hold(&self) -> TcpStream {
        let stream = self
            .send(b"GET /hold HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await;
        self.echo.asked.notified().await;
        stream
    }

    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.expect("a known metric").get_metric();
        let labelled = metrics
            .iter()
            .filter(|metric| metric.get_label().iter().any(|pair| pair.value() == label));
        labelled
            .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
            .sum()
    }

    pub(crate) async fn reaches(&self, name: &str, label: &str, value: f64) {
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        while self.metric(name, label) < value {
            pace.tick().await;
        }
    }

    pub(crate) async fn falls_to_zero(&self, name: &str, label: &str) {
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        while self.metric(name, label) > 0.0 {
            pace.tick().await;
        }
    }

    /// Opens this many streams, and reads the beginning of each.
    pub(crate) async fn streams(&self, number: usize) -> Vec<TcpStream> {
        let mut streams = Vec::new();
        for _ in 0..number {
            let mut stream = self.send(STREAM).await;
            soon(read_until(&mut stream, "first")).await;
            streams.push(stream);
        }
        streams
    }

    /// Stops the server, which must end within a second of tokio's clock.
    pub(crate) async fn stops_within_a_second(self) {
        let began = Instant::now();
        self.stop.cancel();
        soon(self.task).await.expect("no panic").expect("served");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

/// A request of a stream that has no end.
pub(crate) const STREAM: &[u8] = b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n";

/// Reads until the connection ends.
pub(crate) async fn rest(mut stream: impl AsyncRead + Unpin) -> String {
    let mut answer = Vec::new();
    // A connection that is reset counts as ended, too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads until a text has arrived, and gives everything up to there.
pub(crate) async fn read_until(stream: &mut (impl AsyncRead + Unpin), text: &str) -> String {
    let mut answer = String::new();
    while !answer.contains(text) {
        let byte = stream.read_u8().await.expect("more");
        answer.push(char::from(byte));
    }
    answer
}

pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TEST_TIMEOUT, future)
        .await
        .expect("soon")
}

/// Resolves a future at a paused clock that stands: it jumps when all tasks wait, also for what is still under way in
/// the kernel, and one of these never does. No timer ends in it.
pub(crate) async fn standing<F: Future>(future: F) -> F::Output {
    let watch = Watch::start();
    let busy = async {
        loop {
            tokio::task::yield_now().await;
            watch.check("what is to happen while the clock stands");
        }
    };
    tokio::select! {
        biased;
        done = future => done,
        () = busy => unreachable!("it has no end"),
    }
}

/// Turns that tasks have for bytes that their sockets have: each one looks for news of the sockets.
const TURNS: usize = 200;

/// Has the server read what was sent to it on this connection, at a paused clock that stands.
pub(crate) async fn settle(stream: &TcpStream) {
    delivered(stream);
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

/// Waits until the kernel has given the socket of the server all that was sent on this connection; no task has a
/// turn meanwhile.
pub(crate) fn delivered(stream: &TcpStream) {
    let ends = [stream.local_addr(), stream.peer_addr()].map(|address| {
        let address = address.expect("an address");
        assert!(address.ip().is_loopback() && address.is_ipv4());
        format!("0100007F:{:04X}", address.port())
    });
    let watch = Watch::start();
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
        let mut rows = table.lines().map(|line| line.split_whitespace().skip(1));
        // Local and remote address, the state, and the bytes that are not acknowledged or not read.
        let is_delivered = rows.any(|mut row| {
            ends.iter().all(|end| row.next() == Some(end))
                && row
                    .nth(1)
                    .is_some_and(|queues| queues.starts_with("00000000:"))
        });
        if is_delivered {
            return;
        }
        watch.check("the bytes of a connection");
        std::thread::yield_now();
    }
}

/// The limit of waits during which tokio's clock stands.
#[expect(
    clippy::disallowed_types,
    reason = "it goes on while tokio's clock stands"
)]
struct Watch(std::time::Instant);

impl Watch {
    #[expect(
        clippy::disallowed_types,
        reason = "it goes on while tokio's clock stands"
    )]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn check(&self, what: &str) {
        assert!(self.0.elapsed() < TEST_TIMEOUT, "waited in vain for {what}");
    }
}

/// Little room, and much time: on a busy machine a test that is not about time needs more than clients
/// are given; one that is steps the clock.
pub(crate) fn small() -> HttpLimits {
    HttpLimits {
        body_bytes: 1 << 10,
        head_time: Duration::from_secs(60),
        body_time: Duration::from_secs(60),
        exchange_time: Duration::from_secs(90),
        drain: Duration::from_secs(60),
        ..HttpLimits::default()
    }
}

pub(crate) fn post(length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST / HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}
