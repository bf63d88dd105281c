//! `nodegroups`: the groups that a minion is in (`salt/pillar/nodegroups.py`).

use saltern_config::MasterConfig;
use saltern_wire::msgpack::Value;

use super::arguments::Arguments;
use super::error::SourceError;
use super::{Call, Source};
use crate::render::data::from_yaml;

/// The parameters of stock's function.
pub(super) const PARAMETERS: &[&str] = &["pillar_name"];

/// The names of all groups of the configuration, in its order.
pub(super) struct Nodegroups {
    key: Value,
    names: Vec<String>,
}

impl Nodegroups {
    pub(super) fn new(arguments: &Arguments, config: &MasterConfig) -> Self {
        let name = arguments.get("pillar_name").filter(|node| node.is_truthy());
        Self {
            key: name.map_or_else(|| Value::from("nodegroups"), |node| from_yaml(node.clone())),
            names: names(config),
        }
    }
}

/// The names of the node groups that are configured.
fn names(config: &MasterConfig) -> Vec<String> {
    let groups = config.nodegroups().as_map();
    groups
        .into_iter()
        .flat_map(|groups| groups.iter().map(|(name, _)| name.to_string()))
        .collect()
}

impl Source for Nodegroups {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError> {
        let mine = self
            .names
            .iter()
            .filter(|name| (call.input.in_nodegroup)(name));
        let mine = mine.map(|name| Value::from(name.as_str())).collect();
        Ok(Value::Map(vec![(self.key.clone(), Value::Array(mine))]))
    }
}
