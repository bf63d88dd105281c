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
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
};

/// Certificates that pass although `webpki` refuses them.
#[derive(Debug)]
pub enum Leniency {
    /// None.
    Nothing,
    /// One of these, if its dates and its name fit: `openssl req -x509` marks it as an authority,
    /// and `webpki` takes no authority for a server.
    Trusted(Vec<CertificateDer<'static>>),
    /// The same, and one for this address in place of the name.
    TrustedOrAddress(Vec<CertificateDer<'static>>, ServerName<'static>),
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
    let config = client_config_with(provider, rustls::ALL_VERSIONS, authorities, leniency)?;
    Ok(config.expect("invariant: the provider has suites of all versions"))
}

/// The same with these suites and versions of TLS; an error inside where the provider has no suite of them.
///
/// # Errors
/// There is no usable authority.
pub(crate) fn client_config_with(
    provider: Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    authorities: Option<RootCertStore>,
    leniency: Leniency,
) -> Result<Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error>, VerifierBuilderError>
{
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
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
    Ok(builder.map(|builder| {
        let builder = builder.dangerous();
        builder.with_custom_certificate_verifier(Arc::new(verifier))
    }))
}

#[derive(Debug)]
struct Verifier {
    /// Absent where nothing is verified.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    leniency: Leniency,
    schemes: Vec<SignatureScheme>,
}

impl Verifier {
    /// Verifies the certificate for one name.
    fn verify_as(
        &self,
        webpki: &WebPkiServerVerifier,
        server_name: &ServerName<'_>,
        shown: &Shown<'_>,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = webpki.verify_server_cert(
            shown.end_entity,
            shown.intermediates,
            server_name,
            shown.ocsp_response,
            shown.now,
        );
        match (verified, &self.leniency) {
            // That it is an authority's is among the errors without a name of their own. Its dates
            // were checked before; its name is checked here.
            (
                Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))),
                Leniency::Trusted(trusted) | Leniency::TrustedOrAddress(trusted, _),
            ) if trusted.iter().any(|trusted| trusted == shown.end_entity) => {
                let parsed = ParsedCertificate::try_from(shown.end_entity)?;
                verify_server_name(&parsed, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            (verified, _) => verified,
        }
    }
}

/// Certificate of a server, with what it sends beside it.
struct Shown<'a> {
    end_entity: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
    ocsp_response: &'a [u8],
    now: UnixTime,
}

/// Whether a certificate is refused for its name, which is checked last.
fn is_name_refused(verified: &Result<ServerCertVerified, rustls::Error>) -> bool {
    matches!(
        verified,
        Err(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ))
    )
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
        let shown = Shown {
            end_entity,
            intermediates,
            ocsp_response,
            now,
        };
        let verified = self.verify_as(webpki, server_name, &shown);
        match &self.leniency {
            Leniency::TrustedOrAddress(_, address) if is_name_refused(&verified) => {
                // The error of the name says more than that of the address.
                self.verify_as(webpki, address, &shown).or(verified)
            }
            Leniency::AnyName if is_name_refused(&verified) => Ok(ServerCertVerified::assertion()),
            _ => verified,
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
