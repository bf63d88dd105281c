//! TLS: HTTP/1.1 and HTTP/2 within, and certificates that change while the server runs.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saltern_http::StatusCode;
use saltern_stock::tls::Identity;
use saltern_wire::port::{PeerCertificate, Tls, TlsOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::http2::Http2;
use crate::running::{Running, read_until, rest, settle, small, soon, standing};

/// A directory with the files of a server.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new(identity: &Identity) -> Self {
        let files = Self(tempfile::tempdir().expect("a directory"));
        files.put(identity);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a file in place of the former one, as a renewal does.
    fn replace(&self, name: &str, content: &[u8]) {
        let new = self.path("new");
        std::fs::write(&new, content).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&new, mode).expect("mode");
        std::fs::rename(new, self.path(name)).expect("renamed");
    }

    fn put(&self, identity: &Identity) {
        self.replace("key.pem", &identity.key_pem());
        self.replace("cert.pem", &identity.certificate_pem());
    }

    pub(crate) fn tls(&self) -> Tls {
        let options = TlsOptions {
            certificate: self.path("cert.pem"),
            key: self.path("key.pem"),
            authorities: Vec::new(),
            peers: PeerCertificate::NotAsked,
            only_tls12: false,
            ciphers: None,
        };
        Tls::new(&options)
            .map_err(|error| error.to_string())
            .expect("TLS")
    }
}

/// A connection of a client that trusts this certificate.
pub(crate) async fn connect(
    server: &Running,
    trusted: &Identity,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let pem = trusted.certificate_pem();
    roots
        .add(CertificateDer::from_pem_slice(&pem).expect("PEM"))
        .expect("a root");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::from(server.address.ip());
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, server.connect().await).await
}

#[tokio::test]
async fn both_versions_are_served_within() {
    let identity = Identity::new();
    let files = Files::new(&identity);
    let server = Running::start_with(small(), Some(files.tls()));
    let mut stream = soon(connect(&server, &identity, b"http/1.1"))
        .await
        .expect("TLS");
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.expect("written");
    assert!(soon(rest(stream)).await.ends_with("hello"));
    let stream = soon(connect(&server, &identity, b"h2")).await.expect("TLS");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let client = Http2::over(stream).await;
    assert_eq!(soon(client.get("/")).await.status(), StatusCode::OK);
    // Plain text where TLS is required.
    let answer = soon(server.say(request)).await;
    assert!(!answer.contains("HTTP/1.1"), "{answer:?}");
    soon(server.reaches("saltern_http_refused_total", "tls", 1.0)).await;
}

#[tokio::test(start_paused = true)]
async fn silence_before_the_handshake_is_cut_off() {
    let files = Files::new(&Identity::new());
    let server = Running::start_with(small(), Some(files.tls()));
    let began = tokio::time::Instant::now();
    let stream = standing(server.connect()).await;
    settle(&stream).await;
    assert_eq!(rest(stream).await, "");
    assert!(began.elapsed() < small().head_time * 2);
    server
        .reaches("saltern_http_refused_total", "timeout", 1.0)
        .await;
}

#[tokio::test]
async fn changed_certificate_is_used_and_a_broken_one_is_not() {
    let (first, second, third) = (Identity::new(), Identity::new(), Identity::new());
    let files = Files::new(&first);
    let server = Running::start_with(small(), Some(files.tls()));
    let mut kept = soon(connect(&server, &first, b"http/1.1"))
        .await
        .expect("TLS");
    files.put(&second);
    soon(becomes(&server, &second)).await;
    assert_eq!(
        server.metric("saltern_http_certificate_reloads_total", "loaded"),
        1.0
    );
    // Half of a renewal: the key of another certificate.
    files.replace("key.pem", &third.key_pem());
    soon(async {
        while server.metric("saltern_http_certificate_reloads_total", "failed") < 1.0 {
            connect(&server, &second, b"http/1.1").await.expect("kept");
        }
    })
    .await;
    files.replace("cert.pem", b"no certificate");
    connect(&server, &second, b"http/1.1").await.expect("kept");
    files.put(&third);
    soon(becomes(&server, &third)).await;
    // What is connected stays so.
    kept.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .expect("written");
    soon(read_until(&mut kept, "hello")).await;
}

async fn becomes(server: &Running, identity: &Identity) {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    while connect(server, identity, b"http/1.1").await.is_err() {
        pace.tick().await;
    }
}
