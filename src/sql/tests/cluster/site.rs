//! A server, and clusters in it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use saltern_config::{SqlStore, load_master};
use saltern_sql::{ClusterOptions, open_cluster};
use saltern_stock::databases::{Kind, PASSWORD, Server};
use saltern_store::jobs::{Batch, Committed, Engine, wait};
use saltern_store::{Result, Write};
use tempfile::TempDir;

use crate::conformance;

/// How long a batch waits for its server: a machine may have much else to do.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server of a test's own; its directory goes with it.
pub(crate) struct Database {
    pub(crate) server: Server,
    directory: TempDir,
}

impl Database {
    pub(crate) fn start() -> Self {
        Self::with(Server::start)
    }

    pub(crate) fn start_on_tcp() -> Self {
        Self::with(|kind, path| Server::start_on_tcp(kind, path, None))
    }

    fn with(start: impl FnOnce(Kind, &Path) -> Server) -> Self {
        // Short, because the path of a socket must fit into 107 bytes.
        let directory = tempfile::Builder::new().prefix("sql-").tempdir_in("/tmp");
        let directory = directory.expect("a directory");
        let server = start(Kind::Postgres, &directory.path().join("server"));
        Self { server, directory }
    }

    /// A path in its directory.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// The options of a connection, over a port.
    fn store(&self, port: u16) -> SqlStore {
        let path = self.directory.path().join("master");
        let (host, prefix) = (self.server.host(), "returner.pgjsonb");
        let text = format!(
            "{prefix}.host: {host}\n{prefix}.port: {port}\n{prefix}.user: salt\n\
             {prefix}.pass: {PASSWORD}\n{prefix}.db: salt\n{prefix}.sslmode: disable\n\
             master_job_cache: pgjsonb\n"
        );
        fs::write(&path, text).expect("a file");
        let loaded = load_master(&path).expect("a configuration");
        let store = loaded.config.returners.sql_store("pgjsonb");
        store.expect("a store").clone()
    }

    /// A cluster of this name.
    pub(crate) fn cluster(&self, name: &str) -> Cluster {
        self.cluster_over(name, self.server.port())
    }

    /// The same over a port that is not the server's own.
    pub(crate) fn cluster_over(&self, name: &str, port: u16) -> Cluster {
        let options = ClusterOptions {
            name: name.to_owned(),
            patience: PATIENCE,
            idle_limit: PATIENCE,
        };
        let store = self.store(port);
        Cluster { store, options }
    }
}

/// A cluster in a server.
pub(crate) struct Cluster {
    pub(crate) store: SqlStore,
    pub(crate) options: ClusterOptions,
}

impl Cluster {
    pub(crate) fn try_open(&self) -> Result<Engine> {
        open_cluster(self.store.clone(), self.options.clone())
    }
}

impl conformance::Site for Cluster {
    fn open(&self) -> Engine {
        self.try_open().expect("opened")
    }
}

pub(crate) fn append(engine: &Engine, writes: Vec<Write>) -> Result<Committed> {
    wait(engine.log.append(Arc::new(Batch::of(writes))))
}
