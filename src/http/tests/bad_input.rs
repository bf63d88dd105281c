//! Requests that no client sends by mistake: each is refused or ends its connection, no second
//! request is smuggled in, and none reaches a handler twice.

use tokio::io::AsyncWriteExt;

use crate::running::{Running, rest, small, soon};

/// Request smuggled behind another, for the next hop to take for one of its own.
const HIDDEN: &str = "GET /hold HTTP/1.1\r\nhost: a\r\n\r\n";

/// Heads, the status they get (none: the connection ends without one), and why.
const FORMS: &[(&str, Option<u16>, &str)] = &[
    ("GET / HTTP/1.1\r\n\r\n", Some(400), "no host"),
    (
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        Some(400),
        "two hosts",
    ),
    (
        "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n",
        Some(400),
        "no proxy",
    ),
    ("GET / HTTP/9.9\r\nhost: a\r\n\r\n", Some(400), "version"),
    ("GET / \r\nhost: a\r\n\r\n", Some(400), "no version"),
    (
        "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
        Some(400),
        "two spaces",
    ),
    (
        "GET / HTTP/1.1\r\nhost: a\r\nx: a\r\n b\r\n\r\n",
        Some(400),
        "obs-fold",
    ),
    (
        "GET / HTTP/1.1\r\nhost : a\r\n\r\n",
        Some(400),
        "space before the colon",
    ),
    (
        "GET / HTTP/1.1\r\nhost: a\r\n x: b\r\n\r\n",
        Some(400),
        "space before a name",
    ),
    (
        "GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
        Some(400),
        "NUL in a value",
    ),
    (
        "GET / HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n",
        Some(400),
        "bare CR",
    ),
    (
        "GET / HTTP/1.1\r\nhost: a\r\n: b\r\n\r\n",
        Some(400),
        "no name",
    ),
    ("GE\tT / HTTP/1.1\r\nhost: a\r\n\r\n", Some(400), "method"),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        Some(400),
        "two lengths",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1, 1\r\n\r\nx",
        Some(400),
        "list of lengths",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +1\r\n\r\nx",
        Some(400),
        "sign",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x1\r\n\r\nx",
        Some(400),
        "hexadecimal",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        Some(400),
        "negative",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999\r\n\r\n",
        Some(400),
        "no number of 64 bits",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 104857600\r\n\r\n",
        Some(413),
        "100 MB",
    ),
    (
        "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        Some(400),
        "chunks in 1.0",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n",
        Some(400),
        "other coding",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, x\r\n\r\n0\r\n\r\n",
        Some(400),
        "chunked is not last",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        Some(400),
        "nearly chunked",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        Some(400),
        "size of a chunk",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
        Some(400),
        "bare LF after a size",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        Some(400),
        "huge chunk",
    ),
    (
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxxxxxxxxxxxxx",
        None,
        "preface without frames",
    ),
];

#[tokio::test]
async fn malformed_request_is_refused_and_ends_its_connection() {
    let server = Running::start(small());
    for (request, status, why) in FORMS {
        let mut stream = server.send(format!("{request}{HIDDEN}").as_bytes()).await;
        // Whether the server has closed it already does not matter.
        let _ = stream.shutdown().await;
        let answer = soon(rest(stream)).await;
        let expected = status.map(|status| format!("HTTP/1.1 {status} "));
        let is_right = match &expected {
            Some(start) => answer.starts_with(start) && answer.matches("HTTP/1.1").count() == 1,
            None => !answer.contains("HTTP/1.1"),
        };
        assert!(is_right, "{why}: {answer:?}");
    }
    let refused = FORMS.len() as f64;
    soon(server.reaches("saltern_http_refused_total", "test", refused)).await;
    assert_eq!(server.metric("saltern_http_refused_total", "test"), refused);
    assert_eq!(server.metric("saltern_http_requests_total", "test"), 0.0);
}

/// RFC 9112, 6.3. What another reader takes for a second request is never one here.
#[tokio::test]
async fn request_with_length_and_chunks_is_refused_and_the_last_of_its_connection() {
    let server = Running::start(small());
    let (length, chunked) = ("content-length: 6\r\n", "transfer-encoding: chunked\r\n");
    for headers in [[length, chunked], [chunked, length]] {
        let headers = headers.concat();
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{headers}\r\n0\r\n\r\n{HIDDEN}");
        let answer = soon(server.say(request.as_bytes())).await;
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{headers}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        // Behind a body it is not known where the head begins: the coding wins over the length, and
        // the connection ends with the response.
        let before = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx";
        let answer = soon(server.say(format!("{before}{request}").as_bytes())).await;
        assert_eq!(answer.matches("HTTP/1.1").count(), 2, "{headers}: {answer}");
    }
    assert_eq!(server.metric("saltern_http_requests_total", "read"), 0.0);
    assert_eq!(server.metric("saltern_http_refused_total", "broken"), 2.0);
}

#[tokio::test]
async fn ten_thousand_headers_are_refused() {
    let server = Running::start(small());
    for name in ["x", "a-name-that-fills-the-buffer-of-the-head"] {
        let many = format!("{name}: 1\r\n").repeat(10_000);
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n");
        let mut stream = server.connect().await;
        // It is cut off in the middle.
        let _ = stream.write_all(request.as_bytes()).await;
        let answer = soon(rest(stream)).await;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    soon(server.reaches("saltern_http_refused_total", "broken", 2.0)).await;
}
