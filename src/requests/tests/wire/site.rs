//! Test fixture: a master that is nothing but its services, in a directory of its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_bridge::Bridge;
use saltern_config::{MasterConfig, PythonBridge, load_master};
use saltern_model::{Absence, Event, MinionId};
use saltern_requests::{
    Effect, Handled, Outcome, PresenceView, Services, Standing, StartJob, Stores, handle,
};
use saltern_runners::{RunnerContext, Runners};
use saltern_store::{DatabaseLimits, JobDatabase, JobQueries};
use saltern_wire::msgpack::{Dialect, Encoder, Limits, Value, decode_wire};

/// The time at which every test begins.
pub(crate) const START: u64 = 1_795_000_000;

/// The functions of a master that has no job yet.
fn runners(
    config: &Arc<MasterConfig>,
    stores: &Stores,
    database: &JobDatabase,
) -> (Runners, Arc<dyn JobQueries>) {
    let knowledge = RunnerContext::new(config.clone(), database.reader().unwrap());
    let knowledge = knowledge.with_master(stores.for_functions());
    // No test depends on the machine.
    let knowledge = match config.python_bridge.python {
        PythonBridge::At(_) => knowledge.with_bridge(Arc::new(Bridge::new(config))),
        _ => knowledge,
    };
    (Runners::new(knowledge), database.reader().unwrap())
}

/// Presence of the test: connected minions, and a log of those heard.
#[derive(Default)]
pub(crate) struct Around {
    pub(crate) connected: Mutex<Vec<MinionId>>,
    pub(crate) away: Mutex<Vec<MinionId>>,
    /// Minions whose connection ended, with the time.
    pub(crate) closed: Mutex<Vec<(MinionId, i64)>>,
    pub(crate) heard: Mutex<Vec<MinionId>>,
    /// The jid of a probe, which is no job.
    pub(crate) asked: Mutex<Option<String>>,
}

impl PresenceView for Around {
    fn connected(&self) -> Vec<MinionId> {
        self.connected.lock().clone()
    }

    fn are_more_connected_than(&self, limit: usize) -> bool {
        self.connected.lock().len() > limit
    }

    fn heard(&self, minion: &MinionId, _: IpAddr) {
        self.heard.lock().push(minion.clone());
    }

    fn state(&self, minion: &MinionId) -> Standing {
        if self.away.lock().contains(minion) {
            return Standing::Away(Absence::NeverConnected);
        }
        let closed = self.closed.lock();
        if let Some((_, at)) = closed.iter().find(|(id, _)| id == minion) {
            return Standing::Away(Absence::Closed { at: *at });
        }
        match self.connected.lock().contains(minion) {
            true => Standing::Connected,
            false => Standing::Known,
        }
    }

    fn last_heard(&self, _: &MinionId) -> Option<i64> {
        None
    }

    fn address(&self, _: &MinionId) -> Option<IpAddr> {
        None
    }

    fn is_answer(&self, minion: &MinionId, jid: &str) -> bool {
        let asked = self.asked.lock();
        asked.as_deref() == Some(jid) && self.heard.lock().contains(minion)
    }
}

/// A key pair of `tests/vectors/crypto.json`.
pub(crate) struct KeyPair {
    pub(crate) private: String,
    pub(crate) public: String,
}

/// `master`, `minion` or `large`.
pub(crate) fn key_pair(name: &str) -> KeyPair {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/crypto.json");
    let text = std::fs::read_to_string(path).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let part = |part: &str| vectors["keys"][name][part].as_str().unwrap().to_owned();
    KeyPair {
        private: part("pkcs1"),
        public: part("public"),
    }
}

pub(crate) struct Site {
    pub(crate) services: Arc<Services>,
    pub(crate) around: Arc<Around>,
    pub(crate) clock: Clock,
    registry: Registry,
    /// The writing end of the job database.
    pub(crate) database: Mutex<JobDatabase>,
    dir: tempfile::TempDir,
}

impl Site {
    /// A master with these options beside those that give it its directories.
    pub(crate) fn new(options: &str) -> Self {
        Self::with_files(options, &[])
    }

    /// The same, with these files there before the master starts.
    pub(crate) fn with_files(options: &str, files: &[(&str, String)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for name in ["conf", "pki/minions", "cache", "run", "rules"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("pki/master.pem"), key_pair("master").private).unwrap();
        for (name, content) in files {
            std::fs::write(root.join(name), content).unwrap();
        }
        let shown = root.display();
        let base = format!(
            "id: host_master\nroot_dir: {shown}\npki_dir: {shown}/pki\ncachedir: {shown}/cache\n\
             sock_dir: {shown}/run\npillar_roots: {{base: [{shown}/pillar]}}\n"
        );
        let options = options.replace("ROOT", &shown.to_string());
        std::fs::write(root.join("conf/master"), base + &options).unwrap();
        let config = match load_master(&root.join("conf")) {
            Ok(loaded) => Arc::new(loaded.config),
            Err(errors) => panic!("the options of this test are wrong: {errors}"),
        };
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(START));
        let stores = Stores::open(&config, &clock).unwrap();
        let around = Arc::new(Around::default());
        let registry = Registry::new();
        let path = root.join("cache/jobs.sqlite");
        let database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        let runners = runners(&config, &stores, &database);
        let services = Services::new(
            config,
            clock.clone(),
            stores,
            runners,
            around.clone(),
            &registry,
        );
        Self {
            services: Arc::new(services),
            around,
            clock,
            registry,
            database: Mutex::new(database),
            dir,
        }
    }

