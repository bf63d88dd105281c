//! A public RSA key and what Salt does with one: encrypt to it, check signatures of its owner.
//!
//! Comes from peers whose keys are not accepted yet, so its size and exponent are bounded
//! before it is used. Whether its owner is trusted is not known here.

use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Public};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, Rsa};

use crate::pem::{self, KeyError, MAX_BITS, MAX_EXPONENT_BITS, MIN_BITS};
use crate::{EncAlgo, HashError, HashType, SigAlgo, clean_key, ct_eq, pem_finger, x931};

/// Why an RSA operation failed.
#[derive(Debug, thiserror::Error)]
pub enum RsaError {
    /// A length that the padding cannot bring to one block of this key, mostly too long.
    #[error("message of {len} bytes does not fit a key of {bits} bits")]
    Unfit {
        /// Bytes given.
        len: usize,
        /// Bits of the key.
        bits: u32,
    },
    /// Not made for this key, or damaged. OpenSSL's reason is kept out on purpose: it would
    /// be an oracle if it ever reached the peer.
    #[error("message cannot be decrypted with this key")]
    Decrypt,
    /// Not signed by the owner of this key, or damaged.
    #[error("signature cannot be opened with this key")]
    Signature,
    /// OpenSSL refused to do its work.
    #[error("rsa operation failed")]
    OpenSsl(#[from] ErrorStack),
}

const SPKI: &str = "PUBLIC KEY";
const PKCS1: &str = "RSA PUBLIC KEY";

/// A public RSA key, ready for use. Share it in an `Arc`.
pub struct PublicKey {
    rsa: Rsa<Public>,
    pkey: PKey<Public>,
    pem: String,
}

impl PublicKey {
    /// Reads a key in any form stock reads: a SubjectPublicKeyInfo under either of the labels
    /// `PUBLIC KEY` and `RSA PUBLIC KEY`, or a bare PKCS#1 key under the second. Text around
    /// the armour is ignored but stays part of [`PublicKey::pem`], as in stock.
    ///
    /// # Errors
    /// Not such a text, not RSA, or a key outside the limits named in [`KeyError`].
    pub fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let unreadable = |cause| KeyError::Unreadable {
            kind: "public",
            cause,
        };
        let text = std::str::from_utf8(text.as_ref()).map_err(|_| KeyError::NoPem("public"))?;
        let (label, der) =
            pem::first_block(text, &[SPKI, PKCS1]).ok_or(KeyError::NoPem("public"))?;
        let bare = if label == PKCS1 {
            Rsa::public_key_from_der_pkcs1(&der).ok()
        } else {
            None
        };
        // The general decoder is many times dearer, so it is asked only what is wrong.
        let rsa = bare
            .map_or_else(|| Rsa::public_key_from_der(&der), Ok)
            .map_err(|cause| match PKey::public_key_from_der(&der) {
                Ok(_) => KeyError::NotRsa,
                Err(_) => unreadable(Some(cause)),
            })?;
        // Built anew from its two numbers, so that nothing of the peer's encoding survives.
        Self::from_numbers(&rsa, clean_key(text))
    }

    /// The key text as it was given, in the normal form of [`clean_key`]: the form in which
    /// keys are compared, stored, and sent as `pub_key`.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Bits of the modulus.
    pub fn bits(&self) -> u32 {
        self.rsa.n().num_bits().unsigned_abs()
    }

    /// The fingerprint over the body of the PEM; see [`pem_finger`], also for the other form.
    ///
    /// # Errors
    /// The hash is not available on this system.
    pub fn fingerprint(&self, hash_type: HashType) -> Result<String, HashError> {
        pem_finger(self.pem.as_bytes(), hash_type)
    }

