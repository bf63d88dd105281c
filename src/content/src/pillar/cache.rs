//! Cache of compiled pillars: `pillar_cache`.
//!
//! On disk they lie as stock 3006 and 3007 keep them (`CacheDisk` in `salt/utils/cache.py`): one
//! file a minion below `pillar_cache`, with the pillars of its environments and the time of the
//! oldest. Overrides are never part of what is kept, nor is a pillar with errors: it is compiled
//! anew until it has none. The files hold secrets, so they are private.
//!
//! Bounds: a pillar in memory lives for `pillar_cache_ttl`, and all are dropped when they take
//! more than [`MAX_BYTES`]; on disk a file of more than [`MAX_BYTES`] counts as absent.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_store::StoreError;
use saltern_store::files::{self, Create};
use saltern_store::minion_data::PILLAR_CACHE;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, encode};

use super::PillarError;
use super::compile::weight;

/// About the most bytes of kept pillars.
const MAX_BYTES: usize = 128 << 20;

/// The most environments of one minion.
const MAX_ENVIRONMENTS: usize = 32;

/// The pillars of one minion.
#[derive(Clone, Default)]
struct Kept {
    /// When the oldest was made, in seconds since 1970.
    made: f64,
    /// By the environment that was asked for.
    pillars: Vec<(Option<String>, Value)>,
}

enum Backend {
    Disk(PathBuf),
    Memory(Mutex<Memory>),
}

#[derive(Default)]
struct Memory {
    kept: HashMap<MinionId, Kept>,
    bytes: usize,
}

/// The kept pillars of all minions.
pub(super) struct PillarCache {
    clock: Clock,
    ttl: Duration,
    backend: Backend,
}

impl PillarCache {
    /// The configured cache; `None` if no pillars are cached.
    pub(super) fn new(config: &MasterConfig, clock: Clock) -> Result<Option<Self>, PillarError> {
        if !config.pillar_cache() {
            return Ok(None);
        }
        let wrong = |name, problem: String| PillarError::Option { name, problem };
        let seconds = config.pillar_cache_ttl().node().map(|node| node.as_i64());
        let seconds = seconds.unwrap_or(Some(3600)).map(u64::try_from);
        let Some(Ok(seconds)) = seconds else {
            let problem = "it is no number of seconds".to_owned();
            return Err(wrong("pillar_cache_ttl", problem));
        };
        let backend = match config.pillar_cache_backend().unwrap_or("disk") {
            "disk" => Backend::Disk(config.cachedir.join(PILLAR_CACHE)),
            "memory" => Backend::Memory(Mutex::default()),
            other => {
                let problem = format!("\"{other}\" is neither disk nor memory");
                return Err(wrong("pillar_cache_backend", problem));
            }
        };
        Ok(Some(Self {
            clock,
            ttl: Duration::from_secs(seconds),
            backend,
        }))
    }

    /// The kept pillar of a minion and an environment.
    pub(super) fn get(&self, minion: &MinionId, pillarenv: Option<&str>) -> Option<Value> {
        let find = |kept: &Kept| {
            let mut pillars = kept.pillars.iter();
            let found = pillars.find(|(name, _)| name.as_deref() == pillarenv)?;
            self.is_fresh(kept).then(|| found.1.clone())
        };
        match &self.backend {
            Backend::Disk(directory) => find(&read(directory, minion)?),
            Backend::Memory(memory) => find(memory.lock().kept.get(minion)?),
        }
    }

    /// Keeps a pillar.
    pub(super) fn put(&self, minion: &MinionId, pillarenv: Option<&str>, pillar: &Value) {
        match &self.backend {
            Backend::Disk(directory) => {
                let kept = read(directory, minion).filter(|kept| self.is_fresh(kept));
                let kept = self.with(kept.unwrap_or_default(), pillarenv, pillar);
                if let Err(error) = write(directory, minion, &kept) {
                    tracing::error!(%minion, %error, "the pillar cannot be kept");
                }
            }
            Backend::Memory(memory) => {
                let mut memory = memory.lock();
                let kept = memory.take(minion).filter(|kept| self.is_fresh(kept));
                let kept = self.with(kept.unwrap_or_default(), pillarenv, pillar);
                memory.put(minion, kept);
            }
        }
    }

