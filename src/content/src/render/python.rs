//! Python behind the renderers: what is not native here goes to the site's own Salt, by the bridge.
//!
//! One [`Python`] belongs to one compilation of one pillar; its helpers load their modules for the
//! same minion. Native code comes first: nothing that exists here is ever asked of Python.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use saltern_bridge::{Bridge, BridgeError, Subject, Work};
use saltern_wire::msgpack::Value;

use super::functions::{CallArgs, CallError, Functions, InPlace, Registry};
use super::jinja::{Context, Limits};
use super::{ErrorClass, Flow, RenderError};

/// Names that stock's renderers are given by other ways than as defaults of an include.
const OWN_NAMES: [&str; 13] = [
    "grains",
    "opts",
    "pillar",
    "saltenv",
    "sls",
    "tplpath",
    "tplfile",
    "tpldir",
    "tpldot",
    "slspath",
    "slsdotpath",
    "slscolonpath",
    "sls_path",
];

/// How many names of functions are remembered to be there or not; templates can make them up.
const MAX_NAMES: usize = 10_000;

/// Why an external pillar in Python gives nothing. Where its module raised an exception, the text is
/// that of the exception alone, verbatim: it is data for the minion, as in stock.
#[derive(Debug, thiserror::Error)]
#[error("{}", raised(.0))]
pub(crate) struct ExtPillarFailure(BridgeError);

fn raised(error: &BridgeError) -> String {
    error
        .problem()
        .map_or_else(|| error.to_string(), str::to_owned)
}

/// The bridge, for one compilation.
#[derive(Clone)]
pub struct Python {
    bridge: Arc<Bridge>,
    subject: Arc<Subject>,
}

impl Python {
    /// Python for the pillar of `subject`.
    pub fn new(bridge: Arc<Bridge>, subject: Subject) -> Self {
        Self {
            bridge,
            subject: Arc::new(subject),
        }
    }

    fn call(&self, work: &Work<'_>, limits: &Limits) -> Result<Value, BridgeError> {
        self.bridge.call(work, limits.left_of(limits.time))
    }

    /// One renderer of a pipeline.
    pub(super) fn render(
        &self,
        renderer: &str,
        argument: &str,
        flow: Flow,
        path: &str,
        context: &Context,
    ) -> Result<Flow, RenderError> {
        let input = match flow {
            Flow::Text(text) => Value::Str(text),
            Flow::Data(data) => data,
        };
        let named = context.values.iter();
        let defaults = named
            .filter(|(name, _)| !OWN_NAMES.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.as_ref()));
        let work = Work::Render {
            subject: &self.subject,
            renderer,
            argument,
            input: &input,
            saltenv: context.get("saltenv").unwrap_or(&Value::Nil),
            sls: context.get("sls").unwrap_or(&Value::Nil),
            path,
            defaults: defaults.collect(),
        };
        let given = self.call(&work, &context.limits).map_err(|error| {
            let class = match error {
                BridgeError::Timeout { .. } => ErrorClass::Limit,
                _ => ErrorClass::Renderer,
            };
            RenderError::new(class, path, error.to_string())
        })?;
        Ok(match given {
            Value::Map(entries) => {
                let mut entries = entries.into_iter();
                match entries.next() {
                    Some((key, Value::Str(text))) if key.as_str() == Some("text") => {
                        Flow::Text(text)
                    }
                    Some((_, data)) => Flow::Data(data),
                    None => Flow::Data(Value::Nil),
                }
            }
            other => Flow::Data(other),
        })
    }

    /// Runs an external pillar.
    ///
    /// # Errors
    /// [`ExtPillarFailure`]: its exception, or why it cannot be asked.
    pub(crate) fn ext_pillar(
        &self,
        name: &str,
        pillar: &Value,
        arguments: &Value,
        limits: &Limits,
    ) -> Result<Value, ExtPillarFailure> {
        let work = Work::ExtPillar {
            subject: &self.subject,
            name,
            pillar,
            arguments,
        };
        // An external pillar has the time of the whole pillar, as a native one.
        let limits = Limits {
            time: std::time::Duration::MAX,
            ..*limits
        };
        self.call(&work, &limits).map_err(ExtPillarFailure)
    }
}

/// The functions of a template: the native ones, then Python's.
pub(crate) struct WithPython {
    native: Registry,
    python: Python,
    limits: Limits,
    /// Whether Python has a function or module, by name.
    known: Mutex<HashMap<String, bool>>,
}

impl WithPython {
    pub(crate) fn new(native: Registry, python: Python, limits: Limits) -> Self {
        Self {
            native,
            python,
            limits,
            known: Mutex::default(),
        }
    }

    /// Whether Python has the function. If that cannot be found out it is assumed, so that a call
    /// of it fails with the reason.
    fn is_in_python(&self, name: &str) -> bool {
        if let Some(known) = self.known.lock().get(name) {
            return *known;
        }
        let work = Work::Has {
            subject: &self.python.subject,
            name,
        };
        let is_there = match self.python.call(&work, &self.limits) {
            Ok(answer) => answer.is_truthy(),
            Err(BridgeError::Off { .. } | BridgeError::NotFound { .. }) => false,
            Err(_) => return true,
        };
        let mut known = self.known.lock();
        if known.len() < MAX_NAMES {
            known.insert(name.to_owned(), is_there);
        }
        is_there
    }
}

impl Functions for WithPython {
    fn has(&self, name: &str) -> bool {
        self.native.has(name) || (name.contains('.') && self.is_in_python(name))
    }

    fn has_module(&self, module: &str) -> bool {
        self.native.has_module(module) || self.is_in_python(module)
    }

    fn updates(&self, name: &str) -> Option<InPlace> {
        self.native.updates(name)
    }

    fn absence(&self, name: &str) -> Option<String> {
        let work = Work::Has {
            subject: &self.python.subject,
            name,
        };
        let refusal = self.python.bridge.refusal(&work)?;
        Some(refusal.to_string())
    }

    fn call(&self, name: &str, args: CallArgs) -> Result<Value, CallError> {
        if self.native.has(name) {
            return self.native.call(name, args);
        }
        let work = Work::Function {
            subject: &self.python.subject,
            name,
            positional: &args.positional,
            named: &args.named,
        };
        self.python
            .call(&work, &self.limits)
            .map_err(|error| match error {
                BridgeError::Refused { problem, .. } => CallError::Refused(problem),
                BridgeError::Failed { problem, .. } => CallError::Failed(problem),
                other => CallError::Refused(other.to_string()),
            })
    }
}