    /// Encrypts a short secret so that only the owner can read it.
    ///
    /// # Errors
    /// [`RsaError::Unfit`], or OpenSSL's refusal.
    pub fn encrypt(&self, algo: EncAlgo, message: &[u8]) -> Result<Vec<u8>, RsaError> {
        let digest = algo.digest();
        // RFC 8017, section 7.1.1: the block holds two hashes and two more bytes.
        let capacity = (self.rsa.size() as usize).saturating_sub(2 * digest.size() + 2);
        if message.len() > capacity {
            return Err(RsaError::Unfit {
                len: message.len(),
                bits: self.bits(),
            });
        }
        let mut context = PkeyCtx::new(&self.pkey)?;
        context.encrypt_init()?;
        context.set_rsa_padding(Padding::PKCS1_OAEP)?;
        context.set_rsa_oaep_md(digest)?;
        context.set_rsa_mgf1_md(digest)?;
        let mut out = Vec::with_capacity(self.rsa.size() as usize);
        context.encrypt_to_vec(message, &mut out)?;
        Ok(out)
    }

    /// Whether the owner signed `message`. Any defect of the signature is a plain no.
    pub fn verify(&self, algo: SigAlgo, message: &[u8], signature: &[u8]) -> bool {
        let size = self.rsa.size() as usize;
        if signature.len() != size {
            return false;
        }
        let mut found = vec![0; size];
        match self
            .rsa
            .public_decrypt(signature, &mut found, Padding::PKCS1)
        {
            Ok(len) => {
                found.truncate(len);
                ct_eq(&found, &algo.digest_info(message))
            }
            Err(_) => false,
        }
    }

    /// The bytes that the owner put through [`crate::PrivateKey::x931_sign`].
    ///
    /// # Errors
    /// [`RsaError::Signature`] if this is no such signature of this key.
    pub fn x931_recover(&self, signature: &[u8]) -> Result<Vec<u8>, RsaError> {
        // OpenSSL refuses what is longer than the modulus.
        x931::recover(&self.rsa, signature).map_err(|_| RsaError::Signature)
    }

    /// The public half of a private key, with the PEM text stock would write for it.
    pub(crate) fn of(rsa: &Rsa<openssl::pkey::Private>) -> Result<Self, KeyError> {
        let write = |cause| KeyError::OpenSsl {
            step: "write",
            cause,
        };
        let pem = rsa.public_key_to_pem().map_err(write)?;
        let pem = String::from_utf8(pem).expect("invariant: openssl writes pem in ascii");
        Self::from_numbers(rsa, clean_key(&pem))
    }

    fn from_numbers<T>(rsa: &Rsa<T>, pem: String) -> Result<Self, KeyError>
    where
        T: openssl::pkey::HasPublic,
    {
        check_limits(rsa)?;
        let unreadable = |cause| KeyError::Unreadable {
            kind: "public",
            cause: Some(cause),
        };
        let copy = |number: &openssl::bn::BigNumRef| -> Result<BigNum, KeyError> {
            number.to_owned().map_err(unreadable)
        };
        let rsa =
            Rsa::from_public_components(copy(rsa.n())?, copy(rsa.e())?).map_err(unreadable)?;
        let pkey = PKey::from_rsa(rsa.clone()).map_err(unreadable)?;
        Ok(Self { rsa, pkey, pem })
    }
}

/// Refuses keys that are too weak to be meant, too large to be used, or malformed.
pub(crate) fn check_limits<T: openssl::pkey::HasPublic>(rsa: &Rsa<T>) -> Result<(), KeyError> {
    let (modulus, exponent) = (rsa.n(), rsa.e());
    let bits = modulus.num_bits().unsigned_abs();
    if modulus.is_negative() || !(MIN_BITS..=MAX_BITS).contains(&bits) {
        return Err(KeyError::Size(bits));
    }
    // An even modulus is no product of two large primes, and OpenSSL cannot compute with it.
    if !modulus.is_bit_set(0) {
        return Err(KeyError::Unreadable {
            kind: "rsa",
            cause: None,
        });
    }
    let width = exponent.num_bits();
    if exponent.is_negative()
        || !exponent.is_bit_set(0)
        || !(2..=MAX_EXPONENT_BITS).contains(&width)
    {
        return Err(KeyError::Exponent);
    }
    Ok(())
}
