//! HTTP client: one GET with its redirects, or one POST, and a bounded response.
//!
//! `ureq` speaks HTTP/1.1. What is decided here: one deadline for everything, redirects included; a
//! bound on the response, unpacked; no proxy and no password taken from the environment or a URL;
//! credentials and headers of the caller go to the server that it named, and to no target of a
//! redirect. It blocks: callers have a thread for it. No connection is kept between calls.

mod resolver;
mod tls;
mod url;

use std::error::Error as StdError;
use std::io::{self, Read};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::{GzDecoder, ZlibDecoder};
use tokio::time::Instant;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use ureq::unversioned::transport::{Connector, TcpConnector};
use ureq::{Agent, Body};

use resolver::BoundedResolver;
pub use tls::Tls;
use tls::TlsConnector;

/// Maximum number of redirects, as in stock's client.
const MAX_REDIRECTS: usize = 5;
/// Maximum bytes of the status line and all headers.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// A name and a password as they are sent. They cannot be printed.
pub struct Credentials(String);

impl Credentials {
    /// Encodes them as HTTP Basic authentication has them.
    pub fn new(name: &str, password: &str) -> Self {
        Self(format!(
            "Basic {}",
            STANDARD.encode(format!("{name}:{password}"))
        ))
    }
}

/// A request, and its bounds.
pub struct Request<'a> {
    /// Of the form `http://host/path` or `https://host/path`.
    pub url: &'a str,
    /// Further headers.
    pub headers: &'a [(String, String)],
    /// The client's credentials, if the server needs any.
    pub credentials: Option<&'a Credentials>,
    /// See [`Tls`].
    pub tls: &'a Tls,
    /// Body of a POST; `None` for a GET. A redirected POST is an error.
    pub body: Option<PostBody<'a>>,
    /// For everything, redirects included.
    pub time: Duration,
    /// For each connection, its handshake included.
    pub connect_time: Duration,
    /// Maximum bytes of the response, unpacked.
    pub max_response_bytes: u64,
}

/// Body of a POST.
#[derive(Clone, Copy)]
pub struct PostBody<'a> {
    /// Its media type.
    pub kind: &'static str,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Why there is no response. Texts have the host, but neither path nor credentials.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL cannot be requested.
    #[error("the URL is not of the form http://host/path")]
    Url,
    /// A header cannot be sent.
    #[error("the header \"{0}\" has letters that a header cannot have")]
    Header(String),
    /// The server is not found, not to be trusted, silent, or sends no HTTP response.
    #[error("no response from \"{host}\"")]
    Exchange {
        /// The server.
        host: String,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The response has the status of an error.
    #[error("\"{host}\" answered with the status {status}")]
    Status {
        /// The server.
        host: String,
        /// Its status.
        status: u16,
    },
    /// Each server names another one, or a POST is redirected.
    #[error("more than {MAX_REDIRECTS} redirects, or one of a POST")]
    Redirects,
    /// The response is too long.
    #[error("the response of \"{host}\" has more than {max} bytes")]
    TooLarge {
        /// The server.
        host: String,
        /// The bound, in bytes.
        max: u64,
    },
}

/// The body of a successful response. Blocks until it is there or the time is up.
///
/// # Errors
/// There is none.
pub fn fetch(request: &Request<'_>) -> Result<Vec<u8>, ClientError> {
    let deadline = Instant::now() + request.time;
    let agent = agent(request);
    let first = url::parse(request.url).ok_or(ClientError::Url)?;
    let mut url = first.clone();
    for _ in 0..=MAX_REDIRECTS {
        let headers = headers(request, url::server(&url) == url::server(&first))?;
        let time = deadline.saturating_duration_since(Instant::now());
        let response =
            send(&agent, request, &url, headers, time).map_err(|error| failed(&url, error))?;
        let location = response.headers().get(header::LOCATION);
        match (response.status(), location) {
            (status, _) if status.is_success() => return body(request, &url, response),
            (status, Some(_)) if is_redirect(status) && request.body.is_some() => {
                return Err(ClientError::Redirects);
            }
            (status, Some(to)) if is_redirect(status) => {
                let to = std::str::from_utf8(to.as_bytes()).ok();
                let joined = to.and_then(|to| url::joined(&url, to));
                url = joined.ok_or(ClientError::Url)?;
            }
            (status, _) => {
                return Err(ClientError::Status {
                    host: host(&url),
                    status: status.as_u16(),
                });
            }
        }
    }
    Err(ClientError::Redirects)
}

