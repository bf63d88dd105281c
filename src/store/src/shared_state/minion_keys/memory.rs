//! Rows as this member has seen them last, in a file of its own: what differs from it on disk is a change of this
//! machine, and a row that is older is none.
//!
//! `cachedir/saltern/cluster_keys`: a line of its own for each minion. Without the file, or with one of another
//! secret, a member joins anew.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use saltern_base::hex;
use saltern_config::MasterConfig;
use saltern_crypto::StateCipher;
use saltern_model::{KeyState, MinionId};

use super::record::{Digest, Digests};
use crate::error::Result;
use crate::files::{self, Create};

/// Room for some millions of minions.
const MAX_FILE_LEN: usize = 1 << 30;

/// Microseconds between two writes of an unchanged memory, whose time counts.
const SAVE_INTERVAL: i64 = 3_600_000_000;

/// The same, where pending or denied keys were changed only: any peer can cause them, and each write waits for the disk.
const MINOR_SAVE_INTERVAL: i64 = 5_000_000;

/// How the first line begins.
const HEAD: &str = "saltern minion keys 1";

/// How the line of a minion begins whose key counts no longer.
const DEMOTED: &str = "demoted";

/// A row as it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// 0 for none.
    pub(super) version: i64,
    pub(super) keys: Digests,
}

/// All rows that were seen.
pub(super) struct Memory {
    path: PathBuf,
    /// The check value of the secret.
    check: String,
    rows: HashMap<MinionId, Known>,
    /// Minions that were accepted on this machine only, and are pending since it joined.
    pub(super) demoted: BTreeSet<MinionId>,
    /// It has seen the whole table.
    pub(super) is_joined: bool,
    /// When it had seen all rows last, by the clock of the table, in microseconds since 1970.
    pub(super) synced: i64,
    /// When it was saved, by the clock of this machine.
    saved_at: i64,
    is_changed: bool,
    /// An accepted or rejected key was changed.
    is_urgent: bool,
}

fn file_of(cachedir: &Path) -> PathBuf {
    cachedir.join("saltern").join("cluster_keys")
}

impl Memory {
    /// Reads what is there.
    ///
    /// # Errors
    /// The file cannot be read; a damaged one counts as none.
    pub(super) fn load(cachedir: &Path, cipher: &StateCipher) -> Result<Self> {
        let path = file_of(cachedir);
        let mut memory = Self {
            check: hex(cipher.check()),
            rows: HashMap::new(),
            demoted: BTreeSet::new(),
            is_joined: false,
            synced: 0,
            saved_at: 0,
            is_changed: false,
            is_urgent: false,
            path,
        };
        if let Some(text) = files::read_replaceable(&memory.path, MAX_FILE_LEN)?
            && memory.parse(&text).is_none()
        {
            let path = memory.path.display();
            tracing::warn!(%path, "the keys of the cluster as they were seen last cannot be used");
            memory.clear();
        }
        Ok(memory)
    }

    fn parse(&mut self, text: &str) -> Option<()> {
        let (head, lines) = text.split_once('\n')?;
        let mut head = head.strip_prefix(HEAD)?.split_whitespace();
        if head.next()? != self.check {
            return None;
        }
        let synced = head.next()?.parse().ok()?;
        for line in lines.lines() {
            if let Some(id) = line.strip_prefix(DEMOTED) {
                self.demoted.insert(MinionId::parse(id.trim_start()).ok()?);
                continue;
            }
            let (version, mut rest) = line.split_once(' ')?;
            let mut keys = Digests::default();
            for state in KeyState::ALL {
                let (digest, behind) = rest.split_once(' ')?;
                if digest != "-" {
                    keys.set(state, Some(digest_of(digest)?));
                }
                rest = behind;
            }
            let version = version.parse().ok()?;
            self.rows
                .insert(MinionId::parse(rest).ok()?, Known { version, keys });
        }
        self.synced = synced;
        self.is_joined = true;
        Some(())
    }

    pub(super) fn get(&self, id: &MinionId) -> Known {
        self.rows.get(id).copied().unwrap_or_default()
    }

