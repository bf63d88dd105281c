//! Tests of the HTTP server over real sockets: guarantees to handlers, and hostile peers.
//!
//! Where a deadline is to pass the clock is paused: it jumps as soon as all tasks wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use prometheus::Registry;
use saltern_http::{
    Handler, HttpLimits, HttpMetrics, HttpServer, Method, Request, Response, StatusCode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Timeout of what should happen at once.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Echoes the body. `/panic` panics; `/hold` signals and waits; the answer of `/large` exceeds the
/// kernel's buffers.
#[derive(Default)]
struct Echo {
    asked: Notify,
    go_on: Notify,
}

impl Handler for Echo {
    fn answer(&self, request: Request<Bytes>, peer: SocketAddr) -> BoxFuture<'_, Response<Bytes>> {
        async move {
            assert!(peer.ip().is_loopback());
            match (request.method(), request.uri().path()) {
                (_, "/panic") => panic!("as asked"),
                (_, "/hold") => {
                    self.asked.notify_one();
                    self.go_on.notified().await;
                    Response::new(Bytes::from_static(b"held"))
                }
                (_, "/large") => Response::new(Bytes::from(vec![b'x'; 64 << 20])),
                (&Method::GET, _) => Response::new(Bytes::from_static(b"hello")),
                (&Method::POST, _) => Response::new(request.into_body()),
                _ => {
                    let mut answer = Response::new(Bytes::new());
                    *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
                    answer
                }
            }
        }
        .boxed()
    }
}

struct Running {
    address: SocketAddr,
    echo: Arc<Echo>,
    registry: Registry,
    stop: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    fn start(limits: HttpLimits) -> Self {
        let registry = Registry::new();
        let echo = Arc::new(Echo::default());
        let meters = HttpMetrics::new(&registry).of("test");
        let loopback = ([127, 0, 0, 1], 0).into();
        let server =
            HttpServer::bind(loopback, None, limits, echo.clone(), meters).expect("a free port");
        let stop = CancellationToken::new();
        Self {
            address: server.address(),
            echo,
            registry,
            stop: stop.clone(),
            task: tokio::spawn(server.serve(stop)),
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }

    /// A connection on which these bytes are sent.
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.expect("written");
        stream
    }

    /// Sends these bytes and gives all that arrives until the connection ends.
    async fn say(&self, bytes: &[u8]) -> String {
        rest(self.send(bytes).await).await
    }

    /// A connection whose request the handler holds back until `go_on`.
    async fn hold(&self) -> TcpStream {
        let stream = self.send(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await;
        self.echo.asked.notified().await;
        stream
    }

    fn metric(&self, name: &str, label: &str) -> f64 {
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

    async fn reaches(&self, name: &str, label: &str, value: f64) {
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        while self.metric(name, label) < value {
            pace.tick().await;
        }
    }
}

/// Reads until the connection ends.
async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A connection that is reset counts as ended, too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TEST_TIMEOUT, future)
        .await
        .expect("soon")
}

fn small() -> HttpLimits {
    HttpLimits {
        body_bytes: 1 << 10,
        ..HttpLimits::default()
    }
}

