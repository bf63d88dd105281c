//! Tests of the event sockets as local programs see them.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use saltern_actors::{Master, StartError};
use saltern_model::Compat;
use saltern_wire::ipc::{EventFrame, Framing};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::site::{Listener, Site};
use crate::{in_system, until};

fn event(tag: &str, number: i64) -> EventFrame {
    let data = Value::map([("n", Value::from(number))]);
    EventFrame::new(tag, &encode(&data, Dialect::Bin))
}

async fn fire(site: &Site, bytes: &[u8]) -> UnixStream {
    let mut sender = UnixStream::connect(site.socket("master_event_pull.ipc"))
        .await
        .unwrap();
    sender.write_all(bytes).await.unwrap();
    sender
}

#[test]
fn modes_are_those_of_each_stock_release() {
    let table = [
        ("salt_compat: 3006\n", 0o600, 0o750),
        (
            "salt_compat: 3006\npublisher_acl:\n  bob:\n  - .*\n",
            0o660,
            0o751,
        ),
        ("salt_compat: 3007\n", 0o660, 0o750),
        ("salt_compat: 3008\n", 0o660, 0o750),
    ];
    for (options, publish, directory) in table {
        in_system(async {
            let site = Site::new(options);
            let sock_dir = site.path().join("sock");
            std::fs::create_dir_all(&sock_dir).unwrap();
            std::fs::set_permissions(&sock_dir, PermissionsExt::from_mode(0o750)).unwrap();
            let running = site.start();
            let mode = |name: &str| {
                let path = sock_dir.join(name);
                std::fs::metadata(path).unwrap().permissions().mode() & 0o777
            };
            assert_eq!(mode("master_event_pub.ipc"), publish, "{options}");
            for name in ["master_event_pull.ipc", "publish_pull.ipc", "workers.ipc"] {
                assert_eq!(mode(name), 0o600, "{options}{name}");
            }
            assert_eq!(mode("saltern_control.ipc"), 0o600);
            assert_eq!(mode(""), directory, "{options}");
            running.master.shutdown().await;
        });
    }
}

#[test]
fn sockets_of_a_running_master_are_not_replaced() {
    in_system(async {
        let site = Site::new("");
        let running = site.start();
        let second = Master::start(site.parts(&Arc::new(site.config())));
        assert!(matches!(second, Err(StartError::Socket(_))));
        let mut listener = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let _sender = fire(&site, &event("t", 1).bytes(Framing::Bare)).await;
        listener.wait_for("t").await;
        running.master.shutdown().await;
    });
}

#[test]
fn each_stock_release_gets_its_framing() {
    let table = [
        ("salt_compat: 3006\n", Compat::V3006, Framing::Prefixed),
        ("salt_compat: 3007\n", Compat::V3007, Framing::Bare),
        ("salt_compat: 3008\n", Compat::V3008, Framing::Bare),
    ];
    for (options, compat, framing) in table {
        in_system(async {
            let site = Site::new(options);
            let running = site.start();
            assert_eq!(running.config.salt_compat, compat);
            let mut listener = UnixStream::connect(site.socket("master_event_pub.ipc"))
                .await
                .unwrap();
            // Both forms are understood on the way in, whatever goes out.
            for (number, form) in [(1, Framing::Bare), (2, Framing::Prefixed)] {
                let frame = event("local/thing", number);
                let _sender = fire(&site, &frame.bytes(form)).await;
                let expected = frame.bytes(framing);
                let mut found = vec![0; expected.len()];
                listener.read_exact(&mut found).await.unwrap();
                assert_eq!(found, expected, "{options}");
            }
            running.master.shutdown().await;
        });
    }
}

#[test]
fn connected_subscriber_gets_the_next_event() {
    in_system(async {
        let site = Site::new("");
        let running = site.start();
        let mut sender = UnixStream::connect(site.socket("master_event_pull.ipc"))
            .await
            .unwrap();
        let path = site.socket("master_event_pub.ipc");
        for number in 0..200 {
            let mut listener = Listener::connect(&path).await.unwrap();
            let frame = event("next", number).bytes(Framing::Prefixed);
            sender.write_all(&frame).await.unwrap();
            let (_, data) = listener.next().await.unwrap();
            assert_eq!(data.get("n").and_then(Value::as_i64), Some(number));
        }
        running.master.shutdown().await;
    });
}

