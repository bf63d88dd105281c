//! A small HTTP client: one GET with its redirects, or one POST, and a bounded response.
//!
//! It is here because a client crate would bring a second TLS library: this one is on the `openssl`
//! that the workspace has, blocks, keeps no connection and no cookies, and speaks HTTP/1.1 only.
//! Credentials and the site's headers are sent to the configured server, not to a redirect's
//! target.
//!
//! Longer than 500 lines because the steps of one exchange share its bounds and its deadline.

mod url;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::{GzDecoder, ZlibDecoder};
use openssl::ssl::{HandshakeError, SslConnector, SslMethod, SslVerifyMode};
use tokio::time::Instant;

use url::Url;

/// Maximum number of redirects, as in stock's client.
const REDIRECTS: usize = 5;
/// The most names that are being resolved at once, abandoned ones included.
const MOST_RESOLVING: usize = 32;
/// The most bytes of the status line and all headers.
const HEADERS: u64 = 64 << 10;

/// A name and a password as they are sent. They cannot be printed.
pub struct Credentials(String);

impl Credentials {
    /// Makes them ready to be sent.
    pub fn new(name: &str, password: &str) -> Self {
        Self(STANDARD.encode(format!("{name}:{password}")))
    }
}

/// Verification of a server's certificate.
pub struct Tls {
    /// Whether the certificate is verified.
    pub verify: bool,
    /// Certificates to trust in the place of the system's.
    pub ca_bundle: Option<PathBuf>,
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
    /// Body of a POST; `None` for a GET. It is not sent to the target of a redirect.
    pub body: Option<Body<'a>>,
    /// For everything, redirects included.
    pub time: Duration,
    /// For each address of the server.
    pub connect_time: Duration,
    /// Bytes of the answer, unpacked.
    pub largest: u64,
}

/// Body of a POST.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    /// Its media type.
    pub kind: &'static str,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Why there is no answer. Texts have the host, but neither path nor credentials.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The URL cannot be asked.
    #[error("the URL is not of the form http://host/path")]
    Url,
    /// A header cannot be sent.
    #[error("the header \"{0}\" has letters that a header cannot have")]
    Header(String),
    /// The server is not found or the connection breaks.
    #[error("cannot ask \"{host}\": {error}")]
    Io {
        /// Which server.
        host: String,
        /// Why.
        error: io::Error,
    },
    /// The server's certificate cannot be verified.
    #[error("no TLS with \"{host}\": {error}")]
    Tls {
        /// Which server.
        host: String,
        /// Why.
        error: String,
    },
    /// What came is no answer.
    #[error("\"{host}\" gave no HTTP answer: {problem}")]
    FetchResponse {
        /// Which server.
        host: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The answer is an error.
    #[error("\"{host}\" answered with the status {status}")]
    Status {
        /// Which server.
        host: String,
        /// Its status.
        status: u16,
    },
    /// Each server names another one.
    #[error("more than {REDIRECTS} redirects")]
    Redirects,
    /// The answer is too long.
    #[error("the answer of \"{host}\" has more than {largest} bytes")]
    TooLarge {
        /// Which server.
        host: String,
        /// The bound, in bytes.
        largest: u64,
    },
}

/// The body of a successful answer. Blocks until it is there or the time is up.
///
/// # Errors
/// There is none.
pub fn ask(request: &Request<'_>) -> Result<Vec<u8>, WebError> {
    let deadline = Instant::now() + request.time;
    let first = Url::parse(request.url).ok_or(WebError::Url)?;
    let mut url = first.clone();
    for _ in 0..=REDIRECTS {
        match ask_one(request, &url, url.is_same_server(&first), deadline)? {
            FetchResponse::Body(body) => return Ok(body),
            FetchResponse::Moved(_) if request.body.is_some() => return Err(WebError::Redirects),
            FetchResponse::Moved(to) => url = url.joined(&to).ok_or(WebError::Url)?,
        }
    }
    Err(WebError::Redirects)
}

enum FetchResponse {
    Body(Vec<u8>),
    Moved(String),
}

impl Url {
    fn failed(&self, error: io::Error) -> WebError {
        WebError::Io {
            host: self.host.clone(),
            error,
        }
    }

    fn wrong(&self, problem: &'static str) -> WebError {
        WebError::FetchResponse {
            host: self.host.clone(),
            problem,
        }
    }
}

