//! `saltern_query`, clear and our own: a user reads what the master knows, in pages.
//!
//! A load as that of `runner` (`fun`, `kwarg`), answered at once with `{"return": page}` or with an
//! error, which names the argument that is wrong. No jid, no event, nothing is kept: a query changes
//! nothing, but for [`CHANGES`]. Whoever may call the function of stock that shows the same
//! ([`Query::shown_by`]) may send the query, so a site's rules hold without a change. What changes a
//! batch is open to the user who began it, too. Queries run beside the workers.

mod access;
mod arguments;
mod audit;
mod automation;
mod batches;
mod functions;
mod highstates;
mod jobs;
mod keys;
mod master;
mod minion_history;
mod minions;
mod old_jobs;

use std::sync::Arc;

use bytes::Bytes;
use saltern_base::chain;
use saltern_policy::matching::explain_compound;
use saltern_policy::target::TargetError;
use saltern_runners::{NoAnswer, OldJobsAway};
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use crate::credentials::{NotProved, Sender};
use crate::fleet::InventoryError;
use crate::master_gate::{self, FunctionKind};
use crate::outcome::Finished;
use crate::{Outcome, Services, reply};
use arguments::QueryArguments;

pub use audit::line as audit_line;

/// The command's name.
pub(crate) const COMMAND: &str = "saltern_query";

