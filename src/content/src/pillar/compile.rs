//! One compilation: the order in which top files, SLS files, external pillars and the override
//! make a pillar (`Pillar.compile_pillar` in `salt/pillar/__init__.py`).
//!
//! A failure never ends it without an answer: what stock collects in `_errors` is collected here,
//! and what is an exception in stock, or goes beyond a bound, ends up there too. How SLS files are
//! found and merged stands in `sls.rs`, top files in `top.rs`.
//!
//! Longer than 500 lines because the steps of a compilation share its state, and their order is the point.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use saltern_bridge::Subject;
use saltern_model::Compat;
use saltern_policy::matching::single::Single;
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::error::{RequestError, SlsError};
use super::merge::{Strategy, merge, without_doubles};
use super::options::{ANY_ENVIRONMENT, Options};
use super::opts::{self, OfMinion};
use super::sources::{Environment, SourceFile};
use super::{Limits, PillarRequest, Pillars};
use crate::files::path::is_plain_environment;
use crate::render::functions::Registry;
use crate::render::jinja::{self, Context, NoTemplates};
use crate::render::modules::site::add_site;
use crate::render::modules::{Commands, Facts, add_all};
use crate::render::python::WithPython;
use crate::render::{Python, decrypt_pillar, render, set_sls_context};

/// Why a compilation was given up before its end.
pub(super) struct Halt(pub(super) String);

/// The roots of each environment.
pub(super) type Roots = Vec<(String, Vec<String>)>;

/// How deep a pillar may be nested: walks over one recurse for each level.
const MAX_PILLAR_DEPTH: usize = 300;
/// How many lists the strategy `list` may put around one value: each merge adds one.
const MAX_MERGES: usize = 100;
/// About how many bytes of memory the override of a request may take.
pub(super) const OVERRIDE_BYTES: usize = 16 << 20;
/// The most bytes that a program may print which a template starts.
const PROGRAM_OUTPUT: u64 = 16 << 20;

const TOO_DEEP: &str = "the pillar is nested too deeply";

/// Names that stock passes to templates itself; as `defaults` of an include they are an error.
const RESERVED: [&str; 16] = [
    "template",
    "renderers",
    "default",
    "blacklist",
    "whitelist",
    "saltenv",
    "sls",
    "input_data",
    "_pillar_rend",
    "salt",
    "grains",
    "opts",
    "pillar",
    "proxy",
    "context",
    "from_str",
];

/// One pillar being made.
pub(super) struct Compilation<'a> {
    pub(super) pillars: &'a Pillars,
    pub(super) request: &'a PillarRequest,
    pub(super) roots: Roots,
    pub(super) pillarenv: Option<String>,
    /// The pillar that templates and matchers see: nothing, or what came from outside first.
    pub(super) seen: Arc<Value>,
    /// SLS names that may be missing, by environment.
    pub(super) ignored: HashMap<String, Vec<String>>,
    pub(super) opts: Arc<Value>,
    environments: HashMap<String, Option<Arc<Environment>>>,
    /// Context that every rendering starts from.
    pub(super) context: Context,
    override_data: Value,
    /// Error of the request itself; then nothing is compiled.
    refused: Option<RequestError>,
    /// Whether a merge was left out, because its result would be nested too deeply.
    too_deep: Cell<bool>,
    /// Errors that are in the log already, with their reasons.
    pub(super) logged: Vec<String>,
    /// Whether external pillars are asked.
    has_ext: bool,
    deadline: Instant,
    pub(super) files_left: usize,
    pub(super) bytes_left: usize,
}