fn agent(request: &Request<'_>) -> Agent {
    let config = Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_response_header_size(MAX_HEADER_BYTES)
        .timeout_connect(Some(request.connect_time))
        .user_agent("Saltern")
        .build();
    let connector = ().chain(TcpConnector::default()).chain(TlsConnector(request.tls.clone()));
    Agent::with_parts(config, connector, BoundedResolver)
}

/// Headers of one request. Only the server that the caller named, and no target of a redirect, gets
/// what may be secret.
fn headers(request: &Request<'_>, is_named: bool) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Some(PostBody { kind, .. }) = request.body {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    if !is_named {
        return Ok(headers);
    }
    let own = request.headers.iter();
    let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
    let credentials = request.credentials.map(|given| given.0.as_str());
    let credentials = credentials.map(|value| (header::AUTHORIZATION.as_str(), value));
    for (name, value) in own.chain(credentials) {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
        let value = HeaderValue::from_bytes(value.as_bytes()).ok();
        let (Some(parsed), Some(mut value)) = (parsed, value) else {
            return Err(ClientError::Header(name.to_owned()));
        };
        value.set_sensitive(true);
        headers.append(parsed, value);
    }
    Ok(headers)
}

fn send(
    agent: &Agent,
    request: &Request<'_>,
    url: &Uri,
    headers: HeaderMap,
    time: Duration,
) -> Result<Response<Body>, ureq::Error> {
    let mut head = ureq::http::Request::new(());
    *head.uri_mut() = url.clone();
    *head.headers_mut() = headers;
    match request.body {
        None => {
            let timed = agent.configure_request(head).timeout_global(Some(time));
            agent.run(timed.build())
        }
        Some(PostBody { bytes, .. }) => {
            *head.method_mut() = Method::POST;
            let whole = agent.configure_request(head.map(|()| bytes));
            agent.run(whole.timeout_global(Some(time)).build())
        }
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Reads the body and unpacks it; a server may pack what was not requested packed.
fn body(
    request: &Request<'_>,
    url: &Uri,
    response: Response<Body>,
) -> Result<Vec<u8>, ClientError> {
    let coding = response.headers().get(header::CONTENT_ENCODING).cloned();
    let limited = response.into_body().into_with_config();
    let body = limited.limit(request.max_response_bytes).read_to_vec();
    let body = body.map_err(|error| failed(url, error))?;
    let coding = coding.map(|coding| coding.as_bytes().to_ascii_lowercase());
    match coding.as_deref() {
        Some(b"gzip") => unpacked(request, url, GzDecoder::new(body.as_slice())),
        Some(b"deflate") => unpacked(request, url, ZlibDecoder::new(body.as_slice())),
        _ => Ok(body),
    }
}

fn unpacked(request: &Request<'_>, url: &Uri, packed: impl Read) -> Result<Vec<u8>, ClientError> {
    let max = request.max_response_bytes;
    let mut body = Vec::new();
    let read = packed.take(max.saturating_add(1)).read_to_end(&mut body);
    read.map_err(|error| failed(url, error.into()))?;
    match body.len() as u64 > max {
        true => Err(failed(url, ureq::Error::BodyExceedsLimit(max))),
        false => Ok(body),
    }
}

fn host(url: &Uri) -> String {
    url::bare_host(url).to_owned()
}

/// None of the texts of `ureq` that is kept has the URL in it.
fn failed(url: &Uri, error: ureq::Error) -> ClientError {
    let host = host(url);
    let source: Box<dyn StdError + Send + Sync> = match error {
        ureq::Error::BadUri(_) => return ClientError::Url,
        ureq::Error::BodyExceedsLimit(max) => return ClientError::TooLarge { host, max },
        ureq::Error::Timeout(_) => Box::new(io::Error::from(io::ErrorKind::TimedOut)),
        ureq::Error::Io(source) => Box::new(source),
        ureq::Error::Other(source) => source,
        error => Box::new(error),
    };
    ClientError::Exchange { host, source }
}
