//! TLS of PostgreSQL's connections: `rustls` with `ring`, and what `libpq` checks of a server.

use std::sync::Arc;

use saltern_config::{SqlTls, SqlTlsMode};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::error::SqlError;

/// The settings of a connection.
pub(crate) fn client_config(tls: &SqlTls) -> Result<ClientConfig, SqlError> {
    let provider = Arc::new(ring::default_provider());
    let authority = match tls.mode {
        SqlTlsMode::VerifyCa | SqlTlsMode::VerifyFull => {
            let roots = Arc::new(roots(tls)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
            Some(verifier.build().map_err(failed)?)
        }
        SqlTlsMode::Disable | SqlTlsMode::Prefer | SqlTlsMode::Require => None,
    };
    let verifier = Verifier {
        authority,
        checks_name: tls.mode == SqlTlsMode::VerifyFull,
        schemes: provider
            .signature_verification_algorithms
            .supported_schemes(),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .expect("ring has suites of all versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some((certificate, key)) = &tls.identity else {
        return Ok(config.with_no_client_auth());
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let key = PrivateKeyDer::from_pem_file(key).map_err(failed)?;
    config
        .with_client_auth_cert(chain.map_err(failed)?, key)
        .map_err(failed)
}

fn roots(tls: &SqlTls) -> Result<RootCertStore, SqlError> {
    let mut roots = RootCertStore::empty();
    let trusted = match &tls.authorities {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(failed)?,
        // What cannot be read is missing, and the verification says so.
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(trusted);
    Ok(roots)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> SqlError {
    SqlError::Tls(Box::new(error))
}

/// Verification by authorities, with or without the server's name; or none.
#[derive(Debug)]
struct Verifier {
    authority: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
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
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The name is checked last.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match &self.authority {
            Some(authority) => authority.verify_tls12_signature(message, cert, signed),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match &self.authority {
            Some(authority) => authority.verify_tls13_signature(message, cert, signed),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
