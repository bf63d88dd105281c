//! From a target on the command line to what the master and the minions are sent.

use std::path::Path;

use saltern_config::MasterConfig;
use saltern_requests::without_nodegroups;
use saltern_wire::msgpack::Value;

use crate::options::{TargetText, TargetType};

/// Why a target means nobody, in stock's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// The configuration has no nodegroup of this name.
    #[error("Node group {name} unavailable in {file}")]
    UnknownNodegroup {
        /// The name.
        name: String,
        /// The configuration file that stock names.
        file: String,
    },
    /// The nodegroups of the configuration cannot be written out.
    #[error("{0}")]
    Unusable(String),
}

/// The target with its nodegroups written out, since minions know none, and its kind. `directory` is that
/// of the configuration.
///
/// # Errors
/// A nodegroup that is not there, or that cannot be written out.
pub(crate) fn target(
    target: &TargetText,
    kind: Option<TargetType>,
    directory: &Path,
    config: &MasterConfig,
) -> Result<(Value, &'static str), TargetError> {
    let text = match target {
        TargetText::Text(text) => text,
        TargetText::List(ids) => {
            let ids = ids.iter().map(|id| Value::from(id.as_str()));
            return Ok((Value::Array(ids.collect()), TargetType::List.name()));
        }
    };
    let words = match kind {
        Some(TargetType::Nodegroup) => vec![format!("N@{text}")],
        Some(TargetType::Compound) => saltern_python::text::split(text)
            .map(str::to_owned)
            .collect(),
        kind => return Ok((text.as_str().into(), kind.map_or("glob", TargetType::name))),
    };
    let groups = config.command_default("nodegroups");
    let groups = groups.and_then(|node| node.as_map());
    let mut named = words.iter().filter_map(|word| word.strip_prefix("N@"));
    let unknown = named.find(|name| {
        let is_known = groups.is_some_and(|groups| groups.get(name).is_some());
        !name.is_empty() && !is_known
    });
    if let Some(name) = unknown {
        return Err(TargetError::UnknownNodegroup {
            name: name.to_owned(),
            file: directory.join("master").display().to_string(),
        });
    }
    let words = without_nodegroups(config, &words);
    let words = words.map_err(|error| TargetError::Unusable(error.to_string()))?;
    Ok((words.join(" ").into(), TargetType::Compound.name()))
}
