//! The minion's key pair and the master's public key, kept as stock keeps them in `pki_dir`.
//!
//! The master's key is trusted on first use: the first key that answers is the master's, until its
//! file (`minion_master.pub`) is removed. What may replace it is decided in `sign_in`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use saltern_crypto::{PrivateKey, PublicKey};

use crate::error::FileError;

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file holds no usable key.
    #[error("the key file \"{path}\" cannot be used: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A key cannot be made or used.
    #[error("a key pair cannot be made: {0}")]
    Generate(String),
}

/// The file of the master's key.
const MINION_MASTER: &str = "minion_master.pub";

/// A minion's key pair with what is the same for every request made with it.
pub struct MinionKeys {
    /// The private key.
    pub private: PrivateKey,
    /// The public key as it is sent: PEM without the final newline.
    pub public_pem: Arc<str>,
    /// The proof that goes with every request: `salt` under X9.31 (protocol.md, 3.4). It is
    /// constant for a key, so that it is computed once.
    pub token: Bytes,
}

impl MinionKeys {
    /// Completes a private key.
    pub fn new(private: PrivateKey) -> Result<Self, KeyError> {
        let token = private
            .x931_sign(b"salt")
            .map_err(|error| KeyError::Generate(error.to_string()))?;
        let public_pem = Arc::from(private.public().pem());
        Ok(Self {
            private,
            public_pem,
            token: Bytes::from(token),
        })
    }

    /// A new key pair of `bits` that stands in no file.
    pub fn generate(bits: u32) -> Result<Self, KeyError> {
        let private =
            PrivateKey::generate(bits).map_err(|error| KeyError::Generate(error.to_string()))?;
        Self::new(private)
    }
}

/// Store of the master's public key.
pub trait MasterKeyStore: Send + Sync {
    /// The name of the file that holds the trusted key, for messages.
    fn file_name(&self) -> &str {
        MINION_MASTER
    }
    /// The trusted key; `None` before the first contact.
    fn load(&self) -> Result<Option<Arc<PublicKey>>, KeyError>;
    /// Trusts `key` from now on.
    fn store(&self, key: &Arc<PublicKey>) -> Result<(), KeyError>;
    /// The public key with which the master's key must be signed.
    fn load_signing(&self, name: &str) -> Result<Option<PublicKey>, KeyError>;
}

/// The directory `pki_dir` of one minion.
#[derive(Debug, Clone)]
pub struct PkiDir {
    path: PathBuf,
    master: String,
    /// Another file whose key is trusted while that of the master is not there.
    fallback: Option<String>,
}

impl PkiDir {
    /// Uses `path`, making it (mode 0700) when it is not there.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        if !path.is_dir() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(|source| FileError::new("create", path, source))?;
        }
        Ok(Self {
            path: path.to_owned(),
            master: MINION_MASTER.to_owned(),
            fallback: None,
        })
    }

    /// The same with the master's key in `master`; while that file is absent, the key in `fallback`
    /// is the trusted one.
    #[must_use]
    pub fn with_master_key(self, master: String, fallback: Option<String>) -> Self {
        Self {
            master,
            fallback,
            ..self
        }
    }

    /// The minion's key pair, made when there is none.
    pub fn keys(&self, bits: u32) -> Result<MinionKeys, KeyError> {
        let path = self.path.join("minion.pem");
        let keys = match fs::read_to_string(&path) {
            Ok(pem) => {
                let private = PrivateKey::from_pem(pem.as_bytes(), None).map_err(|error| {
                    KeyError::Unusable {
                        path,
                        reason: error.to_string(),
                    }
                })?;
                MinionKeys::new(private)?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let keys = MinionKeys::generate(bits)?;
                let pem = keys
                    .private
                    .to_pem(None)
                    .map_err(|error| KeyError::Generate(error.to_string()))?;
                write(&path, pem.expose().as_bytes(), 0o400)?;
                keys
            }
            Err(source) => return Err(FileError::new("read", &path, source).into()),
        };
        let public = self.path.join("minion.pub");
        if !public.exists() {
            write(&public, keys.public_pem.as_bytes(), 0o644)?;
        }
        Ok(keys)
    }

    fn read_key(&self, name: &str) -> Result<Option<PublicKey>, KeyError> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(pem) => match PublicKey::from_pem(&pem) {
                Ok(key) => Ok(Some(key)),
                Err(error) => Err(KeyError::Unusable {
                    path,
                    reason: error.to_string(),
                }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FileError::new("read", &path, source).into()),
        }
    }
}

impl MasterKeyStore for PkiDir {
    fn file_name(&self) -> &str {
        match &self.fallback {
            Some(fallback) if !self.path.join(&self.master).exists() => fallback,
            _ => &self.master,
        }
    }

    fn load(&self) -> Result<Option<Arc<PublicKey>>, KeyError> {
        let own = self.read_key(&self.master)?;
        let key = match (own, &self.fallback) {
            (None, Some(fallback)) => self.read_key(fallback)?,
            (own, _) => own,
        };
        Ok(key.map(Arc::new))
    }

    fn store(&self, key: &Arc<PublicKey>) -> Result<(), KeyError> {
        write(&self.path.join(&self.master), key.pem().as_bytes(), 0o644)
    }

    fn load_signing(&self, name: &str) -> Result<Option<PublicKey>, KeyError> {
        self.read_key(&format!("{name}.pub"))
    }
}

/// Keeps the master's key in memory only; what the swarm's minions share.
#[derive(Default)]
pub struct MemoryStore {
    key: parking_lot::Mutex<Option<Arc<PublicKey>>>,
}

impl MasterKeyStore for MemoryStore {
    fn load(&self) -> Result<Option<Arc<PublicKey>>, KeyError> {
        Ok(self.key.lock().clone())
    }

    fn store(&self, key: &Arc<PublicKey>) -> Result<(), KeyError> {
        *self.key.lock() = Some(Arc::clone(key));
        Ok(())
    }

    fn load_signing(&self, _name: &str) -> Result<Option<PublicKey>, KeyError> {
        Ok(None)
    }
}

/// Writes a whole file under its name or not at all.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), KeyError> {
    let new = path.with_extension("new");
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&new)
        .and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&new, path));
    if let Err(source) = written {
        // The half-written file is in nobody's way, but it should not stay.
        let _ = fs::remove_file(&new);
        return Err(FileError::new("write", path, source).into());
    }
    Ok(())
}
