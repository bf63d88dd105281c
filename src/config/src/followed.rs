//! The options that SIGHUP takes over, apart from all others: they are no fields of
//! [`MasterConfig`], whose other values hold until a restart.
//!
//! [`MasterConfig::followed`] gives what holds now, from the configuration of the start too. Who
//! keeps something made of it is brought up to date by `Services::follow` and `Master::follow`;
//! a test (`tests/followed.rs`) asks of every other reader how it follows.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::logging::{self, LevelOptions};
use crate::master::MasterConfig;
use crate::option_value::{self, OptionValue};
use crate::options::{self, Reload};
use crate::paths::below_root;
use crate::reader::Reader;
use crate::yaml::{Entry, Key, Mapping, Node};

/// The options that SIGHUP takes over, of one reading of the configuration.
pub struct Followed {
    /// Whether every key is accepted. Only a literal `true` counts.
    pub auto_accept: bool,
    /// Names or patterns of minions whose keys are accepted.
    pub autosign_file: Option<PathBuf>,
    /// Names or patterns of minions whose keys are rejected.
    pub autoreject_file: Option<PathBuf>,
    /// Files of grain values whose minions are accepted.
    pub autosign_grains_dir: Option<PathBuf>,
    /// Whether the group may read the PKI tree.
    pub permissive_pki_access: bool,
    /// The levels of the log.
    pub log_levels: LevelOptions,
    settings: Mapping,
    defaults: Mapping,
}

impl Followed {
    /// Reads them. Paths are below `root_dir`; `log_file` is where the log file is.
    pub(crate) fn take(reader: &mut Reader<'_>, root_dir: &str, log_file: &str) -> Self {
        for name in ["saltern_audit_redact", "saltern_audit_redact_functions"] {
            require_texts(reader, name);
        }
        let mut path = |name| {
            let path = reader.optional_text(name);
            path.map(|path| PathBuf::from(below_root(root_dir, &path)))
        };
        Self {
            autosign_file: path("autosign_file"),
            autoreject_file: path("autoreject_file"),
            autosign_grains_dir: path("autosign_grains_dir"),
            auto_accept: reader.bool("auto_accept"),
            permissive_pki_access: reader.bool("permissive_pki_access"),
            log_levels: logging::levels(reader, log_file),
            settings: followed(reader.settings),
            defaults: followed(reader.defaults),
        }
    }

    pub(crate) fn value(&self, name: &'static str) -> OptionValue<'_> {
        option_value::value(name, &self.settings, &self.defaults)
    }
}

/// Finds a value that is no list of texts: as an empty list it would leave secrets in the audit trail.
fn require_texts(reader: &mut Reader<'_>, name: &str) {
    let texts = |node: &Node| {
        let words = node.as_seq()?;
        words
            .iter()
            .all(|word| word.as_str().is_some())
            .then_some(())
    };
    let _: Option<()> = reader.read(name, "a list of texts", texts);
}

/// The options among others.
fn followed(all: &Mapping) -> Mapping {
    let mut followed = Mapping::default();
    for (key, entry) in all.iter() {
        if let Some(name) = key.as_str()
            && options::reload_of(name) == Reload::InEffect
        {
            let entry = Entry {
                key_mark: entry.key_mark.clone(),
                value: entry.value.clone(),
            };
            followed.insert(Key::Str(name.to_owned()), entry);
        }
    }
    followed
}

/// Current values, for all that share a configuration.
#[derive(Clone)]
pub(crate) struct Current(Arc<RwLock<Arc<Followed>>>);

impl Current {
    pub(crate) fn new(followed: Followed) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(followed))))
    }
}

impl MasterConfig {
    /// The options that SIGHUP takes over, as they hold now. A caller that uses several of them takes
    /// them once.
    pub fn followed(&self) -> Arc<Followed> {
        self.current.0.read().clone()
    }

    /// Takes those of a later reading over, for all that share this configuration.
    pub fn follow(&self, reloaded: &MasterConfig) {
        let followed = reloaded.followed();
        *self.current.0.write() = followed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> MasterConfig {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("root_dir: /nowhere\nid: m\n{text}");
        std::fs::write(dir.path().join("master"), text).unwrap();
        let loaded = crate::load_master(dir.path());
        loaded.map_err(|errors| errors.to_string()).unwrap().config
    }

    #[test]
    fn configuration_of_the_start_gives_what_a_reload_has_brought() {
        let started = config("auto_accept: true\npeer: {a: [test.ping]}\nworker_threads: 2\n");
        let shared = started.clone();
        let before = shared.followed();
        started.follow(&config("peer: {b: [test.ping]}\nworker_threads: 3\n"));
        let after = shared.followed();
        assert!(before.auto_accept && !after.auto_accept);
        assert!(before.peer().as_map().unwrap().get("a").is_some());
        assert!(after.peer().as_map().unwrap().get("b").is_some());
        assert_eq!(shared.worker_threads, 2);
    }
}
