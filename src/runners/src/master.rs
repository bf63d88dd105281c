//! Parts of a running master that functions read and change.
//!
//! Requests work with the same values, so a function's change takes effect with a minion's next
//! message.

use std::sync::Arc;

use saltern_content::files::FileServer;
use saltern_content::pillar::Pillars;
use saltern_content::render::modules::site::SiteFunctions;
use saltern_store::{MasterKeys, MinionDataStore, PkiTree, Sessions, Tokens};

/// Stores and services of a running master that functions use.
#[derive(Clone)]
pub struct Master {
    /// The minions' keys.
    pub pki: Arc<PkiTree>,
    /// The minions' session keys.
    pub sessions: Arc<Sessions>,
    /// The master's own keys.
    pub keys: Arc<MasterKeys>,
    /// The tokens of users who logged in.
    pub tokens: Arc<Tokens>,
    /// Grains, pillars and mines of the minions.
    pub minion_data: Arc<MinionDataStore>,
    /// The file server.
    pub files: Arc<FileServer>,
    /// Makes pillars.
    pub pillars: Arc<Pillars>,
    /// Mines, as templates ask for them.
    pub site: Arc<dyn SiteFunctions>,
}
