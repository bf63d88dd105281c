//! Certificates and a small server with TLS, for the tests of all crates.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslAcceptor, SslMethod};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};

/// A self-signed certificate for 127.0.0.1, and its key.
pub struct Identity {
    key: PKey<Private>,
    certificate: X509,
}

impl Identity {
    /// Makes one that is valid for two days.
    ///
    /// # Panics
    /// When OpenSSL refuses.
    #[must_use]
    pub fn new() -> Self {
        Self::made(false, false)
    }

    /// Makes one that is marked as an authority's, as `openssl req -x509` does.
    ///
    /// # Panics
    /// When OpenSSL refuses.
    #[must_use]
    pub fn authority() -> Self {
        Self::made(true, false)
    }

    /// Makes one of an authority whose time is over.
    ///
    /// # Panics
    /// When OpenSSL refuses.
    #[must_use]
    pub fn expired_authority() -> Self {
        Self::made(true, true)
    }

    /// Makes one of a server, by this authority.
    ///
    /// # Panics
    /// When OpenSSL refuses.
    #[must_use]
    pub fn sign_server(&self) -> Self {
        Self::sign(Some(self), false, false).expect("OpenSSL makes a certificate")
    }

    fn made(is_authority: bool, is_expired: bool) -> Self {
        Self::sign(None, is_authority, is_expired).expect("OpenSSL makes a certificate")
    }

    fn sign(
        issuer: Option<&Self>,
        is_authority: bool,
        is_expired: bool,
    ) -> Result<Self, ErrorStack> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
        let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
        let mut name = X509NameBuilder::new()?;
        let subject = if issuer.is_some() {
            "a server"
        } else {
            "a test"
        };
        name.append_entry_by_text("CN", subject)?;
        let name = name.build();
        let mut builder = X509::builder()?;
        builder.set_version(2)?;
        builder.set_subject_name(&name)?;
        builder.set_issuer_name(match issuer {
            Some(issuer) => issuer.certificate.subject_name(),
            None => &name,
        })?;
        builder.set_pubkey(&key)?;
        let until = match is_expired {
            true => Asn1Time::from_unix(1)?,
            false => Asn1Time::days_from_now(2)?,
        };
        builder.set_not_before(&*Asn1Time::from_unix(0)?)?;
        builder.set_not_after(&until)?;
        let context = builder.x509v3_context(None, None);
        let address = SubjectAlternativeName::new()
            .ip("127.0.0.1")
            .build(&context)?;
        builder.append_extension(address)?;
        if is_authority {
            builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        }
        let signer = issuer.map_or(&key, |issuer| &issuer.key);
        builder.sign(signer, MessageDigest::sha256())?;
        Ok(Self {
            key,
            certificate: builder.build(),
        })
    }

    /// The certificate.
    ///
    /// # Panics
    /// When OpenSSL refuses.
    #[must_use]
    pub fn certificate_pem(&self) -> Vec<u8> {
        self.certificate.to_pem().expect("PEM of a certificate")
    }

    /// The key, PKCS 8.
    ///
    /// # Panics
    /// When OpenSSL refuses.
    #[must_use]
    pub fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().expect("PEM of a key")
    }

    /// Answers whoever completes the handshake with status 200 and this body, as long as the test
    /// runs; gives the port.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn serve(&self, body: &str) -> u16 {
        let mut acceptor =
            SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).expect("OpenSSL has TLS");
        acceptor.set_private_key(&self.key).expect("a usable key");
        acceptor
            .set_certificate(&self.certificate)
            .expect("a usable certificate");
        let acceptor = acceptor.build();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let response = head + body;
        thread::spawn(move || {
            // A client that does not trust the certificate ends the handshake.
            let streams = listener.incoming().filter_map(Result::ok);
            for mut stream in streams.filter_map(|stream| acceptor.accept(stream).ok()) {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(response.as_bytes());
                let _ = stream.shutdown();
            }
        });
        port
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::new()
    }
}