/// Something that can be asked.
struct Query {
    name: &'static str,
    /// The function of the master that shows the same: its rules hold.
    shown_by: (FunctionKind, &'static str),
    parameters: &'static [&'static str],
    run: fn(&QueryArguments<'_>, &Services) -> Result<Bytes, QueryError>,
}

/// Every query.
const QUERIES: &[Query] = {
    use FunctionKind::{Runner, Wheel};
    &[
        Query {
            name: "audit.page",
            shown_by: (Runner, "audit.list"),
            parameters: audit::PAGE,
            run: audit::page,
        },
        Query {
            name: "audit.state",
            shown_by: (Runner, "audit.list"),
            parameters: &[],
            run: audit::state,
        },
        Query {
            name: "audit.verify",
            shown_by: (Runner, "audit.verify"),
            parameters: &[],
            run: audit::verify,
        },
        Query {
            name: "batches.page",
            shown_by: (Runner, "batch.list_active"),
            parameters: &[],
            run: batches::page,
        },
        Query {
            name: "batches.pause",
            shown_by: (Runner, "batch.pause"),
            parameters: &["jid"],
            run: batches::pause,
        },
        Query {
            name: "batches.resume",
            shown_by: (Runner, "batch.resume"),
            parameters: &["jid"],
            run: batches::resume,
        },
        Query {
            name: "batches.status",
            shown_by: (Runner, "batch.status"),
            parameters: &["jid"],
            run: batches::status,
        },
        Query {
            name: "batches.stop",
            shown_by: (Runner, "batch.stop"),
            parameters: &["jid", "kill"],
            run: batches::stop,
        },
        Query {
            name: "calls.running",
            shown_by: (Runner, "jobs.master"),
            parameters: &[],
            run: functions::running,
        },
        Query {
            name: "functions.doc",
            shown_by: (Runner, "jobs.lookup_jid"),
            parameters: &["function"],
            run: functions::doc,
        },
        Query {
            name: "functions.names",
            shown_by: (Runner, "jobs.list_jobs"),
            parameters: &["prefix", "limit"],
            run: functions::names,
        },
        Query {
            name: "highstates.groups",
            shown_by: (Runner, "jobs.lookup_jid"),
            parameters: &[],
            run: highstates::groups,
        },
        Query {
            name: "highstates.page",
            shown_by: (Runner, "jobs.lookup_jid"),
            parameters: highstates::PAGE,
            run: highstates::page,
        },
        Query {
            name: "jobs.explain",
            shown_by: (Runner, "jobs.list_job"),
            parameters: &["jid"],
            run: jobs::explain,
        },
        Query {
            name: "jobs.page",
            shown_by: (Runner, "jobs.list_jobs"),
            parameters: jobs::PAGE,
            run: jobs::page,
        },
        Query {
            name: "jobs.request",
            shown_by: (Runner, "jobs.list_job"),
            parameters: &["jid"],
            run: jobs::request,
        },
        Query {
            name: "jobs.returns",
            shown_by: (Runner, "jobs.lookup_jid"),
            parameters: &["jid", "minion", "after", "limit"],
            run: jobs::returns,
        },
        Query {
            name: "keys.page",
            shown_by: (Wheel, "key.list_all"),
            parameters: &["match", "state", "after", "limit"],
            run: keys::page,
        },
        Query {
            name: "minions.grains",
            shown_by: (Runner, "cache.grains"),
            parameters: &["minion"],
            run: minions::grains,
        },
        Query {
            name: "minions.history",
            shown_by: (Runner, "cache.grains"),
            parameters: &["minion", "limit"],
            run: minion_history::history,
        },
        Query {
            name: "minions.last_jobs",
            shown_by: (Runner, "jobs.list_jobs"),
            parameters: &["minions"],
            run: minions::last_jobs,
        },
        Query {
            name: "minions.mine",
            shown_by: (Runner, "cache.mine"),
            parameters: &["minion"],
            run: minions::mine,
        },
        Query {
            name: "minions.page",
            shown_by: (Runner, "cache.grains"),
            parameters: &["target", "minion", "present", "grains", "after", "limit"],
            run: minions::page,
        },
        Query {
            name: "minions.pillar",
            shown_by: (Runner, "cache.pillar"),
            parameters: &["minion"],
            run: minions::pillar,
        },
        Query {
            name: "reactor.letters",
            shown_by: (Runner, "reactor.dead_letters"),
            parameters: &["before", "limit"],
            run: automation::letters,
        },
        Query {
            name: "reactor.replay",
            shown_by: (Runner, "reactor.replay"),
            parameters: &["letter"],
            run: automation::replay,
        },
        Query {
            name: "reactor.report",
            shown_by: (Runner, "reactor.list"),
            parameters: &[],
            run: automation::reactor,
        },
        Query {
            name: "saltern.health",
            shown_by: (Runner, "saltern.health"),
            parameters: &[],
            run: master::health,
        },
        Query {
            name: "saltern.version",
            shown_by: (Runner, "saltern.version"),
            parameters: &[],
            run: master::version,
        },
        Query {
            name: "schedule.report",
            shown_by: (Runner, "schedule.list"),
            parameters: &[],
            run: automation::schedule,
        },
    ]
};

/// Why a query has no page.
#[derive(Debug, thiserror::Error)]
enum QueryError {
    /// There is none of this name.
    #[error("there is no query \"{0}\"")]
    Unknown(String),
    /// An argument cannot be used.
    #[error("\"{argument}\" {problem}")]
    Argument {
        argument: &'static str,
        problem: String,
    },
    /// A target that cannot be used.
    #[error("this target cannot be used: {0}")]
    Target(String),
    /// An argument that the query does not have.
    #[error("there is no argument \"{0}\"")]
    NoSuchArgument(String),
    /// There is no such job.
    #[error("there is no job {0}")]
    NoJob(String),
    /// Stored data cannot be read.
    #[error("the master cannot read what it has stored; see its log")]
    Store(#[from] StoreError),
    /// Old jobs cannot be read, and it may be one of them.
    #[error("this master has no job {jid}; {away}")]
    OldJobsAway { jid: String, away: OldJobsAway },
    /// A part of the master does not answer.
    #[error(transparent)]
    Busy(#[from] NoAnswer),
    /// It cannot be done as things are.
    #[error("{0}")]
    Refused(String),
    /// Something that the answer needs is not ready.
    #[error("{0}; ask again")]
    NotYet(String),
}

impl QueryError {
    fn argument(argument: &'static str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::Argument { argument, problem }
    }

    fn of_inventory(error: InventoryError) -> Self {
        match error {
            InventoryError::Store(error) => Self::Store(error),
            InventoryError::TooMany => Self::argument("grains", "names too many: 64 at most"),
            InventoryError::Problems(problems) => Self::Target(problems),
            other => Self::Target(other.to_string()),
        }
    }

    /// The same, with the first fault of the target where its words are in a wrong order.
    fn of_target(error: InventoryError, target: &str) -> Self {
        match (error, explain_compound(target)) {
            (InventoryError::Target(TargetError::Compound(_)), Some(fault)) => Self::Target(fault),
            (InventoryError::Target(TargetError::Compound(fault)), None) => {
                Self::Target(fault.to_owned())
            }
            (other, _) => Self::of_inventory(other),
        }
    }

    /// The name of the error on the wire: of stock's exceptions, where it has one.
    fn name(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "CommandNotFoundError",
            Self::Argument { .. } | Self::Target(_) | Self::NoSuchArgument(_) => {
                "SaltInvocationError"
            }
            Self::NoJob(_) => "NotFoundError",
            Self::Refused(_) => "ConflictError",
            Self::Store(_) => "SaltMasterError",
            Self::Busy(_) | Self::NotYet(_) | Self::OldJobsAway { .. } => "SaltReqTimeoutError",
        }
    }

    fn reply(&self) -> Bytes {
        #[derive(Serialize)]
        struct Refused<'a> {
            error: Error<'a>,
        }
        #[derive(Serialize)]
        struct Error<'a> {
            name: &'a str,
            message: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            argument: Option<&'a str>,
        }
        let argument = match self {
            Self::Argument { argument, .. } => Some(*argument),
            Self::Target(_) => Some("target"),
            Self::NoSuchArgument(name) => Some(name.as_str()),
            _ => None,
        };
        reply::clear(&Refused {
            error: Error {
                name: self.name(),
                message: self.to_string(),
                argument,
            },
        })
    }
}

