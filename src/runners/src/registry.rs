//! Finds a function by its name, runs it, and knows which calls are under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_model::Jid;
use saltern_store::jobs::JobReader;
use saltern_wire::msgpack::Value;

use crate::call::{Call, Function, Progress, RunnerError};
use crate::fleet::Fleet;
use crate::{Batches, batch, jobs, manage, python};

/// Every module with its functions.
const MODULES: &[(&str, &[Function])] = &[
    ("batch", batch::FUNCTIONS),
    ("jobs", jobs::FUNCTIONS),
    ("manage", manage::FUNCTIONS),
];

/// What the functions know of the master.
pub struct Knowledge {
    /// The configuration.
    pub config: Arc<MasterConfig>,
    /// The job database; a reader that nobody else uses.
    pub jobs: JobReader,
    /// The minions; nothing in a process that does not know them.
    pub(crate) fleet: Option<Arc<dyn Fleet>>,
    /// The batches; nothing in a process that does not drive them.
    pub(crate) batches: Option<Batches>,
    /// Wall-clock time.
    pub(crate) clock: Clock,
    /// The calls under way.
    running: Mutex<BTreeMap<Jid, Value>>,
}

impl Knowledge {
    /// What is known at the start.
    pub fn new(config: Arc<MasterConfig>, jobs: JobReader) -> Self {
        Self {
            config,
            jobs,
            fleet: None,
            batches: None,
            clock: Clock::system(),
            running: Mutex::default(),
        }
    }

    /// The same, with the minions.
    pub fn with_fleet(self, fleet: Arc<dyn Fleet>) -> Self {
        Self {
            fleet: Some(fleet),
            ..self
        }
    }

    /// The same, with the batches.
    pub fn with_batches(self, batches: Batches) -> Self {
        Self {
            batches: Some(batches),
            ..self
        }
    }

    /// The calls under way as stock's `proc` files describe them, oldest first.
    pub(crate) fn running(&self) -> Vec<Value> {
        self.running.lock().values().cloned().collect()
    }
}

/// The runner functions of one master.
pub struct Runners {
    knowledge: Knowledge,
}

/// What came of a call, as the event of its end tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// What is returned: the value, or a sentence about why there is none.
    pub value: Value,
    /// Whether it is a success to stock.
    pub success: bool,
    /// The return code, if stock would have set one.
    pub retcode: Option<i64>,
}

impl Runners {
    /// The functions, with what they know.
    pub fn new(knowledge: Knowledge) -> Self {
        Self { knowledge }
    }

    /// Whether there is such a function.
    pub fn has(&self, fun: &str) -> bool {
        find(fun).is_some()
    }

    /// Runs a function; blocks for as long as it takes.
    pub fn run(&self, call: &Call, progress: &mut Progress<'_>) -> Ran {
        match self.value(call, progress) {
            Ok(value) => {
                let states = value.get("data");
                Ran {
                    success: states.is_none_or(python::check_result),
                    value,
                    retcode: None,
                }
            }
            // Stock takes a call with wrong arguments for a success.
            Err(RunnerError::Arguments { problem, usage }) => Ran {
                value: format!("\nPassed invalid arguments: {problem}\n\nUsage:\n{usage}").into(),
                success: true,
                retcode: None,
            },
            Err(error) => {
                if let RunnerError::Store(error) = &error {
                    tracing::error!(%error, fun = call.fun, jid = %call.jid, "runner failed");
                }
                let text = format!("Exception occurred in runner {}: {error}", call.fun);
                Ran {
                    value: text.into(),
                    success: false,
                    retcode: Some(1),
                }
            }
        }
    }

    fn value(&self, call: &Call, progress: &mut Progress<'_>) -> Result<Value, RunnerError> {
        let Some(function) = find(&call.fun) else {
            return Err(RunnerError::NotAvailable(call.fun.clone()));
        };
        let bound = function.bind(&call.arguments)?;
        let _entry = Entry::new(&self.knowledge.running, call);
        (function.run)(&self.knowledge, &bound, progress)
    }
}

fn find(fun: &str) -> Option<&'static Function> {
    let (module, name) = fun.split_once('.')?;
    let (_, functions) = MODULES.iter().find(|(known, _)| *known == module)?;
    functions.iter().find(|function| function.name == name)
}

/// A call is under way for as long as this lives, also if its function panics.
struct Entry<'a> {
    running: &'a Mutex<BTreeMap<Jid, Value>>,
    jid: &'a Jid,
}

impl<'a> Entry<'a> {
    fn new(running: &'a Mutex<BTreeMap<Jid, Value>>, call: &'a Call) -> Self {
        let data = Value::map([
            ("fun", Value::from(format!("runner.{}", call.fun))),
            ("jid", call.jid.as_str().into()),
            ("user", call.user.as_str().into()),
            ("fun_args", call.arguments.to_value()),
            ("pid", std::process::id().into()),
        ]);
        running.lock().insert(call.jid.clone(), data);
        Self {
            running,
            jid: &call.jid,
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.running.lock().remove(self.jid);
    }
}
