//! Functions that ask the master: mines, cached grains and pillars, runners.
//!
//! The renderer knows no store and no targeting of many minions. The caller passes a
//! [`SiteFunctions`]; with [`NoSite`] every such function is refused.
//! `mine.get` itself never asks: in a pillar stock looks for the mine of the minion it runs as,
//! which the master has not, and finds nothing.

use std::sync::Arc;

use saltern_model::{MinionId, Target, TargetType};
use saltern_wire::msgpack::Value;

use crate::files::FileServer;
use crate::render::functions::{CallArgs, CallError, Registry};

use super::lookup::Facts;

/// Functions that need the running master.
pub trait SiteFunctions: Send + Sync {
    /// For the runner `mine.get`: a mapping from functions to mappings from minions to values.
    /// Functions that no minion of the target has are left out. As in stock `allow_tgt` holds for
    /// every caller, the master under its own id included (`salt/daemons/masterapi.py`), so that
    /// an entry with one stays closed to it unless it matches that id.
    fn mine_get(&self, asking: &MinionId, target: &Target, functions: &[String]) -> Value;

    /// The runner `cache.grains`: a mapping from the minions of the target to their cached grains.
    fn cached_grains(&self, target: &Target) -> Value;

    /// The runner `cache.pillar`: a mapping from the minions of the target to their cached
    /// pillars.
    fn cached_pillar(&self, target: &Target) -> Value;

    /// Any other runner, by its full name.
    ///
    /// # Errors
    /// If there is no such runner, or it fails.
    fn runner(&self, name: &str, args: &CallArgs) -> Result<Value, CallError>;
}

/// A master without mines, caches and runners: every call is refused by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSite;

impl SiteFunctions for NoSite {
    fn mine_get(&self, _asking: &MinionId, _target: &Target, _functions: &[String]) -> Value {
        Value::Map(Vec::new())
    }

    fn cached_grains(&self, _target: &Target) -> Value {
        Value::Map(Vec::new())
    }

    fn cached_pillar(&self, _target: &Target) -> Value {
        Value::Map(Vec::new())
    }

    fn runner(&self, name: &str, _args: &CallArgs) -> Result<Value, CallError> {
        Err(no_such_runner(name))
    }
}

/// The refusal of a runner that there is not.
pub fn no_such_runner(name: &str) -> CallError {
    CallError::Refused(format!("the runner \"{name}\" is not available"))
}

/// Adds the functions that need the site: `saltutil.runner` and `mine.get`, and `cp.*` over the
/// file server. `minion` is whose pillar is rendered, `saltenv` its environment.
pub fn add_site(
    registry: &mut Registry,
    minion: &MinionId,
    saltenv: &str,
    files: Arc<FileServer>,
    site: Arc<dyn SiteFunctions>,
    facts: &Facts,
) {
    super::slsutil::with_files(registry, &files, saltenv);
    super::cp::cp(registry, files, saltenv);
    registry.add("mine.get", |args| {
        args.need(0, "tgt")?;
        args.need(1, "fun")?;
        Ok(Value::Map(Vec::new()))
    });
    let asking = master_id(facts).unwrap_or_else(|| minion.clone());
    registry.add("saltutil.runner", move |args| {
        runner(site.as_ref(), &asking, &args)
    });
}

/// Functions run as the master, whose id is in its options.
fn master_id(facts: &Facts) -> Option<MinionId> {
    MinionId::parse(facts.opts.get("id")?.as_str()?).ok()
}

/// `saltutil.runner(name, arg=None, kwarg=None, full_return=False, saltenv, jid, **kwargs)`.
fn runner(
    site: &dyn SiteFunctions,
    asking: &MinionId,
    args: &CallArgs,
) -> Result<Value, CallError> {
    let name = args.need_text(0, "name")?;
    let inner = runner_args(args);
    match name.as_str() {
        "mine.get" => {
            let (functions, is_one) = match inner.need(1, "fun")? {
                Value::Str(names) => {
                    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
                    let is_one = names.iter().all(|name| Some(name) == names.first());
                    (names, is_one)
                }
                Value::Array(names) => {
                    let names = names.iter().filter_map(Value::as_str);
                    (names.map(str::to_owned).collect(), false)
                }
                _ => return Ok(Value::Map(Vec::new())),
            };
            let found = site.mine_get(asking, &target(&inner, 2)?, &functions);
            Ok(match functions.first() {
                Some(name) if is_one => {
                    let minions = found.get(name).cloned();
                    minions.unwrap_or_else(|| Value::Map(Vec::new()))
                }
                _ => found,
            })
        }
        "cache.grains" => Ok(site.cached_grains(&target(&inner, 1)?)),
        "cache.pillar" => Ok(site.cached_pillar(&target(&inner, 1)?)),
        _ => site.runner(&name, &inner),
    }
}

