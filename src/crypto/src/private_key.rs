//! A private RSA key and what Salt does with one: decrypt, sign, and "private encrypt".
//!
//! Has no `Debug`, `Display` or `Clone`; OpenSSL wipes the numbers when it is dropped.
//! Never asks anyone for a passphrase: OpenSSL would do so on the terminal if let.

use std::sync::atomic::{AtomicU64, Ordering};

use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, Rsa};
use openssl::symm::Cipher;

use crate::pem::{KeyError, MAX_BITS, MIN_BITS};
use crate::public_key::{RsaError, check_limits};
use crate::{EncAlgo, PublicKey, SecretBytes, SecretString, SigAlgo, x931};

/// A private RSA key, ready for use. Share it in an `Arc`.
pub struct PrivateKey {
    rsa: Rsa<Private>,
    pkey: PKey<Private>,
    public: PublicKey,
    operations: AtomicU64,
}

impl PrivateKey {
    /// Reads a key in any form stock reads or writes: PKCS#1 or PKCS#8, plain or encrypted.
    /// An empty passphrase counts as none, as in stock; one that is not needed is ignored,
    /// where stock fails to start.
    ///
    /// # Errors
    /// See [`KeyError`]; a missing and a wrong passphrase are different errors.
    pub fn from_pem(text: impl AsRef<[u8]>, passphrase: Option<&str>) -> Result<Self, KeyError> {
        let text = text.as_ref();
        if !text.windows(11).any(|window| window == b"-----BEGIN ") {
            return Err(KeyError::NoPem("private"));
        }
        let passphrase = passphrase.map(str::as_bytes).filter(|p| !p.is_empty());
        let mut asked = false;
        let pkey = PKey::private_key_from_pem_callback(text, |buffer| {
            asked = true;
            // A length of zero makes OpenSSL give up, as does a passphrase it has no room for.
            let given = passphrase.unwrap_or_default();
            Ok(buffer.get_mut(..given.len()).map_or(0, |room| {
                room.copy_from_slice(given);
                given.len()
            }))
        });
        let pkey = pkey.map_err(|cause| match (asked, passphrase) {
            (true, None) => KeyError::PassphraseNeeded,
            (true, Some(_)) => KeyError::WrongPassphrase,
            (false, _) => KeyError::Unreadable {
                kind: "private",
                cause: Some(cause),
            },
        })?;
        let rsa = pkey.rsa().map_err(|_| KeyError::NotRsa)?;
        Self::build(rsa, pkey)
    }

    /// Makes a new key with the public exponent 65537 (stock: `gen_keys`; option `keysize`).
    /// Takes a good fraction of a second of CPU at 2048 bits, several at 4096.
    ///
    /// # Errors
    /// A size outside the limits, or OpenSSL's refusal.
    pub fn generate(bits: u32) -> Result<Self, KeyError> {
        if !(MIN_BITS..=MAX_BITS).contains(&bits) {
            return Err(KeyError::Size(bits));
        }
        let generate = |cause| KeyError::OpenSsl {
            step: "generate",
            cause,
        };
        let rsa = Rsa::generate(bits).map_err(generate)?;
        let pkey = PKey::from_rsa(rsa.clone()).map_err(generate)?;
        Self::build(rsa, pkey)
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Number of decryptions and signatures made with this value: the expensive operations.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    /// The key as stock writes it: PKCS#1 (`RSA PRIVATE KEY`), with a passphrase encrypted
    /// the traditional way with AES-256-CBC. An empty passphrase counts as none.
    ///
    /// # Errors
    /// OpenSSL's refusal.
    pub fn to_pem(&self, passphrase: Option<&str>) -> Result<SecretString, KeyError> {
        let pem = match passphrase.filter(|p| !p.is_empty()) {
            None => self.rsa.private_key_to_pem(),
            Some(passphrase) => self
                .rsa
                .private_key_to_pem_passphrase(Cipher::aes_256_cbc(), passphrase.as_bytes()),
        };
        let pem = pem.map_err(|cause| KeyError::OpenSsl {
            step: "write",
            cause,
        })?;
        let pem = String::from_utf8(pem).expect("invariant: openssl writes pem in ascii");
        Ok(SecretString::new(pem))
    }

    /// Decrypts a secret that was encrypted to the public half.
    ///
    /// # Errors
    /// [`RsaError::Decrypt`] whatever is wrong with the message.
    pub fn decrypt(&self, algo: EncAlgo, message: &[u8]) -> Result<SecretBytes, RsaError> {
        let digest = algo.digest();
        let mut context = PkeyCtx::new(&self.pkey)?;
        context.decrypt_init()?;
        context.set_rsa_padding(Padding::PKCS1_OAEP)?;
        context.set_rsa_oaep_md(digest)?;
        context.set_rsa_mgf1_md(digest)?;
        // Room for the whole block, so that OpenSSL does the expensive operation once only and the
        // secret is never moved to a second buffer.
        let mut plain = vec![0; self.rsa.size() as usize];
        self.count();
        match context.decrypt(message, Some(&mut plain)) {
            Ok(len) => {
                plain.truncate(len);
                Ok(SecretBytes::new(plain))
            }
            Err(_) => Err(RsaError::Decrypt),
        }
    }

    /// Signs `message`; as long as the modulus, and always the same for the same message.
    ///
    /// # Errors
    /// OpenSSL's refusal.
    pub fn sign(&self, algo: SigAlgo, message: &[u8]) -> Result<Vec<u8>, RsaError> {
        let mut signature = vec![0; self.rsa.size() as usize];
        let info = algo.digest_info(message);
        self.count();
        let len = self
            .rsa
            .private_encrypt(&info, &mut signature, Padding::PKCS1)?;
        signature.truncate(len);
        Ok(signature)
    }

    /// "Private encrypts" a message that is not empty and two, four or more bytes shorter than
    /// the modulus, with X9.31 padding; as long as the modulus, and always the same for the
    /// same message.
    ///
    /// # Errors
    /// [`RsaError::Unfit`], or OpenSSL's refusal.
    pub fn x931_sign(&self, message: &[u8]) -> Result<Vec<u8>, RsaError> {
        if !x931::fits(message.len(), self.rsa.size() as usize) {
            return Err(RsaError::Unfit {
                len: message.len(),
                bits: self.public.bits(),
            });
        }
        self.count();
        Ok(x931::sign(&self.rsa, message)?)
    }

    fn build(rsa: Rsa<Private>, pkey: PKey<Private>) -> Result<Self, KeyError> {
        check_limits(&rsa)?;
        let public = PublicKey::of(&rsa)?;
        Ok(Self {
            rsa,
            pkey,
            public,
            operations: AtomicU64::new(0),
        })
    }
}
