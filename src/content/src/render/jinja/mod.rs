//! Salt's Jinja on `minijinja`.
//!
//! A template is translated (`translate.rs`) to the dialect of the engine, which runs control
//! flow, scopes, macros, imports and blocks; each operation on a value is a helper of ours
//! (`helpers.rs`) that does what Python does. What is compiled is kept (`compiled.rs`); what a
//! template changes lives for one rendering, as in stock.
//!
//! Bounds: a deadline, a number of steps and of loop rounds, bytes printed, and depth. They hold
//! in the engine (its fuel) as well as in the helpers, so neither an endless macro nor a filter
//! on a huge list can hold a thread.
//!
//! A little over 500 lines with the documentation of what callers hand in.

mod args;
mod compare;
mod compiled;
mod engine;
pub(crate) mod fault;
pub(crate) mod filters;
mod globals;
mod helpers;
mod is_tests;
mod lexer;
mod limits;
mod methods;
pub(crate) mod network;
pub(crate) mod ops;
mod options;
mod release;
pub(crate) mod salt;
mod string_methods;
pub(crate) mod text;
mod translate;
pub(crate) mod value;
pub(crate) mod yaml_text;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use minijinja::value::Value;
use minijinja::{Error, ErrorKind, State};
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_wire::msgpack::Value as Data;
use tokio::time::Instant;

pub use self::limits::Limits;

pub(crate) use self::text::str_of as text_of;

use self::engine::Output;
use self::fault::{Fault, Outcome, Raised};
use self::limits::{is_over, processor_time};
use self::options::Syntax;
use super::data::to_template;
use super::error::{ErrorClass, RenderError};
use super::functions::Functions;
use super::python::Python;

/// The prefix of the variables of the template that is rendered.
const MAIN: &str = "v_";
/// Parts the name of a template from the prefix of its variables.
const PART: char = '\u{1}';

/// Why a template cannot be read: an error of the loader's own. Its text is shown by the template.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct LoadError(Box<dyn std::error::Error + Send + Sync>);

impl LoadError {
    /// The error of a loader.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> LoadError {
        LoadError(Box::new(error))
    }
}

/// Finds the templates that `include` and `import` name.
pub trait Loader: Send + Sync {
    /// The text of a template by its path below the root of the environment; `None` if there is
    /// no such file. The path is normal: it has no `.` or `..` parts.
    ///
    /// # Errors
    /// [`LoadError`]: the file could not be read.
    fn load(&self, path: &str) -> Result<Option<String>, LoadError>;
}

/// A loader without templates.
pub struct NoTemplates;

impl Loader for NoTemplates {
    fn load(&self, _path: &str) -> Result<Option<String>, LoadError> {
        Ok(None)
    }
}

/// The context of a template.
#[derive(Clone)]
pub struct Context {
    /// Names and values: `grains`, `pillar`, `opts`, `saltenv`, `sls`, and what else the caller
    /// gives. They are converted when a template first uses them.
    pub values: Vec<(String, Arc<Data>)>,
    /// Functions of `salt`.
    pub functions: Arc<dyn Functions>,
    /// Loader of templates for `include` and `import`.
    pub loader: Arc<dyn Loader>,
    /// The clock of `strftime` and the like.
    pub clock: Clock,
    /// Bounds.
    pub limits: Limits,
    /// Python, for the renderers that are not here.
    pub python: Option<Python>,
}

impl Context {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Data> {
        let found = self.values.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_ref())
    }

    /// Sets a value; one that is there is replaced.
    pub fn set(&mut self, name: &str, value: Data) {
        self.values.retain(|(found, _)| found != name);
        self.values.push((name.to_owned(), Arc::new(value)));
    }

    /// Sets a value unless the caller gave one.
    pub fn set_default(&mut self, name: &str, value: Data) {
        if self.get(name).is_none() {
            self.set(name, value);
        }
    }
}

/// `tplfile`, `tpldir` and `tpldot`, as the template that was loaded last has them.
#[derive(Clone, Default)]
struct TemplatePath {
    file: String,
    dir: String,
    dot: String,
}

/// The state of one rendering, shared by all helpers.
pub(crate) struct Run {
    values: HashMap<String, Arc<Data>>,
    converted: Mutex<HashMap<String, Value>>,
    functions: Arc<dyn Functions>,
    loader: Arc<dyn Loader>,
    pub(crate) clock: Clock,
    syntax: Syntax,
    /// Without `allow_undefined`, using what is undefined is an error.
    strict: bool,
    /// The names are those of the external pillar `stack`.
    of_stack: bool,
    limits: Limits,
    deadline: Instant,
    steps: AtomicU64,
    rounds: AtomicU64,
    printed: AtomicU64,
    place: Mutex<TemplatePath>,
    /// The texts of loaded templates by their paths.
    loaded: Mutex<Vec<(String, Arc<str>)>>,
    /// Whether the engine compiled a template that it did not know.
    has_new: AtomicBool,
}