fn post(length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nhost: here\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn request_is_answered_and_the_connection_ends() {
    let server = Running::start(small());
    let answer = soon(server.say(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    let answer = soon(server.say(&post(4, b"body"))).await;
    assert!(answer.ends_with("\r\n\r\nbody"), "{answer}");
    let chunked = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let answer = soon(server.say(chunked)).await;
    assert!(answer.ends_with("\r\n\r\nabcde"), "{answer}");
    assert_eq!(server.metric("saltern_http_requests_total", "2xx"), 3.0);
}

#[tokio::test]
async fn second_request_on_a_connection_is_ignored() {
    let server = Running::start(small());
    let twice = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2);
    let answer = soon(server.say(&twice)).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
}

#[tokio::test]
async fn handler_panic_is_answered_with_500() {
    let server = Running::start(small());
    let answer = soon(server.say(b"GET /panic HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    let answer = soon(server.say(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn body_over_the_limit_is_refused_announced_or_not() {
    let server = Running::start(small());
    // Announced: refused before any of it is read.
    let answer = soon(server.say(&post(1 << 40, b"x"))).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // Sent in chunks, whose sum is not announced.
    let mut chunked = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..64 {
        chunked.extend_from_slice(b"40\r\n");
        chunked.extend_from_slice(&[b'x'; 0x40]);
        chunked.extend_from_slice(b"\r\n");
    }
    let answer = soon(server.say(&chunked)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // Sent as a whole, and still the answer arrives before the connection ends.
    let answer = soon(server.say(&post(200_000, &vec![b'x'; 200_000]))).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    server
        .reaches("saltern_http_refused_total", "body_size", 3.0)
        .await;
}

#[tokio::test]
async fn head_over_the_limit_is_refused() {
    let server = Running::start(small());
    let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(9 << 10));
    let answer = soon(server.say(long.as_bytes())).await;
    assert!(!answer.contains(" 200 "), "{answer}");
    let many = (0..100).map(|n| format!("h{n}: v\r\n")).collect::<String>();
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n");
    let answer = soon(server.say(many.as_bytes())).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    soon(server.reaches("saltern_http_refused_total", "broken", 2.0)).await;
}

#[tokio::test]
async fn malformed_request_does_not_reach_the_handler() {
    let server = Running::start(small());
    let garbage: [&[u8]; 6] = [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ];
    for bytes in garbage {
        let mut stream = server.send(bytes).await;
        stream.shutdown().await.expect("closed");
        let answer = soon(rest(stream)).await;
        assert!(!answer.contains(" 200 "), "{bytes:?}: {answer}");
    }
    soon(server.reaches("saltern_http_refused_total", "broken", 6.0)).await;
    assert_eq!(server.metric("saltern_http_requests_total", "2xx"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn slow_or_silent_peers_are_cut_off() {
    let server = Running::start(small());
    let began: [&[u8]; 3] = [b"", b"GET / HTTP/1.1\r\nx: ", &post(8, b"half")];
    for (times, bytes) in (1..).zip(began) {
        let answer = server.say(bytes).await;
        assert!(!answer.contains(" 200 "), "{bytes:?}: {answer}");
        server
            .reaches("saltern_http_refused_total", "timeout", f64::from(times))
            .await;
    }
    assert_eq!(server.metric("saltern_http_connections", "test"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn peer_that_does_not_read_its_answer_is_cut_off() {
    let server = Running::start(small());
    let _stream = server.send(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
    server
        .reaches("saltern_http_refused_total", "timeout", 1.0)
        .await;
}

#[tokio::test]
async fn connections_over_the_limit_are_refused() {
    let limits = HttpLimits {
        connections: 2,
        ..small()
    };
    let server = Running::start(limits);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(soon(server.hold()).await);
    }
    assert_eq!(soon(rest(server.connect().await)).await, "");
    soon(server.reaches("saltern_http_refused_total", "connections", 1.0)).await;
    for stream in held {
        server.echo.go_on.notify_one();
        assert!(soon(rest(stream)).await.ends_with("held"));
    }
    // The server notices a moment later that they are gone.
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    while server.metric("saltern_http_connections", "test") > 0.0 {
        soon(pace.tick()).await;
    }
    let answer = soon(server.say(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn lingering_connections_hold_no_slot_and_end_soon() {
    let limits = HttpLimits {
        connections: 2,
        per_address: 2,
        exchange_time: Duration::from_secs(3600),
        ..small()
    };
    let server = Running::start(limits);
    let mut lingering = Vec::new();
    for _ in 0..8 {
        let mut stream = server.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut answer = String::new();
        soon(stream.read_to_string(&mut answer))
            .await
            .expect("an answer");
        assert!(answer.ends_with("hello"), "{answer}");
        // It has its answer, and stays.
        lingering.push(stream);
    }
    for mut stream in lingering {
        // What is sent to a connection that is closed is refused by the kernel.
        let closed = async {
            let mut pace = tokio::time::interval(Duration::from_millis(10));
            while stream.write_all(b"x").await.is_ok() {
                pace.tick().await;
            }
        };
        soon(closed).await;
    }
}

#[tokio::test]
async fn stopping_server_finishes_running_exchanges() {
    let server = Running::start(small());
    let stream = soon(server.hold()).await;
    server.stop.cancel();
    let refused = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    soon(refused).await;
    server.echo.go_on.notify_one();
    assert!(soon(rest(stream)).await.ends_with("held"));
    soon(server.task).await.expect("no panic").expect("served");
}

#[tokio::test(start_paused = true)]
async fn stopping_server_cuts_off_after_its_drain_time() {
    let server = Running::start(small());
    let stream = server.hold().await;
    server.stop.cancel();
    server.task.await.expect("no panic").expect("served");
    assert_eq!(rest(stream).await, "");
}
