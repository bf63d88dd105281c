//! Registry of the functions: finds one by name, runs it, and tracks the calls under way.

use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_bridge::Bridge;
use saltern_config::MasterConfig;
use saltern_store::jobs::JobQueries;
use saltern_wire::msgpack::Value;

use crate::call::{Call, Function, RunnerError};
use crate::fleet::Fleet;
use crate::live::LiveMaster;
use crate::notices::Notices;
use crate::old_jobs::OldJobs;
use crate::reactor::Reactor;
use crate::running_calls::{Entry, RunningCalls};
use crate::stock_names::STOCK_RUNNERS;
use crate::{
    Batches, Master, auth, batch, bridged, cache, config, event, fileserver, git_pillar, jobs,
    manage, mine, pillar, python, reactor, saltutil, test, wheel, withheld,
};

/// Modules with their functions.
type Modules = &'static [(&'static str, &'static [Function])];

/// Every runner module.
const RUNNERS: Modules = &[
    ("auth", auth::FUNCTIONS),
    ("batch", batch::FUNCTIONS),
    ("cache", cache::FUNCTIONS),
    ("config", config::FUNCTIONS),
    ("error", wheel::error::FUNCTIONS),
    ("event", event::FUNCTIONS),
    ("fileserver", fileserver::FUNCTIONS),
    ("git_pillar", git_pillar::FUNCTIONS),
    ("jobs", jobs::FUNCTIONS),
    ("manage", manage::FUNCTIONS),
    ("mine", mine::FUNCTIONS),
    ("pillar", pillar::FUNCTIONS),
    ("reactor", reactor::FUNCTIONS),
    ("saltutil", saltutil::FUNCTIONS),
    ("test", test::FUNCTIONS),
];

/// Every wheel module.
const WHEELS: Modules = &[
    ("config", wheel::config::FUNCTIONS),
    ("error", wheel::error::FUNCTIONS),
    ("file_roots", wheel::roots::FILE_FUNCTIONS),
    ("key", wheel::key::FUNCTIONS),
    ("minions", wheel::minions::FUNCTIONS),
    ("pillar_roots", wheel::roots::PILLAR_FUNCTIONS),
];

/// Context of the functions: configuration, stores and services of the master.
pub struct RunnerContext {
    /// The configuration.
    pub config: Arc<MasterConfig>,
    /// The job database; a reader of the functions' own.
    pub jobs: Arc<dyn JobQueries>,
    /// Jobs that the job database no longer has; `None` where no SQL database keeps them.
    pub(crate) old_jobs: Option<OldJobs>,
    /// The minions; `None` in a process that does not know them.
    pub(crate) fleet: Option<Arc<dyn Fleet>>,
    /// The batches; `None` in a process that does not drive them.
    pub(crate) batches: Option<Batches>,
    /// The reactor; `None` where none is configured.
    pub(crate) reactor: Option<Arc<dyn Reactor>>,
    /// Keys, files and pillars; `None` in a process that only reads the job database.
    pub(crate) master: Option<Master>,
    /// The running master; `None` in a process that is none.
    pub(crate) live: Option<Arc<dyn LiveMaster>>,
    /// Runs functions that are not built in; `None` in a process that starts no Python.
    pub(crate) bridge: Option<Arc<Bridge>>,
    /// Wall-clock time.
    pub(crate) clock: Clock,
    /// The calls under way.
    running: Arc<RunningCalls>,
}

impl RunnerContext {
    /// Context of a process that has only configuration and job database.
    pub fn new(config: Arc<MasterConfig>, jobs: Arc<dyn JobQueries>) -> Self {
        Self {
            config,
            jobs,
            old_jobs: None,
            fleet: None,
            batches: None,
            reactor: None,
            master: None,
            live: None,
            bridge: None,
            clock: Clock::system(),
            running: Arc::default(),
        }
    }

    /// Adds old jobs.
    pub fn with_old_jobs(self, old_jobs: Option<OldJobs>) -> Self {
        Self { old_jobs, ..self }
    }

    /// Adds the minions.
    pub fn with_fleet(self, fleet: Arc<dyn Fleet>) -> Self {
        Self {
            fleet: Some(fleet),
            ..self
        }
    }

    /// Adds the batches.
    pub fn with_batches(self, batches: Batches) -> Self {
        Self {
            batches: Some(batches),
            ..self
        }
    }

    /// Adds the reactor.
    pub fn with_reactor(self, reactor: Arc<dyn Reactor>) -> Self {
        Self {
            reactor: Some(reactor),
            ..self
        }
    }