/// The answer.
#[derive(Serialize)]
struct Answer<'a, T> {
    #[serde(rename = "return")]
    page: &'a T,
}

fn answer<T: Serialize>(page: &T) -> Bytes {
    reply::clear(&Answer { page })
}

/// The queries that change something.
const CHANGES: [&str; 4] = [
    "batches.pause",
    "batches.resume",
    "batches.stop",
    "reactor.replay",
];

/// Whether the query of a load changes something: such a one has a row in the audit trail.
pub(crate) fn changes_something(load: &Value) -> bool {
    let fun = load.get("fun").and_then(Value::as_str);
    fun.is_some_and(|fun| CHANGES.contains(&fun))
}

/// Answers with the page, later.
pub(crate) fn handle(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Arc<Services>,
) -> Outcome {
    let fun = load.get("fun").and_then(Value::as_str).unwrap_or_default();
    if fun == access::NAME {
        return access::handle(load, proof, services);
    }
    let query = QUERIES.iter().find(|query| query.name == fun);
    // Who may not ask anything does not learn what there is to ask.
    let (kind, function) = query.map_or((FunctionKind::Runner, fun), |query| query.shown_by);
    let arguments = FunctionKind::Runner.arguments(load);
    let call = (kind, function, arguments);
    let is_of_batch = changes_something(load) && fun.starts_with("batches.");
    let is_own = |sender: &Sender| is_of_batch && batches::is_own(sender, load, services);
    let admitted = match master_gate::admit_call(call, load, proof, is_own, services) {
        Ok(admitted) => admitted,
        Err(denied) => return denied.outcome(load, services),
    };
    let Some(query) = query else {
        return Outcome::reply(QueryError::Unknown(fun.to_owned()).reply());
    };
    tracing::debug!(user = admitted.user, fun, "a query");
    let services = Arc::clone(services);
    let user = admitted.user.clone();
    Outcome::later_for(admitted.user, move || {
        let sent = (&admitted.arguments, user.as_str());
        let arguments = QueryArguments::new(sent, query.parameters);
        let page = arguments.and_then(|arguments| (query.run)(&arguments, &services));
        let reply = page.unwrap_or_else(|error| {
            if let QueryError::Store(source) = &error {
                tracing::error!(error = chain(source), fun = query.name, "a query failed");
            }
            error.reply()
        });
        Finished {
            reply,
            events: Vec::new(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_name_has_one_row() {
        let mut names: Vec<&str> = QUERIES.iter().map(|query| query.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), QUERIES.len());
    }

    #[test]
    fn query_and_its_rule_stand_in_the_list_of_differences() {
        let page = include_str!("../DIFFERENCES.md");
        for query in QUERIES {
            let row = format!("`{}` (`{}`", query.name, query.shown_by.1);
            assert!(page.contains(&row), "{row}");
        }
    }
}