/// A connection that is given only so much time in all.
struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer).map_err(in_time)
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer).map_err(in_time)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Turns the error of a socket whose timeout has passed, `WouldBlock`, into `TimedOut`.
fn in_time(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

fn ask_one(
    request: &Request<'_>,
    url: &Url,
    is_asked: bool,
    deadline: Instant,
) -> Result<FetchResponse, WebError> {
    let connection = connect(request, url, deadline)?;
    let head = head(request, url, is_asked)?;
    if url.secure {
        converse(request, url, secured(request.tls, url, connection)?, &head)
    } else {
        converse(request, url, connection, &head)
    }
}

fn connect(request: &Request<'_>, url: &Url, deadline: Instant) -> Result<Timed, WebError> {
    let addresses = addresses(url, deadline).map_err(|error| url.failed(error))?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = left.min(request.connect_time);
        if time.is_zero() {
            last = io::ErrorKind::TimedOut.into();
            break;
        }
        match TcpStream::connect_timeout(&address, time) {
            Ok(stream) => return Ok(Timed { stream, deadline }),
            Err(error) => last = error,
        }
    }
    Err(url.failed(last))
}

/// The addresses of a server. The system's resolver has no timeout, so it runs on a thread that
/// is abandoned at the deadline. There are at most `MOST_RESOLVING` such threads.
fn addresses(url: &Url, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    static RESOLVING: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            RESOLVING.fetch_sub(1, Ordering::Relaxed);
        }
    }
    if let Ok(address) = url.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, url.port)]);
    }
    let before = RESOLVING.fetch_add(1, Ordering::Relaxed);
    let counted = Counted;
    if before >= MOST_RESOLVING {
        return Err(io::Error::other("too many names are being resolved"));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let (host, port) = (url.host.clone(), url.port);
    thread::Builder::new()
        .name("saltern-resolve".to_owned())
        .spawn(move || {
            let _counted = counted;
            let found = (host.as_str(), port).to_socket_addrs();
            // The caller may have given up.
            let _ = sender.send(found.map(Iterator::collect));
        })?;
    let left = deadline.saturating_duration_since(Instant::now());
    receiver
        .recv_timeout(left)
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn secured(tls: &Tls, url: &Url, connection: Timed) -> Result<impl Read + Write, WebError> {
    let failed = |error: String| WebError::Tls {
        host: url.host.clone(),
        error,
    };
    let mut builder = SslConnector::builder(SslMethod::tls_client())
        .map_err(|error| failed(error.to_string()))?;
    if let Some(bundle) = &tls.ca_bundle {
        builder
            .set_ca_file(bundle)
            .map_err(|error| failed(error.to_string()))?;
    }
    if !tls.verify {
        builder.set_verify(SslVerifyMode::NONE);
    }
    let mut options = builder
        .build()
        .configure()
        .map_err(|error| failed(error.to_string()))?;
    options.set_verify_hostname(tls.verify);
    options.connect(&url.host, connection).map_err(|error| {
        failed(match error {
            HandshakeError::SetupFailure(error) => error.to_string(),
            HandshakeError::Failure(stream) | HandshakeError::WouldBlock(stream) => {
                stream.error().to_string()
            }
        })
    })
}

/// The text of the request. Only the server that `is_asked` by the site, and none that it redirects
/// to, gets what may be secret: the headers of the site and its credentials. HTTP/1.0 answers without a length end with the connection.
fn head(request: &Request<'_>, url: &Url, is_asked: bool) -> Result<String, WebError> {
    let method = if request.body.is_some() {
        "POST"
    } else {
        "GET"
    };
    let mut head = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nUser-Agent: Saltern\r\n",
        url.path,
        url.authority()
    );
    let (headers, credentials) = match is_asked {
        true => (request.headers, request.credentials),
        false => (&[][..], None),
    };
    for (name, value) in headers {
        let is_name = |letter: char| letter.is_ascii_graphic() && letter != ':';
        if name.is_empty() || !name.chars().all(is_name) || value.contains(['\r', '\n', '\0']) {
            return Err(WebError::Header(name.clone()));
        }
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(Credentials(encoded)) = credentials {
        head.push_str(&format!("Authorization: Basic {encoded}\r\n"));
    }
    if let Some(Body { kind, bytes }) = &request.body {
        let length = bytes.len();
        head.push_str(&format!(
            "Content-Type: {kind}\r\nContent-Length: {length}\r\n"
        ));
    }
    head.push_str("\r\n");
    Ok(head)
}

/// Parsed headers of a response.
#[derive(Default)]
struct Headers {
    length: Option<u64>,
    chunked: bool,
    coding: Option<String>,
    location: Option<String>,
}

fn converse(
    request: &Request<'_>,
    url: &Url,
    mut connection: impl Read + Write,
    head: &str,
) -> Result<FetchResponse, WebError> {
    connection
        .write_all(head.as_bytes())
        .and_then(|()| connection.write_all(request.body.map_or(&[], |body| body.bytes)))
        .and_then(|()| connection.flush())
        .map_err(|error| url.failed(error))?;
    let mut reader = BufReader::new(connection);
    let mut limited = (&mut reader).take(HEADERS);
    let (status, headers) = loop {
        let (status, headers) = read_head(&mut limited, url)?;
        // "100 Continue" and its like come before the answer.
        if !(100..200).contains(&status) {
            break (status, headers);
        }
    };
    match (status, headers.location.clone()) {
        (200..=299, _) => {}
        (301 | 302 | 303 | 307 | 308, Some(to)) => return Ok(FetchResponse::Moved(to)),
        (status, _) => {
            let host = url.host.clone();
            return Err(WebError::Status { host, status });
        }
    }
    let body = body(&mut reader, &headers, request, url)?;
    let unpacked = match headers.coding.as_deref() {
        Some("gzip") => limited_read(GzDecoder::new(body.as_slice()), request, url)?,
        Some("deflate") => limited_read(ZlibDecoder::new(body.as_slice()), request, url)?,
        _ => body,
    };
    Ok(FetchResponse::Body(unpacked))
}

fn read_head(reader: &mut impl BufRead, url: &Url) -> Result<(u16, Headers), WebError> {
    let status = line(reader, url)?;
    let status = status
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| url.wrong("the first line is no status"))?;
    let mut headers = Headers::default();
    loop {
        let line = line(reader, url)?;
        if line.is_empty() {
            return Ok((status, headers));
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(url.wrong("a header has no colon"));
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let length = value.parse();
                headers.length = Some(length.map_err(|_| url.wrong("the length is no number"))?);
            }
            "transfer-encoding" => {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(url.wrong("the transfer encoding is unknown"));
                }
                headers.chunked = true;
            }
            "content-encoding" => headers.coding = Some(value.to_ascii_lowercase()),
            "location" => headers.location = Some(value.to_owned()),
            _ => {}
        }
    }
}

