//! TLS of the client: `rustls` with `ring`, as on the ports, below `ureq`.
//!
//! `ureq` has a connector for `rustls`, too, but none of its settings admits a server whose own
//! certificate stands in `ca_bundle`: `openssl req -x509` marks such a certificate as an authority,
//! and `webpki` takes no authority for a server. Stock's OpenSSL does.

use std::fmt;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use saltern_wire::server_certificate::{Leniency, client_config};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use ureq::Error;
use ureq::unversioned::transport::time::{Duration, Instant};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

use super::url;

/// Verification of a server's certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whether the certificate is verified.
    pub verify: bool,
    /// Certificates to trust in the place of the system's. Read for each connection.
    pub ca_bundle: Option<PathBuf>,
}

/// `ca_bundle` cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot read \"{}\"", path.display())]
struct BundleError {
    path: PathBuf,
    #[source]
    source: pem::Error,
}

impl Tls {
    fn client_config(&self) -> Result<ClientConfig, Error> {
        let verified = match self.verify {
            true => {
                let trusted = self.trusted().map_err(other)?;
                let mut authorities = RootCertStore::empty();
                authorities.add_parsable_certificates(trusted.iter().cloned());
                client_config(Some(authorities), Leniency::Trusted(trusted))
            }
            false => client_config(None, Leniency::Nothing),
        };
        Ok(verified.map_err(other)?.with_no_client_auth())
    }

    fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, BundleError> {
        let Some(path) = &self.ca_bundle else {
            // What cannot be read is missing, and the verification says so.
            return Ok(rustls_native_certs::load_native_certs().certs);
        };
        let bundle = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        bundle.map_err(|source| BundleError {
            path: path.clone(),
            source,
        })
    }
}

/// Wraps the connection of an https URL.
#[derive(Debug)]
pub(super) struct TlsConnector(pub(super) Tls);

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let config = Arc::new(self.0.client_config()?);
        let name = ServerName::try_from(url::bare_host(details.uri).to_owned()).map_err(other)?;
        let mut conn = ClientConnection::new(config, name).map_err(other)?;
        let mut sock = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        sock.set_timeout(left(details));
        conn.complete_io(&mut sock).map_err(|error| {
            let error = error.downcast::<rustls::Error>();
            error.map_or_else(Error::from, other)
        })?;
        let config = details.config;
        Ok(Some(Either::B(TlsTransport {
            stream: StreamOwned { conn, sock },
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
        })))
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}

/// The remaining timeout, less the time that the connection took.
fn left(details: &ConnectionDetails<'_>) -> NextTimeout {
    let mut timeout = details.timeout;
    let now = (details.current_time)();
    if let (Duration::Exact(after), Instant::Exact(began), Instant::Exact(now)) =
        (timeout.after, details.now, now)
    {
        let spent = now.saturating_duration_since(began);
        timeout.after = Duration::Exact(after.saturating_sub(spent));
    }
    timeout
}

/// A connection inside TLS.
pub(super) struct TlsTransport {
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TlsTransport")
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        Ok(self.stream.write_all(output)?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
