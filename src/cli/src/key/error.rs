//! Why `salt-key` cannot do what it was asked.

use std::io;
use std::path::PathBuf;

use saltern_client::ClientError;
use saltern_crypto::{HashError, KeyError as PemError};
use saltern_store::StoreError;

use crate::minions::MinionsError;

/// A failure of `salt-key`.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    /// A file or directory of the keys.
    #[error("\"{path}\" cannot be used: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The key store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A private key that cannot be made or used.
    #[error("\"{path}\" is no usable key: {source}")]
    Key {
        /// Its file.
        path: PathBuf,
        /// The fault of its content.
        source: PemError,
    },
    /// The hash of fingerprints is not available.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// The signature of the master's public key cannot be made.
    #[error("the public key cannot be signed: {0}")]
    Sign(#[from] saltern_crypto::RsaError),
    /// The master is not reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The master refuses, in its own words.
    #[error("the master refused: {0}")]
    Master(String),
    /// Keys and signatures are made from files of this machine.
    #[error("keys are made on the master's own machine: leave out --eauth")]
    NotOverNetwork,
    /// The master's wheel functions choose by id only.
    #[error("--by-fingerprint works on the master's own machine: leave out --eauth")]
    FingerprintOverNetwork,
    /// Age and address of a key are known on the master's machine.
    #[error("--details works on the master's own machine: leave out --eauth")]
    DetailsOverNetwork,
    /// The running master does not say what it knows of minions.
    #[error(transparent)]
    Minions(#[from] MinionsError),
    /// The prompt found the end of standard input.
    #[error("EOF when reading a line")]
    EndOfInput,
    /// Combination of options that stock refuses in this way.
    #[error("Delete all takes no arguments. Use -d to delete specified keys")]
    DeleteAllWithArguments,
}

impl KeyError {
    /// A failed access to a file.
    pub(super) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        Self::File { path, source }
    }
}
