//! Tests of TLS below TCP and websockets: traffic, refused peers, and invalid options.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use saltern_stock::tls::Identity;
use saltern_wire::client::{ClientError, ClientTls, ClientTlsOptions, ReqClient, Route, SubClient};
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

/// The way of a client end to this listener. With `host` as the name of the master.
fn route(to: SocketAddr, transport: Transport, tls: &ClientTlsOptions, host: &str) -> Route {
    Route {
        transport,
        tls: Some(ClientTls::new(tls, host, to.ip())),
        ..Route::from(to)
    }
}

/// A client end that trusts the certificate of the site, and shows the same one.
fn client_options(site: &Site) -> ClientTlsOptions {
    ClientTlsOptions {
        certificate: Some((site.path("cert.pem"), site.path("key.pem"))),
        authorities: vec![site.path("cert.pem")],
        is_verified: true,
        only_tls12: false,
        ciphers: None,
    }
}

#[tokio::test]
async fn client_ends_speak_tls_over_tcp_and_websockets() {
    let site = Site::new();
    let tls = site.tls(PeerCertificate::Required);
    for transport in [Transport::Tcp, Transport::WebSocket] {
        let sink = Arc::new(Echo::default());
        let limits = ReqLimits::default();
        let running = request_listener_of(transport, Some(tls.clone()), limits, sink);
        let route = route(running.addr, transport, &client_options(&site), "127.0.0.1");
        let mut client = ReqClient::connect(route).await.expect("connect");
        for size in [1_u32, 4 << 20] {
            let head = [&b"\xc6"[..], &size.to_be_bytes()].concat();
            let body = Bytes::from([head, vec![7; size as usize]].concat());
            let asked = client.request(body.clone());
            assert_eq!(soon("a reply", asked).await.expect("reply"), body);
        }
        drop(client);
        running.stopped().await;
    }
    let (running, addresses, handle) = publish_listener_of_all(PubLimits::default(), Some(&tls));
    let message = PubMessage::new(Bytes::from(vec![7; 1 << 20]));
    for (transport, to) in [
        (Transport::Tcp, addresses[1]),
        (Transport::WebSocket, addresses[2]),
    ] {
        let route = route(to, transport, &client_options(&site), "127.0.0.1");
        let mut client = SubClient::connect(route, &[], b"").await.expect("connect");
        running.reaches("connections", "open", 1).await;
        // The second is read ahead with the end of the first.
        for _ in 0..2 {
            assert_eq!(handle.publish_to_hearers(&message, None).queued, 1);
        }
        for _ in 0..2 {
            let publication = soon("a publication", client.next()).await.expect("it");
            assert_eq!(publication, [Bytes::from(vec![7; 1 << 20])]);
        }
        drop(client);
        running.reaches("connections", "open", 0).await;
    }
    running.stopped().await;
}

/// Whether a client end with these options exchanges anything with a master of that name.
async fn is_served(running: &Running, tls: &ClientTlsOptions, host: &str) -> bool {
    let route = route(running.addr, Transport::WebSocket, tls, host);
    let exchange = async {
        let mut client = ReqClient::connect(route).await?;
        client.request(Bytes::from_static(b"hi")).await
    };
    match soon("an end", exchange).await {
        Ok(reply) => reply == b"hi".as_slice(),
        Err(ClientError::Tls { .. } | ClientError::Closed(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn client_end_verifies_the_master_as_its_options_say() {
    let (site, elsewhere) = (Site::new(), Site::new());
    let serving = |peers| {
        let (tls, sink) = (site.tls(peers), Arc::new(Echo::default()));
        let limits = ReqLimits::default();
        request_listener_of(Transport::WebSocket, Some(tls), limits, sink)
    };
    let running = serving(PeerCertificate::NotAsked);
    let trusting = client_options(&site);
    assert!(is_served(&running, &trusting, "127.0.0.1").await);
    // The certificate is for the address that the name has, as those of stock's sites are.
    assert!(is_served(&running, &trusting, "top.example").await);
    let distrusting = client_options(&elsewhere);
    assert!(!is_served(&running, &distrusting, "127.0.0.1").await);
    let unverified = ClientTlsOptions {
        is_verified: false,
        ..distrusting.clone()
    };
    assert!(is_served(&running, &unverified, "127.0.0.1").await);
    running.stopped().await;

    let running = serving(PeerCertificate::Required);
    let silent = ClientTlsOptions {
        certificate: None,
        ..trusting.clone()
    };
    assert!(!is_served(&running, &silent, "127.0.0.1").await);
    let unknown = ClientTlsOptions {
        authorities: trusting.authorities.clone(),
        ..distrusting
    };
    assert!(!is_served(&running, &unknown, "127.0.0.1").await);
    assert!(is_served(&running, &trusting, "127.0.0.1").await);
    running.stopped().await;
}

#[tokio::test]
async fn certificate_for_another_address_is_refused() {
    let site = Site::new();
    let (tls, sink) = (
        site.tls(PeerCertificate::NotAsked),
        Arc::new(Echo::default()),
    );
    let running = request_listener_of(Transport::Tcp, Some(tls), ReqLimits::default(), sink);
    let elsewhere = IpAddr::from([127, 0, 0, 9]);
    let tls = ClientTls::new(&client_options(&site), "top.example", elsewhere);
    let route = Route {
        transport: Transport::Tcp,
        tls: Some(tls),
        ..Route::from(running.addr)
    };
    let connected = soon("an end", ReqClient::connect(route)).await;
    assert!(matches!(connected.err(), Some(ClientError::Tls { .. })));
    running.stopped().await;
}

#[tokio::test]
async fn client_end_reads_its_files_when_they_have_changed() {
    let (site, renewed) = (Site::new(), Site::new());
    let tls = site.tls(PeerCertificate::Required);
    let sink = Arc::new(Echo::default());
    let running = request_listener_of(Transport::Tcp, Some(tls), ReqLimits::default(), sink);
    let options = ClientTlsOptions {
        certificate: Some((renewed.path("cert.pem"), renewed.path("key.pem"))),
        ..client_options(&site)
    };
    let route = route(running.addr, Transport::Tcp, &options, "127.0.0.1");
    let exchange = async |route: Route| {
        let mut client = ReqClient::connect(route).await?;
        client.request(Bytes::from_static(b"\xa2hi")).await
    };
    let refused = soon("an end", exchange(route.clone())).await;
    assert!(refused.is_err(), "another certificate");
    for name in ["cert.pem", "key.pem"] {
        let text = std::fs::read(site.path(name)).expect("read");
        std::fs::write(renewed.path(name), text).expect("written");
    }
    let reply = soon("a reply", exchange(route)).await.expect("a reply");
    assert_eq!(reply, b"\xa2hi".as_slice());
    running.stopped().await;
}

#[tokio::test]
async fn client_options_that_leave_no_cipher_are_refused() {
    let site = Site::new();
    let options = ClientTlsOptions {
        only_tls12: true,
        ciphers: Some(Vec::new()),
        ..client_options(&site)
    };
    let address = IpAddr::from([127, 0, 0, 1]);
    let checked = ClientTls::new(&options, "127.0.0.1", address).check().await;
    assert!(matches!(checked, Err(TlsError::NoCipher(_))));
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
