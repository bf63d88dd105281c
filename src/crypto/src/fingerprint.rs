//! Fingerprints of public keys, as `salt-key -f`, `salt-call key.finger` and the option
//! `master_finger` show them (stock's `utils/crypt.py`, `pem_finger`).
//!
//! Two forms exist. 3006 and 3007 hash the lines between the PEM armour, and so does 3008
//! when it reads a file. 3008.3 hashes the text of the whole PEM, armour and all, when it has
//! the key in memory, which is what its `salt-key -f` shows: its two commands disagree about
//! the same key. Which form to show is for the caller to say.

use std::fmt::Write as _;

use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};

/// A hash that the option `hash_type` may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HashType {
    /// `md5`
    Md5,
    /// `sha1`
    Sha1,
    /// `sha224`
    Sha224,
    /// `sha256`, the default of every release.
    #[default]
    Sha256,
    /// `sha384`
    Sha384,
    /// `sha512`
    Sha512,
}

/// A hash that this system's OpenSSL does not offer, such as MD5 in FIPS mode.
#[derive(Debug, thiserror::Error)]
#[error("hash \"{name}\" is not available")]
pub struct HashError {
    name: &'static str,
    #[source]
    cause: ErrorStack,
}

impl HashType {
    /// Reads the value of the option `hash_type`.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Md5,
            Self::Sha1,
            Self::Sha224,
            Self::Sha256,
            Self::Sha384,
            Self::Sha512,
        ]
        .into_iter()
        .find(|known| known.name() == name)
    }

    /// The name as the option `hash_type` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    fn digest(self) -> MessageDigest {
        match self {
            Self::Md5 => MessageDigest::md5(),
            Self::Sha1 => MessageDigest::sha1(),
            Self::Sha224 => MessageDigest::sha224(),
            Self::Sha256 => MessageDigest::sha256(),
            Self::Sha384 => MessageDigest::sha384(),
            Self::Sha512 => MessageDigest::sha512(),
        }
    }
}

/// The fingerprint of the lines between the PEM armour, as pairs of hexadecimal digits with
/// colons between. Text without armour is hashed as it is, as 3006 and 3007 do.
///
/// # Errors
/// The hash is not available on this system.
pub fn pem_finger(pem: &[u8], hash_type: HashType) -> Result<String, HashError> {
    match pem_body(pem) {
        Some(body) => text_finger(&body, hash_type),
        None => text_finger(pem, hash_type),
    }
}

/// The fingerprint of the bytes as they are: for a PEM, what `salt-key -f` of 3008.3 shows.
///
/// # Errors
/// The hash is not available on this system.
pub fn text_finger(text: &[u8], hash_type: HashType) -> Result<String, HashError> {
    let digest = hash(hash_type.digest(), text).map_err(|cause| HashError {
        name: hash_type.name(),
        cause,
    })?;
    let mut finger = String::new();
    for (index, byte) in digest.iter().enumerate() {
        let separator = if index == 0 { "" } else { ":" };
        push_hex(&mut finger, separator, *byte);
    }
    Ok(finger)
}

/// Lower-case hexadecimal digits of `bytes`, in one allocation.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        push_hex(&mut text, "", *byte);
    }
    text
}

fn push_hex(text: &mut String, separator: &str, byte: u8) {
    write!(text, "{separator}{byte:02x}").expect("invariant: writing to a string does not fail");
}

/// The lines between the armour lines, each ended by one newline; blank lines do not count
/// and line ends from Windows are made plain. `None` without armour.
fn pem_body(pem: &[u8]) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = pem
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.trim_ascii().is_empty())
        .collect();
    let [first, body @ .., last] = lines.as_slice() else {
        return None;
    };
    let armoured =
        first.trim_ascii().starts_with(b"-----BEGIN") && last.trim_ascii().starts_with(b"-----END");
    armoured.then(|| {
        body.iter()
            .flat_map(|line| line.iter().chain(b"\n"))
            .copied()
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{HashType, hex, pem_finger, text_finger};

    #[test]
    fn text_without_both_armour_lines_is_hashed_whole() {
        let finger = |text: &str| pem_finger(text.as_bytes(), HashType::Sha256).unwrap();
        let whole = |text: &str| text_finger(text.as_bytes(), HashType::Sha256).unwrap();
        assert_eq!(finger("-----BEGIN A\nbody\n-----END A\n"), whole("body\n"));
        for text in [
            "",
            "body",
            "-----BEGIN A",
            "-----BEGIN A\nbody\n",
            "body\n-----END A\n",
            "-----END A\nbody\n-----BEGIN A\n",
        ] {
            assert_eq!(finger(text), whole(text), "{text:?}");
        }
    }

    #[test]
    fn hexadecimal_digits_are_one_allocation() {
        let digits = hex(&[0x00, 0x0f, 0xa0, 0xff, 0x5c]);
        assert_eq!((digits.as_str(), digits.capacity()), ("000fa0ff5c", 10));
    }
}