    /// Checks that a master can start with the files that this one left.
    pub(crate) fn opens_again(&self) {
        if let Err(error) = Stores::open(&self.services.config, &self.clock) {
            panic!("the master does not start again: {error}");
        }
    }

    /// The number of requests, or parts of requests, refused so far.
    pub(crate) fn refused(&self) -> u64 {
        let mut count = 0.0;
        for family in self.registry.gather() {
            let is_authentication = family.name() == "saltern_authentications_total";
            if !is_authentication && family.name() != "saltern_requests_refused_total" {
                continue;
            }
            for metric in family.get_metric() {
                let label = metric.get_label().first().map_or("", |label| label.value());
                if !(is_authentication && label == "accept") {
                    count += metric.get_counter().get_value();
                }
            }
        }
        count as u64
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    /// Accepts the key `name` of the vectors for this minion, as `salt-key` would.
    pub(crate) fn accept(&self, id: &str, name: &str) {
        self.write(&format!("pki/minions/{id}"), &key_pair(name).public);
    }

    /// Handles a request, with its log-in and the work beside the workers.
    pub(crate) fn handle(&self, payload: impl Into<Bytes>) -> Handled {
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut handled = handle(payload.into(), from, &self.services);
        if let Some(Effect::LogIn(_)) = handled.outcome.effects.first() {
            let Some(Effect::LogIn(log_in)) = handled.outcome.effects.pop() else {
                panic!("a log-in stands alone");
            };
            handled = log_in.run().handled;
        }
        if let Some(later) = handled.outcome.later.take() {
            let finished = later.run();
            let fire = finished.events.into_iter().map(Effect::Fire);
            handled.outcome = Outcome::reply(finished.reply);
            handled.outcome.effects.extend(fire);
        }
        handled
    }

    pub(crate) fn ask(&self, payload: impl Into<Bytes>) -> Outcome {
        self.handle(payload).outcome
    }

    /// The answer to a request that must change nothing: no effect, no file.
    pub(crate) fn ask_in_vain(&self, what: &str, payload: impl Into<Bytes>) -> Bytes {
        let before = self.files();
        let outcome = self.ask(payload);
        assert!(outcome.effects.is_empty(), "{what}: it has effects");
        assert_eq!(self.files(), before, "{what}: it left a trace");
        outcome.reply
    }

    /// Every file of the site with its content.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(self.dir.path(), &mut files);
        files
    }
}

fn collect(dir: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
            files.insert(path, Vec::new());
        } else {
            let content = std::fs::read(&path).unwrap();
            files.insert(path, content);
        }
    }
}

pub(crate) fn decode(packed: &[u8]) -> Value {
    decode_wire(packed, &Limits::WIRE).unwrap()
}

/// The events that an outcome fires, in order.
pub(crate) fn events(outcome: &Outcome) -> Vec<Event> {
    let mut events = Vec::new();
    for effect in &outcome.effects {
        match effect {
            Effect::Fire(event) => events.push(event.clone()),
            Effect::StartJob(job) => events.extend(job.announce.iter().cloned()),
            Effect::StoreReturn(stored) => events.extend(stored.events.iter().cloned()),
            Effect::LogIn(_)
            | Effect::Run(_)
            | Effect::RunPeerCall(_)
            | Effect::StartBatch(_)
            | Effect::ExpectSyndicMinions(_)
            | Effect::TakeAnswer(_)
            | Effect::TakeVerdicts(_) => {}
        }
    }
    events
}

pub(crate) fn tags(outcome: &Outcome) -> Vec<String> {
    let events = events(outcome);
    events.iter().map(|event| event.tag.to_string()).collect()
}

/// An event's data without its time, which is checked to be there.
pub(crate) fn data(event: &Event) -> Value {
    let Value::Map(mut entries) = decode(event.data.bytes()) else {
        panic!("event data is a map");
    };
    let before = entries.len();
    entries.retain(|(name, _)| name.as_str() != Some("_stamp"));
    assert_eq!(entries.len() + 1, before, "the event has one _stamp");
    Value::Map(entries)
}

/// The names of a map, in order.
pub(crate) fn names(value: &Value) -> Vec<&str> {
    let entries = value.as_map().unwrap().iter();
    entries.map(|(name, _)| name.as_str().unwrap()).collect()
}

/// The one job that a request starts.
pub(crate) fn started(outcome: &Outcome) -> &StartJob {
    match outcome.effects.as_slice() {
        [Effect::StartJob(job)] => job,
        _ => panic!("one job is started"),
    }
}

/// The load of a job as the minions get it, without the serial.
pub(crate) fn sent(start: &StartJob) -> Value {
    let publication = &start.publication;
    let mut packed = Vec::new();
    Encoder::new(&mut packed, Dialect::Raw)
        .map(publication.entries)
        .raw(&publication.packed);
    decode(&packed)
}

pub(crate) fn list(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::from(*text)).collect())
}