impl<'a> Compilation<'a> {
    /// `roots` stand in the place of `pillar_roots`, and then there are no external pillars.
    pub(super) fn new(
        pillars: &'a Pillars,
        request: &'a PillarRequest,
        limits: &Limits,
        roots: Option<Roots>,
    ) -> Self {
        let options = &pillars.options;
        let pillarenv = pillarenv(options, request).map(str::to_owned);
        let saltenv = request.saltenv.as_ref().or(options.saltenv.as_ref());
        let environment = pillarenv
            .as_deref()
            .or_else(|| saltenv.map(String::as_str).filter(|name| !name.is_empty()))
            .unwrap_or("base");
        let has_ext = roots.is_none();
        let deadline = Instant::now() + limits.time;
        let roots = roots.unwrap_or_else(|| roots_for(&options.roots, environment));
        let minion = OfMinion {
            id: request.minion.as_str(),
            grains: &request.grains,
            saltenv: saltenv.map(String::as_str),
            pillarenv: pillarenv.as_deref(),
            state_top: &options.state_top,
            roots: &roots,
        };
        let opts = Arc::new(opts::of_minion(&pillars.opts, &minion));
        let seen = Arc::new(Value::Map(Vec::new()));
        let (override_data, refused) = match checked(request) {
            Ok(update) => (update, None),
            Err(refused) => (empty(), Some(refused)),
        };
        let mut compilation = Self {
            pillars,
            request,
            roots,
            pillarenv,
            seen: Arc::clone(&seen),
            ignored: HashMap::new(),
            environments: HashMap::new(),
            context: Context {
                values: vec![
                    ("grains".to_owned(), Arc::clone(&request.grains)),
                    ("opts".to_owned(), Arc::clone(&opts)),
                ],
                functions: Arc::new(Registry::new()),
                loader: Arc::new(NoTemplates),
                clock: pillars.clock.clone(),
                limits: jinja::Limits {
                    time: options.render_time,
                    deadline: Some(deadline),
                    ..jinja::Limits::DEFAULT
                },
                python: None,
            },
            opts,
            override_data,
            refused,
            too_deep: Cell::new(false),
            logged: Vec::new(),
            has_ext,
            deadline,
            files_left: limits.files,
            bytes_left: limits.bytes,
        };
        compilation.see(seen);
        compilation
    }

    /// Lets templates, functions and matchers see this pillar.
    pub(super) fn see(&mut self, pillar: Arc<Value>) {
        let functions_opts = match self.pillars.options.compat {
            // Functions run with the options of the master itself.
            Compat::V3008 => &self.pillars.opts,
            _ => &self.opts,
        };
        let facts = Facts {
            grains: Arc::clone(&self.request.grains),
            pillar: Arc::clone(&pillar),
            opts: Arc::clone(functions_opts),
        };
        let mut registry = Registry::new();
        let programs = Commands {
            time: self.time_left(),
            deadline: Some(self.deadline),
            output: PROGRAM_OUTPUT,
        };
        add_all(&mut registry, &facts, Some(programs));
        add_site(
            &mut registry,
            &self.request.minion,
            self.request.saltenv.as_deref().unwrap_or("base"),
            Arc::clone(&self.pillars.files),
            Arc::clone(&self.pillars.site),
            &facts,
        );
        self.context.python = self.python(&pillar);
        self.context.functions = match &self.context.python {
            Some(python) => {
                let limits = self.context.limits;
                Arc::new(WithPython::new(registry, python.clone(), limits))
            }
            None => Arc::new(registry),
        };
        self.context.values.retain(|(name, _)| name != "pillar");
        self.context
            .values
            .push(("pillar".to_owned(), Arc::clone(&pillar)));
        self.seen = pillar;
    }

    /// Python for this minion while it sees this pillar.
    fn python(&self, pillar: &Arc<Value>) -> Option<Python> {
        let bridge = Arc::clone(self.pillars.bridge.as_ref()?);
        let request = self.request;
        let (grains, pillar) = (Arc::clone(&request.grains), Arc::clone(pillar));
        let mut subject = Subject::new(request.minion.as_str(), grains, pillar);
        subject.saltenv.clone_from(&request.saltenv);
        subject.pillarenv.clone_from(&request.pillarenv);
        let extra = &request.extra_minion_data;
        subject.extra_minion_data.clone_from(extra);
        Some(Python::new(bridge, subject))
    }

