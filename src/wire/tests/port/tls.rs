//! Tests of TLS below TCP and websockets: traffic, refused peers, and invalid options.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use saltern_stock::tls::Identity;
use saltern_wire::port::{
    PeerCertificate, PubLimits, PubMessage, ReqLimits, Tls, TlsError, TlsOptions, Transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::port::common::{Echo, Raw, Running, publish_listener_of_all, request_listener_of, soon};
use crate::port::hostile::request_limits;
use crate::port::relayed::Members;

/// A directory with a self-signed certificate for 127.0.0.1.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let identity = Identity::new();
        std::fs::write(dir.path().join("cert.pem"), identity.certificate_pem()).expect("written");
        let site = Self { dir };
        std::fs::write(site.path("key.pem"), identity.key_pem()).expect("written");
        site.key_mode(0o600);
        site
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn key_mode(&self, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path("key.pem"), mode).expect("mode");
    }

    fn options(&self, peers: PeerCertificate) -> TlsOptions {
        TlsOptions {
            certificate: self.path("cert.pem"),
            key: self.path("key.pem"),
            authorities: vec![self.path("cert.pem")],
            peers,
            only_tls12: false,
            ciphers: None,
        }
    }

    fn tls(&self, peers: PeerCertificate) -> Tls {
        Tls::new(&self.options(peers))
            .map_err(|error| error.to_string())
            .expect("TLS")
    }

    async fn connect(&self, to: &Running, shows: bool) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let own = certificate(&self.path("cert.pem"));
        roots.add(own.clone()).expect("root");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match shows {
            true => {
                let key = PrivateKeyDer::from_pem_file(self.path("key.pem")).expect("key");
                config
                    .with_client_auth_cert(vec![own], key)
                    .expect("certificate")
            }
            false => config.with_no_client_auth(),
        };
        let name = ServerName::try_from("127.0.0.1").expect("name");
        let stream = TcpStream::connect(to.addr).await?;
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).expect("certificate")
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&b"\x82\xa4head\x81\xa3mid\xa11\xa4body"[..], body].concat()
}

fn echo(tls: Tls, limits: ReqLimits) -> Running {
    let sink = Arc::new(Echo::default());
    request_listener_of(Transport::Tcp, Some(tls), limits, sink)
}

async fn exchanged(stream: &mut TlsStream<TcpStream>, sent: &[u8]) {
    let mut reply = vec![0; sent.len()];
    let work = async {
        // Both at once: neither side buffers it all.
        let (mut read, mut write) = tokio::io::split(stream);
        let (wrote, got) = tokio::join!(
            async {
                write.write_all(sent).await?;
                write.flush().await
            },
            read.read_exact(&mut reply)
        );
        wrote.and(got.map(drop))
    };
    soon("a reply", work).await.expect("reply");
    assert_eq!(reply, sent);
}

#[tokio::test]
async fn large_and_small_requests_go_through() {
    let site = Site::new();
    let running = echo(site.tls(PeerCertificate::NotAsked), ReqLimits::default());
    let mut stream = site.connect(&running, false).await.expect("TLS");
    exchanged(&mut stream, &frame(b"\xa2hi")).await;
    let large = [b"\xc6\x00\x80\x00\x00".as_slice(), &vec![7; 8 << 20]].concat();
    exchanged(&mut stream, &frame(&large)).await;
    exchanged(&mut stream, &frame(b"\xa2hi")).await;
    drop(stream);
    running.stopped().await;
}

