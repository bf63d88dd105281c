//! Sources that are not built in: modules of the site's own, or of stock, run by Python.

use saltern_config::yaml::Node;
use saltern_wire::msgpack::Value;

use super::error::SourceError;
use super::{Call, Source};
use crate::render::data::from_yaml;

/// A module by its name.
pub(super) struct Other {
    name: String,
    arguments: Value,
}

impl Other {
    pub(super) fn new(name: &str, arguments: &Node) -> Self {
        Self {
            name: name.to_owned(),
            arguments: from_yaml(arguments.clone()),
        }
    }

    /// A source that a minion asks for. Python runs the built-in ones too: their arguments come
    /// over the wire, not from the configuration.
    pub(super) fn asked_for(name: &str, arguments: &Value) -> Self {
        Self {
            name: name.to_owned(),
            arguments: arguments.clone(),
        }
    }
}

impl Source for Other {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError> {
        let name = &self.name;
        match &call.input.context.python {
            Some(python) => {
                let limits = &call.input.context.limits;
                Ok(python.ext_pillar(name, call.pillar, &self.arguments, limits)?)
            }
            None => Err(SourceError::NoPython(name.clone())),
        }
    }
}