    /// Makes the pillar.
    pub(super) fn run(mut self) -> Value {
        let mut errors = Vec::new();
        let mut top_errors = Vec::new();
        let mut pillar = empty();
        let halted = match self.refused.take() {
            Some(refused) => {
                let reason = refused.to_string();
                // What a minion asks for is no error of the site's, and must not fill its log.
                self.logged.push(reason.clone());
                Err(Halt(reason))
            }
            None => self.compile(&mut pillar, &mut errors, &mut top_errors),
        };
        errors.append(&mut top_errors);
        if let Err(Halt(reason)) = halted {
            errors.push(reason);
        }
        let minion = &self.request.minion;
        for error in errors.iter().filter(|error| !self.logged.contains(error)) {
            tracing::error!(%minion, error, "the pillar has an error");
        }
        if self.pillars.options.shows_opts {
            set(&mut pillar, "master", self.shown_opts());
        }
        if !errors.is_empty() {
            let errors = errors.into_iter().map(Value::from).collect();
            set(&mut pillar, "_errors", Value::Array(errors));
        }
        pillar = self.with_override(pillar);
        self.decrypted(pillar)
    }

    pub(super) fn compile(
        &mut self,
        pillar: &mut Value,
        errors: &mut Vec<String>,
        top_errors: &mut Vec<String>,
    ) -> Result<(), Halt> {
        let top = self.top(top_errors)?;
        let is_first = self.pillars.options.ext_first && self.has_ext;
        let outside = match is_first {
            true => self.external(self.override_data.clone(), errors),
            false => empty(),
        };
        if is_first {
            self.see(Arc::new(outside.clone()));
        }
        let matched = self.matched(&top, errors);
        *pillar = self.override_data.clone();
        self.render_matched(&matched, pillar, errors)?;
        let rendered = std::mem::replace(pillar, Value::Nil);
        *pillar = match (is_first, self.has_ext) {
            (true, _) => self.merged(outside, rendered),
            (false, true) => self.external(rendered, errors),
            (false, false) => rendered,
        };
        if self.too_deep.take() {
            errors.push(TOO_DEEP.to_owned());
        }
        Ok(())
    }

