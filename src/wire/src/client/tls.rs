//! TLS of a client end, by the options of a minion's `ssl`.
//!
//! A master's certificate must be for the name in the configuration, or for the address that this name
//! has: stock's clients connect by the address, so the certificates of its sites are for that.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::net::TcpStream;
use crate::port::TlsError;
use crate::port::tls::{certificates, private_key, provider, versions};
use crate::server_certificate::{Leniency, client_config_with};

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

/// TLS towards one server. Clones share it.
#[derive(Clone)]
pub struct ClientTls(Arc<Inner>);

struct Inner {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// Reads and checks all files that `options` name. The server is that of `host`, found at `address`.
    ///
    /// # Errors
    ///
    /// A file cannot be read or holds something else, or the parts do not match.
    pub fn new(options: &ClientTlsOptions, host: &str, address: IpAddr) -> Result<Self, TlsError> {
        let address = ServerName::IpAddress(address.into());
        let (authorities, leniency) = match options.is_verified {
            true => {
                let trusted = options.trusted()?;
                let mut authorities = RootCertStore::empty();
                authorities.add_parsable_certificates(trusted.iter().cloned());
                let or_address = address.clone();
                let leniency = Leniency::TrustedOrAddress(trusted, or_address);
                (Some(authorities), leniency)
            }
            false => (None, Leniency::Nothing),
        };
        let provider = provider(options.ciphers.as_deref())?;
        let versions = versions(options.only_tls12);
        let builder = client_config_with(provider, versions, authorities, leniency);
        let builder = builder.map_err(TlsError::NoAuthority)?;
        let mut config = match &options.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, key) = (certificates(certificate)?, private_key(key)?);
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(TlsError::Config)?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(Inner {
            config: Arc::new(config),
            name: ServerName::try_from(host.to_owned()).unwrap_or(address),
        })))
    }

    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(self.0.config.clone());
        connector.connect(self.0.name.clone(), stream).await
    }
}

impl ClientTlsOptions {
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
