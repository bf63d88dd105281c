//! Tests of the HTTP client with servers of this process, some of them hostile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::read::{GzEncoder, ZlibEncoder};
use proptest::prelude::*;
use saltern_base::chain;
use saltern_http::client::{ClientError, Credentials, PostBody, Request, Tls, fetch};
use saltern_stock::tls::Identity;

/// Timeout of what should happen at once.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A server that answers each connection by the path of its request.
struct Server {
    url: String,
    heads: Receiver<String>,
}

impl Server {
    fn start(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        Self::with(move |head, stream| {
            // A client that has hung up is not this thread's concern.
            let _ = stream.write_all(&answer(head.split(' ').nth(1).unwrap()));
        })
    }

    /// `answer` gets the head of the request and the connection.
    fn with(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, heads) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
                let _ = sender.send(head.to_ascii_lowercase());
                answer(&head, &mut stream);
            }
        });
        Self { url, heads }
    }

    fn fetch(&self, path: &str, max_response_bytes: u64) -> Result<Vec<u8>, ClientError> {
        let url = format!("{}{path}", self.url);
        fetch(&Request {
            max_response_bytes,
            ..get(&url)
        })
    }
}

static SYSTEM: Tls = Tls {
    verify: true,
    ca_bundle: None,
};

fn get(url: &str) -> Request<'_> {
    Request {
        url,
        headers: &[],
        credentials: None,
        tls: &SYSTEM,
        body: None,
        time: TEST_TIMEOUT,
        connect_time: TEST_TIMEOUT,
        max_response_bytes: 1 << 10,
    }
}

fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn moved(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

#[test]
fn redirect_to_another_server_drops_credentials() {
    let other = Server::start(|_| ok("", b"there"));
    let there = format!("{}/", other.url);
    let named = Server::start(move |path| match path {
        "/away" => moved(&there),
        "/near" => moved("here"),
        _ => ok("", b"here"),
    });
    let headers = [("X-Token".to_owned(), "secret".to_owned())];
    let credentials = Credentials::new("name", "word");
    let has_secrets = |head: &str| {
        let header = head.contains("x-token: secret\r\n");
        let credentials = head.contains("authorization: basic bmftztp3b3jk\r\n");
        assert_eq!(header, credentials, "{head}");
        header
    };
    for (path, last, expected) in [("/near", &named, true), ("/away", &other, false)] {
        let url = format!("{}{path}", named.url);
        let request = Request {
            headers: &headers,
            credentials: Some(&credentials),
            ..get(&url)
        };
        fetch(&request).unwrap();
        assert!(has_secrets(&named.heads.recv().unwrap()), "{path}");
        assert_eq!(has_secrets(&last.heads.recv().unwrap()), expected, "{path}");
    }
}

#[test]
fn redirects_are_bounded_and_a_post_has_none() {
    let server = Server::start(|path| match path {
        "/loop" => moved("/loop"),
        "/once" => moved("/end"),
        _ => ok("", b"end"),
    });
    let error = server.fetch("/loop", 10).unwrap_err();
    assert!(matches!(error, ClientError::Redirects), "{error:?}");
    assert_eq!(server.heads.try_iter().count(), 6);
    let url = format!("{}/once", server.url);
    let body = PostBody {
        kind: "text/plain",
        bytes: b"",
    };
    let post = Request {
        body: Some(body),
        ..get(&url)
    };
    let error = fetch(&post).unwrap_err();
    assert!(matches!(error, ClientError::Redirects), "{error:?}");
    assert_eq!(server.heads.try_iter().count(), 1);
}

#[test]
fn post_is_sent_as_a_whole() {
    let (sender, sent) = channel();
    let server = Server::with(move |head, stream| {
        // Nothing of the body is read before: it does not fit into one packet.
        let length = head.to_ascii_lowercase();
        let length = length.split("content-length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        stream.write_all(&ok("", b"{}")).unwrap();
        sender.send((head.to_ascii_lowercase(), length)).unwrap();
    });
    let bytes = vec![b'x'; 1 << 10];
    let body = PostBody {
        kind: "application/json",
        bytes: &bytes,
    };
    let request = Request {
        body: Some(body),
        ..get(&server.url)
    };
    assert_eq!(fetch(&request).unwrap(), b"{}");
    let (head, length) = sent.recv().unwrap();
    assert!(head.starts_with("post / http/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/json\r\n"),
        "{head}"
    );
    assert_eq!(length, bytes.len());
}

#[test]
fn response_over_the_limit_is_refused() {
    let mut bomb = Vec::new();
    GzEncoder::new(&[0; 1 << 20][..], Compression::best())
        .read_to_end(&mut bomb)
        .unwrap();
    let server = Server::start(move |path| match path {
        "/length" => ok("", b"12345"),
        "/chunks" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n123\r\n\
                       2\r\n45\r\n0\r\n\r\n"
            .to_vec(),
        "/close" => b"HTTP/1.0 200 OK\r\n\r\n12345".to_vec(),
        "/header" => ok(&format!("X: {}\r\n", "x".repeat(1 << 20)), b""),
        _ => ok("Content-Encoding: gzip\r\n", &bomb),
    });
    for path in ["/length", "/chunks", "/close"] {
        assert_eq!(server.fetch(path, 5).unwrap(), b"12345", "{path}");
        let error = server.fetch(path, 4).unwrap_err();
        assert!(matches!(error, ClientError::TooLarge { .. }), "{error:?}");
    }
    let error = server.fetch("/bomb", 1 << 19).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }), "{error:?}");
    let error = server.fetch("/header", 10).unwrap_err();
    assert!(chain(&error).contains("header is too big"), "{error:?}");
}

