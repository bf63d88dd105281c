//! Websockets (RFC 6455) behind an upgrade of HTTP/1.1.
//!
//! Frames are read and written by `tokio-tungstenite`. It reserves what a frame announces, up to its
//! limit; so the limits here are small, and the ports of the minions have a reader of their own
//! (`saltern_wire`), which answers requests and cannot send a text.
//!
//! Not here: who may open one, from which page (`Origin`), and HTTP/2 (RFC 8441): it is not
//! offered, so browsers open a connection of HTTP/1.1.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::{Role, WebSocketConfig};

pub use tungstenite::protocol::CloseFrame;
pub use tungstenite::protocol::frame::coding::CloseCode;
pub use tungstenite::{Error as WebSocketError, Message, Utf8Bytes};

/// An open websocket: a stream and a sink of messages. Pings are answered while it is read. A send
/// waits for a slow peer.
pub type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Bytes read at once; reserved for each websocket.
const READ_BUFFER: usize = 4 << 10;

/// Bytes of messages that are fed without a flush before they are written, so that many small ones
/// cost one write.
const WRITE_BUFFER: usize = 16 << 10;

/// Limits of one websocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// The payload of one frame from the peer, in bytes.
    pub frame_bytes: usize,
    /// One message from the peer, in bytes.
    pub message_bytes: usize,
    /// Bytes of our messages that wait for the peer; a message has to fit.
    pub unsent_bytes: usize,
}

impl Default for WebSocketLimits {
    /// For a peer that says little and hears much.
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 10,
            message_bytes: 64 << 10,
            unsent_bytes: 4 << 20,
        }
    }
}

/// Why a request is no upgrade to a websocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// Another method or version.
    #[error("a websocket is opened by GET over HTTP/1.1")]
    Method,
    /// The headers that ask for it are missing.
    #[error("the request has no \"connection: upgrade\" and \"upgrade: websocket\"")]
    Headers,
    /// Another version of the protocol.
    #[error("only version 13 of the websocket protocol is supported")]
    Protocol,
    /// The key is missing, or is not 16 bytes in base64.
    #[error("the header \"sec-websocket-key\" is not usable")]
    Key,
    /// The server of this request cannot hand its connection on.
    #[error("this connection cannot be upgraded")]
    Connection,
}

impl IntoResponse for UpgradeError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Headers | Self::Protocol => StatusCode::UPGRADE_REQUIRED,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Key | Self::Connection => StatusCode::BAD_REQUEST,
        };
        let mut response = (status, format!("{self}\n")).into_response();
        let headers = response.headers_mut();
        match self {
            Self::Method => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET"));
            }
            Self::Headers | Self::Protocol => {
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                let version = HeaderValue::from_static("13");
                headers.insert(header::SEC_WEBSOCKET_VERSION, version);
            }
            Self::Key | Self::Connection => {}
        }
        response
    }
}

/// A valid request for a websocket: an extractor.
#[derive(Debug)]
pub struct WebSocketUpgrade {
    key: HeaderValue,
    connection: OnUpgrade,
}

impl WebSocketUpgrade {
    /// Checks a request's head, and takes the upgrade out of it.
    ///
    /// # Errors
    /// It is not a request for a websocket, or not a valid one.
    pub fn from_parts(parts: &mut Parts) -> Result<Self, UpgradeError> {
        if parts.method != Method::GET || parts.version != Version::HTTP_11 {
            return Err(UpgradeError::Method);
        }
        let headers = &parts.headers;
        let is_asked = has_token(headers, &header::CONNECTION, "upgrade")
            && has_token(headers, &header::UPGRADE, "websocket");
        if !is_asked {
            return Err(UpgradeError::Headers);
        }
        if single(headers, &header::SEC_WEBSOCKET_VERSION) != Some(&HeaderValue::from_static("13"))
        {
            return Err(UpgradeError::Protocol);
        }
        let key = single(headers, &header::SEC_WEBSOCKET_KEY).filter(|key| is_key(key.as_bytes()));
        let key = key.cloned().ok_or(UpgradeError::Key)?;
        let connection = parts.extensions.remove();
        let connection = connection.ok_or(UpgradeError::Connection)?;
        Ok(Self { key, connection })
    }

    /// The response that opens the websocket, and the websocket, which is open once the response
    /// is sent.
    ///
    /// The websocket's task has to end when the server stops
    /// ([`Stopping`](crate::server::Stopping)); its connection is closed soon after. It is also
    /// closed when the peer reads nothing for the time of an exchange.
    pub fn accept(
        self,
        limits: &WebSocketLimits,
    ) -> (
        Response,
        impl Future<Output = Result<WebSocket, hyper::Error>> + Send + use<>,
    ) {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(WRITE_BUFFER)
            .max_write_buffer_size(limits.unsent_bytes.max(WRITE_BUFFER + 1))
            .max_message_size(Some(limits.message_bytes))
            .max_frame_size(Some(limits.frame_bytes));
        let connection = self.connection;
        let opened = async move {
            let stream = TokioIo::new(connection.await?);
            Ok(WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await)
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        let accept = derive_accept_key(self.key.as_bytes());
        let accept = HeaderValue::from_str(&accept).expect("invariant: base64 is a header value");
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        (response, opened)
    }
}

impl<S: Sync> FromRequestParts<S> for WebSocketUpgrade {
    type Rejection = UpgradeError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, UpgradeError> {
        Self::from_parts(parts)
    }
}

/// The value of a header that may come once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Whether a header that is a list has this word, in any case.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let mut tokens = values.flat_map(|value| value.split(','));
    tokens.any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// Whether these are 16 bytes in base64.
fn is_key(key: &[u8]) -> bool {
    use base64::Engine as _;
    let decoded = base64::engine::general_purpose::STANDARD.decode(key);
    decoded.is_ok_and(|decoded| decoded.len() == 16)
}