/// A line without its end.
fn line(reader: &mut impl BufRead, url: &Url) -> Result<String, WebError> {
    let mut line = Vec::new();
    reader
        .read_until(b'\n', &mut line)
        .map_err(|error| url.failed(error))?;
    if line.pop() != Some(b'\n') {
        return Err(url.wrong("a line does not end"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| url.wrong("a line is not text"))
}

fn body(
    reader: &mut impl BufRead,
    headers: &Headers,
    request: &Request<'_>,
    url: &Url,
) -> Result<Vec<u8>, WebError> {
    if headers.chunked {
        return chunks(reader, request, url);
    }
    let Some(length) = headers.length else {
        return limited_read(reader, request, url);
    };
    let body = limited_read(reader.take(length), request, url)?;
    if body.len() as u64 != length {
        return Err(url.wrong("the answer ends too early"));
    }
    Ok(body)
}

fn chunks(
    reader: &mut impl BufRead,
    request: &Request<'_>,
    url: &Url,
) -> Result<Vec<u8>, WebError> {
    let mut body = Vec::new();
    loop {
        let size = line(&mut reader.take(HEADERS), url)?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| url.wrong("a chunk has no size"))?;
        if size == 0 {
            return Ok(body);
        }
        if size > request.largest.saturating_sub(body.len() as u64) {
            return Err(too_large(request, url));
        }
        let before = body.len() as u64;
        reader
            .take(size)
            .read_to_end(&mut body)
            .map_err(|error| url.failed(error))?;
        if body.len() as u64 != before + size || !line(&mut reader.take(HEADERS), url)?.is_empty() {
            return Err(url.wrong("a chunk is not as long as it says"));
        }
    }
}

/// Reads to the end, or to the bound.
fn limited_read(reader: impl Read, request: &Request<'_>, url: &Url) -> Result<Vec<u8>, WebError> {
    let mut body = Vec::new();
    reader
        .take(request.largest.saturating_add(1))
        .read_to_end(&mut body)
        .map_err(|error| url.failed(error))?;
    if body.len() as u64 > request.largest {
        return Err(too_large(request, url));
    }
    Ok(body)
}

fn too_large(request: &Request<'_>, url: &Url) -> WebError {
    WebError::TooLarge {
        host: url.host.clone(),
        largest: request.largest,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Credentials, Request, Tls, Url, head};

    #[test]
    fn redirect_to_another_server_drops_credentials() {
        let headers = [("X-Token".to_owned(), "secret".to_owned())];
        let credentials = Credentials::new("name", "word");
        let request = Request {
            url: "https://a/x",
            headers: &headers,
            credentials: Some(&credentials),
            body: None,
            tls: &Tls {
                verify: true,
                ca_bundle: None,
            },
            time: Duration::from_secs(1),
            connect_time: Duration::from_secs(1),
            largest: 1,
        };
        let first = Url::parse(request.url).expect("a URL");
        for (to, expected) in [
            ("https://a/y", true),
            ("/z", true),
            ("http://a/y", false),
            ("https://a:444/y", false),
            ("https://b/y", false),
        ] {
            let url = first.joined(to).expect("a URL");
            let text = head(&request, &url, url.is_same_server(&first)).expect("a head");
            assert_eq!(text.contains("X-Token: secret\r\n"), expected, "{to}");
            assert_eq!(text.contains("Authorization: "), expected, "{to}");
        }
    }
}
