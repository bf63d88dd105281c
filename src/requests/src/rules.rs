//! Access rules as one value: a reload of the configuration replaces them as a whole, so that no
//! request meets half of the old rules and half of the new.
//!
//! Other options that requests use are in [`SiteOptions`](crate::SiteOptions) and stay until a
//! restart.

use std::sync::Arc;
use std::time::Duration;

use saltern_bridge::Bridge;
use saltern_config::MasterConfig;
use saltern_policy::acl::{PublisherAcl, Rules};
use saltern_policy::autosign::{Autosign, AutosignOptions};
use saltern_policy::blacklist::Blacklist;
use saltern_policy::eauth::ExternalAuth;
use saltern_policy::peers::{PeerRules, PeerRunRules};
use saltern_store::UserKeys;

use crate::audit::Redaction;
use crate::site_options;

/// Access rules of a master, replaced as a whole by a reload.
pub struct SiteRules {
    /// `publisher_acl_blacklist`.
    pub blacklist: Blacklist,
    /// `publisher_acl`.
    pub publisher_acl: PublisherAcl,
    /// `saltern_reactor_acl`: what reactions may do; everything where it is not set.
    pub reactor_acl: Option<Rules>,
    /// The keys of the users of this machine that it names.
    pub users: Arc<UserKeys>,
    /// `sudo_acl` together with `publisher_acl`: a `sudo_` user is limited like any other.
    pub sudo_is_limited: bool,
    /// The backends that know users.
    pub external_auth: ExternalAuth,
    /// `token_expire`: how long a token is good.
    pub token_expire: Duration,
    /// `token_expire_user_override`.
    pub token_expire_override: ExpireOverride,
    /// `keep_acl_in_token`: a token carries the rules of its owner. Always so with `rest` among
    /// the backends (`apply_master_config` in `salt/config/__init__.py`).
    pub keep_acl_in_token: bool,
    /// `peer`: which minions may publish what.
    pub peers: PeerRules,
    /// `peer_run`: which minions may run which functions of the master.
    pub peer_runs: PeerRunRules,
    /// Rules for new keys.
    pub autosign: Autosign,
    /// Arguments that are hidden in the audit trail.
    pub(crate) audit: Redaction,
}

/// Users who may choose the lifetime of a token (`token_expire_user_override`).
pub enum ExpireOverride {
    /// No user.
    Nobody,
    /// All users.
    Everybody,
    /// The users of these backends.
    Listed(Vec<(String, Vec<String>)>),
}

impl Redaction {
    /// The rules of a configuration alone.
    #[cfg(test)]
    pub(crate) fn of_site(config: &MasterConfig) -> Self {
        site_options::redaction(&config.followed())
    }
}

impl SiteRules {
    /// The rules of a configuration, with the users' keys that belong to it.
    pub fn read(config: &MasterConfig, users: Arc<UserKeys>, bridge: &Arc<Bridge>) -> Self {
        let followed = config.followed();
        let autosign = Autosign::new(AutosignOptions {
            auto_accept: followed.auto_accept,
            autosign_file: followed.autosign_file.clone(),
            autoreject_file: followed.autoreject_file.clone(),
            grains_dir: followed.autosign_grains_dir.clone(),
            permissive_pki_access: followed.permissive_pki_access,
        });
        Self {
            blacklist: site_options::blacklist(&followed),
            publisher_acl: site_options::publisher_acl(&followed),
            reactor_acl: site_options::reactor_acl(&followed),
            users,
            sudo_is_limited: followed.sudo_acl() && followed.publisher_acl().is_set(),
            external_auth: site_options::external_auth(&followed, bridge),
            token_expire: site_options::token_expire(&followed),
            token_expire_override: site_options::expire_override(&followed),
            keep_acl_in_token: site_options::keep_acl_in_token(&followed),
            peers: PeerRules::new(site_options::rules(followed.peer())),
            peer_runs: PeerRunRules::new(site_options::rules(followed.peer_run())),
            autosign,
            audit: site_options::redaction(&followed),
        }
    }
}