    pub(super) fn has(&self, id: &MinionId) -> bool {
        self.rows.contains_key(id)
    }

    pub(super) fn set(&mut self, id: &MinionId, known: Known) {
        let before = self.rows.insert(id.clone(), known).unwrap_or_default();
        let differs = |state| before.keys.get(state) != known.keys.get(state);
        self.is_changed = true;
        // Any peer can cause a pending or denied one.
        self.is_urgent |= [KeyState::Accepted, KeyState::Rejected]
            .into_iter()
            .any(differs);
    }

    pub(super) fn remove(&mut self, id: &MinionId) {
        self.is_urgent = true;
        self.rows.remove(id);
    }

    /// Minions with an accepted key.
    pub(super) fn accepted(&self) -> usize {
        let is_accepted = |known: &&Known| known.keys.get(KeyState::Accepted).is_some();
        self.rows.values().filter(is_accepted).count()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &MinionId> {
        self.rows.keys()
    }

    /// Forgets everything, as before it joined.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.demoted.clear();
        self.is_joined = false;
        self.is_urgent = true;
    }

    /// Notes a minion whose key counts no longer.
    pub(super) fn demote(&mut self, id: &MinionId) {
        self.is_urgent = true;
        self.demoted.insert(id.clone());
    }

    /// Keeps those of them that are still waiting.
    pub(super) fn retain_demoted(&mut self, is_waiting: impl Fn(&MinionId) -> bool) {
        let before = self.demoted.len();
        self.demoted.retain(|id| is_waiting(id));
        self.is_urgent |= self.demoted.len() != before;
    }

    /// Whether it has to be written at this time: an accepted or rejected key was changed, or another one some time
    /// ago, or its time is old. After a crash in between, a pending or denied key may be taken for one of this machine.
    pub(super) fn is_due(&self, now: i64) -> bool {
        let interval = match self.is_changed {
            true => MINOR_SAVE_INTERVAL,
            false => SAVE_INTERVAL,
        };
        let is_old = now.abs_diff(self.saved_at) >= interval.unsigned_abs();
        self.is_joined && (self.is_urgent || is_old)
    }

    /// Whether something was changed since it was saved.
    pub(super) fn is_unsaved(&self) -> bool {
        self.is_joined && (self.is_urgent || self.is_changed)
    }

    /// Writes it, at this time.
    ///
    /// # Errors
    /// The file cannot be written; it is what it was.
    pub(super) fn save(&mut self, now: i64) -> Result<()> {
        let mut text = format!("{HEAD} {} {}\n", self.check, self.synced);
        for id in &self.demoted {
            let _ = writeln!(text, "{DEMOTED} {id}");
        }
        for (id, Known { version, keys }) in &self.rows {
            let _ = write!(text, "{version}");
            for state in KeyState::ALL {
                match keys.get(state) {
                    Some(digest) => _ = write!(text, " {}", hex(&digest)),
                    None => text.push_str(" -"),
                }
            }
            let _ = writeln!(text, " {id}");
        }
        if let Some(directory) = self.path.parent() {
            files::ensure_dir(directory, 0o700)?;
        }
        files::write_atomic(&self.path, text.as_bytes(), Create::PRIVATE)?;
        self.saved_at = now;
        self.is_changed = false;
        self.is_urgent = false;
        Ok(())
    }
}

fn digest_of(text: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    if text.len() != digest.len() * 2 {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Minions that were accepted on this machine only when it joined its cluster, and whose key has been pending
/// since; sorted.
///
/// # Errors
/// The file cannot be read.
pub fn keys_no_longer_accepted(config: &MasterConfig) -> Result<Vec<MinionId>> {
    let text = files::read_replaceable(&file_of(&config.cachedir), MAX_FILE_LEN)?;
    let text = text.unwrap_or_default();
    let ids = text.lines().filter_map(|line| line.strip_prefix(DEMOTED));
    Ok(ids
        .filter_map(|id| MinionId::parse(id.trim_start()).ok())
        .collect())
}
