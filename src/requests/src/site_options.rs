//! The options that only requests use, read out of the configuration once.

use saltern_config::MasterConfig;
use saltern_config::yaml::Node;
use saltern_crypto::SigAlgo;
use saltern_policy::blacklist::Blacklist;
use saltern_policy::matching::mine::MineAccess;

/// See the fields.
pub struct SiteOptions {
    /// `publisher_acl_blacklist`.
    pub blacklist: Blacklist,
    /// `sudo_acl` together with `publisher_acl`: a `sudo_` user is limited like any other.
    pub sudo_is_limited: bool,
    /// `pillar_version`.
    pub pillar_version: i64,
    /// `master_id`.
    pub master_id: Option<String>,
    /// `minion_data_cache`: grains and pillars are kept.
    pub minion_data_cache: bool,
    /// `minion_data_cache_events`: that they were kept is told. Only a literal `True` counts.
    pub minion_data_cache_events: bool,
    /// `preserve_minion_cache`: they outlast the minion's key.
    pub preserve_minion_cache: bool,
    /// `minion_data_cache` or `enforce_mine_cache`: mines are kept.
    pub keeps_mine: bool,
    /// `mine_get`: which minions may ask for what.
    pub mine_access: MineAccess,
    /// `order_masters`: syndics send events on that belong to jobs.
    pub order_masters: bool,
    /// `runner_returns`: calls of runner functions are kept like jobs.
    pub runner_returns: bool,
    /// `signing_algorithm`: how minions sign their messages.
    pub signing_algorithm: SigAlgo,
}

impl SiteOptions {
    /// Reads them.
    pub fn read(config: &MasterConfig) -> Self {
        let text = |name: &str| config.raw(name).and_then(Node::as_str);
        let is_on = |name: &str| config.raw(name).is_some_and(Node::is_truthy);
        let is_on_by_default = |name: &str| config.raw(name).is_none_or(Node::is_truthy);
        Self {
            blacklist: blacklist(config),
            sudo_is_limited: is_on("sudo_acl") && is_on("publisher_acl"),
            pillar_version: config
                .raw("pillar_version")
                .and_then(Node::as_i64)
                .unwrap_or(2),
            master_id: text("master_id").map(str::to_owned),
            minion_data_cache: is_on_by_default("minion_data_cache"),
            minion_data_cache_events: config
                .raw("minion_data_cache_events")
                .is_none_or(|node| node.as_bool() == Some(true)),
            preserve_minion_cache: is_on("preserve_minion_cache"),
            keeps_mine: is_on_by_default("minion_data_cache") || is_on("enforce_mine_cache"),
            mine_access: MineAccess::from_option(config.raw("mine_get")),
            order_masters: is_on("order_masters"),
            runner_returns: is_on_by_default("runner_returns"),
            signing_algorithm: text("signing_algorithm")
                .and_then(SigAlgo::from_wire)
                .unwrap_or(SigAlgo::Pkcs1v15Sha1),
        }
    }
}

fn texts(node: Option<&Node>) -> impl Iterator<Item = &str> {
    node.and_then(Node::as_seq)
        .unwrap_or_default()
        .iter()
        .filter_map(Node::as_str)
}

fn blacklist(config: &MasterConfig) -> Blacklist {
    let map = config.raw("publisher_acl_blacklist").and_then(Node::as_map);
    let list = |name: &str| texts(map.and_then(|map| map.get(name)));
    Blacklist::new(list("users"), list("modules"))
}
