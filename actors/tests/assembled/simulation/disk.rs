//! The disk of a run: commits that take their time, a disk that is full for a while, and what a dying
//! master leaves behind.
//!
//! The engine is SQLite as it is. A wrapper at the seam waits for its thread, so that commits happen at
//! one point of the simulated time.

use std::future::ready;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use saltern_store::CachedJob;
use saltern_store::StoreError;
use saltern_store::jobs::{
    AuditHead, Batch, Committed, Condition, Engine, FreeSpace, Housekeeping, Imported, JobLog,
    Pending, Removed, Retention, Scrub, ScrubSlice, Size, wait,
};
use tokio::time::{Instant, sleep};

use super::history::History;
use super::random::Random;

type Result<T> = std::result::Result<T, StoreError>;

/// The disk of one life of the master.
pub(super) struct Disk {
    random: Mutex<Random>,
    /// Since the start of the life: nothing can be written.
    full: Vec<(Duration, Duration)>,
    began: Instant,
    /// The log of the database, and its length before the commit that is under way.
    log: PathBuf,
    uncommitted: Mutex<Option<u64>>,
}

impl Disk {
    pub(super) fn new(
        mut random: Random,
        log: PathBuf,
        has_faults: bool,
        history: &History,
    ) -> Arc<Self> {
        let count = if has_faults { random.within(0..3) } else { 0 };
        let full = (0..count).map(|_| {
            let from = random.millis(0..60_000);
            (from, from + random.millis(100..15_000))
        });
        let full: Vec<_> = full.collect();
        if !full.is_empty() {
            history.disk_was_full();
        }
        Arc::new(Self {
            full,
            random: Mutex::new(random),
            began: Instant::now(),
            log,
            uncommitted: Mutex::default(),
        })
    }

    /// The engine on this disk.
    pub(super) fn under(self: &Arc<Self>, engine: Engine) -> Engine {
        let wrapped = Arc::new(OnDisk {
            disk: self.clone(),
            log: engine.log,
            housekeeping: engine.housekeeping,
        });
        Engine {
            log: wrapped.clone(),
            queries: engine.queries,
            housekeeping: wrapped,
        }
    }

    fn is_full(&self) -> bool {
        let now = self.began.elapsed();
        self.full.iter().any(|(from, to)| *from <= now && now < *to)
    }

    fn log_length(&self) -> u64 {
        self.log.metadata().map_or(0, |data| data.len())
    }

    /// Copies what a process that died now leaves. Of a commit that is under way, the log has a part
    /// that ends anywhere.
    pub(super) fn leave(&self, (from, to): (&Path, &Path), now: SystemTime) {
        copy((from, to), now);
        let Some(before) = *self.uncommitted.lock() else {
            return;
        };
        let after = self.log_length();
        if after > before {
            let left = self.random.lock().within(before..after + 1);
            let log = to.join(self.log.strip_prefix(from).unwrap());
            let file = std::fs::File::options().write(true).open(log).unwrap();
            file.set_len(left).unwrap();
        }
    }
}

/// Copies a directory with its files; not its sockets. The files have the simulated time: a session is
/// as old as its file.
pub(super) fn copy((from, to): (&Path, &Path), now: SystemTime) {
    std::fs::create_dir_all(to).unwrap();
    std::fs::set_permissions(to, from.metadata().unwrap().permissions()).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy((&entry.path(), &target), now);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &target).unwrap();
            set_time(&target, now);
        }
    }
}

/// A file of a key may not be writable by its owner.
pub(super) fn set_time(path: &Path, now: SystemTime) {
    let permissions = path.metadata().unwrap().permissions();
    let mut writable = permissions.clone();
    writable.set_mode(0o600);
    std::fs::set_permissions(path, writable).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(now).unwrap();
    std::fs::set_permissions(path, permissions).unwrap();
}

struct OnDisk {
    disk: Arc<Disk>,
    log: Arc<dyn JobLog>,
    housekeeping: Arc<dyn Housekeeping>,
}

/// Has the engine's thread do it now, at this moment of the simulated time.
fn at_once<T: Send + 'static>(pending: Pending<T>) -> Pending<T> {
    Box::pin(ready(wait(pending)))
}

impl JobLog for OnDisk {
    fn append(&self, batch: Arc<Batch>) -> Pending<Committed> {
        let (disk, log) = (self.disk.clone(), self.log.clone());
        let times = {
            let mut random = disk.random.lock();
            let slow = random.one_in(20);
            let longest = if slow { 2_000 } else { 5 };
            [random.millis(0..longest), random.millis(0..longest)]
        };
        Box::pin(async move {
            sleep(times[0]).await;
            if disk.is_full() {
                let path = disk.log.clone();
                return Err(StoreError::Full { path });
            }
            *disk.uncommitted.lock() = Some(disk.log_length());
            let committed = wait(log.append(batch));
            sleep(times[1]).await;
            *disk.uncommitted.lock() = None;
            committed
        })
    }

    fn import(&self, slice: Vec<CachedJob>) -> Pending<Imported> {
        at_once(self.log.import(slice))
    }

    fn finish_import(&self) -> Pending<()> {
        at_once(self.log.finish_import())
    }

    fn next_event_position(&self) -> Pending<i64> {
        at_once(self.log.next_event_position())
    }

    fn audit_head(&self) -> Pending<AuditHead> {
        at_once(self.log.audit_head())
    }
}

impl Housekeeping for OnDisk {
    fn place(&self) -> &Path {
        self.housekeeping.place()
    }

    fn remove_slice(&self, retention: Retention, slice: usize) -> Pending<Option<Removed>> {
        at_once(self.housekeeping.remove_slice(retention, slice))
    }

    fn condition(&self, now: i64) -> Result<Condition> {
        self.housekeeping.condition(now)
    }

    fn recover(&self, now: i64) -> Pending<bool> {
        at_once(self.housekeeping.recover(now))
    }

    fn size(&self) -> Pending<Option<Size>> {
        self.housekeeping.size()
    }

    fn room(&self) -> Pending<Option<FreeSpace>> {
        // Of this machine's disk nothing may follow.
        let free = if self.disk.is_full() { 0 } else { 1 << 40 };
        let room = FreeSpace {
            free,
            total: 1 << 41,
        };
        Box::pin(ready(Ok(Some(room))))
    }

    fn checkpoint_is_due(&self) -> bool {
        self.housekeeping.checkpoint_is_due()
    }

    fn checkpoint(&self) -> Result<bool> {
        self.housekeeping.checkpoint()
    }

    fn finish_checkpoint(&self) -> Pending<()> {
        at_once(self.housekeeping.finish_checkpoint())
    }

    fn scrub(&self, scrub: &mut Scrub, slice: ScrubSlice) -> Result<bool> {
        self.housekeeping.scrub(scrub, slice)
    }
}
