//! Certificate authority of a site: signs the one certificate for 127.0.0.1 that its master and
//! minions share.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{BasicConstraints, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Name, X509NameRef};

/// The files of an authority and of the one certificate that it gave.
pub struct Authority {
    directory: PathBuf,
}

impl Authority {
    /// Makes one in a directory that exists.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn make(directory: &Path) -> Result<Self> {
        let own = key()?;
        let (issuer, subject) = (name("saltern tests")?, name("127.0.0.1")?);
        let mut authority = certificate(&own, &issuer, &issuer, 1)?;
        authority.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        let usage = KeyUsage::new().critical().key_cert_sign().build()?;
        authority.append_extension(usage)?;
        authority.sign(&own, MessageDigest::sha256())?;
        let authority = authority.build();

        let key = key()?;
        let mut leaf = certificate(&key, &subject, &issuer, 2)?;
        let context = leaf.x509v3_context(Some(&authority), None);
        let address = SubjectAlternativeName::new()
            .ip("127.0.0.1")
            .build(&context)?;
        leaf.append_extension(address)?;
        leaf.append_extension(BasicConstraints::new().build()?)?;
        leaf.sign(&own, MessageDigest::sha256())?;

        std::fs::write(directory.join("ca.pem"), authority.to_pem()?)?;
        std::fs::write(directory.join("cert.pem"), leaf.build().to_pem()?)?;
        let mut private = std::fs::OpenOptions::new();
        let private = private.write(true).create_new(true).mode(0o600);
        let mut file = private.open(directory.join("key.pem"))?;
        std::io::Write::write_all(&mut file, &key.private_key_to_pem_pkcs8()?)?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// A value of `ssl` with which both sides show their certificate and look at the other's.
    pub fn ssl(&self) -> String {
        let file = |name: &str| self.directory.join(name).display().to_string();
        format!(
            "{{certfile: {}, keyfile: {}, ca_certs: {}, cert_reqs: CERT_REQUIRED}}",
            file("cert.pem"),
            file("key.pem"),
            file("ca.pem")
        )
    }
}

fn key() -> Result<PKey<Private>> {
    Ok(PKey::from_rsa(Rsa::generate(2048)?)?)
}

fn name(common_name: &str) -> Result<X509Name> {
    let mut name = X509Name::builder()?;
    name.append_entry_by_text("CN", common_name)?;
    Ok(name.build())
}

fn certificate(
    key: &PKey<Private>,
    subject: &X509NameRef,
    issuer: &X509NameRef,
    serial: u32,
) -> Result<openssl::x509::X509Builder> {
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(&*BigNum::from_u32(serial)?.to_asn1_integer()?)?;
    builder.set_subject_name(subject)?;
    builder.set_issuer_name(issuer)?;
    builder.set_pubkey(key)?;
    builder.set_not_before(&*Asn1Time::days_from_now(0)?)?;
    builder.set_not_after(&*Asn1Time::days_from_now(2)?)?;
    Ok(builder)
}