impl Run {
    /// Counts a step; now and then looks at the clock.
    pub(crate) fn step(&self) -> Outcome<()> {
        if self
            .steps
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(64)
        {
            self.in_time()?;
        }
        Ok(())
    }

    fn in_time(&self) -> Outcome<()> {
        let clock = (self.deadline, Instant::now());
        if is_over(clock, (self.limits.processor, processor_time())) {
            return Err(Fault::limit(format!(
                "rendering took longer than {} ms (saltern_render_timeout)",
                self.limits.time.as_millis()
            )));
        }
        Ok(())
    }

    /// Counts iterated items.
    pub(crate) fn round(&self, count: usize) -> Outcome<()> {
        let count = count as u64;
        let before = self.rounds.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) > self.limits.rounds {
            return Err(Fault::limit(format!(
                "more than {} rounds of loops",
                self.limits.rounds
            )));
        }
        if count > 1000 {
            self.in_time()?;
        }
        Ok(())
    }

    /// Counts bytes that are printed or captured.
    pub(crate) fn print(&self, bytes: usize) -> Outcome<()> {
        let bytes = bytes as u64;
        let before = self.printed.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.limits.output {
            return Err(self.too_long());
        }
        Ok(())
    }

    fn too_long(&self) -> Fault {
        Fault::limit(format!("the output exceeds {} bytes", self.limits.output))
    }

    pub(crate) fn strict(&self) -> bool {
        self.strict
    }

    /// The names of the context.
    pub(crate) fn names(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    /// A name of the context, `salt`, or a global function.
    fn global(&self, name: &str, main: bool) -> Option<Value> {
        if !main && matches!(name, "tplfile" | "tpldir" | "tpldot") {
            let place = self.place.lock();
            return Some(Value::from(match name {
                "tplfile" => place.file.as_str(),
                "tpldir" => place.dir.as_str(),
                _ => place.dot.as_str(),
            }));
        }
        if let Some(value) = self.converted.lock().get(name) {
            return Some(value.clone());
        }
        let functions = if self.of_stack { "__salt__" } else { "salt" };
        let value = match self.values.get(name) {
            Some(data) if self.of_stack && name == "__stack__" => globals::stack(data),
            Some(data) => to_template(data),
            None if name == functions => Value::from_object(salt::Table {
                functions: self.functions.clone(),
            }),
            None => return globals::find(name),
        };
        self.converted.lock().insert(name.to_owned(), value.clone());
        Some(value)
    }

    /// Loads a template and returns the name that the engine knows it by.
    fn template(&self, name: &str, prefix: Option<&str>) -> Outcome<Option<String>> {
        let relative = matches!(name.split('/').next(), Some("." | ".."));
        let path = if relative {
            let base = self.place.lock().dir.clone();
            match normal_path(&format!("{base}/{name}")) {
                Some(path) => path,
                None => return Ok(None),
            }
        } else {
            match normal_path(name) {
                Some(path) => path,
                None => return Ok(None),
            }
        };
        let known = self
            .loaded
            .lock()
            .iter()
            .find(|(found, _)| *found == path)
            .map(|(_, text)| text.clone());
        let text = match known {
            Some(text) => text,
            None => {
                let text = self.loader.load(&path);
                let Some(text) = text.map_err(|error| Fault::other(error.to_string()))? else {
                    return Ok(None);
                };
                // As stock, every load changes these, also for templates that come later.
                let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
                let mut place = self.place.lock();
                if relative {
                    place.file = name.to_owned();
                } else {
                    place.file.clone_from(&path);
                    place.dir = if dir.is_empty() { "." } else { dir }.to_owned();
                }
                place.dot = dir.replace('/', ".");
                drop(place);
                let text: Arc<str> = Arc::from(text);
                self.loaded.lock().push((path.clone(), text.clone()));
                text
            }
        };
        // What stands for the text is part of the name, so that the engine may keep the template.
        let mark = compiled::mark(&path, &text);
        let prefix = prefix.map_or_else(|| format!("i{mark:x}_"), str::to_owned);
        Ok(Some(format!("{path}{PART}{prefix}{PART}{mark:x}")))
    }

    /// The engine asks for a template that [`Run::template`] named.
    fn source(&self, name: &str) -> Result<Option<String>, Error> {
        let Some((path, prefix)) = parts_of(name) else {
            return Ok(None);
        };
        self.has_new.store(true, Ordering::Relaxed);
        let text = {
            let loaded = self.loaded.lock();
            match loaded.iter().find(|(found, _)| found == path) {
                Some((_, text)) => text.clone(),
                None => return Ok(None),
            }
        };
        match translate::translate(&text, &self.syntax, prefix) {
            Ok(text) => Ok(Some(text)),
            Err(fault) => Err(Error::new(ErrorKind::SyntaxError, fault.message.clone())
                .with_source(Raised {
                    class: ErrorClass::Syntax,
                    text: fault.message,
                    place: Some((path.to_owned(), fault.line)),
                })),
        }
    }
}

