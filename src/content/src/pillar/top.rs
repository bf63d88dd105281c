//! Top files: the SLS files assigned to the minion.
//!
//! Each environment has at most one, and those that it includes. `merge_tops` and `top_matches`
//! in `salt/pillar/__init__.py`, `confirm_top` in `salt/matchers`. `top_file_merging_strategy` and
//! `default_top` are for states; stock has no part for them here.

use saltern_policy::matching::single::Single;
use saltern_wire::msgpack::Value;

use super::compile::{Compilation, Halt};
use super::error::{SlsError, TargetError};

/// The merged top files: environments with their targets, in order.
pub(super) type Top = Vec<(String, Vec<Target>)>;

/// One target of a top file.
pub(super) struct Target {
    expression: Value,
    order: i64,
    /// The mappings that have a `match`.
    matches: Vec<Value>,
    /// SLS names, each once.
    states: Vec<String>,
}

/// The SLS names for the minion, by environment.
pub(super) type Matched = Vec<(String, Vec<String>)>;

/// Something in a top file that has not the form it must have.
struct Malformed;

impl Compilation<'_> {
    /// Reads all top files and merges them.
    pub(super) fn top(&mut self, errors: &mut Vec<String>) -> Result<Top, Halt> {
        let mut tops: Vec<(String, Vec<Value>)> = Vec::new();
        for saltenv in self.top_environments() {
            match self.top_file(&saltenv)? {
                Ok(Some(top)) => tops.push((saltenv, vec![top])),
                Ok(None) => {}
                Err(problem) => {
                    errors.push(format!(
                        "Rendering Primary Top file failed, render error:\n{problem}"
                    ));
                    break;
                }
            }
        }
        for (saltenv, tops) in &mut tops {
            self.include_tops(saltenv, tops, errors)?;
        }
        Ok(self.merge_tops(&tops).unwrap_or_else(|Malformed| {
            errors.push("Error encountered while rendering pillar top file.".to_owned());
            Vec::new()
        }))
    }

    /// All top files merged.
    pub(super) fn show_top(mut self) -> Result<Value, Vec<String>> {
        let mut errors = Vec::new();
        let top = self.top(&mut errors).unwrap_or_else(|Halt(problem)| {
            errors.push(problem);
            Vec::new()
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let shown = |target: Target| {
            let mut entries = target.matches;
            entries.extend(target.states.into_iter().map(Value::from));
            (target.expression, Value::Array(entries))
        };
        let environments = top.into_iter().map(|(saltenv, targets)| {
            let targets = targets.into_iter().map(shown).collect();
            (Value::from(saltenv), Value::Map(targets))
        });
        Ok(Value::Map(environments.collect()))
    }

    /// The environments whose top files are read.
    fn top_environments(&self) -> Vec<String> {
        let is_configured = |name: &str| self.roots.iter().any(|(found, _)| found == name);
        if let Some(pillarenv) = &self.pillarenv {
            let found = is_configured(pillarenv).then(|| pillarenv.clone());
            return found.into_iter().collect();
        }
        let mut names = vec!["base".to_owned()];
        let others = self.roots.iter().map(|(name, _)| name);
        names.extend(others.filter(|name| *name != "base").cloned());
        if self.pillars.options.one_environment {
            let asked = self.request.saltenv.as_deref();
            let only = asked.filter(|name| !name.is_empty()).unwrap_or("base");
            names.retain(|name| name == only);
        }
        names
    }

    /// The top file of an environment; `None` if it has none.
    fn top_file(&mut self, saltenv: &str) -> Result<Result<Option<Value>, SlsError>, Halt> {
        let Some(environment) = self.environment(saltenv) else {
            return Ok(Ok(None));
        };
        let Some(place) = environment.find(&self.pillars.options.state_top) else {
            return Ok(Ok(None));
        };
        let rendered = self.render(&environment, &place, saltenv, "", &[])?;
        Ok(rendered.map(Some))
    }

    /// Takes `include` out of a top file and adds the files that it names; their own includes do
    /// not count.
    fn include_tops(
        &mut self,
        saltenv: &str,
        tops: &mut Vec<Value>,
        errors: &mut Vec<String>,
    ) -> Result<(), Halt> {
        let Some(Value::Map(entries)) = tops.first_mut() else {
            return Ok(());
        };
        let is_include = |(key, _): &(Value, Value)| key.as_str() == Some("include");
        let Some(at) = entries.iter().position(is_include) else {
            return Ok(());
        };
        let (_, names) = entries.remove(at);
        let Value::Array(names) = names else {
            errors.push("the include of the pillar top file is no list".to_owned());
            return Ok(());
        };
        let mut done: Vec<&str> = Vec::new();
        for name in names.iter().filter_map(Value::as_str) {
            if done.contains(&name) {
                continue;
            }
            done.push(name);
            let Some(environment) = self.environment(saltenv) else {
                continue;
            };
            let Some((place, _)) = environment.find_sls(name) else {
                tracing::error!(
                    saltenv,
                    name,
                    "a top file includes a file that is not there"
                );
                continue;
            };
            match self.render(&environment, &place, saltenv, "", &[])? {
                Ok(top) => tops.push(top),
                Err(problem) => errors.push(format!(
                    "Rendering Top file {name} failed, render error:\n{problem}"
                )),
            }
        }
        Ok(())
    }

    fn merge_tops(&mut self, tops: &[(String, Vec<Value>)]) -> Result<Top, Malformed> {
        let mut merged: Top = Vec::new();
        for top in tops.iter().flat_map(|(_, tops)| tops) {
            let environments = top.as_map().ok_or(Malformed)?;
            let environments = environments
                .iter()
                .filter(|(key, _)| key.as_str() != Some("include"));
            for (saltenv, targets) in environments {
                let saltenv = name_of(saltenv);
                let targets = match targets {
                    Value::Map(targets) => targets.as_slice(),
                    Value::Array(items) if items.is_empty() => &[],
                    Value::Str(text) if text.is_empty() => &[],
                    _ => return Err(Malformed),
                };
                for (expression, parts) in targets {
                    let (target, may_be_missing) = read_target(expression, parts)?;
                    if may_be_missing {
                        let ignored = self.ignored.entry(saltenv.clone()).or_default();
                        ignored.extend(target.states.iter().cloned());
                    }
                    add_target(&mut merged, &saltenv, target);
                }
            }
        }
        for (_, targets) in &mut merged {
            targets.sort_by_key(|target| target.order);
        }
        Ok(merged)
    }

    /// The SLS names whose targets match the minion.
    pub(super) fn matched(&self, top: &Top, errors: &mut Vec<String>) -> Matched {
        let minion = self.single();
        let mut matched: Matched = Vec::new();
        for (saltenv, targets) in top {
            if self.pillarenv.as_ref().is_some_and(|only| only != saltenv) {
                continue;
            }
            for target in targets {
                match target.means(&minion) {
                    Ok(true) => add_states(&mut matched, saltenv, &target.states),
                    Ok(false) => {}
                    Err(problem) => errors.push(format!(
                        "A target of the pillar top file cannot be matched: {problem}"
                    )),
                }
            }
        }
        matched
    }
}

impl Target {
    fn means(&self, minion: &Single<'_>) -> Result<bool, TargetError> {
        let matcher = match self.matches.last().and_then(|part| part.get("match")) {
            None => "compound",
            Some(Value::Str(name)) => name,
            Some(_) => return Err(TargetError::Matcher),
        };
        Ok(minion.matches(matcher, &self.expression)?)
    }
}

/// Reads what stands under a target, and whether its SLS files may be missing.
fn read_target(expression: &Value, parts: &Value) -> Result<(Target, bool), Malformed> {
    let mut target = Target {
        expression: expression.clone(),
        order: 0,
        matches: Vec::new(),
        states: Vec::new(),
    };
    let mut may_be_missing = false;
    let mut add = |name: &str| {
        if !target.states.iter().any(|state| state == name) {
            target.states.push(name.to_owned());
        }
    };
    match parts {
        // Python goes through the letters of a text, and through the keys of a mapping.
        Value::Str(text) => text
            .chars()
            .for_each(|letter| add(letter.encode_utf8(&mut [0; 4]))),
        Value::Map(entries) => entries
            .iter()
            .filter_map(|(key, _)| key.as_str())
            .for_each(add),
        Value::Array(parts) => {
            parts.iter().filter_map(Value::as_str).for_each(add);
            for part in parts.iter().filter(|part| matches!(part, Value::Map(_))) {
                if part.get("match").is_some() {
                    target.matches.push(part.clone());
                }
                if let Some(order) = part.get("order") {
                    target.order = order_of(order)?;
                }
                may_be_missing |= part.get("ignore_missing").is_some_and(Value::is_truthy);
            }
        }
        _ => return Err(Malformed),
    }
    Ok((target, may_be_missing))
}

/// A target that is there already is replaced where it stands.
fn add_target(top: &mut Top, saltenv: &str, target: Target) {
    let at = match top.iter().position(|(name, _)| name == saltenv) {
        Some(at) => at,
        None => {
            top.push((saltenv.to_owned(), Vec::new()));
            top.len() - 1
        }
    };
    let Some((_, targets)) = top.get_mut(at) else {
        return;
    };
    match targets
        .iter_mut()
        .find(|there| there.expression == target.expression)
    {
        Some(there) => *there = target,
        None => targets.push(target),
    }
}

fn add_states(matched: &mut Matched, saltenv: &str, states: &[String]) {
    let at = match matched.iter().position(|(name, _)| name == saltenv) {
        Some(at) => at,
        None => {
            matched.push((saltenv.to_owned(), Vec::new()));
            matched.len() - 1
        }
    };
    let Some((_, names)) = matched.get_mut(at) else {
        return;
    };
    for state in states {
        if !names.contains(state) {
            names.push(state.clone());
        }
    }
}

/// `int(order)` of Python; a text that is no number is 0.
fn order_of(order: &Value) -> Result<i64, Malformed> {
    match order {
        Value::Int(number) => Ok(*number),
        Value::Bool(flag) => Ok(i64::from(*flag)),
        Value::Float(number) if number.is_finite() => Ok(*number as i64),
        Value::Uint(_) => Ok(i64::MAX),
        Value::Str(text) => Ok(text.trim().parse().unwrap_or(0)),
        Value::Float(_) => Ok(0),
        _ => Err(Malformed),
    }
}

/// The name of an environment as Python prints it.
fn name_of(key: &Value) -> String {
    match key {
        Value::Str(name) => name.clone(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => "None".to_owned(),
    }
}
