//! The secret of a cluster, in a file that each member has (`secret_file` of `saltern_cluster`) and its
//! database does not.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use saltern_crypto::{KeyString, MIN_SECRET_LEN, SecretBytes, StateCipher};

use crate::error::{Result, StoreError};
use crate::files::{self, Create};

/// The longest secret that is read.
const MAX_SECRET_LEN: u64 = 4 << 10;

/// Permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// Reads the secret; `None` when there is no file. Ends of lines behind it are not part of it.
///
/// # Errors
/// Others may read the file, or it has too few bytes.
pub(super) fn read_secret(path: &Path) -> Result<Option<SecretBytes>> {
    let failed = |source| StoreError::io("read", path, source);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mode = file.metadata().map_err(failed)?.mode();
    if mode & OTHERS != 0 {
        let mode = mode & 0o7777;
        return Err(refused(
            path,
            &format!("may be used by others than its owner (mode {mode:o}): chmod 0400"),
        ));
    }
    let mut secret = Vec::with_capacity(256);
    let read = file.take(MAX_SECRET_LEN + 1).read_to_end(&mut secret);
    read.map_err(failed)?;
    while secret
        .pop_if(|byte| matches!(*byte, b'\n' | b'\r'))
        .is_some()
    {}
    if secret.len() < MIN_SECRET_LEN {
        let reason = format!(
            "has {} bytes, and a secret has {MIN_SECRET_LEN}",
            secret.len()
        );
        return Err(refused(path, &reason));
    }
    Ok(Some(SecretBytes::new(secret)))
}

/// Reads the keys under which the members of a cluster share their state.
///
/// # Errors
/// The file of the secret is missing, readable by others, or too short.
pub fn read_cipher(path: &Path, cluster: &str) -> Result<StateCipher> {
    let secret = read_secret(path)?.ok_or_else(|| StoreError::Missing {
        path: path.to_owned(),
        reason: "it is the secret_file of saltern_cluster, which \"saltern cluster init\" makes once and \
                 which is copied to the other members",
    })?;
    StateCipher::new(&secret, cluster).ok_or_else(|| refused(path, "is too short"))
}

/// Makes a secret in a new file that belongs to `owner`; `false` when there is a file already, which
/// stays.
///
/// # Errors
/// The file cannot be made.
pub fn create_secret(path: &Path, owner: Option<u32>) -> Result<bool> {
    let secret = KeyString::generate();
    let create = Create {
        owner,
        ..Create::PRIVATE
    };
    files::create_new(path, secret.as_str().as_bytes(), create)
}

fn refused(path: &Path, reason: &str) -> StoreError {
    StoreError::Option {
        option: "saltern_cluster",
        reason: format!("secret_file \"{}\" {reason}", path.display()),
    }
}