    /// Adds keys, files and pillars.
    pub fn with_master(self, master: Master) -> Self {
        Self {
            master: Some(master),
            ..self
        }
    }

    /// Adds what only a running master knows.
    pub fn with_live(self, live: Arc<dyn LiveMaster>) -> Self {
        Self {
            live: Some(live),
            ..self
        }
    }

    /// Adds Python for functions that are not built in.
    pub fn with_bridge(self, bridge: Arc<Bridge>) -> Self {
        Self {
            bridge: Some(bridge),
            ..self
        }
    }

    /// Keys, files and pillars.
    ///
    /// # Errors
    /// In a process that has none.
    pub(crate) fn master(&self) -> Result<&Master, RunnerError> {
        self.master.as_ref().ok_or_else(|| {
            RunnerError::Refused("this process is no master: ask the master".to_owned())
        })
    }

    /// The minions.
    ///
    /// # Errors
    /// In a process that does not know them.
    pub(crate) fn fleet(&self) -> Result<&dyn Fleet, RunnerError> {
        self.fleet.as_deref().ok_or_else(|| {
            let text = "this process does not know the minions: ask the master";
            RunnerError::Refused(text.to_owned())
        })
    }

    /// The calls under way as stock's `proc` files describe them, oldest first.
    pub(crate) fn running(&self) -> Vec<Value> {
        self.running.described()
    }
}

/// The runner functions of one master.
pub struct Runners {
    context: RunnerContext,
}

/// Outcome of a call, as its last event carries it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The returned value, or the text of an error.
    pub value: Value,
    /// Whether stock counts it as a success.
    pub success: bool,
    /// The return code, if stock would have set one.
    pub retcode: Option<i64>,
}

impl Runners {
    /// The functions, with what they know.
    pub fn new(context: RunnerContext) -> Self {
        Self { context }
    }

    /// The job database; a reader apart from those of the workers.
    pub fn jobs(&self) -> &dyn JobQueries {
        &*self.context.jobs
    }

    /// The calls under way.
    pub fn running_calls(&self) -> &Arc<RunningCalls> {
        &self.context.running
    }

    /// The reactor; `None` where none is configured.
    pub fn reactor(&self) -> Option<&dyn Reactor> {
        self.context.reactor.as_deref()
    }

    /// Jobs that the job database no longer has; `None` where no SQL database keeps them.
    pub fn old_jobs(&self) -> Option<&OldJobs> {
        self.context.old_jobs.as_ref()
    }

    /// The running master's live state; `None` in any other process.
    pub fn live(&self) -> Option<&dyn LiveMaster> {
        self.context.live.as_deref()
    }

    /// Whether there is such a function.
    pub fn has(&self, fun: &str) -> bool {
        find(RUNNERS, fun).is_some()
    }

    /// Whether Python is asked for the function.
    pub fn is_python(&self, fun: &str) -> bool {
        bridge_for(Kind::Runner, &self.context, fun).is_some()
    }

    /// The names of a function's parameters, and which are required; `None` where the function is
    /// not built in.
    pub fn parameters(&self, fun: &str) -> Option<Vec<(&'static str, bool)>> {
        find(RUNNERS, fun).map(Function::named_parameters)
    }

    /// Why the arguments of a call do not fit its function, if it is built in.
    pub fn problem(&self, call: &Call) -> Option<String> {
        problem(Kind::Runner, call)
    }

    /// Runs a function; blocks for as long as it takes.
    pub fn run(&self, call: &Call, notices: &mut Notices<'_>) -> Ran {
        run(Kind::Runner, &self.context, call, notices)
    }

    /// The wheel functions of the same master.
    pub fn wheels(&self) -> Wheels<'_> {
        Wheels {
            context: &self.context,
        }
    }
}

/// The wheel functions of one master.
pub struct Wheels<'a> {
    context: &'a RunnerContext,
}

impl Wheels<'_> {
    /// Whether there is such a function.
    pub fn has(&self, fun: &str) -> bool {
        find(WHEELS, fun).is_some()
    }

    /// Whether Python is asked for the function.
    pub fn is_python(&self, fun: &str) -> bool {
        bridge_for(Kind::Wheel, self.context, fun).is_some()
    }

    /// The names of a function's parameters, and which are required; `None` where the function is
    /// not built in.
    pub fn parameters(&self, fun: &str) -> Option<Vec<(&'static str, bool)>> {
        find(WHEELS, fun).map(Function::named_parameters)
    }

    /// Why the arguments of a call do not fit its function, if it is built in.
    pub fn problem(&self, call: &Call) -> Option<String> {
        problem(Kind::Wheel, call)
    }

    /// Runs a function; blocks for as long as it takes.
    pub fn run(&self, call: &Call, notices: &mut Notices<'_>) -> Ran {
        run(Kind::Wheel, self.context, call, notices)
    }
}

