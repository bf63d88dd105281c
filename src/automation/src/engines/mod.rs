//! Events of engines: pure functions from an engine's input to an event.
//!
//! Nothing here runs a program or listens: the actors do (`actors/src/automation/engine.rs`).

mod script;
mod webhook;

use saltern_bridge::EngineCall;
use saltern_config::yaml::{Mapping, Mark, Node, NodeValue};
use saltern_content::render::data::from_yaml;
use saltern_model::{Event, Tag};
use saltern_requests::{Context, master_event};
use serde::Serialize;

pub use script::{LastData, LineError, script_event};
pub use webhook::{HookError, hook_event};

/// Event for an engine that is not restarted any more: it has ended too often.
pub fn given_up(context: &Context, name: &str, reason: &str) -> Event {
    let data = GivenUp {
        engine: name,
        reason,
    };
    master_event(context, Tag::engine("given_up"), &data)
}

/// Data of `saltern/engine/given_up`.
#[derive(Serialize)]
struct GivenUp<'a> {
    engine: &'a str,
    reason: &'a str,
}

/// Request to Python to run an engine.
pub fn python_engine(name: &str, module: &str, options: &Mapping) -> EngineCall {
    let options = Node::new(NodeValue::Map(options.clone()), Mark::nowhere("engines"));
    EngineCall {
        name: name.to_owned(),
        module: module.to_owned(),
        options: from_yaml(options),
    }
}
