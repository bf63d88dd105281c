//! Tests of the exporter with a fake collector.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use actix::System;
use saltern_base::clock::Clock;
use saltern_base::trace::{Kind, Sampler};
use saltern_http::client::Tls;
use serde_json::Value;

use super::*;

/// Answers as many requests as there are statuses; gives their heads and bodies.
fn collector(statuses: &'static [u16]) -> (String, JoinHandle<Vec<(String, Value)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let answer = |status: &u16| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert_ne!(reader.read_line(&mut head).unwrap(), 0);
            }
            // Names of headers have no case.
            head.make_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length = length.split("\r\n").next().unwrap().parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n{{}}"
            )
            .unwrap();
            (head, serde_json::from_slice(&body).unwrap())
        };
        statuses.iter().map(answer).collect()
    });
    (url, answering)
}

fn exporter(url: String) -> TraceExporter {
    let registry = Registry::new();
    let clock = Clock::manual(std::time::UNIX_EPOCH + Duration::from_secs(1));
    TraceExporter::build(&Seed {
        tracer: Tracer::new(Sampler::AlwaysOn, clock, &registry),
        destination: Arc::new(Destination {
            url,
            headers: vec![("X-Key".to_owned(), "let me in".to_owned())],
            tls: Tls {
                verify: true,
                ca_bundle: None,
            },
            timeout: Duration::from_secs(60),
            resource: vec![("service.name".to_owned(), "master".to_owned())],
        }),
        metrics: ExporterMetrics::new(&registry),
    })
}

#[test]
fn spans_are_sent_as_otlp_has_them() {
    let (url, collector) = collector(&[200]);
    let mut exporter = exporter(url);
    let mut span = exporter
        .seed
        .tracer
        .begin("salt.req.recv", Kind::Server, None)
        .unwrap();
    span.set("salt.req.cmd", "publish");
    let context = span.place().context().clone();
    drop(span);
    exporter.send_some(Duration::from_secs(60));
    let requests = collector.join().unwrap();
    let [(head, body)] = requests.as_slice() else {
        panic!("one request");
    };
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("x-key: let me in\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/json\r\n"),
        "{head}"
    );
    let sent = &body["resourceSpans"][0];
    let resource = &sent["resource"]["attributes"][0];
    assert_eq!(resource["value"]["stringValue"], "master");
    let span = &sent["scopeSpans"][0]["spans"][0];
    let expected = serde_json::json!({
        "traceId": format!("{:032x}", context.trace()),
        "spanId": format!("{:016x}", context.span()),
        "parentSpanId": "",
        "traceState": "",
        "name": "salt.req.recv",
        "kind": 2,
        "startTimeUnixNano": "1000000000",
        "endTimeUnixNano": "1000000000",
        "attributes": [{"key": "salt.req.cmd", "value": {"stringValue": "publish"}}],
    });
    assert_eq!(*span, expected);
}

#[test]
fn batch_not_taken_is_retried_and_a_refused_one_dropped() {
    let (url, collector) = collector(&[503, 200, 400]);
    let mut exporter = exporter(url);
    let end_one = |exporter: &TraceExporter, name: &str| {
        drop(exporter.seed.tracer.begin(name, Kind::Server, None));
    };
    end_one(&exporter, "first");
    exporter.send_some(Duration::from_secs(60));
    assert_eq!(exporter.waiting.len(), 1);
    exporter.send_some(Duration::from_secs(60));
    end_one(&exporter, "second");
    exporter.send_some(Duration::from_secs(60));
    assert!(exporter.waiting.is_empty());
    assert_eq!(exporter.seed.metrics.0.get(), 2);
    let names: Vec<Value> = collector
        .join()
        .unwrap()
        .iter()
        .map(|(_, body)| body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"].clone())
        .collect();
    assert_eq!(names, ["first", "first", "second"]);
}

#[test]
fn unreachable_collector_delays_no_stop() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    let mut exporter = exporter(url);
    drop(exporter.seed.tracer.begin("x", Kind::Server, None));
    exporter.send_some(Duration::from_secs(60));
    assert_eq!(exporter.waiting.len(), 1);
}

#[test]
fn many_spans_leave_within_one_interval() {
    const MANY: usize = 8 * BATCH + 1;
    let (url, collector) = collector(&[200; 9]);
    let exporter = exporter(url);
    let tracer = exporter.seed.tracer.clone();
    for _ in 0..MANY {
        drop(tracer.begin("x", Kind::Server, None));
    }
    System::new().block_on(async {
        tokio::time::pause();
        exporter.start();
        tokio::time::sleep(EXPORT_INTERVAL + EXPORT_INTERVAL / 2).await;
    });
    assert!(tracer.take(1).is_empty(), "all have left");
    let sent = |(_, body): &(String, Value)| {
        let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.as_array().unwrap().len()
    };
    let sent: usize = collector.join().unwrap().iter().map(sent).sum();
    assert_eq!(sent, MANY);
}

#[test]
fn silent_collector_is_reported_as_such() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let mut exporter = exporter(url);
    drop(exporter.seed.tracer.begin("x", Kind::Server, None));
    exporter.waiting = exporter.seed.tracer.take(BATCH);
    let error = exporter.send(Duration::from_millis(50)).unwrap_err();
    assert!(chain(&error).contains("timed out"), "{error}");
}
