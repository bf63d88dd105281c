//! Verification of a TLS server's certificate by our clients: `rustls` with `ring`.
//!
//! One verifier for all of them, because `webpki` is stricter than what sites have configured for
//! OpenSSL; each client names the [`Leniency`] that it owes them.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{
    VerifierBuilderError, WantsClientCert, WebPkiServerVerifier, verify_server_name,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

/// Certificates that pass although `webpki` refuses them.
#[derive(Debug)]
pub enum Leniency {
    /// None.
    Nothing,
    /// One of these, if its dates and its name fit: `openssl req -x509` marks it as an authority,
    /// and `webpki` takes no authority for a server.
    Trusted(Vec<CertificateDer<'static>>),
    /// One of another name.
    AnyName,
}

/// Settings of a client that verifies by these authorities, up to its own certificate. Without
/// authorities nothing is verified.
///
/// # Errors
/// There is no usable authority.
pub fn client_config(
    authorities: Option<RootCertStore>,
    leniency: Leniency,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, VerifierBuilderError> {
    let provider = Arc::new(ring::default_provider());
    let webpki = authorities.map(|authorities| {
        let authorities = Arc::new(authorities);
        WebPkiServerVerifier::builder_with_provider(authorities, provider.clone()).build()
    });
    let verifier = Verifier {
        webpki: webpki.transpose()?,
        leniency,
        schemes: provider
            .signature_verification_algorithms
            .supported_schemes(),
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .expect("ring has suites of all versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

#[derive(Debug)]
struct Verifier {
    /// Absent where nothing is verified.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    leniency: Leniency,
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
        match (verified, &self.leniency) {
            // That it is an authority's is among the errors without a name of their own. Its dates
            // were checked before; its name is checked here.
            (
                Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))),
                Leniency::Trusted(trusted),
            ) if trusted.iter().any(|trusted| trusted == end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            // The name is checked last.
            (
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )),
                Leniency::AnyName,
            ) => Ok(ServerCertVerified::assertion()),
            (verified, _) => verified,
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
