//! The envelope of every encrypted message: AES-192-CBC, then HMAC-SHA256 over IV and
//! ciphertext, with stock's `pickle::` mark in front of the plaintext (`Crypticle` in
//! stock's `crypt.py`).
//!
//! The content inside the mark is not looked at here. The `serial` of a publication is part of the
//! decoded message and is checked by the code that decodes it.

use aes::{Aes192Dec, Aes192Enc};
use bytes::Bytes;
use cbc::cipher::array::Array;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::key_string::AES_KEY_LEN;
use crate::{KeyString, ct_eq, public_random};

/// Bytes of the nonce that a reply carries between the mark and the message.
pub const NONCE_LEN: usize = 32;

/// The mark is a relic: nothing has been pickled since 2011, but every peer checks for it.
const MARK: &[u8] = b"pickle::";
const BLOCK: usize = 16;
const TAG: usize = 32;

/// Why a message could not be opened. The peer never learns which: it sees `bad load`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Shorter than an IV and an authentication tag.
    #[error("message of {0} bytes is too short to be encrypted")]
    TooShort(usize),
    /// Made with another key, or changed on the way.
    #[error("message authentication failed")]
    NotAuthentic,
    /// Authentic, but the ciphertext is empty or not a whole number of blocks.
    #[error("ciphertext of {0} bytes is not made of whole blocks")]
    Ragged(usize),
    /// Authentic, but the plaintext does not end in PKCS#7 padding.
    #[error("plaintext has no valid padding")]
    Padding,
    /// Authentic, but without the `pickle::` mark. Stock goes on with an empty map here.
    #[error("plaintext does not begin with the mark of a salt message")]
    NoMark,
    /// The reply belongs to another request.
    #[error("nonce of the reply is not the nonce of the request")]
    Nonce,
}

/// A symmetric key made ready for use: expanded AES round keys and a keyed HMAC state.
///
/// Making one costs two key expansions and two hash blocks, using one nothing of the kind;
/// keep it for as long as the key lives. Has no `Debug` or `Clone`; share it in an `Arc`.
pub struct Crypticle {
    seal: Aes192Enc,
    open: Aes192Dec,
    mac: Hmac<Sha256>,
}

impl Crypticle {
    /// Prepares `key`.
    pub fn new(key: &KeyString) -> Self {
        let raw = key.raw();
        let (aes, mac) = raw.split_at(AES_KEY_LEN);
        let seal = Aes192Enc::new_from_slice(aes).expect("invariant: 24 bytes are an AES-192 key");
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(mac)
            .expect("invariant: HMAC takes a key of any length");
        let open = Aes192Dec::from(&seal);
        Self { seal, open, mac }
    }

    /// Encrypts `plain` as it is: IV, ciphertext, tag.
    pub fn encrypt(&self, plain: &[u8]) -> Vec<u8> {
        self.encrypt_parts(&[plain])
    }

    /// Encrypts a packed message the way `Crypticle.dumps` does: with the mark and, for a
    /// reply, the request's nonce in front. An empty nonce counts as none, as in stock.
    pub fn dumps(&self, packed: &[u8], nonce: Option<&[u8]>) -> Vec<u8> {
        self.encrypt_parts(&[MARK, nonce.unwrap_or_default(), packed])
    }

    /// Decrypts what [`Crypticle::encrypt`] made.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is decrypted before the whole message is authenticated.
    pub fn decrypt(&self, message: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (rest, tag) = message
            .split_last_chunk::<TAG>()
            .filter(|(rest, _)| rest.len() >= BLOCK)
            .ok_or(OpenError::TooShort(message.len()))?;
        let mut mac = self.mac.clone();
        mac.update(rest);
        mac.verify_slice(tag).map_err(|_| OpenError::NotAuthentic)?;

        let (iv, ciphertext) = rest
            .split_first_chunk::<BLOCK>()
            .ok_or(OpenError::TooShort(message.len()))?;
        let mut plain = ciphertext.to_vec();
        let (blocks, tail) = Array::slice_as_chunks_mut(&mut plain);
        if blocks.is_empty() || !tail.is_empty() {
            return Err(OpenError::Ragged(ciphertext.len()));
        }
        cbc::Decryptor::inner_iv_init(&self.open, iv.into()).decrypt_blocks(blocks);
        plain.truncate(unpadded_len(&plain).ok_or(OpenError::Padding)?);
        Ok(plain)
    }