/// The arguments of the runner itself: `arg`, `kwarg`, and whatever else was given by name.
fn runner_args(args: &CallArgs) -> CallArgs {
    let positional = match args.get(1, "arg") {
        Some(Value::Array(items)) => items.clone(),
        None | Some(Value::Nil) => Vec::new(),
        Some(other) => vec![other.clone()],
    };
    let mut named: Vec<(String, Value)> = match args.get(2, "kwarg") {
        Some(Value::Map(entries)) => entries
            .iter()
            .filter_map(|(key, value)| Some((key.as_str()?.to_owned(), value.clone())))
            .collect(),
        _ => Vec::new(),
    };
    for (key, value) in &args.named {
        let is_own = matches!(
            key.as_str(),
            "name" | "arg" | "kwarg" | "full_return" | "saltenv" | "jid"
        );
        if is_own || key.starts_with("__") {
            continue;
        }
        named.retain(|(found, _)| found != key);
        named.push((key.clone(), value.clone()));
    }
    CallArgs { positional, named }
}

/// The target of a runner: `tgt` first, its type at `type_at`.
fn target(args: &CallArgs, type_at: usize) -> Result<Target, CallError> {
    let kind = args
        .text(type_at, "tgt_type")
        .unwrap_or_else(|| "glob".to_owned());
    let kind = TargetType::from_wire(&kind)
        .ok_or_else(|| CallError::Refused(format!("the target type \"{kind}\" is unknown")))?;
    Ok(match args.need(0, "tgt")? {
        Value::Array(names) => Target::List(
            names
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
        ),
        _ => Target::Expression(kind, args.need_text(0, "tgt")?),
    })
}

#[cfg(test)]
mod tests {
    use saltern_model::{MinionId, Target, TargetType};
    use saltern_wire::msgpack::Value;

    use super::{NoSite, SiteFunctions, runner};
    use crate::render::functions::{CallArgs, CallError};

    /// Answers with what it was asked.
    struct Echo;

    impl SiteFunctions for Echo {
        fn mine_get(&self, asking: &MinionId, target: &Target, functions: &[String]) -> Value {
            let answer = format!("{asking} {target:?} {}", functions.join("+"));
            Value::map([(functions.join("+"), Value::from(answer))])
        }

        fn cached_grains(&self, target: &Target) -> Value {
            Value::from(format!("{target:?}"))
        }

        fn cached_pillar(&self, target: &Target) -> Value {
            Value::from(format!("{target:?}"))
        }

        fn runner(&self, name: &str, args: &CallArgs) -> Result<Value, CallError> {
            let named: Vec<&str> = args.named.iter().map(|(name, _)| name.as_str()).collect();
            let count = args.positional.len();
            Ok(Value::from(format!("{name} {count} {}", named.join("+"))))
        }
    }

    fn call(name: &str, positional: &[Value], named: &[(&str, Value)]) -> Result<Value, CallError> {
        let mut args = CallArgs {
            positional: vec![Value::from(name)],
            named: Vec::new(),
        };
        args.positional.extend_from_slice(positional);
        for (name, value) in named {
            args.named.push(((*name).to_owned(), value.clone()));
        }
        let asking = MinionId::parse("master").expect("an id");
        runner(&Echo, &asking, &args)
    }

    #[test]
    fn runners_get_their_arguments_as_stock_gives_them() {
        let all = Target::Expression(TargetType::Glob, "*".to_owned());
        let list = Value::Array(vec![Value::from("*"), Value::from("a.b")]);
        let expected = Value::from(format!("master {all:?} a.b"));
        assert_eq!(call("mine.get", &[list], &[]), Ok(expected));
        let list = Value::Array(vec![Value::from("*"), Value::from("a.b,c.d")]);
        let expected = Value::from(format!("master {all:?} a.b+c.d"));
        let expected = Value::map([("a.b+c.d", expected)]);
        assert_eq!(call("mine.get", &[list], &[]), Ok(expected));
        let named = [
            ("tgt", Value::from("os:x")),
            ("tgt_type", Value::from("grain")),
        ];
        let expected = format!(
            "{:?}",
            Target::Expression(TargetType::Grain, "os:x".to_owned())
        );
        assert_eq!(call("cache.grains", &[], &named), Ok(Value::from(expected)));
        let kwarg = Value::map([("a", 1), ("b", 2)]);
        let named = [
            ("kwarg", kwarg),
            ("b", Value::Int(3)),
            ("__jid__", 4.into()),
        ];
        assert_eq!(
            call("test.arg", &[Value::Array(vec![])], &named),
            Ok(Value::from("test.arg 0 a+b"))
        );
    }

    #[test]
    fn unavailable_site_functions_are_refused_by_name() {
        let error = NoSite.runner("cloud.action", &CallArgs::default());
        assert!(matches!(error, Err(CallError::Refused(text)) if text.contains("cloud.action")));
        let named = [("tgt", Value::from("*")), ("tgt_type", Value::from("moon"))];
        assert!(call("cache.pillar", &[], &named).is_err());
    }
}