    /// The minion, to be matched.
    pub(super) fn single(&self) -> Single<'_> {
        let options = &self.pillars.options;
        Single {
            id: self.request.minion.as_str(),
            grains: &self.request.grains,
            pillar: &self.seen,
            nodegroups: &options.nodegroups,
            compat: options.compat,
            patterns: &self.pillars.patterns,
        }
    }

    pub(super) fn with_override(&self, pillar: Value) -> Value {
        match &self.override_data {
            Value::Map(entries) if entries.is_empty() => pillar,
            update => self.merged(pillar, update.clone()),
        }
    }

    /// Merges as the configuration has it.
    pub(super) fn merged(&self, base: Value, update: Value) -> Value {
        let options = &self.pillars.options;
        if options.strategy == Strategy::List && has_many_lists(&base) {
            self.too_deep.set(true);
            return base;
        }
        merge(base, update, options.strategy, options.merge_lists)
    }

    /// Value of `master` for `pillar_opts`.
    fn shown_opts(&self) -> Value {
        let mut shown = self.opts.as_ref().clone();
        if let (Value::Map(entries), false) = (&mut shown, self.is_3008()) {
            entries.retain(|(key, _)| key.as_str() != Some("grains"));
        }
        // The line of Salt that this master stands in for.
        let line = self.pillars.options.compat.to_string();
        set(&mut shown, "saltversion", Value::from(line));
        shown
    }

    fn is_3008(&self) -> bool {
        self.pillars.options.compat == Compat::V3008
    }

    fn decrypted(&self, pillar: Value) -> Value {
        let rules = &self.pillars.decrypt;
        if rules.is_empty() {
            return pillar;
        }
        let mut context = self.context.clone();
        context.limits.time = self.time_left();
        let kept = pillar.clone();
        match decrypt_pillar(pillar, rules, &self.pillars.options.renderers, &context) {
            Ok(pillar) => pillar,
            Err(error) => add_error(kept, &error.to_string()),
        }
    }

    /// The environment of this name, if there is one. `base` always is.
    pub(super) fn environment(&mut self, name: &str) -> Option<Arc<Environment>> {
        if let Some(known) = self.environments.get(name) {
            return known.clone();
        }
        let roots = self.roots.iter().find(|(found, _)| found == name);
        let roots = match roots {
            Some((_, roots)) => Some(roots.as_slice()),
            None if name == "base" => Some(&[][..]),
            None => None,
        };
        let opened = roots.map(|roots| Arc::new(Environment::open(&self.pillars.sources, roots)));
        self.environments.insert(name.to_owned(), opened.clone());
        opened
    }

    /// Renders a file to data. The inner error says what is wrong with the file.
    pub(super) fn render(
        &mut self,
        environment: &Arc<Environment>,
        place: &SourceFile<'_>,
        saltenv: &str,
        sls: &str,
        defaults: &[(Value, Value)],
    ) -> Result<Result<Value, SlsError>, Halt> {
        self.files_left = self
            .files_left
            .checked_sub(1)
            .ok_or_else(|| Halt("the pillar needs more SLS files than are allowed".to_owned()))?;
        let limits = self.rendering_limits()?;
        let text = match environment.text(place) {
            Ok(text) => text,
            Err(error) => return Ok(Err(error.into())),
        };
        let mut context = self.context.clone();
        context.loader = Arc::clone(environment) as Arc<dyn jinja::Loader>;
        context.limits = limits;
        context.set("saltenv", Value::from(saltenv));
        context.set("sls", Value::from(sls));
        if let Err(error) = add_defaults(&mut context, defaults) {
            return Ok(Err(error));
        }
        set_sls_context(&mut context, &place.path, sls);
        let renderers = &self.pillars.options.renderers;
        // Stock reads with universal line ends.
        let rendered = match text.contains('\r') {
            true => {
                let text = text.replace("\r\n", "\n").replace('\r', "\n");
                render(&text, &place.path, renderers, &context)
            }
            false => render(&text, &place.path, renderers, &context),
        };
        if let Ok(value) = &rendered {
            self.charge(value)?;
        }
        Ok(rendered.map_err(SlsError::Render))
    }

    fn rendering_limits(&self) -> Result<jinja::Limits, Halt> {
        let left = self.time_left();
        if left.is_zero() {
            return Err(Halt(
                "the pillar took too long to compile (saltern_pillar_timeout)".to_owned(),
            ));
        }
        let most = self.context.limits;
        Ok(jinja::Limits {
            time: left.min(most.time),
            output: (self.bytes_left as u64).min(most.output),
            ..most
        })
    }

    pub(super) fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Counts data that goes into the pillar; includes of includes multiply.
    pub(super) fn charge(&mut self, value: &Value) -> Result<(), Halt> {
        let (bytes, depth) = measured(value);
        if depth > MAX_PILLAR_DEPTH {
            return Err(Halt(TOO_DEEP.to_owned()));
        }
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(Halt("the pillar is larger than is allowed".to_owned())),
        }
    }
}

/// The environment of the pillar: what the minion asks for goes before what is configured.
pub(super) fn pillarenv<'a>(options: &'a Options, request: &'a PillarRequest) -> Option<&'a str> {
    let configured = match options.pillarenv_from_saltenv {
        true => request.saltenv.as_ref(),
        false => options.pillarenv.as_ref(),
    };
    let name = request.pillarenv.as_ref().or(configured)?;
    (!name.is_empty()).then_some(name.as_str())
}

/// Puts the environment in the place of `__env__`. A name that would lead out of its place gets
/// no roots; stock puts in whatever the minion sends.
fn roots_for(configured: &[(String, Vec<String>)], environment: &str) -> Roots {
    let any = configured.iter().find(|(name, _)| name == ANY_ENVIRONMENT);
    let Some((_, any)) = any else {
        return configured.to_vec();
    };
    let is_configured = |name: &String| name != ANY_ENVIRONMENT;
    let own = configured.iter().filter(|(name, _)| is_configured(name));
    let mut roots: Roots = own.cloned().collect();
    if roots.iter().any(|(name, _)| name == environment) {
        return roots;
    }
    if !is_plain_environment(environment) {
        tracing::warn!(
            environment,
            "this cannot be the name of a pillar environment"
        );
        return roots;
    }
    let any = any
        .iter()
        .map(|root| root.replace(ANY_ENVIRONMENT, environment));
    roots.push((environment.to_owned(), any.collect()));
    roots
}

