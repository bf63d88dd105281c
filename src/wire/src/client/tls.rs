//! TLS of a client end, by the options of a minion's `ssl`.
//!
//! A master's certificate must be for the name in the configuration or, signed by an authority that the
//! options name, for the address that this name has: stock's clients connect by the address, so the
//! certificates of its sites are for that.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::blocking;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::net::TcpStream;
use crate::port::TlsError;
use crate::port::tls::{certificates, private_key, provider, versions};
use crate::server_certificate::{Leniency, client_config_with};

/// Interval after which the authorities of the system are read again.
const SYSTEM_AUTHORITIES_INTERVAL: Duration = Duration::from_secs(600);

/// TLS options of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsOptions {
    /// PEM files of our certificate with its intermediates, and of its key. Without them a server that
    /// asks is shown nothing.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// PEM files of the authorities that may vouch for a server; those of the system when there are none.
    pub authorities: Vec<PathBuf>,
    /// Verifies a server's certificate.
    pub is_verified: bool,
    /// TLS 1.2 and nothing else.
    pub only_tls12: bool,
    /// The ciphers of TLS 1.2 by OpenSSL's names; all when absent. Those of 1.3 are always all.
    pub ciphers: Option<Vec<String>>,
}

/// TLS towards one server, by files that are read when a connection is made and have changed since the
/// one before. Clones share what was read.
#[derive(Clone)]
pub struct ClientTls(Arc<Inner>);

struct Inner {
    options: ClientTlsOptions,
    host: String,
    address: IpAddr,
    read: Mutex<Option<ReadFiles>>,
}

/// Settings as the files gave them.
struct ReadFiles {
    stamps: Vec<Option<FileStamp>>,
    at: Instant,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

/// Device, inode, size and time of a file, which are others when it is another.
type FileStamp = (u64, u64, u64, i64, i64);

impl ClientTls {
    /// TLS to the server that is that of `host`, found at `address`. No file is read yet.
    #[must_use]
    pub fn new(options: &ClientTlsOptions, host: &str, address: IpAddr) -> Self {
        Self(Arc::new(Inner {
            options: options.clone(),
            host: host.to_owned(),
            address,
            read: Mutex::new(None),
        }))
    }

    /// Reads and checks all files that the options name, as the next connection does.
    ///
    /// # Errors
    ///
    /// A file cannot be read or holds something else, or the parts do not match.
    pub async fn check(&self) -> Result<(), TlsError> {
        self.settings().await.map(drop)
    }

    /// The settings of now. Files are read outside the caller's thread: those of a system's authorities
    /// take many milliseconds.
    async fn settings(&self) -> Result<(Arc<ClientConfig>, ServerName<'static>), TlsError> {
        let inner = Arc::clone(&self.0);
        let read = blocking::run(move || inner.settings()).await;
        read.map_err(TlsError::Thread)?
    }

    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let settings = self.settings().await.map_err(io::Error::other);
        let (config, name) = settings?;
        TlsConnector::from(config).connect(name, stream).await
    }
}

impl Inner {
    fn settings(&self) -> Result<(Arc<ClientConfig>, ServerName<'static>), TlsError> {
        // Before the files, so that a change while they are read is seen the next time.
        let (stamps, now) = (self.options.stamps(), Instant::now());
        let mut read = self.read.lock();
        let known = read.as_ref().filter(|read| {
            let is_young = now.saturating_duration_since(read.at) < SYSTEM_AUTHORITIES_INTERVAL;
            read.stamps == stamps && (is_young || !self.options.trusts_system())
        });
        if let Some(known) = known {
            return Ok((Arc::clone(&known.config), known.name.clone()));
        }
        let (config, name) = (Arc::new(self.options.config(self.address)?), self.name()?);
        *read = Some(ReadFiles {
            stamps,
            at: now,
            name: name.clone(),
            config: Arc::clone(&config),
        });
        Ok((config, name))
    }

    fn name(&self) -> Result<ServerName<'static>, TlsError> {
        match ServerName::try_from(self.host.clone()) {
            Ok(name) => Ok(name),
            Err(_) if self.options.trusts_system() => Err(TlsError::Name(self.host.clone())),
            Err(_) => Ok(ServerName::IpAddress(self.address.into())),
        }
    }
}

impl ClientTlsOptions {
    /// Whether any authority of the system may vouch for a server.
    fn trusts_system(&self) -> bool {
        self.is_verified && self.authorities.is_empty()
    }

    /// Stamps of all files; `None` for one that is missing.
    fn stamps(&self) -> Vec<Option<FileStamp>> {
        let own = self.certificate.iter();
        let own = own.flat_map(|(certificate, key)| [certificate, key]);
        let stamp = |path: &PathBuf| {
            let file = std::fs::metadata(path).ok()?;
            let (seconds, nanos) = (file.mtime(), file.mtime_nsec());
            Some((file.dev(), file.ino(), file.size(), seconds, nanos))
        };
        own.chain(&self.authorities).map(stamp).collect()
    }

    fn config(&self, address: IpAddr) -> Result<ClientConfig, TlsError> {
        let (authorities, leniency) = match self.is_verified {
            true => {
                let trusted = self.trusted()?;
                let mut authorities = RootCertStore::empty();
                authorities.add_parsable_certificates(trusted.iter().cloned());
                let leniency = match self.trusts_system() {
                    // Anybody may have a certificate of theirs for an address.
                    true => Leniency::Trusted(trusted),
                    false => {
                        let address = ServerName::IpAddress(address.into());
                        Leniency::TrustedOrAddress(trusted, address)
                    }
                };
                (Some(authorities), leniency)
            }
            false => (None, Leniency::Nothing),
        };
        let provider = provider(self.ciphers.as_deref())?;
        let versions = versions(self.only_tls12);
        let builder = client_config_with(provider, versions, authorities, leniency);
        let builder = builder.map_err(TlsError::NoAuthority)?;
        let builder = builder.map_err(TlsError::NoCipher)?;
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, key) = (certificates(certificate)?, private_key(key)?);
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(TlsError::Config)?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        if self.authorities.is_empty() {
            // What cannot be read is missing, and the verification says so.
            return Ok(rustls_native_certs::load_native_certs().certs);
        }
        let mut trusted = Vec::new();
        for path in &self.authorities {
            trusted.extend(certificates(path)?);
        }
        Ok(trusted)
    }
}
