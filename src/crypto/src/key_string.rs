//! The text form of a symmetric key: what stock calls the key string of a Crypticle.
//!
//! It travels RSA-encrypted in an `_auth` reply and lies in `cachedir/sessions/<id>`.
//! Reading and writing that file is not done here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use openssl::sha::sha256;
use sha2::Sha512;
use zeroize::{Zeroize, Zeroizing};

use crate::{ct_eq, fill_random};

/// Bytes of the AES-192 key (stock: `key_size` 192, the same in every release).
pub(crate) const AES_KEY_LEN: usize = 24;
/// Bytes of the HMAC-SHA256 key.
const MAC_KEY_LEN: usize = 32;
const RAW_LEN: usize = AES_KEY_LEN + MAC_KEY_LEN;
const TEXT_LEN: usize = 76;

/// A symmetric key as text: 76 characters of base64 over 24 bytes of AES key and 32 bytes of
/// HMAC key (`Crypticle.generate_key_string` in stock's `crypt.py`).
///
/// Has no `Debug`, `Display` or `Clone`; share it in an `Arc`.
pub struct KeyString(Zeroizing<String>);

/// Why a text is not a key string. Says nothing about the text itself, which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyStringError {
    /// Not the one length a key string has.
    #[error("key string has {0} bytes instead of {TEXT_LEN}")]
    Length(usize),
    /// Right length, but not standard base64.
    #[error("key string is not base64")]
    NotBase64,
}

impl KeyString {
    /// Makes a new random key.
    pub fn generate() -> Self {
        let mut raw = Zeroizing::new([0_u8; RAW_LEN]);
        fill_random(raw.as_mut());
        let mut text = Zeroizing::new(String::with_capacity(TEXT_LEN));
        STANDARD.encode_string(raw.as_ref(), &mut text);
        Self(text)
    }

    /// Reads a key string.
    ///
    /// # Errors
    /// Anything but 76 characters of canonical base64. White space is not trimmed, because
    /// stock sends the text on as it is: a file with a newline in it is not the same key.
    pub fn parse(text: &str) -> Result<Self, KeyStringError> {
        if text.len() != TEXT_LEN {
            return Err(KeyStringError::Length(text.len()));
        }
        decode(text)?;
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// Another key, which only a holder of this one can compute: the first bytes of an HMAC-SHA512
    /// of the label under the text.
    #[must_use]
    pub fn derived(&self, label: &[u8]) -> Self {
        Self::derived_from(self.0.as_bytes(), label)
    }

    /// The key of a label that a holder of this secret alone can compute.
    pub(crate) fn derived_from(secret: &[u8], label: &[u8]) -> Self {
        let mac = <Hmac<Sha512> as KeyInit>::new_from_slice(secret)
            .expect("invariant: HMAC takes keys of any length");
        let mut digest = mac.chain_update(label).finalize().into_bytes();
        let mut text = Zeroizing::new(String::with_capacity(TEXT_LEN));
        STANDARD.encode_string(&digest[..RAW_LEN], &mut text);
        digest.as_mut_slice().zeroize();
        Self(text)
    }

    /// The 76 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Lower-case hexadecimal SHA-256 of the text, 64 characters. The X9.31 signature over
    /// these characters is the `sig` of an `_auth` reply; the digest itself is no secret.
    pub fn digest_hex(&self) -> String {
        crate::fingerprint::hex(&sha256(self.0.as_bytes()))
    }

    /// Whether both are the same key, compared in constant time.
    pub fn same_as(&self, other: &KeyString) -> bool {
        ct_eq(self.0.as_bytes(), other.0.as_bytes())
    }

    /// The AES key followed by the HMAC key.
    pub(crate) fn raw(&self) -> Zeroizing<[u8; RAW_LEN]> {
        decode(&self.0).expect("invariant: a KeyString was decoded once before it was made")
    }
}

fn decode(text: &str) -> Result<Zeroizing<[u8; RAW_LEN]>, KeyStringError> {
    let mut raw = Zeroizing::new([0_u8; RAW_LEN]);
    match STANDARD.decode_slice(text, raw.as_mut()) {
        Ok(RAW_LEN) => Ok(raw),
        _ => Err(KeyStringError::NotBase64),
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyString, KeyStringError, TEXT_LEN};

    #[test]
    fn new_key_string_round_trips_and_is_unique() {
        let key = KeyString::generate();
        assert_eq!(key.as_str().len(), TEXT_LEN);
        let again = KeyString::parse(key.as_str()).expect("own key");
        assert!(key.same_as(&again));
        assert!(!key.same_as(&KeyString::generate()));
    }

    #[test]
    fn derived_key_string_depends_on_key_and_label() {
        let key = KeyString::generate();
        let derived = key.derived(b"one");
        assert!(KeyString::parse(derived.as_str()).is_ok());
        assert!(derived.same_as(&key.derived(b"one")));
        assert!(!derived.same_as(&key));
        assert!(!derived.same_as(&key.derived(b"two")));
        assert!(!derived.same_as(&KeyString::generate().derived(b"one")));
    }

    #[test]
    fn malformed_key_string_is_refused() {
        let short = "A".repeat(75);
        let long = "A".repeat(77);
        let unpadded = "A".repeat(76);
        let alien = format!("{}*=", "A".repeat(74));
        let cases = [
            ("", KeyStringError::Length(0)),
            (short.as_str(), KeyStringError::Length(75)),
            (long.as_str(), KeyStringError::Length(77)),
            (unpadded.as_str(), KeyStringError::NotBase64),
            (alien.as_str(), KeyStringError::NotBase64),
        ];
        for (text, expected) in cases {
            assert_eq!(KeyString::parse(text).err(), Some(expected), "{text}");
        }
    }
}
