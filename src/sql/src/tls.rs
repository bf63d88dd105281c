//! TLS of PostgreSQL's connections: `rustls` with `ring`, and what `libpq` checks of a server.

use saltern_config::{SqlTls, SqlTlsMode};
use saltern_wire::server_certificate::{self, Leniency};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::SqlError;

/// The settings of a connection.
pub(crate) fn client_config(tls: &SqlTls) -> Result<ClientConfig, SqlError> {
    let authorities = match tls.mode {
        SqlTlsMode::VerifyCa | SqlTlsMode::VerifyFull => Some(roots(tls)?),
        SqlTlsMode::Disable | SqlTlsMode::Prefer | SqlTlsMode::Require => None,
    };
    let leniency = match tls.mode {
        SqlTlsMode::VerifyFull => Leniency::Nothing,
        _ => Leniency::AnyName,
    };
    let config = server_certificate::client_config(authorities, leniency).map_err(failed)?;
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
