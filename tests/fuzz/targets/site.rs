//! A master without actors and sockets, in a directory of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_config::{MasterConfig, load_master};
use saltern_requests::{Services, Stores, Unwatched};
use saltern_runners::{RunnerContext, Runners};
use saltern_store::{DatabaseLimits, JobDatabase};

/// A key pair of `tests/vectors/crypto.json`.
pub(crate) struct KeyPair {
    pub(crate) private: String,
    pub(crate) public: String,
}

/// `master`, `minion` or `large`.
pub(crate) fn key_pair(name: &str) -> KeyPair {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/crypto.json");
    let text = std::fs::read_to_string(path).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let part = |part: &str| vectors["keys"][name][part].as_str().unwrap().to_owned();
    KeyPair {
        private: part("pkcs1"),
        public: part("public"),
    }
}

/// The configuration of a master in this directory.
pub(crate) fn config(root: &Path, options: &str) -> MasterConfig {
    for name in ["conf", "pki/minions", "cache", "run", "srv"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    let pem = root.join("pki/master.pem");
    std::fs::write(pem, key_pair("master").private).unwrap();
    let shown = root.display();
    let text = format!(
        "id: m\nroot_dir: {shown}\npki_dir: {shown}/pki\ncachedir: {shown}/cache\n\
         sock_dir: {shown}/run\npython_bridge: false\nfile_roots: {{base: [{shown}/srv]}}\n\
         pillar_roots: {{base: [{shown}/pillar]}}\n{options}"
    );
    std::fs::write(root.join("conf/master"), text).unwrap();
    let loaded = load_master(&root.join("conf")).map_err(|errors| errors.to_string());
    loaded.unwrap().config
}

pub(crate) fn clock() -> Clock {
    Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000))
}

/// The services of a master.
pub(crate) fn services(root: &Path, options: &str) -> Arc<Services> {
    let (config, clock) = (Arc::new(config(root, options)), clock());
    let stores = Stores::open(&config, &clock).unwrap();
    let path = root.join("cache/jobs.sqlite");
    let database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
    let context = RunnerContext::new(config.clone(), database.reader().unwrap());
    let runners = Runners::new(context.with_master(stores.for_functions()));
    let queries = database.reader().unwrap();
    Arc::new(Services::new(
        config,
        clock,
        stores,
        (runners, queries),
        Arc::new(Unwatched),
        &Registry::new(),
    ))
}
