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
//!
//! In a cluster the file is shared ([`crate::shared_state`]): no key and no number is used before the
//! table of the cluster has it, so the master that takes over goes on with the same key, above every
//! number ever sent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::fail_point::FailPoint;
use saltern_base::planted_bug::PlantedBug;
use saltern_config::MasterConfig;
use saltern_crypto::{Crypticle, KeyString, PrivateKey, SecretString};

use crate::error::{Result, StoreError};
use crate::files::{self, Create};
use crate::options::StoreOptions;
use crate::shared_state::{SHARED_KEY, SharedState, StateKind};

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
    /// The signatures by the master's keys that were asked for: one, or two during a rotation.
    signatures: Mutex<Vec<(String, Arc<[u8]>)>>,
}

impl SharedKey {
    fn new(key: KeyString, created: i64) -> Self {
        let crypticle = Crypticle::new(&key);
        Self {
            key,
            crypticle,
            created,
            signatures: Mutex::default(),
        }
    }

    /// The `sig` of an `_auth` reply: the X9.31 signature of the key's SHA-256 in hexadecimal.
    ///
    /// It is the same for every minion, so the private RSA operation is done once a key of the
    /// master.
    pub fn signature(&self, master: &PrivateKey) -> Result<Arc<[u8]>> {
        let mut signatures = self.signatures.lock();
        let public = master.public().pem();
        if let Some((_, known)) = signatures.iter().find(|(signer, _)| signer == public) {
            return Ok(Arc::clone(known));
        }
        let signature = master
            .x931_sign(self.key.digest_hex().as_bytes())
            .map_err(|source| StoreError::Crypto {
                action: "sign the shared key",
                source,
            })?;
        let signature: Arc<[u8]> = signature.into();
        signatures.push((public.to_owned(), Arc::clone(&signature)));
        Ok(signature)
    }
}

/// Keeps the shared key and counts publications.
pub struct SharedKeys {
    path: PathBuf,
    overlap: Duration,
    clock: Clock,
    shared: SharedState,
    /// Held by whoever writes: readers of the state do not wait for the disk or the table.
    writing: Mutex<()>,
    state: Mutex<State>,
}

/// The key before the current one.
#[derive(Clone)]
struct PreviousKey {
    key: Arc<SharedKey>,
    /// When it expires, in seconds since 1970-01-01 UTC.
    until: i64,
}

#[derive(Clone)]
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

    /// Removes the key of a configuration's `cachedir`, for a master whose numbers may be behind: the next
    /// one is made at its start, and each minion authenticates once more.
    pub fn forget(config: &MasterConfig) -> Result<()> {
        let directory = StoreOptions::from(config).private_dir();
        files::remove(&directory.join(SHARED_KEY))?;
        files::sync_dir(&directory)
    }

    /// The same with this crate's options. A damaged file is replaced by a new key, which costs
    /// every minion one authentication and nothing else.
    pub fn with_options(options: &StoreOptions, clock: Clock) -> Result<Self> {
        let dir = options.private_dir();
        files::ensure_dir(&dir, 0o700)?;
        let path = dir.join(SHARED_KEY);
        let kept = files::read_replaceable(&path, FILE_BYTES)?;
        let state = match kept.as_deref().map(parse) {
            Some(Some(kept)) => kept,
            found => {
                if found.is_some() {
                    tracing::warn!(path = %path.display(), "damaged; a new shared key is made");
                }
                let made = fresh(None, &clock);
                write(&path, &text_of(&made))?;
                made
            }
        };
        Ok(Self {
            path,
            overlap: options.key_overlap,
            clock,
            shared: SharedState::default(),
            writing: Mutex::new(()),
            state: Mutex::new(state),
        })
    }

    /// The same, shared with the other masters of a cluster from here on. The table has this key already
    /// unless it is new; should a new one be lost before the table has it, minions authenticate anew.
    #[must_use]
    pub fn shared_by(self, shared: &SharedState) -> Self {
        let text = text_of(&self.state.lock());
        let content = (text.expose().as_bytes(), self.clock.unix_micros());
        shared.put(StateKind::SharedKey, SHARED_KEY, content);
        let shared = shared.clone();
        Self { shared, ..self }
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
        let _writing = self.writing.lock();
        let previous = PreviousKey {
            key: self.current(),
            until: self.clock.unix().saturating_add(self.overlap_seconds()),
        };
        let previous = (!self.overlap.is_zero()).then_some(previous);
        let made = fresh(previous, &self.clock);
        self.write(&made)?;
        FailPoint::RotationBetween.pass();
        *self.state.lock() = made;
        Ok(self.current())
    }

    fn overlap_seconds(&self) -> i64 {
        // Kept in whole seconds, and not for less than one.
        let whole = self.overlap.as_secs() + u64::from(self.overlap.subsec_nanos() > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }

    /// The key in use together with its next number, for a publication: safe against a rotation in
    /// between. The number is above every number given before, also before a restart. Touches the
    /// disk once in about a thousand calls, and in a cluster waits for its table then.
    pub fn next(&self) -> Result<(Arc<SharedKey>, u64)> {
        loop {
            {
                let mut state = self.state.lock();
                if state.serial < state.reserved {
                    state.serial += 1;
                    return Ok((Arc::clone(&state.key), state.serial));
                }
            }
            self.reserve()?;
        }
    }

    /// Reserves a block of numbers, unless there are some by now.
    fn reserve(&self) -> Result<()> {
        let _writing = self.writing.lock();
        let mut state = self.state.lock().clone();
        if state.serial >= state.reserved {
            state.reserved = state.serial + 1 + BLOCK;
            self.write(&state)?;
            self.state.lock().reserved = state.reserved;
        }
        Ok(())
    }

    /// Keeps a state before it is used: the table of a cluster first, which the others read.
    fn write(&self, state: &State) -> Result<()> {
        let text = text_of(state);
        let content = (text.expose().as_bytes(), self.clock.unix_micros());
        self.shared
            .put_durably(StateKind::SharedKey, SHARED_KEY, content)?;
        write(&self.path, &text)
    }
}

fn fresh(previous: Option<PreviousKey>, clock: &Clock) -> State {
    State {
        key: Arc::new(SharedKey::new(KeyString::generate(), clock.unix())),
        previous,
        serial: 0,
        reserved: BLOCK,
    }
}

fn write(path: &Path, text: &SecretString) -> Result<()> {
    files::write_atomic(path, text.expose().as_bytes(), Create::PRIVATE)
}

/// Content of the file.
fn text_of(state: &State) -> SecretString {
    let State { key, reserved, .. } = state;
    let reserved = match PlantedBug::SerialNotSaved.is_planted() {
        true => &0,
        false => reserved,
    };
    let mut text = format!(
        "{HEADING}\nkey {}\ncreated {}\nserial {reserved}\n",
        key.key.as_str(),
        key.created
    );
    if let Some(previous) = &state.previous {
        let (key, created) = (previous.key.key.as_str(), previous.key.created);
        text += &format!(
            "former {key}\ncreated {created}\nuntil {}\n",
            previous.until
        );
    }
    SecretString::new(text)
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
