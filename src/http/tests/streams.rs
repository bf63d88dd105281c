//! Long streams: they have no deadline but a reader, and hold up no stopping server.

use std::time::Duration;

use saltern_http::HttpLimits;

use crate::http2::Http2;
use crate::running::{Running, STREAM, delivered, read_until, rest, settle, small, soon, standing};

/// Open streams of the test below, for each version.
const STREAMS: usize = 500;

fn many() -> HttpLimits {
    HttpLimits {
        connections: 2 * STREAMS,
        per_address: 2 * STREAMS,
        requests: 8,
        http2_streams: 100,
        drain: Duration::from_secs(20),
        ..small()
    }
}

#[tokio::test]
async fn stopping_server_is_gone_within_a_second_with_500_streams() {
    let server = Running::start(many());
    let streams = server.streams(STREAMS).await;
    let open = server.metric("saltern_http_streams", "test");
    assert_eq!(open, STREAMS as f64);
    // What counts is what the server waits for, not how busy the machine is.
    tokio::time::pause();
    server.stops_within_a_second().await;
    // Each ended in order: with the last chunk.
    for stream in streams {
        let end = soon(rest(stream)).await;
        assert!(end.ends_with("0\r\n\r\n"), "{end:?}");
    }
}

#[tokio::test]
async fn stopping_server_is_gone_within_a_second_with_500_streams_over_http2() {
    let server = Running::start(many());
    let mut connections = Vec::new();
    for _ in 0..5 {
        let client = Http2::connect(&server).await;
        let mut bodies = Vec::new();
        for _ in 0..100 {
            let mut body = soon(client.get("/stream")).await.into_body();
            assert_eq!(soon(client.piece(&mut body)).await, "first\n");
            bodies.push(body);
        }
        connections.push((client, bodies));
    }
    assert_eq!(server.metric("saltern_http_streams", "test"), 500.0);
    // What counts is what the server waits for, not how busy the machine is.
    tokio::time::pause();
    server.stops_within_a_second().await;
}

/// Nobody reads: the stream's producer always has more, and is not asked for it.
#[tokio::test]
async fn stopping_server_cuts_off_a_stream_that_is_not_read() {
    let server = Running::start(many());
    let mut stream = server.send(b"GET /flood HTTP/1.1\r\nhost: a\r\n\r\n").await;
    read_until(&mut stream, "first").await;
    // What counts is what the server waits for, not how busy the machine is.
    tokio::time::pause();
    server.stops_within_a_second().await;
}

#[tokio::test(start_paused = true)]
async fn stream_that_is_not_read_is_cut_off() {
    let server = Running::start(small());
    let stream = standing(server.send(b"GET /flood HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    settle(&stream).await;
    assert_eq!(server.metric("saltern_http_streams", "test"), 1.0);
    server
        .reaches("saltern_http_refused_total", "timeout", 1.0)
        .await;
    assert_eq!(server.metric("saltern_http_streams", "test"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn stream_has_no_deadline() {
    let server = Running::start(small());
    let mut stream = standing(server.send(STREAM)).await;
    standing(read_until(&mut stream, "first")).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(server.metric("saltern_http_streams", "test"), 1.0);
    drop(stream);
    server.falls_to_zero("saltern_http_streams", "test").await;
    assert_eq!(server.metric("saltern_http_refused_total", "test"), 0.0);
}

/// A busy machine gives the connection no turn between the arrival of a request and the end of the time for it.
#[tokio::test]
async fn request_that_came_in_time_is_answered_by_a_late_turn() {
    for _ in 0..20 {
        let server = Running::start(small());
        let mut stream = server.connect().await;
        server
            .reaches("saltern_http_connections", "test", 1.0)
            .await;
        stream.writable().await.expect("writable");
        tokio::time::pause();
        let sent = stream.try_write(STREAM).expect("written");
        assert_eq!(sent, STREAM.len());
        delivered(&stream);
        tokio::time::advance(small().head_time).await;
        read_until(&mut stream, "first").await;
        tokio::task::yield_now().await;
        assert_eq!(server.metric("saltern_http_streams", "test"), 1.0);
        assert_eq!(server.metric("saltern_http_refused_total", "test"), 0.0);
        tokio::time::resume();
    }
}

/// A stream gives its place among the requests back.
#[tokio::test]
async fn open_stream_is_no_running_request() {
    let limits = HttpLimits {
        requests: 1,
        ..small()
    };
    let server = Running::start(limits);
    let _streams = server.streams(3).await;
    assert_eq!(server.metric("saltern_http_streams", "test"), 3.0);
}
