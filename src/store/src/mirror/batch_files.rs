//! The files in which stock 3008 keeps batches (`salt/utils/batch_state.py`): `.batch.p` in the
//! job's directory, and `batch_active.p` in `cachedir`, the list of batches that are not over.
//!
//! Stock's command line writes them to hand a batch over, and stock's `batch.*` runners read them.
//! What the states in them mean is not known here; the job database does not depend on them.

use std::path::PathBuf;

use saltern_config::MasterConfig;
use saltern_model::Jid;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode, encode};

use super::JobFiles;
use crate::error::{Result, StoreError};
use crate::files::{self, Create, Version};
use crate::options::StoreOptions;

/// Before the umask, as for the other files of jobs.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// The state of a batch over 100,000 minions with long ids.
const STATE_BYTES: usize = 64 << 20;

/// Many more batches than anybody has.
const INDEX_BYTES: usize = 4 << 20;

/// The batch files of a master.
#[derive(Clone)]
pub struct BatchFiles {
    jobs: JobFiles,
    index: PathBuf,
}

impl BatchFiles {
    /// The batch files of a configuration.
    pub fn open(config: &MasterConfig) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config))
    }

    /// The same with this crate's options.
    ///
    /// # Errors
    /// As [`JobFiles::with_options`].
    pub fn with_options(options: &StoreOptions) -> Result<Self> {
        Ok(Self {
            jobs: JobFiles::with_options(options)?,
            index: options.cachedir.join("batch_active.p"),
        })
    }

    /// The state of a batch; `None` when it has no file or an empty one.
    ///
    /// # Errors
    /// Also for a file that is damaged.
    pub fn read(&self, jid: &Jid) -> Result<Option<Value>> {
        let path = self.state_path(jid)?;
        let content = files::read(&path, STATE_BYTES)?;
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            return Ok(None);
        };
        decode(&content, &Limits::WIRE)
            .map(Some)
            .map_err(|_| StoreError::Malformed {
                path,
                reason: "it is no batch state",
            })
    }

    /// Whether a batch has a state.
    pub fn has_state(&self, jid: &Jid) -> Result<bool> {
        Ok(Version::of(&self.state_path(jid)?, false)?.is_some())
    }

    /// Writes the state of a batch, packed in the dialect with bin types.
    pub fn write(&self, jid: &Jid, state: &[u8]) -> Result<()> {
        let path = self.state_path(jid)?;
        if let Some(dir) = path.parent() {
            files::ensure_dir(dir, DIR_MODE)?;
        }
        write(&path, state)
    }

    /// The batches that are not over, sorted; what is no jid is passed over, a damaged list is
    /// empty, both as in stock.
    pub fn active(&self) -> Result<Vec<Jid>> {
        let Some(content) = files::read(&self.index, INDEX_BYTES)? else {
            return Ok(Vec::new());
        };
        let list = decode(&content, &Limits::WIRE).unwrap_or(Value::Nil);
        let names = list.as_array().unwrap_or_default().iter();
        let mut jids: Vec<Jid> = names
            .filter_map(|name| Jid::parse(name.as_str()?).ok())
            .collect();
        jids.sort_unstable();
        jids.dedup();
        Ok(jids)
    }

    /// Puts a batch on the list, or takes it off.
    pub fn set_active(&self, jid: &Jid, is_active: bool) -> Result<()> {
        let mut jids = self.active()?;
        match (jids.binary_search(jid), is_active) {
            (Err(place), true) => jids.insert(place, jid.clone()),
            (Ok(place), false) => _ = jids.remove(place),
            _ => return Ok(()),
        }
        let list = Value::Array(jids.iter().map(|jid| jid.as_str().into()).collect());
        write(&self.index, &encode(&list, Dialect::Bin))
    }

    fn state_path(&self, jid: &Jid) -> Result<PathBuf> {
        Ok(self.jobs.job_dir(jid)?.join(".batch.p"))
    }
}

fn write(path: &std::path::Path, content: &[u8]) -> Result<()> {
    files::write_atomic(path, content, Create::PRIVATE.mode(FILE_MODE).derived())
}
