//! The reactor: runs reactions to events (`salt/utils/reactor.py`).
//!
//! Everything here is a pure step. [`Rules`] maps an event to files; [`Reactions::of`] renders them
//! into a [`Plan`]: typed reactions in their order, and problems of the files. [`begin()`] turns a
//! reaction into a job or a call, which the actors carry out. Queues, threads and dead letters are
//! the actor's (`actors/src/automation/reactor.rs`).

mod begin;
mod compile;
mod limits;
mod order;
mod orders;
mod reaction;
mod rules;

use std::sync::Arc;

use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_content::files::FileServer;
use saltern_content::reactions::{ReactionFiles, ReactionParts};
use saltern_content::render::functions::{CallArgs, CallError};
use saltern_content::render::modules::site::{SiteFunctions, no_such_runner};
use saltern_model::{Compat, MinionId, Target};
use saltern_requests::{OpenError, Stores};
use saltern_wire::msgpack::Value;

pub use begin::{Begun, End, NotBegun, Settle, begin, refusal_row};
pub use limits::{Limit, LimitError, limits};
pub use orders::{Order, answer, order_of};
pub use reaction::{Function, Reaction, ReactionCall, ReactionKey};
pub use rules::{ReactorOptions, Reading, Rules, RulesFile};

use self::compile::Chunk;

/// The user of reactions. Events that bear this name lead to no reactions, or one could trigger
/// itself for ever (`ReactWrap.event_user`).
pub const USER: &str = "Reactor";

/// Reactions to one event.
#[derive(Debug, Default)]
pub struct Plan {
    /// The reactions, in the order in which they are begun.
    pub reactions: Vec<Reaction>,
    /// Problems of the files. No reaction of a file with a problem is carried out.
    pub problems: Vec<Problem>,
}

/// Problem of a file of reactions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}{}{}", place("; reaction", id.as_deref()), place("; in", Some(sls)))]
pub struct Problem {
    /// The file, or the reference that matches none.
    pub sls: String,
    /// The id of the reaction, if only that one is wrong; `None` where the whole file is dropped.
    pub id: Option<String>,
    /// The reaction of the id, where the others are carried out.
    pub key: Option<Box<ReactionKey>>,
    /// The problem, for people.
    pub text: String,
}

impl Problem {
    fn new(sls: &str, id: Option<&str>, text: impl Into<String>) -> Self {
        Self {
            sls: sls.to_owned(),
            id: id.map(str::to_owned),
            key: None,
            text: text.into(),
        }
    }

    fn of_chunk(chunk: &Chunk, text: impl Into<String>) -> Self {
        Self {
            key: Some(Box::new(chunk.key())),
            ..Self::new(&chunk.sls, Some(&chunk.id), text)
        }
    }

    /// A mistake in a reaction because of which its whole file is dropped.
    fn of_file(sls: &str, id: &str, text: &str) -> Self {
        Self::new(sls, None, format!("reaction \"{id}\": {text}"))
    }
}

fn place(what: &str, name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("{what} \"{name}\""))
}

/// Renderer of files of reactions.
pub struct Reactions {
    files: ReactionFiles,
    compat: Compat,
}

impl Reactions {
    /// Reactions of a running master.
    ///
    /// # Errors
    /// When an option of the renderers cannot work.
    pub fn open(config: &MasterConfig, clock: &Clock, stores: &Stores) -> Result<Self, OpenError> {
        Self::new(config, stores.for_reactions(clock))
    }

    fn new(config: &MasterConfig, parts: ReactionParts) -> Result<Self, OpenError> {
        Ok(Self {
            files: ReactionFiles::new(config, parts)?,
            compat: config.salt_compat,
        })
    }

    /// Reactions without a master, for inspection: templates cannot ask for mines and caches.
    ///
    /// # Errors
    /// When an option of the file server or of the renderers cannot work.
    pub fn alone(config: &MasterConfig, clock: &Clock) -> Result<Self, OpenError> {
        let parts = ReactionParts {
            clock: clock.clone(),
            files: Arc::new(FileServer::new(config, clock.clone())?),
            site: Arc::new(Nobody),
            bridge: Some(Arc::new(saltern_bridge::Bridge::new(config))),
        };
        Self::new(config, parts)
    }

    /// The files that a reference matches at this moment.
    pub fn files(&self, reference: &str) -> Vec<String> {
        self.files.find(reference).unwrap_or_default()
    }

    /// The reactions in the files of these references to an event with this tag and these data.
    /// Blocks while they are rendered.
    pub fn of(&self, references: &[String], tag: &str, data: &Arc<Value>) -> Plan {
        let mut problems = Vec::new();
        let mut rendered = Vec::new();
        for reference in references {
            let names = self.files.find(reference).unwrap_or_else(|error| {
                problems.push(Problem::new(reference, None, error.to_string()));
                Vec::new()
            });
            for name in names {
                match self.files.render(&name, tag, data) {
                    Ok(value) => rendered.push((name, value)),
                    Err(error) => problems.push(Problem::new(&name, None, chain(&error))),
                }
            }
        }
        let chunks = compile::chunks(rendered, self.compat, &mut problems);
        let mut reactions = Vec::new();
        for chunk in chunks {
            match Reaction::of(&chunk) {
                Ok(reaction) => reactions.push(reaction),
                Err(problem) => problems.push(problem),
            }
        }
        Plan {
            reactions,
            problems,
        }
    }
}

/// A fleet without minions.
struct Nobody;

impl SiteFunctions for Nobody {
    fn mine_get(&self, _: &MinionId, _: &Target, _: &[String]) -> Value {
        Value::Map(Vec::new())
    }

    fn cached_grains(&self, _: &Target) -> Value {
        Value::Map(Vec::new())
    }

    fn cached_pillar(&self, _: &Target) -> Value {
        Value::Map(Vec::new())
    }

    fn runner(&self, name: &str, _: &CallArgs) -> Result<Value, CallError> {
        Err(no_such_runner(name))
    }
}

#[cfg(test)]
mod tests;
