//! The X9.31 signature primitive that Salt calls "private encrypt": the `tok` of every
//! minion request and the `sig` over a master's AES key (stock's `utils/rsax931.py`).
//!
//! It signs the bytes it is given without hashing them, and gives them back when verified.
//! The padding itself is OpenSSL's, as in stock; the `openssl` crate has no name for it.

use openssl::error::ErrorStack;
use openssl::pkey::{HasPrivate, HasPublic};
use openssl::rsa::{Padding, RsaRef};

/// `RSA_X931_PADDING` of OpenSSL's `rsa.h`.
const RSA_X931_PADDING: i32 = 5;

/// Bytes of a modulus that are not message: the header nibbles and the trailer `cc`.
const OVERHEAD: usize = 2;

/// The longest message that a key with `modulus_len` bytes can sign.
pub(crate) fn capacity(modulus_len: usize) -> usize {
    modulus_len.saturating_sub(OVERHEAD)
}

/// Pads `message`, applies the private key, and returns the smaller of `s` and `n - s`, as
/// long as the modulus.
pub(crate) fn sign<T: HasPrivate>(key: &RsaRef<T>, message: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    let mut signature = vec![0; key.size() as usize];
    let len = key.private_encrypt(message, &mut signature, Padding::from_raw(RSA_X931_PADDING))?;
    signature.truncate(len);
    Ok(signature)
}

/// Applies the public key, takes `n - m` where that is the padded block, and unpads it.
pub(crate) fn recover<T: HasPublic>(
    key: &RsaRef<T>,
    signature: &[u8],
) -> Result<Vec<u8>, ErrorStack> {
    let mut message = vec![0; key.size() as usize];
    let len = key.public_decrypt(signature, &mut message, Padding::from_raw(RSA_X931_PADDING))?;
    message.truncate(len);
    Ok(message)
}
