//! Websockets: which requests open one, its bounds, and its end when the server stops.

use futures_util::{SinkExt, StreamExt};
use saltern_http::websocket::{Message, WebSocketLimits};
use saltern_stock::tls::Identity;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::running::{Running, small, soon};
use crate::tls::{Files, connect};

async fn open<S>(stream: S) -> WebSocketStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (socket, response) = client_async("ws://here/ws", stream)
        .await
        .expect("a websocket");
    assert_eq!(response.status(), 101);
    socket
}

async fn echoes<S>(socket: &mut WebSocketStream<S>, text: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    socket.send(Message::text(text)).await.expect("sent");
    let message = socket.next().await.expect("a message").expect("no error");
    assert_eq!(message, Message::text(text));
}

#[tokio::test]
async fn messages_are_echoed_and_the_connection_is_counted() {
    let server = Running::start(small());
    let mut socket = soon(open(server.connect().await)).await;
    soon(echoes(&mut socket, "hello")).await;
    soon(echoes(&mut socket, &"long ".repeat(3000))).await;
    assert_eq!(server.metric("saltern_http_streams", "test"), 1.0);
    assert_eq!(server.metric("saltern_http_connections", "test"), 1.0);
    assert_eq!(server.metric("saltern_http_requests_total", "1xx"), 1.0);
    socket.close(None).await.expect("closed");
    while let Some(Ok(_)) = soon(socket.next()).await {}
    soon(server.falls_to_zero("saltern_http_connections", "test")).await;
    assert_eq!(server.metric("saltern_http_streams", "test"), 0.0);
}

#[tokio::test]
async fn websocket_opens_within_tls() {
    let identity = Identity::new();
    let files = Files::new(&identity);
    let server = Running::start_with(small(), Some(files.tls()));
    let stream = soon(connect(&server, &identity, b"http/1.1"))
        .await
        .expect("TLS");
    let mut socket = soon(open(stream)).await;
    soon(echoes(&mut socket, "hello")).await;
}

#[tokio::test]
async fn frames_and_messages_over_the_limit_end_the_websocket() {
    let server = Running::start(small());
    let limits = WebSocketLimits::default();
    let frame = vec![Message::binary(vec![0; limits.frame_bytes + 1])];
    let part = |code, is_final| {
        use tungstenite::protocol::frame::coding::{Data, OpCode};
        let data = vec![0_u8; limits.frame_bytes];
        let code = if code { Data::Binary } else { Data::Continue };
        let frame =
            tungstenite::protocol::frame::Frame::message(data, OpCode::Data(code), is_final);
        Message::Frame(frame)
    };
    let parts = limits.message_bytes / limits.frame_bytes + 1;
    let message = (0..parts).map(|n| part(n == 0, n + 1 == parts)).collect();
    for messages in [frame, message] {
        let mut socket = soon(open(server.connect().await)).await;
        for message in messages {
            // It is closed in the middle, perhaps.
            let _ = soon(socket.send(message)).await;
        }
        while let Some(Ok(message)) = soon(socket.next()).await {
            assert!(!message.is_binary(), "{message:?}");
        }
    }
}

#[tokio::test]
async fn stopping_server_ends_its_websockets() {
    let server = Running::start(small());
    let mut sockets = Vec::new();
    for _ in 0..10 {
        let mut socket = soon(open(server.connect().await)).await;
        soon(echoes(&mut socket, "hello")).await;
        sockets.push(socket);
    }
    server.stops_within_a_second().await;
}

/// Headers of the request, and the status of the response.
const UPGRADES: [(&str, u16); 9] = [
    (
        "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        101,
    ),
    (
        "upgrade: WebSocket\r\nconnection: keep-alive, Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        101,
    ),
    ("", 426),
    (
        "connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        426,
    ),
    (
        "upgrade: h2c\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        426,
    ),
    (
        "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 8\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        426,
    ),
    (
        "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n",
        400,
    ),
    (
        "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: c2hvcnQ=\r\n",
        400,
    ),
    (
        "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        400,
    ),
];

#[tokio::test]
async fn only_a_valid_request_opens_a_websocket() {
    let server = Running::start(small());
    for (headers, status) in UPGRADES {
        let request = format!("GET /ws HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
        let mut stream = server.send(request.as_bytes()).await;
        let head = soon(crate::running::read_until(&mut stream, "\r\n\r\n")).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(head.starts_with(&expected), "{headers}: {head}");
        if status == 101 {
            // The example of RFC 6455, 1.3.
            assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        }
    }
}
