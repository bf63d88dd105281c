//! The key that all minions share for publications, and the numbers of those publications.
//!
//! Stock makes a new shared key at every start, which makes every minion authenticate again. Here
//! key and number are kept in `cachedir/saltern/shared_key`. Minions refuse a number that is not
//! above the last one they saw under the same key, so numbers are reserved on disk in blocks before
//! the first of a block is used: after a crash numbers continue above everything ever sent.
//!
//! After a rotation everything is published under the new key at once, because a key is as a rule
//! rotated to revoke access. The previous key is kept for `saltern_key_overlap`, only to decrypt
//! requests of minions that do not have the new one yet; whether it authorizes anything is decided
//! elsewhere. Of several previous keys the last one is kept.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::fail_point::FailPoint;
use saltern_base::planted_bug::PlantedBug;
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
    overlap: Duration,
    clock: Clock,
    state: Mutex<State>,
}

/// The key before the current one.
struct PreviousKey {
    key: Arc<SharedKey>,
    /// When it expires, in seconds since 1970-01-01 UTC.
    until: i64,
}

struct State {
    key: Arc<SharedKey>,
    previous: Option<PreviousKey>,
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
        let kept = files::read_replaceable(&path, FILE_BYTES)?;
        let state = match kept.as_deref().map(parse) {
            Some(Some(kept)) => kept,
            found => {
                if found.is_some() {
                    tracing::warn!(path = %path.display(), "damaged; a new shared key is made");
                }
                fresh(&path, None, &clock)?
            }
        };
        Ok(Self {
            path,
            overlap: options.key_overlap,
            clock,
            state: Mutex::new(state),
        })
    }

    /// The key in use.
    pub fn current(&self) -> Arc<SharedKey> {
        Arc::clone(&self.state.lock().key)
    }

    /// The key before the current one, until it expires.
    pub fn previous(&self) -> Option<Arc<SharedKey>> {
        let left = |previous: &PreviousKey| previous.until.saturating_sub(self.clock.unix());
        let state = self.state.lock();
        // No longer than the overlap either, when the clock was set back.
        let previous = state.previous.as_ref();
        let previous =
            previous.filter(|previous| (1..=self.overlap_seconds()).contains(&left(previous)))?;
        Some(Arc::clone(&previous.key))
    }

    /// A new key, on the disk before it is used; numbers begin anew.
    pub fn rotate(&self) -> Result<Arc<SharedKey>> {
        let mut state = self.state.lock();
        let previous = PreviousKey {
            key: Arc::clone(&state.key),
            until: self.clock.unix().saturating_add(self.overlap_seconds()),
        };
        let previous = (!self.overlap.is_zero()).then_some(previous);
        let made = fresh(&self.path, previous, &self.clock)?;
        FailPoint::RotationBetween.pass();
        *state = made;
        Ok(Arc::clone(&state.key))
    }

    fn overlap_seconds(&self) -> i64 {
        // Kept in whole seconds, and not for less than one.
        let whole = self.overlap.as_secs() + u64::from(self.overlap.subsec_nanos() > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }

    /// The key in use together with its next number, for a publication: safe against a rotation in
    /// between. The number is above every number given before, also before a restart. Touches the
    /// disk once in about a thousand calls.
    pub fn next(&self) -> Result<(Arc<SharedKey>, u64)> {
        let mut state = self.state.lock();
        let serial = state.serial + 1;
        if serial > state.reserved {
            let reserved = serial + BLOCK;
            write(&self.path, &state.key, state.previous.as_ref(), reserved)?;
            state.reserved = reserved;
        }
        state.serial = serial;
        Ok((Arc::clone(&state.key), serial))
    }
}

fn fresh(path: &Path, previous: Option<PreviousKey>, clock: &Clock) -> Result<State> {
    let key = SharedKey::new(KeyString::generate(), clock.unix());
    write(path, &key, previous.as_ref(), BLOCK)?;
    Ok(State {
        key: Arc::new(key),
        previous,
        serial: 0,
        reserved: BLOCK,
    })
}

fn write(
    path: &Path,
    key: &SharedKey,
    previous: Option<&PreviousKey>,
    reserved: u64,
) -> Result<()> {
    let reserved = match PlantedBug::SerialNotSaved.is_planted() {
        true => 0,
        false => reserved,
    };
    let mut text = format!(
        "{HEADING}\nkey {}\ncreated {}\nserial {reserved}\n",
        key.key.as_str(),
        key.created
    );
    if let Some(previous) = previous {
        let (key, created) = (previous.key.key.as_str(), previous.key.created);
        text += &format!(
            "former {key}\ncreated {created}\nuntil {}\n",
            previous.until
        );
    }
    let text = saltern_crypto::SecretString::new(text);
    files::write_atomic(path, text.expose().as_bytes(), Create::PRIVATE)
}

fn parse(text: &str) -> Option<State> {
    let mut lines = text.lines();
    (lines.next()? == HEADING).then_some(())?;
    let key = parse_key(&mut lines, "key ")?;
    let reserved = lines.next()?.strip_prefix("serial ")?.parse().ok()?;
    Some(State {
        key,
        // Not there before the first rotation, nor in files of releases that kept none.
        previous: parse_key(&mut lines, "former ").and_then(|key| {
            let until = lines.next()?.strip_prefix("until ")?.parse().ok()?;
            Some(PreviousKey { key, until })
        }),
        serial: reserved,
        reserved,
    })
}

fn parse_key(lines: &mut std::str::Lines<'_>, name: &str) -> Option<Arc<SharedKey>> {
    let key = KeyString::parse(lines.next()?.strip_prefix(name)?).ok()?;
    let created = lines.next()?.strip_prefix("created ")?.parse().ok()?;
    Some(Arc::new(SharedKey::new(key, created)))
}
