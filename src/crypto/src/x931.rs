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

/// Whether a message of `len` bytes can be signed with a modulus of `modulus_len` bytes and
/// read back. The padding takes two bytes at least. A message that leaves exactly three would
/// be padded without filler, and an empty one without content: OpenSSL writes either but
/// refuses to read it, so nobody could verify the signature.
pub(crate) fn fits(len: usize, modulus_len: usize) -> bool {
    len > 0 && len + 2 <= modulus_len && len + 3 != modulus_len
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

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn message_fits_with_two_or_more_than_three_bytes_left() {
        for (len, expected) in [
            (0, false),
            (1, true),
            (252, true),
            (253, false),
            (254, true),
            (255, false),
            (256, false),
        ] {
            assert_eq!(fits(len, 256), expected, "{len}");
        }
    }
}
