//! Tests of the status port of a running master.

use std::net::SocketAddr;
use std::sync::Arc;

use saltern_actors::{Master, StartError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::in_system;
use crate::site::Site;

async fn get(address: SocketAddr, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn healthy_master_serves_checks_and_metrics() {
    in_system(async {
        let site = Site::new("");
        let running = site.start();
        let address = running.master.status_address().unwrap();
        let alive = get(address, "/healthz", "").await;
        assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
        assert!(alive.contains("ok actors: "), "{alive}");
        // The actors open their ports on threads of their own.
        let ready = loop {
            let ready = get(address, "/readyz", "").await;
            if ready.starts_with("HTTP/1.1 200 ") {
                break ready;
            }
        };
        for check in ["running", "actors", "ports", "workers", "database", "keys"] {
            assert!(ready.contains(&format!("\nok {check}: ")), "{ready}");
        }
        let json = get(address, "/readyz", "accept: application/json\r\n").await;
        assert!(json.contains("content-type: application/json"), "{json}");
        assert!(json.contains("\"ok\":true"), "{json}");
        let metrics = get(address, "/metrics", "").await;
        assert!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
        for line in [
            "saltern_build_info{salt_compat=\"3008\",version=\"",
            "saltern_actor_up{actor=\"mworker\"} 2\n",
            "saltern_keys{state=\"accepted\"} 0\n",
            "saltern_check_passed{check=\"database\"} 1\n",
            "saltern_bus_longest_queue 0\n",
            "saltern_port_queued_bytes 0\n",
            "process_open_fds ",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
        let other = get(address, "/other", "").await;
        assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
        running.master.shutdown().await;
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn empty_address_serves_nothing() {
    in_system(async {
        let site = Site::new("");
        let mut config = site.config();
        config.saltern_metrics_address = None;
        let master = Master::start(site.parts(&Arc::new(config))).unwrap();
        assert_eq!(master.status_address(), None);
        master.shutdown().await;
    });
}

#[test]
fn configured_address_must_be_free() {
    in_system(async {
        let site = Site::new("");
        let running = site.start();
        let taken = running.master.status_address().unwrap();
        let other = Site::new("");
        let mut config = other.config();
        config.saltern_metrics_address = Some(taken);
        let started = Master::start(other.parts(&Arc::new(config)));
        assert!(matches!(
            started,
            Err(StartError::Port { address, .. }) if address == taken
        ));
        running.master.shutdown().await;
    });
}

/// Both register into the same metric families.
#[test]
fn master_with_engines_serves_its_metrics() {
    in_system(async {
        let site = Site::new("engines: [test: {}]\n");
        let running = site.start();
        let address = running.master.status_address().unwrap();
        let metrics = get(address, "/metrics", "").await;
        let line = "saltern_http_connections{server=\"webhook\"} 0\n";
        assert!(metrics.contains(line), "{metrics}");
        running.master.shutdown().await;
    });
}

#[test]
fn metrics_compat_adds_other_exporters_names() {
    in_system(async {
        let site = Site::new("metrics_compat: [salt-exporter, opentelemetry]\n");
        let running = site.start();
        let address = running.master.status_address().unwrap();
        let metrics = get(address, "/metrics", "").await;
        for name in [
            "salt_process_open_fds",
            "salt_master_connected_minions_count",
            "salt_master_workers_queue_depth",
        ] {
            assert!(metrics.contains(&format!("\n{name} ")), "{metrics}");
        }
        running.master.shutdown().await;
        let site = Site::new("");
        let running = site.start();
        let address = running.master.status_address().unwrap();
        let metrics = get(address, "/metrics", "").await;
        assert!(!metrics.contains("\nsalt_"), "{metrics}");
        running.master.shutdown().await;
    });
}
