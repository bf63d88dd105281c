//! Options that only requests use, parsed once from the configuration; and the parsers of the
//! options that make up the [rules](crate::SiteRules).

use std::sync::Arc;
use std::time::Duration;

use saltern_bridge::Bridge;
use saltern_config::yaml::Node;
use saltern_config::{Followed, MasterConfig, OptionValue};
use saltern_content::render::data::from_yaml;
use saltern_crypto::{SecretString, SigAlgo};
use saltern_policy::acl::{PublisherAcl, Rules};
use saltern_policy::blacklist::Blacklist;
use saltern_policy::eauth::{EauthOptions, ExternalAuth};
use saltern_policy::matching::mine::MineAccess;
use saltern_wire::msgpack::Value;

use crate::audit::Redaction;
use crate::rules::ExpireOverride;

/// The default of `syndic_wait`, in seconds (`salt/config/__init__.py`).
const SYNDIC_WAIT: u64 = 5;

/// Stock's default of `syndic_master`, which names no master: there is no syndic.
const NO_SYNDIC_MASTER: &str = "masterofmasters";

/// Options that only requests use; fixed until a restart.
pub struct SiteOptions {
    /// `pillar_version`.
    pub pillar_version: i64,
    /// `master_id`.
    pub master_id: Option<String>,
    /// `minion_data_cache`: grains and pillars are cached.
    pub minion_data_cache: bool,
    /// `minion_data_cache_events`: an event reports that they were cached. Only a literal `True`
    /// counts.
    pub minion_data_cache_events: bool,
    /// `preserve_minion_cache`: they outlast the minion's key.
    pub preserve_minion_cache: bool,
    /// `minion_data_cache` or `enforce_mine_cache`: mines are stored.
    pub keeps_mine: bool,
    /// `mine_get`: which minions may ask for what.
    pub mine_access: MineAccess,
    /// `order_masters`: syndics forward events that belong to jobs.
    pub order_masters: bool,
    /// With `order_masters`, `syndic_wait`: how long syndics have to announce which minions below
    /// them have a job; else zero.
    pub leaves_wait: Duration,
    /// `syndic_master`: a syndic beside this master forwards bus events to a master above.
    pub has_syndic: bool,
    /// `runner_returns`: calls of runner functions are kept like jobs.
    pub runner_returns: bool,
    /// `timeout`: how long a client waits for returns.
    pub client_timeout: Duration,
    /// `signing_algorithm`: how minions sign their messages.
    pub signing_algorithm: SigAlgo,
}

impl SiteOptions {
    /// Parses them.
    pub fn read(config: &MasterConfig) -> Self {
        let syndic_master = config.syndic_master();
        Self {
            pillar_version: config.pillar_version().as_i64().unwrap_or(2),
            master_id: config.master_id().map(str::to_owned),
            minion_data_cache: config.minion_data_cache(),
            minion_data_cache_events: config.minion_data_cache_events().as_bool() == Some(true),
            preserve_minion_cache: config.preserve_minion_cache(),
            keeps_mine: config.minion_data_cache() || config.enforce_mine_cache(),
            mine_access: MineAccess::from_option(config.mine_get().node()),
            order_masters: config.order_masters(),
            leaves_wait: match config.order_masters() {
                true => Duration::from_secs(
                    config
                        .syndic_wait()
                        .as_i64()
                        .map_or(SYNDIC_WAIT, |seconds| u64::try_from(seconds).unwrap_or(0)),
                ),
                false => Duration::ZERO,
            },
            has_syndic: syndic_master.is_set() && syndic_master.as_str() != Some(NO_SYNDIC_MASTER),
            runner_returns: config.runner_returns(),
            client_timeout: config.timeout,
            signing_algorithm: config
                .signing_algorithm()
                .and_then(SigAlgo::from_wire)
                .unwrap_or(match config.fips_mode {
                    true => SigAlgo::Pkcs1v15Sha224,
                    false => SigAlgo::Pkcs1v15Sha1,
                }),
        }
    }
}

