//! Resolution and rendering of SLS files, with includes (`render_pstate` and `render_pillar` in
//! `salt/pillar/__init__.py`).
//!
//! Stock's peculiarities are kept where sites can see them: a relative name is also looked for at
//! the top, a name that matches twice is merged twice, the defaults of an include hold for those
//! that follow it in the same list, and a file that was included before gives what it holds
//! itself, without its includes.

use std::collections::HashMap;
use std::sync::Arc;

use saltern_wire::msgpack::Value;

use super::compile::{Compilation, Halt};
use super::error::SlsError;
use super::merge::Strategy;
use super::sources::Environment;
use super::top::Matched;

/// How deep includes may nest.
const MAX_INCLUDE_DEPTH: usize = 100;
/// The most parts of the `key` of an include: each is a mapping around what is included.
const MAX_KEY_LENGTH: usize = 100;

/// The files of one environment that were rendered, by name: what they hold themselves, or
/// nothing if they failed.
type Rendered = HashMap<String, Option<Arc<Value>>>;

/// Position of a file among others.
#[derive(Clone, Copy)]
struct At<'a> {
    saltenv: &'a str,
    /// Nothing if there is no such environment.
    environment: Option<&'a Arc<Environment>>,
    depth: usize,
}

/// One entry of an `include`.
struct Include<'a> {
    name: &'a str,
    /// `None` leaves the defaults as they were.
    defaults: Option<&'a Value>,
    key: Option<&'a str>,
}