#[test]
fn malformed_input_harms_its_own_connection_only() {
    in_system(async {
        let site = Site::new("");
        let running = site.start();
        let mut listener = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let huge = [0x7f_u8, 0xff, 0xff, 0xff, 0x82];
        let no_map = EventFrame::new("t", b"\x01").bytes(Framing::Bare);
        let no_tag = EventFrame::new("", b"\x80").bytes(Framing::Bare);
        // Bytes, and whether they end the connection.
        let table: [(&[u8], bool); 6] = [
            (&huge, true),
            (b"GET / HTTP/1.0\r\n\r\n", true),
            (b"\x82\xc1\xc1\xc1\xc1", true),
            (b"\x82\xa4head\x80\xa4body\xc0", true),
            (&no_map, false),
            (&no_tag, false),
        ];
        for (bytes, ends) in table {
            let mut sender = fire(&site, bytes).await;
            if ends {
                let end = sender.read(&mut [0]).await;
                assert!(matches!(end, Ok(0) | Err(_)), "{bytes:?}");
            } else {
                // The same connection goes on.
                let frame = event("after", 1).bytes(Framing::Bare);
                sender.write_all(&frame).await.unwrap();
                listener.wait_for("after").await;
            }
        }
        // Half a frame, and gone.
        drop(fire(&site, b"\x82\xa4he").await);
        let _sender = fire(&site, &event("last", 1).bytes(Framing::Bare)).await;
        listener.wait_for("last").await;
        running.master.shutdown().await;
    });
}

#[test]
fn connections_are_bounded_and_counted() {
    in_system(async {
        let site = Site::new("saltern_max_connections: 4\n");
        let running = site.start();
        let sockets = [
            ("master_event_pub.ipc", "pub", "saltern_bus_subscribers"),
            ("master_event_pull.ipc", "pull", "saltern_bus_senders"),
        ];
        for (name, label, gauge) in sockets {
            let mut open = Vec::new();
            for _ in 0..20 {
                open.push(UnixStream::connect(site.socket(name)).await.unwrap());
            }
            let refused = || running.labelled("saltern_bus_connections_refused_total", &[label]);
            until(|| refused() >= 16.0).await;
            assert!((running.metric(gauge) - 4.0).abs() < 0.5, "{name}");
            drop(open);
            until(|| running.metric(gauge) < 1.0).await;
        }
        // Then there is room again.
        let mut listener = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let _sender = fire(&site, &event("hello", 1).bytes(Framing::Bare)).await;
        listener.wait_for("hello").await;
        running.master.shutdown().await;
    });
}

#[test]
fn slow_listener_gets_a_gap_and_a_stuck_one_is_disconnected() {
    in_system(async {
        let site = Site::new("saltern_event_queue_length: 10\npublish_drain_timeout: 1\n");
        let running = site.start();
        let mut slow = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let _deaf = UnixStream::connect(site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        let data = Value::map([("text", "x".repeat(100_000).as_str())]);
        let big = EventFrame::new("big", &encode(&data, Dialect::Bin)).bytes(Framing::Bare);
        let mut sender = fire(&site, &[]).await;
        for _ in 0..100 {
            sender.write_all(&big).await.unwrap();
        }
        until(|| running.metric("saltern_bus_events_total") >= 100.0).await;
        let (mut whole, mut missed) = (0, 0);
        while whole + missed < 100 {
            let (tag, data) = slow.next().await.unwrap();
            match tag.as_str() {
                "big" => whole += 1,
                "saltern/bus/gap" => missed += data.get("dropped").unwrap().as_i64().unwrap(),
                other => panic!("{other}"),
            }
        }
        assert!(whole >= 10 && missed > 0, "{whole} {missed}");
        assert_eq!(whole + missed, 100);
        until(|| running.metric("saltern_bus_subscribers_cut_off_total") > 0.0).await;
        until(|| running.metric("saltern_bus_subscribers") < 2.0).await;
        running.master.shutdown().await;
    });
}
