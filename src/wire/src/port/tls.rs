//! TLS of a listener: certificate, key and client authentication, checked once at the start. Clients read
//! their files by the same functions.
//!
//! TLS 1.2 and 1.3 by `rustls`; older versions and their ciphers are not supported. The options
//! are parsed by the configuration.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saltern_base::blocking::BlockingError;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    self, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
};

/// Client certificates (`cert_reqs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCertificate {
    /// None, and any is ignored.
    NotAsked,
    /// A certificate of one of our authorities, or none.
    Optional,
    /// A certificate of one of our authorities.
    Required,
}

/// TLS options of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM file: our certificate, then its intermediates.
    pub certificate: PathBuf,
    /// PEM file of the key. Not readable for others.
    pub key: PathBuf,
    /// PEM files of the authorities for peers.
    pub authorities: Vec<PathBuf>,
    /// Requirements on client certificates.
    pub peers: PeerCertificate,
    /// TLS 1.2 and nothing else.
    pub only_tls12: bool,
    /// The ciphers of TLS 1.2 by OpenSSL's names; all when absent. Those of 1.3 are always all.
    pub ciphers: Option<Vec<String>>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read \"{}\"", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file holds something else.
    #[error("\"{}\" holds no {wanted} in PEM form", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The kind of item that is missing.
        wanted: &'static str,
        /// The error of reading the file.
        #[source]
        source: pem::Error,
    },
    /// No thread read the files.
    #[error("the certificates are not read")]
    Thread(#[source] BlockingError),
    /// Other users could read the key.
    #[error("the key \"{}\" can be read by others (mode {mode:o}); make it 0600", path.display())]
    OpenKey {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// An authority's certificate that cannot be used.
    #[error("\"{}\" holds a certificate that cannot vouch for others", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// Client certificates are requested, but no authority can verify them.
    #[error("peers cannot be asked for certificates")]
    Verifier(#[source] VerifierBuilderError),
    /// No authority can vouch for a server.
    #[error("no authority is known that could vouch for the other end; name one in \"ca_certs\"")]
    NoAuthority(#[source] VerifierBuilderError),
    /// A cipher that is not supported.
    #[error(
        "the cipher \"{0}\" is not to be had; name those of TLS 1.2 as OpenSSL does, one by one"
    )]
    Cipher(String),
    /// The ciphers are of other versions.
    #[error("no cipher is left for the versions of TLS that are asked for")]
    NoCipher(#[source] rustls::Error),
    /// The master's name, where no certificate of a known authority can be for the address.
    #[error(
        "no certificate can be for the name \"{0}\"; correct it, or name the authority in \"ca_certs\""
    )]
    Name(String),
    /// Certificate and key do not match.
    #[error("the certificate cannot be used with the key")]
    Config(#[source] rustls::Error),
}

/// The suites of TLS 1.2, by OpenSSL's names.
const TLS12_SUITES: [(&str, SupportedCipherSuite); 6] = {
    use ring::cipher_suite as suite;
    [
        (
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "ECDHE-RSA-AES256-GCM-SHA384",
            suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-RSA-AES128-GCM-SHA256",
            suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-RSA-CHACHA20-POLY1305",
            suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
    ]
};

/// TLS configuration of a listener. Clones share it.
#[derive(Clone)]
pub struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    options: Arc<TlsOptions>,
}

impl Tls {
    /// The configuration for other servers than the two ports.
    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// The options it was made from: files that change are read again by them.
    #[must_use]
    pub fn options(&self) -> &TlsOptions {
        &self.options
    }

    /// Reads and checks all files that `options` name.
    ///
    /// # Errors
    ///
    /// A file cannot be read or holds something else, or the parts do not match.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsError> {
        let provider = provider(options.ciphers.as_deref())?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions(options.only_tls12))
            .map_err(TlsError::NoCipher)?;
        let builder = match options.peers {
            PeerCertificate::NotAsked => builder.with_no_client_auth(),
            asked => {
                let roots = Arc::new(authorities(&options.authorities)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match asked {
                    PeerCertificate::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                builder.with_client_cert_verifier(verifier.build().map_err(TlsError::Verifier)?)
            }
        };
        let chain = certificates(&options.certificate)?;
        let key = private_key(&options.key)?;
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(TlsError::Config)?;
        // Salt's clients resume no sessions, and a store would grow with every stranger.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            options: Arc::new(options.clone()),
        })
    }
}

/// The suites of TLS 1.3, with those of TLS 1.2 that have these names; with all when absent.
pub(crate) fn provider(names: Option<&[String]>) -> Result<Arc<CryptoProvider>, TlsError> {
    let mut provider = ring::default_provider();
    if let Some(names) = names {
        let named = |name: &String| {
            let known = TLS12_SUITES.iter().find(|(known, _)| known == name);
            known
                .map(|(_, suite)| *suite)
                .ok_or_else(|| TlsError::Cipher(name.clone()))
        };
        let chosen: Vec<_> = names.iter().map(named).collect::<Result<_, _>>()?;
        provider
            .cipher_suites
            .retain(|suite| matches!(suite, SupportedCipherSuite::Tls13(_)));
        provider.cipher_suites.extend(chosen);
    }
    Ok(Arc::new(provider))
}

/// The versions of TLS that are spoken.
pub(crate) fn versions(only_tls12: bool) -> &'static [&'static SupportedProtocolVersion] {
    const ONLY_TLS12: &[&SupportedProtocolVersion] = &[&TLS12];
    const ALL: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];
    match only_tls12 {
        true => ONLY_TLS12,
        false => ALL,
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let broken = |source| TlsError::Pem {
        path: path.to_owned(),
        wanted: "certificate",
        source,
    };
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(broken(pem::Error::NoItemsFound)),
        found => found.map_err(broken),
    }
}

/// Reads the key, from a file that no other user can read: it is the identity of its owner.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(TlsError::OpenKey {
            path: path.to_owned(),
            mode,
        });
    }
    let text = zeroize::Zeroizing::new(read(path)?);
    PrivateKeyDer::from_pem_slice(&text).map_err(|source| TlsError::Pem {
        path: path.to_owned(),
        wanted: "private key",
        source,
    })
}

fn authorities(paths: &[PathBuf]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for path in paths {
        for certificate in certificates(path)? {
            roots
                .add(certificate)
                .map_err(|source| TlsError::Authority {
                    path: path.clone(),
                    source,
                })?;
        }
    }
    Ok(roots)
}
