//! PEM texts: their normal form, the armour around a key, and why a key is refused.
//!
//! Private keys are taken apart by OpenSSL, which knows every form stock writes. The armour
//! of public keys is read here, because stock's library accepts one label with either of two
//! DER forms, and OpenSSL does not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::error::ErrorStack;
use saltern_python::text::{splitlines, strip};

/// Why a key could not be read, made or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No PEM armour of a fitting kind in the text.
    #[error("no {0} key in pem form")]
    NoPem(&'static str),
    /// Armour, but not a key that can be read inside.
    #[error("{kind} key cannot be read")]
    Unreadable {
        /// `public` or `private`.
        kind: &'static str,
        /// The error of OpenSSL, where it was used.
        #[source]
        cause: Option<ErrorStack>,
    },
    /// The private key is encrypted and no passphrase was given (option `key_pass`).
    #[error("private key is encrypted and no passphrase is configured")]
    PassphraseNeeded,
    /// The private key is encrypted and the passphrase given does not open it.
    #[error("passphrase does not open the private key")]
    WrongPassphrase,
    /// A key, but an elliptic one or another kind that Salt cannot use.
    #[error("key is not an rsa key")]
    NotRsa,
    /// A modulus that is too small for the protocol or absurdly large.
    #[error("rsa key of {0} bits is not between {MIN_BITS} and {MAX_BITS} bits")]
    Size(u32),
    /// An even or extreme public exponent.
    #[error("rsa key has an unusable public exponent")]
    Exponent,
    /// OpenSSL could not generate or write the key.
    #[error("cannot {step} rsa key")]
    OpenSsl {
        /// `generate` or `write`.
        step: &'static str,
        /// The error of OpenSSL.
        #[source]
        cause: ErrorStack,
    },
}

/// Smallest modulus: a key string and OAEP with SHA-224 need 1072 bits, stock's own minimum
/// for new keys is 2048, its library's minimum for reading keys 1024.
pub(crate) const MIN_BITS: u32 = 1024;
/// Largest modulus, which is OpenSSL's own limit for public operations.
pub(crate) const MAX_BITS: u32 = 16384;
/// Largest public exponent in bits (FIPS 186-4). Without a limit an unauthenticated peer could make every
/// operation with its key arbitrarily expensive.
pub(crate) const MAX_EXPONENT_BITS: i32 = 256;

/// A key text in its normal form: no white space around it, lines ended by `\n` alone, none
/// at the end (stock's `clean_key` in `crypt.py`). Two keys are the same if these are equal.
pub fn clean_key(text: &str) -> String {
    splitlines(strip(text)).join("\n")
}

/// The first armour in `text` with one of these labels: the label and the DER inside.
pub(crate) fn first_block<'a>(text: &'a str, labels: &[&str]) -> Option<(&'a str, Vec<u8>)> {
    let mut rest = text;
    loop {
        let (_, after) = rest.split_once("-----BEGIN ")?;
        let (label, after) = after.split_once("-----")?;
        if labels.contains(&label) {
            let (body, _) = after.split_once(&format!("-----END {label}-----"))?;
            let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            return Some((label, STANDARD.decode(body).ok()?));
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::{clean_key, first_block};

    #[test]
    fn cleaned_pem_has_unix_line_ends() {
        let cases = [
            ("", ""),
            (" \r\n\t", ""),
            ("a\nb\n", "a\nb"),
            ("a\r\nb\r\n", "a\nb"),
            ("a\rb", "a\nb"),
            ("a\r\rb", "a\n\nb"),
            ("a\n\r\nb", "a\n\nb"),
            ("  a \n b  ", "a \n b"),
            ("\u{1f}a\u{2028}b\u{85}c\u{1f}", "a\nb\nc"),
        ];
        for (given, expected) in cases {
            assert_eq!(clean_key(given), expected, "{given:?}");
        }
    }

    #[test]
    fn pem_needs_complete_armour_with_the_right_label() {
        let block = "x -----BEGIN A-----\nAAEC\n-----END A----- y";
        assert_eq!(first_block(block, &["A"]), Some(("A", vec![0, 1, 2])));
        assert_eq!(first_block(block, &["B", "A"]), Some(("A", vec![0, 1, 2])));
        assert_eq!(first_block(block, &["B"]), None);
        let two = format!("-----BEGIN B-----\nAAAA\n-----END B-----\n{block}");
        assert_eq!(first_block(&two, &["A"]), Some(("A", vec![0, 1, 2])));
        let broken = [
            "",
            "-----BEGIN A",
            "-----BEGIN A-----AAEC",
            "-----BEGIN A-----AAEC-----END B-----",
            "-----BEGIN A-----A*EC-----END A-----",
        ];
        for text in broken {
            assert_eq!(first_block(text, &["A"]), None, "{text:?}");
        }
    }
}