#[tokio::test]
async fn publications_that_the_socket_cannot_take_at_once_arrive() {
    let site = Site::new();
    let tls = site.tls(PeerCertificate::NotAsked);
    let (mut running, addresses, handle) =
        publish_listener_of_all(PubLimits::default(), Some(&tls));
    running.addr = addresses[1];
    let mut stream = site.connect(&running, false).await.expect("TLS");
    running.reaches("connections", "open", 1).await;
    let message = PubMessage::new(Bytes::from(vec![7; 1 << 20]));
    for _ in 0..16 {
        assert_eq!(handle.publish_to_hearers(&message, None).queued, 1);
    }
    let size = 12 + 5 + (1 << 20);
    let mut received = BytesMut::with_capacity(16 * size);
    let reading = async {
        while received.len() < 16 * size {
            assert!(stream.read_buf(&mut received).await.expect("bytes") > 0);
        }
    };
    soon("all publications", reading).await;
    let one = &received[..size];
    assert!(one.starts_with(b"\x82\xa4head\x80\xa4body\xc6\x00\x10\x00\x00\x07"));
    assert!(received.chunks(size).all(|each| each == one));
    drop(stream);
    running.stopped().await;
}

#[tokio::test]
async fn peer_without_a_required_certificate_is_refused() {
    let site = Site::new();
    let running = echo(site.tls(PeerCertificate::Required), request_limits());
    // With TLS 1.3 the client learns of it with its first read.
    if let Ok(mut stream) = site.connect(&running, false).await {
        assert!(stream.read_u8().await.is_err());
    }
    running.reaches("closed_total", "tls", 1).await;
    let mut raw = Raw::connect(running.addr).await;
    raw.send(&frame(b"\xa2hi")).await;
    raw.closed().await;
    running.reaches("closed_total", "tls", 2).await;
    let mut silent = Raw::connect(running.addr).await;
    silent.closed().await;
    running
        .reaches("closed_total", "handshake_timeout", 1)
        .await;
    let mut stream = site.connect(&running, true).await.expect("TLS");
    exchanged(&mut stream, &frame(b"\xa2hi")).await;
    drop(stream);
    running.stopped().await;
}

#[test]
fn unsafe_tls_options_are_refused() {
    let site = Site::new();
    let refused = |options: TlsOptions| Tls::new(&options).err().expect("refused").to_string();
    let options = || site.options(PeerCertificate::Required);
    let nobody = TlsOptions {
        authorities: Vec::new(),
        ..options()
    };
    assert!(refused(nobody).contains("peers cannot be asked"));
    let weak = TlsOptions {
        ciphers: Some(vec!["AES128-SHA".to_owned()]),
        ..options()
    };
    assert!(refused(weak).contains("\"AES128-SHA\""));
    let swapped = TlsOptions {
        certificate: site.path("key.pem"),
        ..options()
    };
    assert!(refused(swapped).contains("no certificate"));
    let absent = TlsOptions {
        key: site.path("absent"),
        ..options()
    };
    assert!(refused(absent).contains("cannot read"));
    let narrow = TlsOptions {
        only_tls12: true,
        ciphers: Some(vec!["ECDHE-RSA-AES256-GCM-SHA384".to_owned()]),
        ..options()
    };
    assert!(Tls::new(&narrow).is_ok());
    site.key_mode(0o644);
    assert!(matches!(
        Tls::new(&options()),
        Err(TlsError::OpenKey { mode: 0o644, .. })
    ));
}

/// Through the relay untouched, inside the TLS of the members.
#[tokio::test]
async fn tls_of_a_relayed_peer_ends_at_the_active_member() {
    let site = Site::new();
    let tls = site.tls(PeerCertificate::Required);
    let members = Members::start((1, 1), Some(&tls), ReqLimits::default());
    members.is_active(1);
    let connected = soon("TLS", site.connect(&members.relay, true)).await;
    let mut stream = connected.expect("connected");
    let large = vec![7; 1 << 20];
    let body = [&b"\xc6\x00\x10\x00\x00"[..], &large].concat();
    let sent = frame(&body);
    let mut answer = vec![0; frame(b"\x01").len()];
    let exchange = async {
        stream.write_all(&sent).await?;
        stream.flush().await?;
        stream.read_exact(&mut answer).await
    };
    soon("an answer", exchange).await.expect("answered");
    // The address of the peer, not of a relay elsewhere.
    assert_eq!(answer, frame(b"\x01"));
    drop(stream);
    members.stopped().await;
}
