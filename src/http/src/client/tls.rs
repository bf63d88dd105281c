//! TLS of the client: `rustls` with `ring`, as on the ports, below `ureq`.
//!
//! `ureq` has a connector for `rustls`, too, but none of its settings admits a server whose own
//! certificate stands in `ca_bundle`: `openssl req -x509` marks such a certificate as an authority,
//! and `webpki` takes no authority for a server. Stock's OpenSSL does.

use std::fmt;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme, StreamOwned,
};
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
        let provider = Arc::new(ring::default_provider());
        let trusted = match self.verify {
            true => self.trusted().map_err(other)?,
            false => Vec::new(),
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let webpki = match self.verify {
            true => WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone())
                .build()
                .map(Some)
                .map_err(other)?,
            false => None,
        };
        let schemes = provider
            .signature_verification_algorithms
            .supported_schemes();
        let verifier = Verifier {
            trusted,
            webpki,
            schemes,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .expect("ring has suites of all versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(config)
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

/// Verification by authorities, or by being trusted as it is; or none.
#[derive(Debug)]
struct Verifier {
    trusted: Vec<CertificateDer<'static>>,
    /// Absent where nothing is verified.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(webpki) = &self.webpki else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // That it is an authority's is among the errors without a name of their own. Its dates
            // were checked before; its name is checked here.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if self.trusted.iter().any(|trusted| trusted == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match &self.webpki {
            Some(webpki) => webpki.verify_tls12_signature(message, cert, signed),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match &self.webpki {
            Some(webpki) => webpki.verify_tls13_signature(message, cert, signed),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
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
