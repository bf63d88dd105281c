//! Test fixture: the parts of a master that functions use, in a directory of its own.

use std::path::PathBuf;
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_bridge::Bridge;
use saltern_config::load_master;
use saltern_content::ext_pillar::ExtPillars;
use saltern_content::files::FileServer;
use saltern_content::pillar::{Parts, Pillars};
use saltern_content::render::modules::site::{NoSite, SiteFunctions};
use saltern_model::{Compat, Jid};
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_store::{MasterKeys, MinionDataStore, PkiTree, Sessions, Tokens};
use saltern_wire::msgpack::Value;

use crate::{Arguments, Call, Fleet, Master, Notice, Notices, Ran, RunnerContext, Runners};

/// Outcome of a call, and its notices.
pub(crate) type Outcome = (Ran, Vec<Notice>);

/// Named arguments.
pub(crate) type Named<'a> = &'a [(&'a str, Value)];

pub(crate) struct TestSite {
    runners: Runners,
    master: Master,
    dir: tempfile::TempDir,
}

impl TestSite {
    /// A master with these options, in which `ROOT` is its directory, beside those that give it
    /// its directories.
    pub(crate) fn new(compat: Compat, options: &str) -> Self {
        Self::build(compat, options, |context| context)
    }

    /// With minions.
    pub(crate) fn with_fleet(compat: Compat, options: &str, fleet: Arc<dyn Fleet>) -> Self {
        Self::build(compat, options, |context| context.with_fleet(fleet))
    }

    /// With a bridge to Python as configured.
    pub(crate) fn with_bridge(options: &str) -> Self {
        Self::build(Compat::V3008, options, |context| {
            let bridge = Bridge::new(&context.config);
            context.with_bridge(Arc::new(bridge))
        })
    }

    fn build(
        compat: Compat,
        options: &str,
        complete: impl FnOnce(RunnerContext) -> RunnerContext,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for name in ["conf", "pki", "cache", "run", "salt", "pillar"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        // Made once: a new key takes time.
        std::fs::write(root.join("pki/master.pem"), key("master", "pkcs1")).unwrap();
        let text = format!(
            "id: host_master\nsalt_compat: {}\nroot_dir: ROOT\npki_dir: ROOT/pki\n\
             cachedir: ROOT/cache\nsock_dir: ROOT/run\nfile_roots: {{base: [ROOT/salt]}}\n\
             pillar_roots: {{base: [ROOT/pillar]}}\n{options}",
            &compat.release()[..4]
        );
        let text = text.replace("ROOT", &root.display().to_string());
        std::fs::write(root.join("conf/master"), text).unwrap();
        let config = match load_master(&root.join("conf")) {
            Ok(loaded) => Arc::new(loaded.config),
            Err(errors) => panic!("the options of this test are wrong: {errors}"),
        };
        let clock = Clock::system();
        let files = Arc::new(FileServer::new(&config, clock.clone()).unwrap());
        let site: Arc<dyn SiteFunctions> = Arc::new(NoSite);
        let parts = Parts {
            clock: clock.clone(),
            files: files.clone(),
            ext: ExtPillars::new(&config).unwrap(),
            site: site.clone(),
            bridge: None,
        };
        let master = Master {
            pki: Arc::new(PkiTree::open(&config, clock.clone()).unwrap()),
            tokens: Arc::new(Tokens::open(&config, clock.clone()).unwrap()),
            sessions: Arc::new(Sessions::open(&config, clock).unwrap()),
            keys: Arc::new(MasterKeys::load_or_create(&config).unwrap()),
            minion_data: Arc::new(MinionDataStore::open(&config)),
            files,
            pillars: Arc::new(Pillars::new(&config, parts).unwrap()),
            site,
        };
        let path = root.join("jobs.sqlite");
        let database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        let context = RunnerContext::new(config, database.reader().unwrap());
        Self {
            runners: Runners::new(complete(context.with_master(master.clone()))),
            master,
            dir,
        }
    }

    pub(crate) fn master(&self) -> &Master {
        &self.master
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    /// Runs a wheel function.
    pub(crate) fn wheel(&self, fun: &str, named: Named<'_>) -> Outcome {
        let call = call(fun, &[], named);
        let mut notices = Vec::new();
        let mut collect = |notice| notices.push(notice);
        let ran = self
            .runners
            .wheels()
            .run(&call, &mut Notices::new(&mut collect));
        (ran, notices)
    }

    /// Runs a runner function.
    pub(crate) fn runner(&self, fun: &str, positional: &[Value], named: Named<'_>) -> Outcome {
        let call = call(fun, positional, named);
        let mut notices = Vec::new();
        let mut collect = |notice| notices.push(notice);
        let ran = self.runners.run(&call, &mut Notices::new(&mut collect));
        (ran, notices)
    }

    /// Value of a runner function that sends no notice.
    pub(crate) fn runner_value(&self, fun: &str, positional: &[Value], named: Named<'_>) -> Value {
        let (ran, notices) = self.runner(fun, positional, named);
        assert!(
            ran.success && ran.retcode.is_none(),
            "{fun}: {:?}",
            ran.value
        );
        assert_eq!(notices, [], "{fun}");
        ran.value
    }

    /// Value of a wheel function that sends no notice.
    pub(crate) fn wheel_value(&self, fun: &str, named: Named<'_>) -> Value {
        let (ran, notices) = self.wheel(fun, named);
        assert!(
            ran.success && ran.retcode.is_none(),
            "{fun}: {:?}",
            ran.value
        );
        assert_eq!(notices, [], "{fun}");
        ran.value
    }
}

fn call(fun: &str, positional: &[Value], named: Named<'_>) -> Call {
    let named = named.iter();
    Call {
        jid: Jid::parse("20260102030405060708").unwrap(),
        fun: fun.to_owned(),
        arguments: Arguments {
            positional: positional.to_vec(),
            named: named
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        },
        user: "me".to_owned(),
    }
}

/// A part of a key pair of `tests/vectors/crypto.json`: `master`, `minion` or `large`.
pub(crate) fn key(name: &str, part: &str) -> String {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/crypto.json"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let text = vectors.pointer(&format!("/keys/{name}/{part}")).unwrap();
    text.as_str().unwrap().to_owned()
}

/// A list of texts.
pub(crate) fn list(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::from(*text)).collect())
}
