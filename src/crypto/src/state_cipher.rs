//! Seals rows of a shared table under a secret that its database does not have: AES-256-GCM, with a key
//! for each message and with the row that it belongs to as associated data.
//!
//! A message's key is an HMAC of a random salt, so no nonce is ever used twice under one key, however
//! many messages there are. A row's id is an HMAC of its name: whoever reads the table learns neither
//! names nor contents. Who may write the table can remove rows or put an old message of the same row and
//! version back, and nothing else.

use hmac::{Hmac, KeyInit, Mac};
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::{KeyString, SecretBytes, fill_random};

/// Bytes of the id of a row.
pub const ROW_ID_LEN: usize = 32;

/// Bytes of the shortest secret.
pub const MIN_SECRET_LEN: usize = 32;

const SALT: usize = 32;
const TAG: usize = 16;

/// Each message has a key of its own.
const NONCE: [u8; 12] = [0; 12];

type Key = Zeroizing<[u8; 32]>;

/// Why a sealed row could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Shorter than a salt and an authentication tag.
    #[error("a sealed row of {0} bytes is too short")]
    TooShort(usize),
    /// Made with another secret or for another row, or changed.
    #[error("a sealed row is not authentic")]
    NotAuthentic,
    /// The library refused.
    #[error("a row cannot be sealed")]
    Cipher,
}

/// Keys made of a secret. Has no `Debug` or `Clone`; share it in an `Arc`.
pub struct StateCipher {
    ids: Key,
    messages: Key,
    member: Key,
    users: Key,
    check: [u8; 32],
}

impl StateCipher {
    /// Derives the keys for a cluster of this name; `None` for a secret of less than
    /// [`MIN_SECRET_LEN`] bytes.
    pub fn new(secret: &SecretBytes, cluster: &str) -> Option<Self> {
        let secret = secret.expose();
        if secret.len() < MIN_SECRET_LEN {
            return None;
        }
        let derive = |purpose: &[u8]| mac(secret, &[purpose, cluster.as_bytes()]);
        Some(Self {
            ids: derive(b"saltern state 1 ids\0"),
            messages: derive(b"saltern state 1 messages\0"),
            member: derive(b"saltern member 1 key\0"),
            users: derive(b"saltern user 1 keys\0"),
            check: *derive(b"saltern state 1 check\0"),
        })
    }

    /// A value that is the same for the same secret and cluster, and shows nothing of the secret.
    pub fn check(&self) -> &[u8; 32] {
        &self.check
    }

    /// The private key by which members know each other, the same for the same secret and cluster.
    pub fn member_key(&self) -> &[u8; 32] {
        &self.member
    }

    /// The key by which a user of this name proves itself to any member, the same for the same secret and
    /// cluster.
    pub fn user_key(&self, user: &str) -> KeyString {
        KeyString::derived_from(&*self.users, user.as_bytes())
    }

    /// The id of the row of this name.
    pub fn row_id(&self, name: &[u8]) -> [u8; ROW_ID_LEN] {
        *mac(&*self.ids, &[name])
    }

    /// Seals the content of a row.
    ///
    /// # Errors
    /// [`SealError::Cipher`] only.
    pub fn seal(
        &self,
        id: &[u8; ROW_ID_LEN],
        version: i64,
        plain: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let mut salt = [0; SALT];
        fill_random(&mut salt);
        let key = mac(&*self.messages, &[&salt]);
        let (data, mut tag) = (associated(id, version), [0; TAG]);
        let cipher = Cipher::aes_256_gcm();
        let sealed = encrypt_aead(cipher, &*key, Some(&NONCE), &data, plain, &mut tag);
        let sealed = sealed.map_err(|_| SealError::Cipher)?;
        Ok([&salt[..], &sealed, &tag].concat())
    }