#[test]
fn packed_response_is_unpacked() {
    let server = Server::start(|path| {
        let mut packed = Vec::new();
        let (coding, read) = match path {
            "/gzip" => (
                "gzip",
                GzEncoder::new(&b"text"[..], Compression::fast()).read_to_end(&mut packed),
            ),
            _ => (
                "deflate",
                ZlibEncoder::new(&b"text"[..], Compression::fast()).read_to_end(&mut packed),
            ),
        };
        read.unwrap();
        ok(&format!("Content-Encoding: {coding}\r\n"), &packed)
    });
    for path in ["/gzip", "/deflate"] {
        assert_eq!(server.fetch(path, 100).unwrap(), b"text", "{path}");
    }
}

#[test]
fn interim_responses_are_skipped() {
    let server = Server::start(|_| {
        let early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
        [early.to_vec(), ok("", b"late")].concat()
    });
    assert_eq!(server.fetch("/", 10).unwrap(), b"late");
}

#[test]
fn response_cut_short_is_an_error() {
    let server = Server::start(|path| match path {
        "/length" => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12345".to_vec(),
        "/chunks" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n12345".to_vec(),
        "/head" => b"HTTP/1.1 200 OK\r\nContent-".to_vec(),
        "/garbage" => b"220 mail.example.com ESMTP\r\n\r\n".to_vec(),
        _ => Vec::new(),
    });
    for path in ["/length", "/chunks", "/head", "/garbage", "/nothing"] {
        server.fetch(path, 100).expect_err(path);
    }
}

/// Parts of responses, of which a hostile server may send any, in any order.
fn parts() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 302 Found\r\n",
        "HTTP/1.1 100 X\r\n\r\n",
        "Content-Length: 3\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Encoding: gzip\r\n",
        "Location: ://\r\n",
        "\r\n",
        "3\r\nabc\r\n",
        "ffffffffffffffff\r\n",
        "0\r\n",
        ";",
    ];
    let known = prop::sample::select(known.map(|part| part.as_bytes().to_vec()).to_vec());
    prop_oneof![4 => known, 1 => prop::collection::vec(any::<u8>(), 0..9)]
}

/// The bytes of a response go from the test to its server through this.
type Script = Arc<parking_lot::Mutex<Vec<u8>>>;

#[test]
fn whatever_a_server_sends_ends_in_bounds() {
    let script = Script::default();
    let sent = Arc::clone(&script);
    let server = Server::start(move |_| sent.lock().clone());
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    };
    proptest!(config, |(parts in prop::collection::vec(parts(), 0..8))| {
        *script.lock() = parts.concat();
        if let Ok(body) = server.fetch("/", 16) {
            prop_assert!(body.len() <= 16);
        }
    });
}

#[test]
fn time_is_for_the_whole_exchange() {
    let server = Server::with(|_, stream| {
        // Each byte comes in time, all of them do not.
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        let mut sent = stream.write_all(head);
        while sent.is_ok() {
            thread::sleep(Duration::from_millis(1));
            sent = stream.write_all(b"x");
        }
    });
    let request = Request {
        time: Duration::from_millis(50),
        max_response_bytes: 1 << 30,
        ..get(&server.url)
    };
    let error = fetch(&request).unwrap_err();
    assert!(chain(&error).contains("timed out"), "{error:?}");
}