/// `external_auth` and the options that belong to it.
pub(crate) fn external_auth(followed: &Followed, bridge: &Arc<Bridge>) -> ExternalAuth {
    let backends = followed.external_auth().node().cloned().map(from_yaml);
    let shared_secret = followed.sharedsecret().map(str::to_owned);
    let auth = ExternalAuth::new(
        &backends.unwrap_or(Value::Nil),
        EauthOptions {
            pam_service: followed.auth_pam_service().map(str::to_owned),
            shared_secret: shared_secret.map(SecretString::new),
            permissive: followed.permissive_acl(),
            acl_module: followed.eauth_acl_module().map(str::to_owned),
        },
    );
    let auth = auth.with_bridge(Arc::clone(bridge));
    for (module, refusal) in auth.in_python() {
        if let Some(error) = refusal {
            tracing::error!(module, %error, "no user can log in by this external_auth");
        }
    }
    auth
}

/// Stock's default of `token_expire`.
const DEFAULT_TOKEN_EXPIRE: Duration = Duration::from_secs(12 * 3600);

/// `token_expire`.
pub(crate) fn token_expire(followed: &Followed) -> Duration {
    let seconds = followed.token_expire().as_f64();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .unwrap_or(DEFAULT_TOKEN_EXPIRE)
}

/// `keep_acl_in_token`, and what implies it.
pub(crate) fn keep_acl_in_token(followed: &Followed) -> bool {
    followed.keep_acl_in_token()
        || entries(followed.external_auth().node()).any(|(name, _)| name == "rest")
}

/// `token_expire_user_override`.
pub(crate) fn expire_override(followed: &Followed) -> ExpireOverride {
    match followed.token_expire_user_override().node() {
        Some(node) if node.as_bool() == Some(true) => ExpireOverride::Everybody,
        Some(node) if node.as_map().is_some() => {
            let lists = entries(Some(node));
            let lists = lists.map(|(eauth, users)| {
                let users = texts(Some(users)).map(str::to_owned);
                (eauth.to_owned(), users.collect())
            });
            ExpireOverride::Listed(lists.collect())
        }
        _ => ExpireOverride::Nobody,
    }
}

/// `saltern_reactor_acl`.
pub(crate) fn reactor_acl(followed: &Followed) -> Option<Rules> {
    let option = followed.saltern_reactor_acl().node();
    let option = option.filter(|node| !node.is_null());
    option.map(|node| Rules::of(&from_yaml(node.clone())))
}

pub(crate) fn publisher_acl(followed: &Followed) -> PublisherAcl {
    PublisherAcl::new(rules(followed.publisher_acl()))
}

/// The rules of an option, by the names to which they apply.
pub(crate) fn rules(option: OptionValue<'_>) -> impl Iterator<Item = (&str, Value)> {
    let entries = entries(option.node());
    entries.map(|(name, rules)| (name, from_yaml(rules.clone())))
}

/// The entries of a mapping whose names are text.
fn entries(node: Option<&Node>) -> impl Iterator<Item = (&str, &Node)> {
    let entries = node.and_then(Node::as_map).into_iter();
    let entries = entries.flat_map(|map| map.iter());
    entries.filter_map(|(name, entry)| Some((name.as_str()?, &entry.value)))
}

fn texts(node: Option<&Node>) -> impl Iterator<Item = &str> {
    node.and_then(Node::as_seq)
        .unwrap_or_default()
        .iter()
        .filter_map(Node::as_str)
}

pub(crate) fn redaction(followed: &Followed) -> Redaction {
    let names = followed.saltern_audit_redact().node();
    let functions = followed.saltern_audit_redact_functions().node();
    Redaction::new(texts(names), texts(functions))
}

pub(crate) fn blacklist(followed: &Followed) -> Blacklist {
    let map = followed.publisher_acl_blacklist().as_map();
    let list = |name: &str| texts(map.and_then(|map| map.get(name)));
    Blacklist::new(list("users"), list("modules"))
}