    /// Opens the content of a row.
    ///
    /// # Errors
    /// It was not sealed with this secret for this row and version, or was changed.
    pub fn open(
        &self,
        id: &[u8; ROW_ID_LEN],
        version: i64,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let short = SealError::TooShort(sealed.len());
        let (salt, rest) = sealed.split_at_checked(SALT).ok_or(short)?;
        let at = rest.len().checked_sub(TAG).ok_or(short)?;
        let (ciphertext, tag) = rest.split_at_checked(at).ok_or(short)?;
        let key = mac(&*self.messages, &[salt]);
        let (data, cipher) = (associated(id, version), Cipher::aes_256_gcm());
        let plain = decrypt_aead(cipher, &*key, Some(&NONCE), &data, ciphertext, tag);
        plain
            .map(Zeroizing::new)
            .map_err(|_| SealError::NotAuthentic)
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .expect("invariant: HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

fn associated(id: &[u8; ROW_ID_LEN], version: i64) -> [u8; ROW_ID_LEN + 8] {
    let mut data = [0; ROW_ID_LEN + 8];
    let (first, second) = data.split_at_mut(ROW_ID_LEN);
    first.copy_from_slice(id);
    second.copy_from_slice(&version.to_be_bytes());
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(secret: u8, cluster: &str) -> StateCipher {
        StateCipher::new(&SecretBytes::new(vec![secret; 32]), cluster).expect("long enough")
    }

    #[test]
    fn sealed_row_opens_under_its_secret_id_and_version_only() {
        let ours = cipher(1, "saltern");
        let id = ours.row_id(b"session m1");
        let sealed = ours.seal(&id, 7, b"a key").expect("sealed");
        let opened = ours.open(&id, 7, &sealed).expect("opened");
        assert_eq!(&opened[..], b"a key");
        assert_ne!(sealed, ours.seal(&id, 7, b"a key").expect("sealed"));
        assert!(!sealed.windows(5).any(|part| part == b"a key"));

        let refused = |cipher: &StateCipher, id: &[u8; 32], version, sealed: &[u8]| {
            cipher.open(id, version, sealed).err()
        };
        let not_authentic = Some(SealError::NotAuthentic);
        let renamed = ours.row_id(b"session m2");
        assert_eq!(refused(&ours, &renamed, 7, &sealed), not_authentic);
        assert_eq!(refused(&ours, &id, 8, &sealed), not_authentic);
        assert_eq!(
            refused(&cipher(2, "saltern"), &id, 7, &sealed),
            not_authentic
        );
        assert_eq!(refused(&cipher(1, "other"), &id, 7, &sealed), not_authentic);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(refused(&ours, &id, 7, &changed), not_authentic, "{at}");
        }
        for length in 0..SALT + TAG {
            let cut = refused(&ours, &id, 7, &sealed[..length]);
            assert_eq!(cut, Some(SealError::TooShort(length)));
        }
        let empty = ours.seal(&id, 0, b"").expect("sealed");
        assert!(ours.open(&id, 0, &empty).expect("opened").is_empty());
    }

    #[test]
    fn ids_and_checks_follow_from_secret_and_cluster() {
        let same = cipher(1, "saltern");
        assert_eq!(cipher(1, "saltern").check(), same.check());
        assert_eq!(cipher(1, "saltern").member_key(), same.member_key());
        assert_ne!(same.member_key(), same.check());
        assert_eq!(cipher(1, "saltern").row_id(b"a"), same.row_id(b"a"));
        assert_ne!(same.row_id(b"a"), same.row_id(b"b"));
        let user_key = |cipher: &StateCipher, user| cipher.user_key(user).as_str().to_owned();
        assert_eq!(
            user_key(&cipher(1, "saltern"), "root"),
            user_key(&same, "root")
        );
        assert_ne!(user_key(&same, "root"), user_key(&same, "ann"));
        for other in [cipher(2, "saltern"), cipher(1, "other")] {
            assert_ne!(other.check(), same.check());
            assert_ne!(other.member_key(), same.member_key());
            assert_ne!(other.row_id(b"a"), same.row_id(b"a"));
            assert_ne!(user_key(&other, "root"), user_key(&same, "root"));
        }
        let short = SecretBytes::new(vec![1; MIN_SECRET_LEN - 1]);
        assert!(StateCipher::new(&short, "saltern").is_none());
    }
}
