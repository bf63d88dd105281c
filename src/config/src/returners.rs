//! The options of returners: which get events (`event_return…`) and jobs (`master_job_cache`,
//! `ext_job_cache`).

use std::time::Duration;

use crate::reader::Reader;
use crate::sql::{SqlSchema, SqlStore};
use crate::yaml::Node;

/// The name by which `event_return` means this master's own job database.
pub const OWN_EVENTS: &str = "saltern";

/// The job cache that needs no returner.
pub(crate) const OWN_JOBS: &str = "local_cache";

/// Returners of events and jobs, with the queue and the filters of events.
#[derive(Clone, Debug, Default)]
pub struct ReturnerOptions {
    /// `event_return`: those that get events, each once, in the order of the file. [`OWN_EVENTS`] is
    /// this master itself, all others run in Python.
    pub events: Vec<String>,
    /// `event_return_queue`: events that are collected before they are returned together.
    pub queue: usize,
    /// `event_return_queue_max_seconds`: the longest that the first of them waits.
    pub patience: Option<Duration>,
    /// `event_return_whitelist`: wildcards of tags; without any, every event is returned.
    pub whitelist: Vec<String>,
    /// `event_return_blacklist`: wildcards of tags of which none is.
    pub blacklist: Vec<String>,
    /// `master_job_cache`, where it is not what this master does itself.
    pub job_cache: Option<String>,
    /// `ext_job_cache`.
    pub ext_job_cache: Option<String>,
    /// The SQL databases among them that need no Python.
    pub sql: Vec<SqlStore>,
}

impl ReturnerOptions {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let mut events: Vec<String> = Vec::new();
        for name in names(
            reader,
            "event_return",
            "the name of a returner or a list of them",
        ) {
            if !name.is_empty() && !events.contains(&name) {
                events.push(name);
            }
        }
        let wildcards = "a list of wildcards of tags";
        let job_cache = reader.optional_text("master_job_cache");
        let ext_job_cache = reader.optional_text("ext_job_cache");
        let named = events.iter().chain(&job_cache).chain(&ext_job_cache);
        let named: Vec<&String> = named.collect();
        let is_named = |schema: &SqlSchema| named.iter().any(|name| *name == schema.name());
        let schemas = SqlSchema::ALL.into_iter().filter(is_named);
        let sql = schemas.filter_map(|schema| SqlStore::read(schema, reader));
        let sql = sql.collect();
        Self {
            sql,
            events,
            queue: reader.usize("event_return_queue", 0, 1 << 20),
            patience: Some(reader.seconds("event_return_queue_max_seconds"))
                .filter(|patience| !patience.is_zero()),
            whitelist: names(reader, "event_return_whitelist", wildcards),
            blacklist: names(reader, "event_return_blacklist", wildcards),
            job_cache: job_cache.filter(|name| name != OWN_JOBS),
            ext_job_cache: ext_job_cache.filter(|name| name != OWN_JOBS),
        }
    }

    /// The returners that get events, but the job database.
    pub fn events_elsewhere(&self) -> impl Iterator<Item = &str> {
        let names = self.events.iter().map(String::as_str);
        names.filter(|name| *name != OWN_EVENTS)
    }

    /// The SQL database of a returner that needs no Python.
    pub fn sql_store(&self, name: &str) -> Option<&SqlStore> {
        self.sql.iter().find(|store| store.schema.name() == name)
    }
}

/// A text, or a list of texts.
fn names(reader: &mut Reader<'_>, option: &str, wanted: &str) -> Vec<String> {
    let text = |node: &Node| node.as_str().map(str::to_owned);
    let accept = |node: &Node| match (node.as_seq(), node.is_null()) {
        (Some(items), _) => items.iter().map(text).collect(),
        (None, true) => Some(Vec::new()),
        (None, false) => text(node).map(|name| vec![name]),
    };
    reader.read(option, wanted, accept).unwrap_or_default()
}