impl Compilation<'_> {
    /// Renders all SLS files that are meant for the minion into `pillar`.
    pub(super) fn render_matched(
        &mut self,
        matched: &Matched,
        pillar: &mut Value,
        errors: &mut Vec<String>,
    ) -> Result<(), Halt> {
        let order = self.pillars.options.env_order.iter();
        let ordered = order.filter_map(|name| matched.iter().find(|(found, _)| found == name));
        let mut ordered: Vec<&(String, Vec<String>)> = ordered.collect();
        for entry in matched {
            if !ordered.iter().any(|(name, _)| *name == entry.0) {
                ordered.push(entry);
            }
        }
        for (saltenv, patterns) in ordered {
            let environment = self.environment(saltenv);
            let at = At {
                saltenv,
                environment: environment.as_ref(),
                depth: 0,
            };
            let mut names = Vec::new();
            for pattern in patterns {
                names.extend(self.names_of(pattern, at, errors));
            }
            let mut rendered = Rendered::new();
            for name in &names {
                let (state, problems) = self.sls(name, at, &mut rendered, None)?;
                errors.extend(problems);
                if let Some(state) = state.filter(|state| state.as_map().is_some()) {
                    let base = std::mem::replace(pillar, Value::Nil);
                    *pillar = self.merged(base, Arc::unwrap_or_clone(state));
                }
            }
        }
        Ok(())
    }

    /// The SLS names that a name of a top file stands for: those that match, or itself.
    fn names_of(&self, pattern: &str, at: At<'_>, errors: &mut Vec<String>) -> Vec<String> {
        match at.environment {
            None => errors.push(no_environment(at.saltenv)),
            Some(environment) if is_wild(pattern) => {
                let found = self.matching(environment, pattern);
                if !found.is_empty() {
                    return found;
                }
            }
            Some(_) => {}
        }
        vec![pattern.to_owned()]
    }

    /// The names of an environment that match a wildcard pattern.
    fn matching(&self, environment: &Environment, pattern: &str) -> Vec<String> {
        let names = environment.names();
        if !is_wild(pattern) {
            let found = names.binary_search_by(|name| name.as_str().cmp(pattern));
            return found.map(|_| pattern.to_owned()).into_iter().collect();
        }
        match self.pillars.patterns.glob(pattern) {
            Ok(glob) => {
                let found = names.iter().filter(|name| glob.matches(name));
                found.cloned().collect()
            }
            Err(error) => {
                tracing::warn!(pattern, %error, "the name of an SLS file is no pattern");
                Vec::new()
            }
        }
    }

    /// One SLS file with its includes, and the texts of its failures.
    fn sls(
        &mut self,
        name: &str,
        at: At<'_>,
        rendered: &mut Rendered,
        defaults: Option<&Value>,
    ) -> Result<(Option<Arc<Value>>, Vec<String>), Halt> {
        if at.depth > MAX_INCLUDE_DEPTH {
            return Err(Halt(format!(
                "SLS '{name}' is included more than {MAX_INCLUDE_DEPTH} levels deep"
            )));
        }
        let found = at.environment.and_then(|environment| {
            let (place, is_init) = environment.find_sls(name)?;
            Some((environment, place, is_init))
        });
        let Some((environment, place, is_init)) = found else {
            return Ok((None, self.missing(name, at)));
        };
        let mut errors = Vec::new();
        let no_defaults = Value::Map(Vec::new());
        let outcome = match defaults.unwrap_or(&no_defaults) {
            Value::Map(defaults) => self.render(environment, &place, at.saltenv, name, defaults)?,
            _ => Err(SlsError::Defaults),
        };
        let state = match outcome {
            Ok(Value::Nil) => None,
            Ok(state) => Some(state),
            Err(error) => {
                errors.push(self.failure(name, &error.to_string()));
                None
            }
        };
        let Some(mut state) = state else {
            rendered.insert(name.to_owned(), None);
            return Ok((None, errors));
        };
        let include = match &mut state {
            Value::Map(entries) => take_include(name, entries, &mut errors),
            other => {
                if other.is_truthy() {
                    errors.push(format!("SLS '{name}' does not render to a dictionary"));
                }
                None
            }
        };
        let state = Arc::new(state);
        rendered.insert(name.to_owned(), Some(Arc::clone(&state)));
        let Some(include) = include else {
            return Ok((Some(state), errors));
        };
        let parent = Parent { name, is_init };
        let state = self.with_includes(
            &parent,
            state,
            &include,
            at,
            rendered,
            &mut errors,
            defaults,
        )?;
        Ok((Some(state), errors))
    }

    /// The errors for a file that does not exist.
    fn missing(&self, name: &str, at: At<'_>) -> Vec<String> {
        let saltenv = at.saltenv;
        let ignored = self.ignored.get(saltenv);
        if ignored.is_some_and(|names| names.iter().any(|found| found == name)) {
            return Vec::new();
        }
        if at
            .environment
            .is_some_and(|environment| environment.has_roots())
        {
            return vec![format!(
                "Specified SLS '{name}' in environment '{saltenv}' is not available on the salt \
                 master"
            )];
        }
        tracing::debug!(
            sls = name,
            saltenv,
            "SLS not found: the environment has no roots"
        );
        Vec::new()
    }

    /// The error for a file that does not render. If the minion may not know the reason, it is
    /// logged only.
    fn failure(&mut self, name: &str, problem: &str) -> String {
        if !self.pillars.options.hides_errors {
            return format!("Rendering SLS '{name}' failed, render error:\n{problem}");
        }
        let minion = &self.request.minion;
        tracing::error!(%minion, sls = name, error = problem, "a pillar SLS does not render");
        let text = format!("Rendering SLS '{name}' failed. Please see master log for details.");
        self.logged.push(text.clone());
        text
    }

    /// Renders what a file includes and merges it with what the file holds.
    #[expect(clippy::too_many_arguments, reason = "the state of one recursion")]
    fn with_includes(
        &mut self,
        parent: &Parent<'_>,
        state: Arc<Value>,
        include: &[Value],
        at: At<'_>,
        rendered: &mut Rendered,
        errors: &mut Vec<String>,
        defaults: Option<&Value>,
    ) -> Result<Arc<Value>, Halt> {
        let overrides = self.pillars.options.includes_override;
        let mut defaults = defaults;
        let mut own = Arc::unwrap_or_clone(state);
        let mut merged: Option<Value> = None;
        for entry in include {
            let Some(entry) = read_include(entry) else {
                errors.push(format!(
                    "Include Declaration in SLS '{}' has an entry that cannot be read",
                    parent.name
                ));
                continue;
            };
            if parts_of(entry.key).count() > MAX_KEY_LENGTH {
                errors.push(format!(
                    "Include Declaration in SLS '{}' has a key of more than {MAX_KEY_LENGTH} parts",
                    parent.name
                ));
                continue;
            }
            if entry.defaults.is_some() {
                defaults = entry.defaults;
            }
            for name in self.included_names(entry.name, parent, at, errors) {
                let inside = At {
                    depth: at.depth + 1,
                    ..at
                };
                let included = match rendered.get(&name) {
                    Some(known) => known.clone(),
                    None => {
                        let defaults = defaults.filter(|defaults| !defaults.is_nil());
                        let (state, problems) = self.sls(&name, inside, rendered, defaults)?;
                        errors.extend(problems);
                        state
                    }
                };
                if let Some(included) = included.filter(|state| state.is_truthy()) {
                    let included = under_key(Arc::unwrap_or_clone(included), entry.key);
                    self.charge(&included)?;
                    if overrides {
                        own = self.merged(own, included);
                    } else if included.as_map().is_some() {
                        merged = Some(match merged {
                            Some(before) => self.merged(before, included),
                            None => included,
                        });
                    }
                }
            }
        }
        let own = match merged {
            Some(before) => self.merged(before, own),
            None => own,
        };
        Ok(Arc::new(own))
    }

    /// The SLS names that an entry of an include stands for.
    fn included_names(
        &self,
        name: &str,
        parent: &Parent<'_>,
        at: At<'_>,
        errors: &mut Vec<String>,
    ) -> Vec<String> {
        let Some(environment) = at.environment else {
            errors.push(no_environment(at.saltenv));
            return vec![name.to_owned()];
        };
        let full = match name.strip_prefix('.') {
            Some(rest) => parent.relative(rest),
            None => name.to_owned(),
        };
        let bare = name.trim_start_matches('.').replace('/', ".");
        // Merging the same twice shows only where values add up, so that the names of all files
        // are not needed for the usual case.
        let options = &self.pillars.options;
        let is_plain = !is_wild(name) && bare == full;
        if is_plain && options.strategy != Strategy::List && !options.includes_override {
            return vec![full];
        }
        let mut found = self.matching(environment, &bare);
        found.extend(self.matching(environment, &full));
        if found.is_empty() {
            found.push(full);
        }
        found
    }
}

