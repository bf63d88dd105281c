//! The key that all minions share for publications, and the numbers of those publications.
//!
//! Stock makes a new shared key at every start, which makes every minion authenticate again. Here
//! key and number are kept in `cachedir/saltern/shared_key`. Minions refuse a number that is not
//! above the last one they saw under the same key, so numbers are reserved on disk in blocks before
//! the first of a block is used: after a crash the numbering goes on above everything ever sent.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_crypto::{Crypticle, KeyString, PrivateKey};

use crate::error::{Result, StoreError};
use crate::files::{self, Create};
use crate::options::StoreOptions;

/// How many numbers one write to the disk reserves.
const BLOCK: u64 = 1_024;

/// The first line of the file; a change of the format changes it.
const HEADING: &str = "saltern shared key 1";

const FILE_BYTES: usize = 4 << 10;

/// One shared key.
pub struct SharedKey {
    /// The key as it is sent to minions.
    pub key: KeyString,
    /// The key made ready for use.
    pub crypticle: Crypticle,
    /// When it was made, in seconds since 1970-01-01 UTC.
    pub created: i64,
    signature: OnceLock<Box<[u8]>>,
}

impl SharedKey {
    fn new(key: KeyString, created: i64) -> Self {
        let crypticle = Crypticle::new(&key);
        Self {
            key,
            crypticle,
            created,
            signature: OnceLock::new(),
        }
    }

    /// The `sig` of an `_auth` reply: the X9.31 signature of the key's SHA-256 in hexadecimal.
    ///
    /// It is the same for every minion, so the private RSA operation is done once a key. `master`
    /// must be the same key every time.
    pub fn signature(&self, master: &PrivateKey) -> Result<&[u8]> {
        if let Some(known) = self.signature.get() {
            return Ok(known);
        }
        let signature = master
            .x931_sign(self.key.digest_hex().as_bytes())
            .map_err(|source| StoreError::Crypto {
                action: "sign the shared key",
                source,
            })?;
        Ok(self.signature.get_or_init(|| signature.into_boxed_slice()))
    }
}

/// Keeps the shared key and counts publications.
pub struct SharedKeys {
    path: PathBuf,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    key: Arc<SharedKey>,
    /// The last number given.
    serial: u64,
    /// The highest number that the disk knows of.
    reserved: u64,
}

impl SharedKeys {
    /// Reads the key of a configuration's `cachedir`, or makes the first one.
    pub fn open(config: &MasterConfig, clock: Clock) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config), clock)
    }

    /// The same with this crate's options. A damaged file is replaced by a new key, which costs
    /// every minion one authentication and nothing else.
    pub fn with_options(options: &StoreOptions, clock: Clock) -> Result<Self> {
        let dir = options.private_dir();
        files::ensure_dir(&dir, 0o700)?;
        let path = dir.join("shared_key");
        let kept = files::read_text(&path, FILE_BYTES)?;
        let state = match kept.as_deref().map(parse) {
            Some(Some((key, created, reserved))) => State {
                key: Arc::new(SharedKey::new(key, created)),
                serial: reserved,
                reserved,
            },
            found => {
                if found.is_some() {
                    tracing::warn!(path = %path.display(), "damaged; a new shared key is made");
                }
                fresh(&path, &clock)?
            }
        };
        Ok(Self {
            path,
            clock,
            state: Mutex::new(state),
        })
    }

    /// The key in use.
    pub fn current(&self) -> Arc<SharedKey> {
        Arc::clone(&self.state.lock().key)
    }

    /// A new key, on the disk before it is used; numbers begin anew.
    pub fn rotate(&self) -> Result<Arc<SharedKey>> {
        let mut state = self.state.lock();
        *state = fresh(&self.path, &self.clock)?;
        Ok(Arc::clone(&state.key))
    }

    /// The next number under the current key, above every number given before, also before a
    /// restart. Touches the disk once in about a thousand calls.
    pub fn next_serial(&self) -> Result<u64> {
        self.next().map(|(_, serial)| serial)
    }

    /// The key in use together with its next number: what a publication needs, and safe against a
    /// rotation in between.
    pub fn next(&self) -> Result<(Arc<SharedKey>, u64)> {
        let mut state = self.state.lock();
        let serial = state.serial + 1;
        if serial > state.reserved {
            let reserved = serial + BLOCK;
            write(&self.path, &state.key, reserved)?;
            state.reserved = reserved;
        }
        state.serial = serial;
        Ok((Arc::clone(&state.key), serial))
    }
}

fn fresh(path: &std::path::Path, clock: &Clock) -> Result<State> {
    let key = SharedKey::new(KeyString::generate(), clock.unix());
    write(path, &key, BLOCK)?;
    Ok(State {
        key: Arc::new(key),
        serial: 0,
        reserved: BLOCK,
    })
}

fn write(path: &std::path::Path, key: &SharedKey, reserved: u64) -> Result<()> {
    let text = saltern_crypto::SecretString::new(format!(
        "{HEADING}\nkey {}\ncreated {}\nserial {reserved}\n",
        key.key.as_str(),
        key.created
    ));
    files::write_atomic(path, text.expose().as_bytes(), Create::PRIVATE)
}

fn parse(text: &str) -> Option<(KeyString, i64, u64)> {
    let mut lines = text.lines();
    (lines.next()? == HEADING).then_some(())?;
    let key = KeyString::parse(lines.next()?.strip_prefix("key ")?).ok()?;
    let created = lines.next()?.strip_prefix("created ")?.parse().ok()?;
    let serial = lines.next()?.strip_prefix("serial ")?.parse().ok()?;
    Some((key, created, serial))
}