/// The override of a request whose parts can be used; else what is wrong with it. Environments
/// come from the minion and stand in paths of templates, so one that is no plain name compiles
/// nothing, whatever the site's paths are like.
fn checked(request: &PillarRequest) -> Result<Value, RequestError> {
    let names = [
        ("saltenv", &request.saltenv),
        ("pillarenv", &request.pillarenv),
    ];
    for (what, name) in names {
        let name = name.as_deref().filter(|name| !name.is_empty());
        if let Some(name) = name.filter(|name| !is_plain_environment(name)) {
            return Err(RequestError::Environment {
                what,
                name: name.to_owned(),
            });
        }
    }
    override_of(request)
}

/// The override of the request; of equal keys the last counts. What is no mapping is nothing.
///
/// # Errors
/// [`RequestError`]: it is larger or deeper than is allowed.
pub(super) fn override_of(request: &PillarRequest) -> Result<Value, RequestError> {
    match &request.pillar_override {
        Some(given @ Value::Map(_)) => {
            let (bytes, depth) = measured(given);
            if bytes > OVERRIDE_BYTES {
                return Err(RequestError::OverrideSize);
            }
            if depth > MAX_PILLAR_DEPTH {
                return Err(RequestError::OverrideDepth);
            }
            Ok(without_doubles(given.clone()))
        }
        Some(Value::Nil) | None => Ok(Value::Map(Vec::new())),
        Some(_) => {
            tracing::error!(minion = %request.minion, "pillar data must be a dictionary");
            Ok(Value::Map(Vec::new()))
        }
    }
}

/// Whether the strategy `list` has put as many lists around a value as it may.
fn has_many_lists(pillar: &Value) -> bool {
    let entries = pillar.as_map().unwrap_or_default();
    entries.iter().any(|(_, value)| {
        let (mut value, mut lists) = (value, 0);
        while let Some(first) = value.as_array().and_then(|items| items.first()) {
            value = first;
            lists += 1;
        }
        lists >= MAX_MERGES
    })
}

fn add_defaults(context: &mut Context, defaults: &[(Value, Value)]) -> Result<(), SlsError> {
    for (name, value) in defaults {
        match name.as_str() {
            None => return Err(SlsError::Keyword),
            Some("env") => {}
            Some(name) if RESERVED.contains(&name) => {
                return Err(SlsError::Reserved(name.to_owned()));
            }
            Some(name) => context.set(name, value.clone()),
        }
    }
    Ok(())
}

pub(super) fn empty() -> Value {
    Value::Map(Vec::new())
}

/// Sets an entry of a mapping.
fn set(map: &mut Value, name: &str, value: Value) {
    let Value::Map(entries) = map else { return };
    match entries
        .iter_mut()
        .find(|(key, _)| key.as_str() == Some(name))
    {
        Some((_, there)) => *there = value,
        None => entries.push((Value::from(name), value)),
    }
}

pub(super) fn add_error(mut pillar: Value, error: &str) -> Value {
    let mut errors = match pillar.get("_errors") {
        Some(Value::Array(errors)) => errors.clone(),
        _ => Vec::new(),
    };
    errors.push(Value::from(error));
    set(&mut pillar, "_errors", Value::Array(errors));
    pillar
}

/// About how many bytes a value takes in memory.
pub(super) fn weight(value: &Value) -> usize {
    measured(value).0
}

/// About how many bytes a value takes in memory, and how deep it is nested.
fn measured(value: &Value) -> (usize, usize) {
    let (mut bytes, mut deepest) = (0, 0);
    let mut waiting = vec![(value, 0)];
    while let Some((value, depth)) = waiting.pop() {
        bytes += size_of::<Value>();
        deepest = deepest.max(depth);
        match value {
            Value::Str(text) => bytes += text.len(),
            Value::Bin(data) | Value::Ext(_, data) => bytes += data.len(),
            Value::Array(items) => waiting.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Map(entries) => waiting.extend(
                entries
                    .iter()
                    .flat_map(|(key, value)| [(key, depth + 1), (value, depth + 1)]),
            ),
            _ => {}
        }
    }
    (bytes, deepest)
}
