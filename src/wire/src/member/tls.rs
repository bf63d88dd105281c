//! TLS 1.3 between members, both of which hold the one key that follows from the cluster's secret.
//!
//! Raw public keys (RFC 7250) in place of certificates: there is no name, date or authority to check.
//! A peer is a member if it shows our public key and signs the handshake with it.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::AlwaysResolvesClientRawPublicKeys;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use zeroize::Zeroizing;

/// PKCS#8 form of an Ed25519 key, up to its 32 bytes (RFC 8410).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Why members cannot speak TLS with a key.
#[derive(Debug, thiserror::Error)]
pub enum MemberTlsError {
    /// The library refuses the key or the protocol version.
    #[error("the key of the cluster's members cannot be used")]
    Key(#[source] rustls::Error),
    /// The library does not give the public key.
    #[error("the key of the cluster's members has no public part")]
    NoPublicKey,
}

/// TLS of one member towards the others, in both roles.
#[derive(Clone)]
pub struct MemberTls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl fmt::Debug for MemberTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MemberTls").finish_non_exhaustive()
    }
}

impl MemberTls {
    /// TLS under the key that members have in common.
    ///
    /// # Errors
    /// The library refuses the key.
    pub fn new(seed: &[u8; 32]) -> Result<Self, MemberTlsError> {
        let provider = Arc::new(ring::default_provider());
        let key = Arc::new(certified(&provider, seed)?);
        let verifier = Arc::new(SameKey::new(&provider, &key)?);
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(MemberTlsError::Key)?
            .with_client_cert_verifier(verifier.clone())
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                key.clone(),
            )));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(MemberTlsError::Key)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }

    /// The role of the active member.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// The role of a member that relays.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }
}

fn certified(provider: &CryptoProvider, seed: &[u8; 32]) -> Result<CertifiedKey, MemberTlsError> {
    let encoded = Zeroizing::new([&PKCS8_PREFIX[..], seed].concat());
    let encoded = PrivatePkcs8KeyDer::from(encoded.as_slice()).clone_key();
    let key = provider.key_provider.load_private_key(encoded.into());
    let key = key.map_err(MemberTlsError::Key)?;
    let public = key.public_key().ok_or(MemberTlsError::NoPublicKey)?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    Ok(CertifiedKey::new(vec![public], key))
}

/// Takes a peer with our own public key, and no other.
#[derive(Debug)]
struct SameKey {
    key: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl SameKey {
    fn new(provider: &Arc<CryptoProvider>, own: &CertifiedKey) -> Result<Self, MemberTlsError> {
        Ok(Self {
            key: own
                .end_entity_cert()
                .map_err(MemberTlsError::Key)?
                .clone()
                .into_owned(),
            provider: provider.clone(),
        })
    }

    /// Compares public keys, so the time that it takes shows nothing that is secret.
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match shown.as_ref() == self.key.as_ref() {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(shown.as_ref()),
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn schemes() -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// TLS 1.2 is not offered.
fn no_tls12() -> rustls::Error {
    PeerIncompatible::Tls12NotOffered.into()
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::server_certificate::{Leniency, client_config};

    fn name() -> ServerName<'static> {
        ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())
    }

    fn tls(seed: u8) -> MemberTls {
        MemberTls::new(&[seed; 32]).expect("a key")
    }

    /// One byte from a client to a server; `None` where either refuses.
    async fn exchange(server: &MemberTls, client: Arc<ClientConfig>) -> Option<u8> {
        let (near, far): (DuplexStream, DuplexStream) = duplex(1 << 16);
        let serving = async {
            let mut stream = TlsAcceptor::from(server.server()).accept(near).await?;
            let byte = stream.read_u8().await?;
            stream.write_u8(byte).await?;
            stream.flush().await?;
            std::io::Result::Ok(byte)
        };
        let asking = async {
            let mut stream = TlsConnector::from(client).connect(name(), far).await?;
            stream.write_u8(7).await?;
            stream.flush().await?;
            stream.read_u8().await
        };
        let (served, answered) = tokio::join!(serving, asking);
        assert_eq!(served.is_ok(), answered.is_ok(), "{served:?} {answered:?}");
        answered.ok()
    }

    #[tokio::test]
    async fn members_of_one_secret_speak_tls() {
        assert_eq!(exchange(&tls(1), tls(1).client()).await, Some(7));
    }

    #[tokio::test]
    async fn member_of_another_secret_is_refused() {
        assert_eq!(exchange(&tls(1), tls(2).client()).await, None);
    }

    /// A peer that only knows the protocol.
    #[tokio::test]
    async fn client_without_a_key_is_refused() {
        let plain = client_config(None, Leniency::Nothing).expect("no authorities");
        let plain = Arc::new(plain.with_no_client_auth());
        assert_eq!(exchange(&tls(1), plain).await, None);
    }
}
