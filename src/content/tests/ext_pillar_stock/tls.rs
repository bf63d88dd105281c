//! Servers that prove who they are, and one that does not.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslAcceptor, SslMethod};
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509, X509NameBuilder};
use saltern_wire::msgpack::Value;

use super::{cases::Case, ours, site};

/// A self-signed certificate for 127.0.0.1.
fn certificate() -> (PKey<Private>, X509) {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "a test").unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(&key).unwrap();
    let (from, to) = (Asn1Time::days_from_now(0), Asn1Time::days_from_now(1));
    builder.set_not_before(&from.unwrap()).unwrap();
    builder.set_not_after(&to.unwrap()).unwrap();
    let address = SubjectAlternativeName::new()
        .ip("127.0.0.1")
        .build(&builder.x509v3_context(None, None))
        .unwrap();
    builder.append_extension(address).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    (key, builder.build())
}

/// Serves one mapping to every client that completes the handshake; returns the port.
fn serve(top: &Path) -> u16 {
    let (key, certificate) = certificate();
    fs::write(top.join("ca.pem"), certificate.to_pem().unwrap()).unwrap();
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    acceptor.set_private_key(&key).unwrap();
    acceptor.set_certificate(&certificate).unwrap();
    let acceptor = acceptor.build();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A peer that does not trust the certificate ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream.unwrap()) else {
                continue;
            };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na: 1");
            let _ = stream.shutdown();
        }
    });
    port
}

#[test]
fn server_certificate_is_verified() {
    let site = site();
    let port = serve(site.path());
    let case = Case {
        ext_pillar: "",
        saltenv: None,
        pillarenv: None,
    };
    for (host, more, is_believed) in [
        ("127.0.0.1", "", false),
        ("127.0.0.1", "ca_bundle: '{top}/ca.pem'", true),
        ("127.0.0.1", "verify_ssl: false", true),
        ("localhost", "ca_bundle: '{top}/ca.pem'", false),
    ] {
        let option = format!("ext_pillar: [{{http_yaml: 'https://{host}:{port}/'}}]\n{more}");
        let (pillar, errors) = ours(site.path(), &case, &option);
        let expected = is_believed.then_some(&Value::Int(1));
        assert_eq!(pillar.get("a"), expected, "{host} {more}");
        assert!(errors.is_empty(), "{errors:?}");
    }
}