/// The path and the prefix in the name that the engine knows a template by.
fn parts_of(name: &str) -> Option<(&str, &str)> {
    let (path, rest) = name.split_once(PART)?;
    Some((path, rest.split(PART).next().unwrap_or(rest)))
}

/// A path without `.`, `..` and doubled slashes; `None` if it leaves the root.
fn normal_path(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part if part.contains(['\0', PART]) => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A helper's view of the rendering: what is shared, and the engine's state for calling macros.
pub(crate) struct Py<'a, 'state, 'env> {
    pub(crate) run: &'a Run,
    pub(crate) state: &'a mut State<'state, 'env>,
}

/// Renders a template. `name` is its path, for messages.
///
/// # Errors
/// [`RenderError`] with the class that stock would report, the template and the line.
pub fn render(source: &str, name: &str, context: &Context) -> Result<String, RenderError> {
    let opts = context.get("opts");
    let sls = context
        .get("sls")
        .and_then(Data::as_str)
        .is_some_and(|sls| !sls.is_empty());
    let mut syntax = Syntax::of(opts, sls);
    // Jinja2 drops the last line end of a template; Salt puts it back, also where a setting
    // made Jinja2 keep it.
    let newline = source.ends_with('\n');
    let shifted = syntax.take_header(source);
    let source = shifted.as_deref().unwrap_or(source);
    let rules = Rules {
        syntax,
        strict: !opts
            .and_then(|opts| opts.get("allow_undefined"))
            .and_then(Data::as_bool)
            .unwrap_or(false),
        of_stack: false,
    };
    let mut text = render_by(source, name, context, rules)?;
    if newline {
        text.push('\n');
    }
    Ok(text)
}

/// Renders a template of the external pillar `stack`, which is plain Jinja2 and not Salt's: the
/// options do not change its syntax, what is undefined is empty, the functions are `__salt__`, and
/// `__stack__` has `traverse`.
///
/// # Errors
/// As [`render`].
pub(crate) fn render_plain(
    source: &str,
    name: &str,
    context: &Context,
) -> Result<String, RenderError> {
    let rules = Rules {
        syntax: Syntax::default(),
        strict: false,
        of_stack: true,
    };
    render_by(source, name, context, rules)
}

/// Differences between the templates of Salt and those of `stack`.
struct Rules {
    syntax: Syntax,
    /// Without `allow_undefined`, using what is undefined is an error.
    strict: bool,
    of_stack: bool,
}

fn render_by(
    source: &str,
    name: &str,
    context: &Context,
    rules: Rules,
) -> Result<String, RenderError> {
    let text = |name: &str| {
        let value = context.get(name).and_then(Data::as_str);
        value.unwrap_or_default().to_owned()
    };
    let limits = context.limits.begun();
    let run = Arc::new(Run {
        values: context.values.iter().cloned().collect(),
        converted: Mutex::default(),
        functions: context.functions.clone(),
        loader: context.loader.clone(),
        clock: context.clock.clone(),
        strict: rules.strict,
        of_stack: rules.of_stack,
        deadline: limits.deadline.unwrap_or_else(|| limits.end()),
        limits,
        steps: AtomicU64::new(0),
        rounds: AtomicU64::new(0),
        printed: AtomicU64::new(0),
        place: Mutex::new(TemplatePath {
            file: text("tplfile"),
            dir: text("tpldir"),
            dot: text("tpldot"),
        }),
        loaded: Mutex::default(),
        has_new: AtomicBool::new(false),
        syntax: rules.syntax,
    });
    let compiled = compiled::of(source, name, &run.syntax)?;
    let engine = engine::of_run(&compiled, &run);
    let mut output = Output::new(&run, source.len());
    let done = engine
        .get_template(&compiled.main)
        .and_then(|template| template.render_captured_to((), &mut output).map(drop));
    if run.has_new.load(Ordering::Relaxed) {
        compiled.learn(&engine);
    }
    done.map_err(|error| engine::explain(error, name))?;
    output.text(name)
}
