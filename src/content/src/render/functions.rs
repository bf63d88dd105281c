//! The functions that templates reach through `salt`.
//!
//! The renderer knows no function itself. Its caller passes a [`Functions`]; the ones that
//! need nothing but what a template has anyway are in `modules/`, and [`Registry`] joins them with
//! those that need more (the mine, the file server).

use std::collections::BTreeMap;
use std::sync::Arc;

use saltern_wire::msgpack::Value;

/// Why a function gave no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The function refused its arguments or failed: stock's `SaltInvocationError`,
    /// `CommandExecutionError` and the like.
    #[error("{0}")]
    Refused(String),
    /// Any other exception, as for a missing argument.
    #[error("{0}")]
    Failed(String),
}

/// The arguments of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallArgs {
    /// Arguments by position.
    pub positional: Vec<Value>,
    /// Arguments by name, in the order in which they were written.
    pub named: Vec<(String, Value)>,
}

impl CallArgs {
    /// The argument at a position or with a name.
    pub fn get(&self, index: usize, name: &str) -> Option<&Value> {
        self.positional.get(index).or_else(|| {
            self.named
                .iter()
                .find(|(found, _)| found == name)
                .map(|(_, value)| value)
        })
    }

    /// The text at a position or with a name; numbers are written as text.
    pub fn text(&self, index: usize, name: &str) -> Option<String> {
        match self.get(index, name)? {
            Value::Str(text) => Some(text.clone()),
            Value::Int(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The text that a function cannot do without.
    ///
    /// # Errors
    /// If it is missing or no text.
    pub fn need_text(&self, index: usize, name: &str) -> Result<String, CallError> {
        self.text(index, name)
            .ok_or_else(|| CallError::Failed(format!("missing a required argument: '{name}'")))
    }

    /// The argument that a function cannot do without.
    ///
    /// # Errors
    /// If it is missing.
    pub fn need(&self, index: usize, name: &str) -> Result<&Value, CallError> {
        self.get(index, name)
            .ok_or_else(|| CallError::Failed(format!("missing a required argument: '{name}'")))
    }

    /// A flag as Python takes any value for one, or its default.
    pub fn flag(&self, index: usize, name: &str, default: bool) -> bool {
        self.get(index, name).map_or(default, Value::is_truthy)
    }

    /// An argument that Python takes for true; stock leaves out a `merge` or `base` that is not.
    pub fn truthy(&self, index: usize, name: &str) -> Option<&Value> {
        self.get(index, name).filter(|value| value.is_truthy())
    }
}

/// A function's first parameter, a mapping that the function changes: what it returns is put in
/// the mapping's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPlace {
    /// The name of the first parameter.
    pub parameter: &'static str,
    /// Index of the flag `in_place`, if the function has one: only if it is true, as it is by
    /// default, the mapping is changed.
    pub flag: Option<usize>,
}

/// Functions that templates can call.
pub trait Functions: Send + Sync {
    /// Whether the function `mod.fun` exists.
    fn has(&self, name: &str) -> bool;

    /// Whether any function of the module exists.
    fn has_module(&self, module: &str) -> bool;

    /// The parameter that a function changes in place, if it does.
    fn updates(&self, _name: &str) -> Option<InPlace> {
        None
    }

    /// Why a function that does not exist cannot be asked for elsewhere, for the message about it.
    fn absence(&self, _name: &str) -> Option<String> {
        None
    }

    /// Calls a function that exists.
    ///
    /// # Errors
    /// If the function refuses.
    fn call(&self, name: &str, args: CallArgs) -> Result<Value, CallError>;
}

type Function = Arc<dyn Fn(CallArgs) -> Result<Value, CallError> + Send + Sync>;

/// A table of functions.
#[derive(Clone, Default)]
pub struct Registry {
    functions: BTreeMap<String, Function>,
    updating: BTreeMap<String, InPlace>,
}

impl Registry {
    /// An empty table.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds a function by its full name; one that is there is replaced.
    pub fn add(
        &mut self,
        name: &str,
        function: impl Fn(CallArgs) -> Result<Value, CallError> + Send + Sync + 'static,
    ) {
        self.functions.insert(name.to_owned(), Arc::new(function));
    }

    /// Adds a function that changes the mapping in its first parameter to what it returns.
    pub(crate) fn add_updating(
        &mut self,
        name: &str,
        changed: InPlace,
        function: impl Fn(CallArgs) -> Result<Value, CallError> + Send + Sync + 'static,
    ) {
        self.add(name, function);
        self.updating.insert(name.to_owned(), changed);
    }

    /// The names of all functions, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }
}

impl Functions for Registry {
    fn has(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    fn has_module(&self, module: &str) -> bool {
        let start = format!("{module}.");
        self.functions
            .range(start.clone()..)
            .next()
            .is_some_and(|(name, _)| name.starts_with(&start))
    }

    fn updates(&self, name: &str) -> Option<InPlace> {
        self.updating.get(name).copied()
    }

    fn call(&self, name: &str, args: CallArgs) -> Result<Value, CallError> {
        match self.functions.get(name) {
            Some(function) => function(args),
            None => Err(CallError::Refused(format!("'{name}' is not available."))),
        }
    }
}