/// The two kinds of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Runner,
    Wheel,
}

impl Kind {
    /// Stock's word for such functions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runner => "runner",
            Self::Wheel => "wheel",
        }
    }

    fn modules(self) -> Modules {
        match self {
            Self::Runner => RUNNERS,
            Self::Wheel => WHEELS,
        }
    }
}

/// The bridge to Python for a function that is not built in and may be run.
fn bridge_for<'a>(kind: Kind, context: &'a RunnerContext, fun: &str) -> Option<&'a Bridge> {
    let is_other = find(kind.modules(), fun).is_none() && withheld::reason(kind, fun).is_none();
    context.bridge.as_deref().filter(|_| is_other)
}

/// Runner of a function, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerOf {
    /// By this program.
    BuiltIn,
    /// By Python: it is one of stock's.
    Python,
    /// By Python, if the site has a module of that name.
    Site,
    /// Refused, with the reason.
    Withheld(&'static str),
}

/// The runner of a function, by its name alone.
pub fn runner_of(fun: &str) -> RunnerOf {
    if find(RUNNERS, fun).is_some() {
        return RunnerOf::BuiltIn;
    }
    if let Some(reason) = withheld::reason(Kind::Runner, fun) {
        return RunnerOf::Withheld(reason);
    }
    let (module, name) = fun.split_once('.').unwrap_or((fun, ""));
    let functions = STOCK_RUNNERS.iter().find(|(known, _)| *known == module);
    match functions.is_some_and(|(_, functions)| functions.contains(&name)) {
        true => RunnerOf::Python,
        false => RunnerOf::Site,
    }
}

/// The functions that are built in, and stock's, sorted.
pub fn runner_names() -> Vec<String> {
    let own = RUNNERS.iter().flat_map(|(module, functions)| {
        let names = functions.iter().map(|function| function.name);
        names.map(move |name| format!("{module}.{name}"))
    });
    let stock = STOCK_RUNNERS.iter().flat_map(|(module, functions)| {
        let names = functions.iter();
        names.map(move |name| format!("{module}.{name}"))
    });
    let mut names: Vec<String> = own.chain(stock).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Runs a function of a kind: a native one if there is, else Python's.
fn run(kind: Kind, context: &RunnerContext, call: &Call, notices: &mut Notices<'_>) -> Ran {
    if let Some(bridge) = bridge_for(kind, context, &call.fun) {
        let _entry = Entry::new(&context.running, kind.name(), call, &context.clock);
        let patience = context.config.python_bridge.timeout;
        return bridged::run(bridge, kind, call, patience, notices);
    }
    match value(kind, context, call, notices) {
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
            if let RunnerError::Store(_) | RunnerError::Files(_) = &error {
                let kind = kind.name();
                tracing::error!(%error, fun = call.fun, jid = %call.jid, "{kind} failed");
            }
            let text = format!(
                "Exception occurred in {} {}: {error}",
                kind.name(),
                call.fun
            );
            Ran {
                value: text.into(),
                success: false,
                retcode: Some(1),
            }
        }
    }
}

fn value(
    kind: Kind,
    context: &RunnerContext,
    call: &Call,
    notices: &mut Notices<'_>,
) -> Result<Value, RunnerError> {
    let fun = call.fun.clone();
    if let Some(reason) = withheld::reason_with(&context.config, kind, &fun) {
        return Err(RunnerError::Withheld { fun, reason });
    }
    let Some(function) = find(kind.modules(), &fun) else {
        return Err(RunnerError::NotAvailable(fun));
    };
    let bound = function.bind(&call.arguments)?;
    let _entry = Entry::new(&context.running, kind.name(), call, &context.clock);
    (function.run)(context, &bound, notices)
}

fn problem(kind: Kind, call: &Call) -> Option<String> {
    let function = find(kind.modules(), &call.fun)?;
    let problem = function.bind(&call.arguments).err()?;
    Some(problem.to_string())
}

fn find(modules: Modules, fun: &str) -> Option<&'static Function> {
    let (module, name) = fun.split_once('.')?;
    let (_, functions) = modules.iter().find(|(known, _)| *known == module)?;
    functions.iter().find(|function| function.name == name)
}
