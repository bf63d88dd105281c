//! HTTP/2 on the same port: by its preface without TLS, and by ALPN within.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use saltern_http::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::running::{Running, small, soon, standing};

/// One connection of a client.
pub(crate) struct Http2(SendRequest<Full<Bytes>>);

impl Http2 {
    pub(crate) async fn connect(server: &Running) -> Self {
        Self::over(server.connect().await).await
    }

    pub(crate) async fn over<S>(stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let made = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = made.expect("a handshake");
        tokio::spawn(connection);
        Self(sender)
    }

    pub(crate) async fn ask(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let mut sender = self.0.clone();
        sender.ready().await?;
        sender.send_request(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response<Incoming> {
        self.ask(request(Method::GET, path, Bytes::new()))
            .await
            .expect("a response")
    }

    /// The next piece of a body.
    pub(crate) async fn piece(&self, body: &mut Incoming) -> Bytes {
        let frame = body.frame().await.expect("a frame").expect("no error");
        frame.into_data().expect("data")
    }
}

fn request(method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = format!("http://here{path}").parse().expect("a URI");
    request
}

#[tokio::test]
async fn requests_of_one_connection_are_answered_side_by_side() {
    let server = Running::start(small());
    let client = Http2::connect(&server).await;
    let held = client.get("/hold");
    let other = async {
        server.echo.asked.notified().await;
        let response = client.get("/").await;
        let body = response.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), "hello");
        server.echo.go_on.notify_one();
    };
    let (held, ()) = soon(async { tokio::join!(held, other) }).await;
    assert_eq!(held.status(), StatusCode::OK);
    assert_eq!(server.metric("saltern_http_connections", "test"), 1.0);
}

#[tokio::test]
async fn body_over_the_limit_is_refused() {
    let server = Running::start(small());
    let client = Http2::connect(&server).await;
    let long = Bytes::from(vec![b'x'; 200_000]);
    let response = soon(client.ask(request(Method::POST, "/", long))).await;
    let status = response.expect("a response").status();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // The connection goes on.
    let short = soon(client.ask(request(Method::POST, "/", "body".into()))).await;
    let body = short.expect("a response").into_body().collect().await;
    assert_eq!(body.expect("a body").to_bytes(), "body");
}

#[tokio::test]
async fn long_or_many_headers_are_refused() {
    let server = Running::start(small());
    let client = Http2::connect(&server).await;
    let mut many = request(Method::GET, "/", Bytes::new());
    for _ in 0..100 {
        let value = saltern_http::header::HeaderValue::from_static("1");
        many.headers_mut().append("x", value);
    }
    let mut long = request(Method::GET, "/", Bytes::new());
    let value = "x".repeat(9 << 10).parse().expect("a value");
    long.headers_mut().insert("x", value);
    for request in [many, long] {
        let status = soon(client.ask(request))
            .await
            .expect("a response")
            .status();
        assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed() {
    let server = Running::start(small());
    let client = standing(Http2::connect(&server)).await;
    assert_eq!(standing(client.get("/")).await.status(), StatusCode::OK);
    let mut pace = tokio::time::interval(std::time::Duration::from_secs(1));
    while server.metric("saltern_http_connections", "test") > 0.0 {
        pace.tick().await;
    }
    assert_eq!(server.metric("saltern_http_refused_total", "test"), 0.0);
}

/// Its peer announces no room, and so no piece of the response is taken.
#[tokio::test(start_paused = true)]
async fn response_that_is_not_read_is_cut_off() {
    let server = Running::start(small());
    let client = standing(Http2::connect(&server)).await;
    let _unread = standing(client.get("/large")).await;
    server
        .reaches("saltern_http_refused_total", "timeout", 1.0)
        .await;
}