/// The file that includes.
struct Parent<'a> {
    name: &'a str,
    /// Whether it is the `init.sls` of its directory.
    is_init: bool,
}

impl Parent<'_> {
    /// The full name of what is beside this file, or below it if it is an `init.sls`.
    fn relative(&self, rest: &str) -> String {
        if self.is_init {
            return format!("{}.{rest}", self.name);
        }
        match self.name.rsplit_once('.') {
            Some((directory, _)) => format!("{directory}.{rest}"),
            None => rest.to_owned(),
        }
    }
}

/// Takes the include out of a file. One that is no list is an error and stays.
fn take_include(
    name: &str,
    entries: &mut Vec<(Value, Value)>,
    errors: &mut Vec<String>,
) -> Option<Vec<Value>> {
    let is_include = |(key, _): &(Value, Value)| key.as_str() == Some("include");
    let at = entries.iter().position(is_include)?;
    if !matches!(entries.get(at), Some((_, Value::Array(_)))) {
        errors.push(format!(
            "Include Declaration in SLS '{name}' is not formed as a list"
        ));
        return None;
    }
    match entries.remove(at) {
        (_, Value::Array(include)) => Some(include),
        _ => None,
    }
}

/// An entry of an include: a name, or a name with `defaults` and `key`. Nothing if it is neither:
/// stock raises an exception.
fn read_include(entry: &Value) -> Option<Include<'_>> {
    match entry {
        Value::Str(name) => Some(Include {
            name,
            defaults: None,
            key: None,
        }),
        Value::Map(entries) => {
            let (name, options) = entries.first()?;
            options.as_map()?;
            let key = match options.get("key") {
                Some(Value::Str(key)) => Some(key.as_str()).filter(|key| !key.is_empty()),
                Some(other) if other.is_truthy() => return None,
                _ => None,
            };
            Some(Include {
                name: name.as_str()?,
                defaults: Some(options.get("defaults").unwrap_or(&Value::Nil)),
                key,
            })
        }
        _ => None,
    }
}

/// Puts a state under a path, outermost first: `a:b` makes `{a: {b: state}}`.
fn under_key(state: Value, key: Option<&str>) -> Value {
    parts_of(key).rev().fold(state, |state, part| {
        Value::Map(vec![(Value::from(part), state)])
    })
}

fn parts_of(key: Option<&str>) -> impl DoubleEndedIterator<Item = &str> {
    key.into_iter().flat_map(|key| key.split(':'))
}

fn is_wild(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

fn no_environment(saltenv: &str) -> String {
    format!("No matching pillar environment for environment '{saltenv}' found")
}
