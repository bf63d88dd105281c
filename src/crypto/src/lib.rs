//! Salt's cryptography: the shared-key envelope (Crypticle), RSA in the three forms the wire uses,
//! PEM files as stock writes them, key fingerprints, and the rows that the masters of a cluster share sealed.
//!
//! Works on bytes in memory only. It does not read or write files, does not know what a
//! minion is, does not parse msgpack, and keeps no `serial` counter (that needs the
//! decoded message); those are the work of `store`, `model`, `wire` and `requests`.
//!
//! Types that hold a secret ([`KeyString`], [`Crypticle`], [`PrivateKey`], [`SecretBytes`],
//! [`SecretString`]) have no `Debug`, no `Display` and no `Clone`, so that a secret cannot
//! reach a log by way of a derived implementation, and are wiped when dropped.

mod algorithms;
mod crypticle;
mod fingerprint;
mod key_string;
mod pem;
mod private_key;
mod public_key;
mod random;
mod secret;
mod state_cipher;
mod x931;

pub use algorithms::{EncAlgo, SigAlgo, has_fips_provider};
pub use crypticle::{Crypticle, NONCE_LEN, OpenError};
pub use fingerprint::{HashError, HashType, pem_finger, text_finger};
pub use key_string::{KeyString, KeyStringError};
pub use pem::{KeyError, clean_key};
pub use private_key::PrivateKey;
pub use public_key::{PublicKey, RsaError};
pub use random::public_random;
pub use secret::{SecretBytes, SecretString};
pub use state_cipher::{MIN_SECRET_LEN, ROW_ID_LEN, SealError, StateCipher};

pub(crate) use random::fill_random;
use subtle::ConstantTimeEq;

/// Compares two byte strings in a time that depends on their lengths only.
pub fn ct_eq(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

/// The SHA-1 of `bytes` as 40 hex digits: names a minion on a filtering publish channel
/// (`salt/transport/zeromq.py`), where nothing depends on its strength.
pub fn sha1_hex(bytes: &[u8]) -> String {
    fingerprint::hex(&openssl::sha::sha1(bytes))
}

#[cfg(test)]
mod tests {
    use super::{SecretString, ct_eq, sha1_hex};

    /// The vector of FIPS 180-1.
    #[test]
    fn sha1_is_written_in_lower_case_hexadecimal() {
        let digest = "a9993e364706816aba3e25717850c26c9cd0d89d";
        assert_eq!(sha1_hex(b"abc"), digest);
    }

    #[test]
    fn equal_means_same_length_and_same_bytes() {
        assert!(ct_eq(b"", b""));
        assert!(ct_eq(b"salt", b"salt"));
        assert!(!ct_eq(b"salt", b"salty"));
        assert!(!ct_eq(b"salt", b"sale"));
    }

    #[test]
    fn shared_key_types_are_send_and_sync() {
        fn shared<T: Send + Sync>() {}
        shared::<crate::PrivateKey>();
        shared::<crate::PublicKey>();
        shared::<crate::Crypticle>();
        shared::<crate::KeyString>();
        shared::<SecretString>();
    }
}
