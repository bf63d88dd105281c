//! The RSA algorithms of messages, by their names on the wire.
//!
//! Stock knows no others (`VALID_ENCRYPTION_ALGORITHMS`, `VALID_SIGNING_ALGORITHMS` in
//! `crypt.py`). Which of them a peer may use is not decided here.

use openssl::md::{Md, MdRef};
use openssl::sha::{sha1, sha224};

/// How a short secret is encrypted to an RSA key (`enc_algo` on the wire).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EncAlgo {
    /// OAEP with SHA-1 for both the label hash and MGF1: the default of every release.
    #[default]
    OaepSha1,
    /// OAEP with SHA-224 for both: what stock uses in FIPS mode.
    OaepSha224,
}

impl EncAlgo {
    /// Reads the value of `enc_algo`; `None` is what stock answers with `bad enc algo`.
    pub fn from_wire(name: &str) -> Option<Self> {
        match name {
            "OAEP-SHA1" => Some(Self::OaepSha1),
            "OAEP-SHA224" => Some(Self::OaepSha224),
            _ => None,
        }
    }

    /// The value of `enc_algo`.
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::OaepSha1 => "OAEP-SHA1",
            Self::OaepSha224 => "OAEP-SHA224",
        }
    }

    /// Whether FIPS mode allows it: SHA-1 is refused there.
    pub fn is_fips(self) -> bool {
        self != Self::OaepSha1
    }

    pub(crate) fn digest(self) -> &'static MdRef {
        match self {
            Self::OaepSha1 => Md::sha1(),
            Self::OaepSha224 => Md::sha224(),
        }
    }
}

/// How a message is signed with an RSA key (`sig_algo` on the wire).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SigAlgo {
    /// PKCS#1 v1.5 over SHA-1: the default of every release.
    #[default]
    Pkcs1v15Sha1,
    /// PKCS#1 v1.5 over SHA-224: what stock uses in FIPS mode.
    Pkcs1v15Sha224,
}

/// The DER of a `DigestInfo` up to the hash itself (RFC 8017, section 9.2, note 1).
const SHA1_INFO: [u8; 15] = [
    0x30, 0x21, 0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00, 0x04, 0x14,
];
const SHA224_INFO: [u8; 19] = [
    0x30, 0x2d, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x04, 0x05,
    0x00, 0x04, 0x1c,
];

impl SigAlgo {
    /// Reads the value of `sig_algo`; `None` is what stock answers with `bad sig algo`.
    pub fn from_wire(name: &str) -> Option<Self> {
        match name {
            "PKCS1v15-SHA1" => Some(Self::Pkcs1v15Sha1),
            "PKCS1v15-SHA224" => Some(Self::Pkcs1v15Sha224),
            _ => None,
        }
    }

    /// The value of `sig_algo`.
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::Pkcs1v15Sha1 => "PKCS1v15-SHA1",
            Self::Pkcs1v15Sha224 => "PKCS1v15-SHA224",
        }
    }

    /// Whether FIPS mode allows it: SHA-1 is refused there.
    pub fn is_fips(self) -> bool {
        self != Self::Pkcs1v15Sha1
    }

    /// The `DigestInfo` that is padded and put through RSA.
    ///
    /// Made here and not by OpenSSL's signature interface, because some distributions
    /// (RHEL 9) let that interface refuse SHA-1 signatures, which is what every stock minion
    /// asks for by default; stock brings an OpenSSL of its own and is not refused either.
    pub(crate) fn digest_info(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Pkcs1v15Sha1 => [SHA1_INFO.as_slice(), sha1(message).as_slice()].concat(),
            Self::Pkcs1v15Sha224 => [SHA224_INFO.as_slice(), sha224(message).as_slice()].concat(),
        }
    }
}

/// Whether a FIPS provider of the system's OpenSSL is active. Only its configuration activates one
/// (`openssl.cnf`), and makes it the one that is used (`default_properties = fips=yes`).
pub fn has_fips_provider() -> bool {
    Md::fetch(None, "SHA2-224", Some("fips=yes")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{EncAlgo, SigAlgo};

    #[test]
    fn fips_mode_allows_sha224_alone() {
        assert!(EncAlgo::OaepSha224.is_fips() && SigAlgo::Pkcs1v15Sha224.is_fips());
        assert!(!EncAlgo::OaepSha1.is_fips() && !SigAlgo::Pkcs1v15Sha1.is_fips());
    }

    /// By the name of the provider, where the function asks for its property.
    #[test]
    fn fips_provider_is_active_where_openssl_has_one() {
        let by_name = openssl::md::Md::fetch(None, "SHA2-224", Some("provider=fips"));
        assert_eq!(super::has_fips_provider(), by_name.is_ok());
    }

    #[test]
    fn algorithm_names_round_trip_and_others_are_unknown() {
        for algo in [EncAlgo::OaepSha1, EncAlgo::OaepSha224] {
            assert_eq!(EncAlgo::from_wire(algo.wire_name()), Some(algo));
        }
        for algo in [SigAlgo::Pkcs1v15Sha1, SigAlgo::Pkcs1v15Sha224] {
            assert_eq!(SigAlgo::from_wire(algo.wire_name()), Some(algo));
        }
        for name in ["", "OAEP", "oaep-sha1", "OAEP-SHA256", "PKCS1v15-SHA1 "] {
            assert_eq!(EncAlgo::from_wire(name), None, "{name}");
            assert_eq!(SigAlgo::from_wire(name), None, "{name}");
        }
    }
}