#[test]
fn errors_name_the_host_and_no_secret() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let server = Server::start(|_| b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".to_vec());
    let headers = [("X-Token".to_owned(), "letmein".to_owned())];
    let odd = [("X-Token".to_owned(), "letmein\n".to_owned())];
    let credentials = Credentials::new("name", "letmein");
    for (url, headers, expected) in [
        (format!("http://{address}/letmein"), &headers, "127.0.0.1"),
        (format!("{}/letmein", server.url), &headers, "403"),
        (format!("https://{address}/letmein"), &headers, "127.0.0.1"),
        ("http://name:letmein@a/".to_owned(), &headers, "URL"),
        ("http://a/letmein\n".to_owned(), &headers, "URL"),
        (format!("{}/", server.url), &odd, "X-Token"),
    ] {
        let request = Request {
            headers,
            credentials: Some(&credentials),
            ..get(&url)
        };
        let error = fetch(&request).unwrap_err();
        let text = format!("{} {error:?}", chain(&error));
        assert!(text.contains(expected), "{url}: {text}");
        assert!(!text.contains("letmein"), "{url}: {text}");
    }
}

/// Runs itself once more, with a proxy in the environment.
#[test]
fn proxy_of_the_environment_is_not_used() {
    const NAME: &str = "client::proxy_of_the_environment_is_not_used";
    let server = Server::start(|_| ok("", b"direct"));
    if std::env::var_os("ALL_PROXY").is_some() {
        assert_eq!(server.fetch("/", 10).unwrap(), b"direct");
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env("ALL_PROXY", "http://127.0.0.1:1/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

/// Whether TLS is why there is no response.
fn is_of_tls(error: &ClientError) -> bool {
    let text = chain(error);
    let texts = ["certificate", "corrupt message", "cannot read"];
    texts.iter().any(|part| text.contains(part))
}

#[test]
fn certificate_is_trusted_by_the_bundle_alone() {
    let top = tempfile::tempdir().unwrap();
    let pem = |name: &str, identity: &Identity| {
        let path = top.path().join(name);
        std::fs::write(&path, identity.certificate_pem()).unwrap();
        Some(path)
    };
    let (leaf, authority, other) = (
        Identity::new(),
        Identity::authority(),
        Identity::authority(),
    );
    let expired = Identity::expired_authority();
    let bundles = [
        pem("leaf", &leaf),
        pem("authority", &authority),
        pem("expired", &expired),
    ];
    let [of_leaf, of_authority, of_expired] = bundles;
    let of_other = pem("other", &other);
    let [leaf, authority, expired] = [leaf, authority, expired].map(|it| it.serve("sealed"));
    let missing = Some(top.path().join("missing"));
    let cases = [
        ("127.0.0.1", leaf, &of_leaf, true),
        ("127.0.0.1", authority, &of_authority, true),
        ("localhost", leaf, &of_leaf, false),
        ("localhost", authority, &of_authority, false),
        ("127.0.0.1", expired, &of_expired, false),
        ("127.0.0.1", authority, &of_other, false),
        ("127.0.0.1", authority, &missing, false),
        ("127.0.0.1", authority, &None, false),
    ];
    for (host, port, bundle, is_trusted) in cases {
        let url = format!("https://{host}:{port}/");
        for verify in [true, false] {
            let tls = Tls {
                verify,
                ca_bundle: bundle.clone(),
            };
            let fetched = fetch(&Request {
                tls: &tls,
                ..get(&url)
            });
            match &fetched {
                Ok(body) => assert_eq!(body, b"sealed"),
                Err(error) if is_of_tls(error) => {}
                Err(error) => panic!("{}", chain(error)),
            }
            let is_fetched = fetched.is_ok();
            assert_eq!(is_fetched, is_trusted || !verify, "{url} {bundle:?}");
        }
    }
}

#[test]
fn server_without_tls_gets_no_request() {
    const CLIENT_HELLO: u8 = 0x16;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        stream.write_all(&ok("", b"open")).unwrap();
        first
    });
    let error = fetch(&get(&url)).unwrap_err();
    assert!(is_of_tls(&error), "{error:?}");
    assert_eq!(server.join().unwrap(), [CLIENT_HELLO]);
}