    /// Forgets the pillars of a minion.
    pub(super) fn forget(&self, minion: &MinionId) {
        match &self.backend {
            Backend::Disk(directory) => {
                let path = files::child(directory, minion.as_str());
                if let Err(error) = path.and_then(|path| files::remove(&path)) {
                    tracing::error!(%minion, %error, "the kept pillar cannot be removed");
                }
            }
            Backend::Memory(memory) => {
                memory.lock().take(minion);
            }
        }
    }

    /// Forgets the pillars of all minions but those to keep.
    pub(super) fn forget_all_but(
        &self,
        keep: &dyn Fn(&MinionId) -> bool,
    ) -> Result<(), StoreError> {
        let directory = match &self.backend {
            Backend::Disk(directory) => directory,
            Backend::Memory(memory) => {
                let mut memory = memory.lock();
                let known: Vec<MinionId> = memory.kept.keys().cloned().collect();
                for minion in known.iter().filter(|minion| !keep(minion)) {
                    memory.take(minion);
                }
                return Ok(());
            }
        };
        let failed = |source| StoreError::io("list", directory, source);
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            // Files that are not named after a minion are not ours.
            let minion = name.to_str().and_then(|name| MinionId::parse(name).ok());
            if let Some(minion) = minion.filter(|minion| !keep(minion)) {
                files::remove(&files::child(directory, minion.as_str())?)?;
            }
        }
        Ok(())
    }

    fn is_fresh(&self, kept: &Kept) -> bool {
        // A clock that was set back does not make pillars live longer.
        (0.0..=self.ttl.as_secs_f64()).contains(&(self.now() - kept.made))
    }

    fn now(&self) -> f64 {
        self.clock.unix_micros() as f64 / 1e6
    }

    fn with(&self, mut kept: Kept, pillarenv: Option<&str>, pillar: &Value) -> Kept {
        kept.pillars
            .retain(|(name, _)| name.as_deref() != pillarenv);
        if kept.pillars.is_empty() || kept.pillars.len() >= MAX_ENVIRONMENTS {
            kept.pillars.clear();
            kept.made = self.now();
        }
        kept.pillars
            .push((pillarenv.map(str::to_owned), pillar.clone()));
        kept
    }
}

impl Memory {
    fn take(&mut self, minion: &MinionId) -> Option<Kept> {
        let kept = self.kept.remove(minion)?;
        self.bytes = self.bytes.saturating_sub(kept.weight());
        Some(kept)
    }

    fn put(&mut self, minion: &MinionId, kept: Kept) {
        let bytes = kept.weight();
        if self.bytes + bytes > MAX_BYTES {
            self.kept.clear();
            self.bytes = 0;
        }
        if bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.kept.insert(minion.clone(), kept);
        }
    }
}

impl Kept {
    fn weight(&self) -> usize {
        self.pillars.iter().map(|(_, pillar)| weight(pillar)).sum()
    }
}

const DATA: &str = "CacheDisk_data";
const TIMES: &str = "CacheDisk_cachetime";

/// The file of a minion; what cannot be read counts as absent, as in stock.
fn read(directory: &Path, minion: &MinionId) -> Option<Kept> {
    let path = files::child(directory, minion.as_str()).ok()?;
    let packed = files::read(&path, MAX_BYTES).ok()??;
    let limits = Limits {
        bytes: MAX_BYTES,
        ..Limits::default()
    };
    let file = decode_exact(&packed, &limits).ok()?;
    let made = file.get(TIMES)?.get(minion.as_str())?.as_f64()?;
    let pillars = file.get(DATA)?.get(minion.as_str())?.as_map()?;
    let pillars = pillars.iter().map(|(name, pillar)| {
        let name = name.as_str().map(str::to_owned);
        (name, pillar.clone())
    });
    Some(Kept {
        made,
        pillars: pillars.collect(),
    })
}

fn write(
    directory: &Path,
    minion: &MinionId,
    kept: &Kept,
) -> Result<(), saltern_store::StoreError> {
    let pillars = kept.pillars.iter().map(|(name, pillar)| {
        let name = Value::from(name.as_deref());
        (name, pillar.clone())
    });
    let pillars = Value::Map(pillars.collect());
    let file = Value::map([
        (DATA, Value::map([(minion.as_str(), pillars)])),
        (TIMES, Value::map([(minion.as_str(), kept.made)])),
    ]);
    files::ensure_dir(directory, 0o700)?;
    let path = files::child(directory, minion.as_str())?;
    let packed = encode(&file, Dialect::Bin);
    files::write_atomic(&path, &packed, Create::PRIVATE.derived())
}