    /// Opens a message without a nonce (a request, a publication): the packed message.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn loads(&self, message: &[u8]) -> Result<Bytes, OpenError> {
        let plain = self.decrypt(message)?;
        if !plain.starts_with(MARK) {
            return Err(OpenError::NoMark);
        }
        Ok(Bytes::from(plain).slice(MARK.len()..))
    }

    /// Opens a reply and checks that it answers the request with this nonce.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn loads_with_nonce(&self, message: &[u8], nonce: &[u8]) -> Result<Bytes, OpenError> {
        let body = self.loads(message)?;
        match body.split_at_checked(NONCE_LEN) {
            Some((found, _)) if ct_eq(found, nonce) => Ok(body.slice(NONCE_LEN..)),
            _ => Err(OpenError::Nonce),
        }
    }

    /// Encrypts the parts as one plaintext, in one allocation of the final size.
    fn encrypt_parts(&self, parts: &[&[u8]]) -> Vec<u8> {
        let plain_len: usize = parts.iter().map(|part| part.len()).sum();
        let padding = BLOCK - plain_len % BLOCK;
        let iv: [u8; BLOCK] = public_random();

        let mut out = Vec::with_capacity(BLOCK + plain_len + padding + TAG);
        out.extend_from_slice(&iv);
        for part in parts {
            out.extend_from_slice(part);
        }
        // The padding byte is its own count and at most one block, so it fits.
        out.resize(out.len() + padding, padding as u8);

        let (_, body) = out.split_at_mut(BLOCK);
        let (blocks, _) = Array::slice_as_chunks_mut(body);
        cbc::Encryptor::inner_iv_init(&self.seal, (&iv).into()).encrypt_blocks(blocks);

        let mut mac = self.mac.clone();
        mac.update(&out);
        out.extend_from_slice(&mac.finalize().into_bytes());
        out
    }
}

/// The length without PKCS#7 padding. Stock looks at the last byte only; the whole padding
/// is checked here, which every stock peer passes and costs nothing.
fn unpadded_len(plain: &[u8]) -> Option<usize> {
    let count = usize::from(*plain.last()?);
    let keep = plain.len().checked_sub(count)?;
    let padding = plain.get(keep..)?;
    let sound = (1..=BLOCK).contains(&count) && padding.iter().all(|b| usize::from(*b) == count);
    sound.then_some(keep)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An authentic message around any plaintext blocks, which `encrypt` would never make.
    fn forged(crypticle: &Crypticle, plain: &[u8]) -> Vec<u8> {
        let iv = [9_u8; BLOCK];
        let mut body = plain.to_vec();
        let (blocks, _) = Array::slice_as_chunks_mut(&mut body);
        cbc::Encryptor::inner_iv_init(&crypticle.seal, (&iv).into()).encrypt_blocks(blocks);
        let mut message = [iv.as_slice(), &body].concat();
        let mut mac = crypticle.mac.clone();
        mac.update(&message);
        message.extend_from_slice(&mac.finalize().into_bytes());
        message
    }

    #[test]
    fn authentic_message_with_malformed_plaintext_is_an_error() {
        let crypticle = Crypticle::new(&KeyString::generate());
        let block = |last: &[u8]| [&vec![b'x'; BLOCK - last.len()], last].concat();
        let cases = [
            (block(&[0]), OpenError::Padding),
            (block(&[17]), OpenError::Padding),
            (block(&[255]), OpenError::Padding),
            (block(&[3, 2, 3]), OpenError::Padding),
            ([[17; BLOCK], [17; BLOCK]].concat(), OpenError::Padding),
            (vec![], OpenError::Ragged(0)),
            (vec![1; 15], OpenError::Ragged(15)),
            (vec![1; 17], OpenError::Ragged(17)),
            (block(&[1]), OpenError::NoMark),
            (vec![16; BLOCK], OpenError::NoMark),
        ];
        for (plain, expected) in cases {
            let message = forged(&crypticle, &plain);
            assert_eq!(crypticle.loads(&message), Err(expected), "{plain:?}");
        }
        assert_eq!(
            crypticle.decrypt(&forged(&crypticle, &[16; BLOCK])),
            Ok(vec![])
        );
    }

    #[test]
    fn a_reply_too_short_for_a_nonce_has_none() {
        let crypticle = Crypticle::new(&KeyString::generate());
        let message = crypticle.dumps(b"short", None);
        assert_eq!(
            crypticle.loads_with_nonce(&message, b"short"),
            Err(OpenError::Nonce)
        );
    }

    #[test]
    fn message_below_the_minimum_length_is_too_short() {
        let crypticle = Crypticle::new(&KeyString::generate());
        for len in 0..BLOCK + TAG {
            assert_eq!(
                crypticle.decrypt(&vec![0; len]),
                Err(OpenError::TooShort(len))
            );
        }
        assert_eq!(
            crypticle.decrypt(&[0; BLOCK + TAG]),
            Err(OpenError::NotAuthentic)
        );
    }

    #[test]
    fn an_encrypted_message_is_one_allocation_of_its_own_size() {
        let crypticle = Crypticle::new(&KeyString::generate());
        for len in [0, 1, 15, 16, 1000] {
            let message = crypticle.encrypt(&vec![7; len]);
            assert_eq!(message.len(), message.capacity(), "{len}");
        }
    }

    #[test]
    fn encrypting_twice_gives_different_ciphertexts() {
        let crypticle = Crypticle::new(&KeyString::generate());
        assert_ne!(crypticle.encrypt(b"salt"), crypticle.encrypt(b"salt"));
    }
}
