//! Directories of masters: one is made by a first start, with keys; every run begins with a copy of it.

use std::fs::Permissions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use saltern_actors::MasterParts;
use saltern_automation::reactor::Reactions;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_channel::MinionKeys;
use saltern_config::{MasterConfig, load_master};
use saltern_model::MinionId;
use saltern_requests::Stores;
use saltern_store::files::ensure_dir;
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_wire::port::Inherited;

use super::disk::set_time;
use super::world::{MINIONS, START};

/// Directory and keys that all runs begin with. Making keys takes a good part of a second.
pub(super) struct Template {
    /// In memory: nothing would remove a directory of a whole process.
    entries: Vec<Entry>,
    /// Keys of the minions, which are accepted.
    pub(super) minions: Vec<Arc<MinionKeys>>,
    /// A user of the master, and its key.
    pub(super) user: (String, String),
}

/// A directory, which has no content, or a file.
struct Entry {
    path: PathBuf,
    content: Option<Vec<u8>>,
    permissions: Permissions,
}

/// Reads a directory, itself first.
fn read(root: &Path, path: &Path, entries: &mut Vec<Entry>) {
    let data = path.metadata().unwrap();
    let content = data.is_file().then(|| std::fs::read(path).unwrap());
    entries.push(Entry {
        path: path.strip_prefix(root).unwrap().to_owned(),
        content,
        permissions: data.permissions(),
    });
    if data.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            read(root, &entry.unwrap().path(), entries);
        }
    }
}

/// A directory in memory, where there is such a place: the disk is not what is tested.
pub(super) fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory)
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

impl Template {
    pub(super) fn get() -> &'static Self {
        static TEMPLATE: OnceLock<Template> = OnceLock::new();
        TEMPLATE.get_or_init(Self::make)
    }

    fn make() -> Self {
        let dir = directory();
        let config = config(dir.path());
        make_directories(&config);
        let stores = Stores::open(&config, &Clock::system()).unwrap();
        let minions = (0..MINIONS).map(|number| {
            let keys = MinionKeys::generate(2048).unwrap();
            let id = MinionId::parse(&minion_id(number)).unwrap();
            stores.pki.accept(&id, &keys.public_pem).unwrap();
            Arc::new(keys)
        });
        let minions = minions.collect();
        let user = stores.users.users().next().unwrap().to_owned();
        let key = stores.users.key(&user).unwrap().expose().to_owned();
        let mut entries = Vec::new();
        read(dir.path(), dir.path(), &mut entries);
        Self {
            entries,
            minions,
            user: (user, key),
        }
    }

    /// Copies it.
    pub(super) fn copy_to(&self, dir: &Path) {
        for entry in &self.entries {
            let path = dir.join(&entry.path);
            match &entry.content {
                None => std::fs::create_dir_all(&path).unwrap(),
                Some(content) => std::fs::write(&path, content).unwrap(),
            }
            std::fs::set_permissions(&path, entry.permissions.clone()).unwrap();
            if entry.content.is_some() {
                set_time(&path, SystemTime::UNIX_EPOCH + START);
            }
        }
    }
}

pub(super) fn minion_id(number: usize) -> String {
    format!("m{number}")
}

/// Configuration of a master in `dir`.
pub(super) fn config(dir: &Path) -> MasterConfig {
    let path = dir.to_str().unwrap();
    let text = format!(
        "root_dir: {path}\npki_dir: {path}/pki\ncachedir: {path}/cache\nsock_dir: {path}/sock\n\
         id: m\ninterface: 127.0.0.1\nworker_threads: 2\nkeysize: 2048\nlog_file: {path}/log\n\
         saltern_metrics_address: 127.0.0.1:0\nlocal_cache_mirror: 'off'\n\
         saltern_max_connections: 40\nsaltern_render_threads: 1\nsaltern_job_timeout: 5\n"
    );
    std::fs::write(dir.join("master"), text).unwrap();
    let loaded = load_master(dir).map_err(|errors| errors.to_string());
    loaded.unwrap().config
}

fn make_directories(config: &MasterConfig) {
    for path in [&config.cachedir, &config.sock_dir, &config.pki_dir] {
        ensure_dir(path, 0o755).unwrap();
    }
    ensure_dir(config.saltern_job_database.parent().unwrap(), 0o700).unwrap();
}

/// The log of the job database.
pub(super) fn log_of(config: &MasterConfig) -> PathBuf {
    let mut path = config.saltern_job_database.clone().into_os_string();
    path.push("-wal");
    path.into()
}

/// The parts of a master.
pub(super) fn parts(config: &Arc<MasterConfig>, clock: Clock) -> MasterParts {
    make_directories(config);
    let stores = Stores::open(config, &clock).unwrap();
    let reactions = Reactions::open(config, &clock, &stores).unwrap();
    let database = JobDatabase::open(&config.saltern_job_database, DatabaseLimits::default());
    MasterParts {
        config: config.clone(),
        stores,
        reactions: Arc::new(reactions),
        clock,
        database: database.and_then(JobDatabase::into_engine).unwrap(),
        registry: Registry::new(),
        member_tls: None,
        inherited: Inherited::default(),
        log_levels: None,
        diagnose: None,
    }
}
