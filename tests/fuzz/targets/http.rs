//! HTTP: the head of a request on a socket, and routes and bodies of the API.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_base::metrics::Registry;
use saltern_client::control::ControlError;
use saltern_client::{EventSource, ReceivedEvent};
use saltern_config::ApiDialect;
use saltern_fuzz::Fuzz;
use saltern_http::axum::Router;
use saltern_http::axum::body::Body;
use saltern_http::{HttpLimits, HttpMetrics, HttpServer, Peer, Request};
use saltern_model::control::Account;
use saltern_model::{Jid, Tag};
use saltern_netapi::{Api, Master, Sender, TokenOwner, stream};
use saltern_store::{SharedState, StoreError};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use crate::site::{clock, config};

const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Host: a\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: h2c\r\n",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"%2e%2e",
    b"?",
    b"POST ",
    b"GET ",
    b"0\r\n\r\n",
    b"Cookie: session_id=",
    b"X-Auth-Token: 0\r\n",
    b"Content-Type: application/json\r\n",
    b"Content-Type: application/x-yaml\r\n",
    b"client=local",
    b"&fun=",
    b"[{\"client\":\"local\"}]",
];

/// A master that refuses whatever the API asks.
struct Refusing;

/// A subscription without events.
struct Silent;

impl EventSource for Silent {
    fn next(&mut self) -> BoxFuture<'_, Option<ReceivedEvent>> {
        Box::pin(std::future::ready(None))
    }

    fn only(&mut self, _: &str) {}
}

impl Master for Refusing {
    fn ask(&self, _: Bytes, _: Sender) -> BoxFuture<'static, Option<Bytes>> {
        let error = Value::map([("name", "AuthorizationError"), ("message", "no")]);
        let reply = encode(&Value::map([("error", error)]), Dialect::Raw);
        Box::pin(std::future::ready(Some(reply.into())))
    }

    fn listen(&self) -> Box<dyn EventSource> {
        Box::new(Silent)
    }

    fn account(&self, _: Jid) -> BoxFuture<'static, Result<Option<Account>, ControlError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn fire(&self, _: Tag, _: Value) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(true))
    }

    fn events(&self) -> Option<Arc<dyn stream::EventSource>> {
        None
    }

    fn mint(&self) -> Jid {
        Jid::parse("20260102030405060708").unwrap()
    }

    fn revoke(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn owner_of(&self, _: &str) -> Result<Option<TokenOwner>, StoreError> {
        Ok(None)
    }
}

/// The routes of each dialect.
fn routers(root: &std::path::Path) -> Vec<Router> {
    let options =
        "saltern_api: {port: 0}\nnetapi_enable_clients: [local, local_async, runner, wheel, ssh]\n";
    let config = Arc::new(config(root, options));
    let mut server = config.net_api.servers[0].clone();
    let (registry, state) = (Registry::new(), SharedState::default());
    let api = Api::open(config, clock(), &registry, Arc::new(Refusing), &state).unwrap();
    let dialects = [ApiDialect::CherryPy, ApiDialect::Tornado, ApiDialect::Wsgi];
    dialects
        .map(|dialect| {
            server.dialect = dialect;
            api.router(&server)
        })
        .into()
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn request(first: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{first} HTTP/1.1\r\nHost: salt\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn seeds() -> Vec<Vec<u8>> {
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let json = "Content-Type: application/json\r\nAccept: application/json\r\n";
    let low = r#"[{"client": "local", "tgt": "*", "fun": "test.ping", "arg": [1], "kwarg": {"a": 1}, "token": "0a"}]"#;
    vec![
        request("GET /", "Accept: text/html\r\n", ""),
        request("POST /login", form, "username=a&password=b&eauth=pam"),
        request("POST /run", json, low),
        request(
            "POST /",
            form,
            "client=local&tgt=*&fun=test.ping&arg=1&arg=a%3D1&token=0a",
        ),
        request(
            "POST /minions",
            "Content-Type: application/x-yaml\r\n",
            "- tgt: '*'\n  fun: test.ping\n",
        ),
        request("GET /jobs/20260102030405060708", "X-Auth-Token: 0\r\n", ""),
        request(
            "GET /v1/jobs?limit=5&function=test.*",
            "Authorization: Bearer 0\r\n",
            "",
        ),
        request("POST /hook/a/b", json, r#"{"a": 1}"#),
        request("GET /stats", "", ""),
    ]
}

/// One request of the text, as far as it is one; the rest is its body.
fn parse(bytes: &[u8]) -> Option<Request<Body>> {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n")?;
    let (head, body) = bytes.split_at(end);
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let mut request = Request::builder().method(words.next()?).uri(words.next()?);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    let peer = Peer(SocketAddr::from(([127, 0, 0, 1], 1)));
    request
        .extension(peer)
        .body(Body::from(body.get(4..)?.to_vec()))
        .ok()
}

/// Routes and bodies: each request has an answer. Stock's dialects answer 500 for some mistakes of a
/// caller, so a panic alone is a fault.
#[test]
fn http_request() {
    let dir = tempfile::tempdir().unwrap();
    let routers = routers(dir.path());
    let runtime = runtime();
    Fuzz {
        name: "http_request",
        seeds: seeds(),
        words: WORDS,
        count: 3_000,
    }
    .run(|bytes| {
        for router in &routers {
            let Some(request) = parse(bytes) else {
                return;
            };
            runtime.block_on(router.clone().call(request)).unwrap();
        }
    });
}

/// The head, whose bytes a server reads: it answers, or closes, and serves the next one.
#[test]
fn http_head() {
    let dir = tempfile::tempdir().unwrap();
    let router = routers(dir.path()).remove(0);
    let (address, stop) = (([127, 0, 0, 1], 0).into(), CancellationToken::new());
    let limits = HttpLimits {
        head_bytes: 4 << 10,
        body_bytes: 8 << 10,
        ..HttpLimits::default()
    };
    let runtime = runtime();
    let server = runtime.block_on(async {
        let meters = HttpMetrics::new(&Registry::new()).of("fuzz");
        HttpServer::bind(address, None, limits, router, meters).unwrap()
    });
    let address = server.address();
    let serving = stop.clone();
    let thread = std::thread::spawn(move || runtime.block_on(server.serve(serving)));
    Fuzz {
        name: "http_head",
        seeds: seeds(),
        words: WORDS,
        count: 600,
    }
    .run(|bytes| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        // The server may close before everything is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the server neither answers nor closes");
            }
            _ => {}
        }
        let is_http2 = bytes.starts_with(b"PRI * HTTP/2.0");
        assert!(
            answer.is_empty() || is_http2 || answer.starts_with(b"HTTP/1."),
            "{answer:?}"
        );
    });
    stop.cancel();
    thread.join().unwrap().unwrap();
}
