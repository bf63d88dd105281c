//! Tests of the HTTP server over real sockets: guarantees to handlers, and hostile peers.
//!
//! Where a deadline is to pass the clock is paused: it jumps as soon as all tasks wait, and stands before that.

use std::time::Duration;

use saltern_http::HttpLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::running::{Running, post, read_until, rest, settle, small, soon, standing};

/// A request after which the connection ends.
const LAST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn request_is_answered_and_the_connection_ends() {
    let server = Running::start(small());
    let answer = soon(server.say(LAST)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    let answer = soon(server.say(&post(4, b"body"))).await;
    assert!(answer.ends_with("\r\n\r\nbody"), "{answer}");
    let chunked =
        b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let answer = soon(server.say(chunked)).await;
    assert!(answer.ends_with("\r\n\r\nabcde"), "{answer}");
    assert_eq!(server.metric("saltern_http_requests_total", "2xx"), 3.0);
}

#[tokio::test]
async fn connection_carries_many_requests() {
    let server = Running::start(small());
    let first = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2);
    let answer = soon(server.say(&[&first, LAST].concat())).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 3, "{answer}");
    assert_eq!(server.metric("saltern_http_requests_total", "read"), 3.0);
    // HTTP/1.0 without its own word for it.
    let answer = soon(server.say(b"GET / HTTP/1.0\r\n\r\n")).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_without_a_refusal() {
    let server = Running::start(small());
    let began = tokio::time::Instant::now();
    let mut stream = standing(server.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    standing(read_until(&mut stream, "hello")).await;
    assert_eq!(rest(stream).await, "");
    let kept = began.elapsed();
    assert!(kept >= small().idle_time, "{kept:?}");
    assert!(kept < small().idle_time * 2, "{kept:?}");
    assert_eq!(server.metric("saltern_http_refused_total", "test"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn slow_head_of_a_second_request_is_cut_off() {
    let server = Running::start(small());
    let mut stream = standing(server.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    standing(read_until(&mut stream, "hello")).await;
    let began = tokio::time::Instant::now();
    stream.write_all(b"GET / HT").await.expect("written");
    settle(&stream).await;
    assert_eq!(rest(stream).await, "");
    assert!(began.elapsed() < small().head_time * 2);
    assert_eq!(server.metric("saltern_http_refused_total", "timeout"), 1.0);
}

#[tokio::test]
async fn response_names_the_request() {
    let server = Running::start(small());
    let answer = soon(server.say(LAST)).await;
    assert!(answer.contains("\r\nx-request-id: "), "{answer}");
    let given = b"GET / HTTP/1.1\r\nhost: a\r\nx-request-id: my-1\r\nconnection: close\r\n\r\n";
    let answer = soon(server.say(given)).await;
    assert!(answer.contains("\r\nx-request-id: my-1\r\n"), "{answer}");
}

#[tokio::test]
async fn response_is_packed_if_the_client_takes_it() {
    let server = Running::start(small());
    let get = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n");
        format!("{head}accept-encoding: gzip\r\n\r\n")
    };
    let answer = soon(server.say(get("/text").as_bytes())).await;
    assert!(answer.contains("content-encoding: gzip"), "{answer}");
    assert!(answer.len() < 1000, "{answer}");
    let mut stream = server.send(get("/stream").as_bytes()).await;
    let head = read_until(&mut stream, "first").await;
    assert!(!head.contains("content-encoding"), "{head}");
}

#[tokio::test]
async fn requests_over_the_limit_are_refused() {
    let limits = HttpLimits {
        requests: 1,
        ..small()
    };
    let server = Running::start(limits);
    let held = soon(server.hold()).await;
    let answer = soon(server.say(LAST)).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    server.echo.go_on.notify_one();
    assert!(soon(rest(held)).await.ends_with("held"));
    assert_eq!(server.metric("saltern_http_refused_total", "requests"), 1.0);
    let answer = soon(server.say(LAST)).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn slow_handler_is_answered_with_503() {
    let server = Running::start(small());
    let held = standing(server.hold()).await;
    assert!(rest(held).await.starts_with("HTTP/1.1 503 "));
    assert_eq!(server.metric("saltern_http_refused_total", "timeout"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn body_that_does_not_come_is_refused_before_the_exchange_ends() {
    let limits = HttpLimits {
        exchange_time: Duration::from_secs(3600),
        ..small()
    };
    let server = Running::start(limits);
    let began = tokio::time::Instant::now();
    let stream = standing(server.send(&post(100, b"{"))).await;
    settle(&stream).await;
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(began.elapsed() < limits.body_time * 2);
    assert_eq!(server.metric("saltern_http_refused_total", "timeout"), 1.0);
}

#[tokio::test]
async fn handler_panic_is_answered_with_500() {
    let server = Running::start(small());
    let answer =
        soon(server.say(b"GET /panic HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    let answer = soon(server.say(LAST)).await;
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
    // Only the end of a body is waited for by a request, which is answered.
    let began: [(&[u8], &str); 3] = [
        (b"", ""),
        (b"GET / HTTP/1.1\r\nx: ", ""),
        (&post(8, b"half"), "HTTP/1.1 408"),
    ];
    for (times, (bytes, expected)) in (1..).zip(began) {
        let stream = standing(server.send(bytes)).await;
        settle(&stream).await;
        let answer = rest(stream).await;
        let status: String = answer.chars().take(12).collect();
        assert_eq!(status, expected, "{bytes:?}: {answer}");
        server
            .reaches("saltern_http_refused_total", "timeout", f64::from(times))
            .await;
    }
    server
        .falls_to_zero("saltern_http_connections", "test")
        .await;
}

#[tokio::test(start_paused = true)]
async fn peer_that_does_not_read_its_answer_is_cut_off() {
    let server = Running::start(small());
    let began = tokio::time::Instant::now();
    let stream = standing(server.send(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    settle(&stream).await;
    server
        .reaches("saltern_http_refused_total", "timeout", 1.0)
        .await;
    // The deadline of the exchange, not the earlier one of its head.
    assert!(began.elapsed() >= small().exchange_time);
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
    let answer = soon(server.say(LAST)).await;
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
        let mut stream = server.send(LAST).await;
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
    let stream = standing(server.hold()).await;
    server.stop.cancel();
    server.task.await.expect("no panic").expect("served");
    assert_eq!(rest(stream).await, "");
}
