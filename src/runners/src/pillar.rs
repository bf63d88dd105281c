//! `pillar.*`: the pillar that a minion would get, and the cached one (`salt/runners/pillar.py`).

use std::sync::Arc;

use saltern_content::pillar::PillarRequest;
use saltern_model::{Compat, MinionId, Target, TargetType};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::master::Master;
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::{Keywords, Optional};

const OF_MINION: &[Parameter] = &[Optional("minion"), Keywords];

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function("clear_pillar_cache", OF_MINION, clear_pillar_cache),
    function("show_pillar", OF_MINION, show_pillar),
    function("show_pillar_cache", OF_MINION, show_pillar_cache),
    function(
        "show_top",
        &[Optional("minion"), Optional("saltenv")],
        show_top,
    ),
];

/// The minion of a call, which need not exist.
fn minion(bound: &Bound<'_>) -> Result<Option<MinionId>, RunnerError> {
    let Some(text) = bound.text("minion")? else {
        return Ok(None);
    };
    let id = MinionId::parse(&text);
    id.map(Some)
        .map_err(|error| RunnerError::Refused(format!("{error}: \"{text}\"")))
}

/// The cached grains of a minion.
fn grains(
    context: &RunnerContext,
    master: &Master,
    minion: &MinionId,
) -> Result<Option<Arc<Value>>, RunnerError> {
    match keeps_data(context) {
        true => Ok(master.minion_data.grains(minion)?),
        false => Ok(None),
    }
}

/// `minion_data_cache`.
fn keeps_data(context: &RunnerContext) -> bool {
    context.config.minion_data_cache()
}

/// `pillar_cache`.
fn keeps_pillars(context: &RunnerContext) -> bool {
    context.config.pillar_cache()
}

fn show_top(context: &RunnerContext, bound: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    let master = context.master()?;
    let minion = match minion(bound)? {
        Some(minion) => minion,
        // Without a minion: the first one that has cached grains.
        None => match master.minion_data.known()?.first() {
            Some(first) => first.clone(),
            None => own_id(context)?,
        },
    };
    let grains = grains(context, master, &minion)?;
    let saltenv = bound.text("saltenv")?.unwrap_or_else(|| "base".to_owned());
    let request = PillarRequest {
        saltenv: Some(saltenv),
        ..PillarRequest::new(minion, grains.unwrap_or_else(nothing))
    };
    match master.pillars.top(&request) {
        Ok(top) => Ok(top),
        Err(errors) => {
            let errors = Value::Array(errors.into_iter().map(Value::from).collect());
            notices.progress(Value::map([
                ("data", errors.clone()),
                ("outputter", "nested".into()),
            ]));
            Ok(errors)
        }
    }
}

fn show_pillar(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let master = context.master()?;
    let minion = named_minion(bound)?;
    let known = grains(context, master, &minion)?;
    let known = known.as_deref().cloned();
    let mut grains = match known {
        Some(Value::Map(entries)) => entries,
        _ => vec![("fqdn".into(), minion.as_str().into())],
    };
    let (mut saltenv, mut pillarenv) = (Some("base".to_owned()), None);
    for (name, value) in bound.own_keywords() {
        match name {
            "saltenv" => saltenv = value.as_str().map(str::to_owned),
            "pillarenv" => pillarenv = value.as_str().map(str::to_owned),
            name => {
                grains.retain(|(known, _)| known.as_str() != Some(name));
                grains.push((name.into(), value.clone()));
            }
        }
    }
    let request = PillarRequest {
        saltenv,
        pillarenv,
        ..PillarRequest::new(minion, Arc::new(Value::Map(grains)))
    };
    Ok(master.pillars.compile_anew(&request))
}

fn show_pillar_cache(
    context: &RunnerContext,
    bound: &Bound<'_>,
    _: &mut Notices<'_>,
) -> CallResult {
    let Some(minions) = with_kept_pillars(context, bound)? else {
        return Ok(false.into());
    };
    let master = context.master()?;
    let pillarenv = pillarenv(bound);
    let mut kept = Vec::new();
    for minion in minions {
        let pillar = match context.config.salt_compat {
            Compat::V3006 | Compat::V3007 => master.pillars.kept(&minion, pillarenv),
            Compat::V3008 => master.minion_data.pillar_of(&minion, pillarenv)?,
        };
        if let Some(pillar) = pillar.filter(Value::is_truthy) {
            kept.push((Value::from(minion.as_str()), pillar));
        }
    }
    Ok(Value::Map(kept))
}

fn clear_pillar_cache(
    context: &RunnerContext,
    bound: &Bound<'_>,
    _: &mut Notices<'_>,
) -> CallResult {
    let Some(minions) = with_kept_pillars(context, bound)? else {
        return Ok(false.into());
    };
    let master = context.master()?;
    for minion in minions {
        master.pillars.forget(&minion);
        if context.config.salt_compat == Compat::V3008 {
            master.minion_data.clear(&minion, false, true)?;
        }
    }
    // Before 3008 it lists the remaining ones.
    Ok(match context.config.salt_compat {
        Compat::V3006 | Compat::V3007 => Value::Map(Vec::new()),
        Compat::V3008 => true.into(),
    })
}

/// The minions meant; none where no pillar is cached.
fn with_kept_pillars(
    context: &RunnerContext,
    bound: &Bound<'_>,
) -> Result<Option<Vec<MinionId>>, RunnerError> {
    let is_new = context.config.salt_compat == Compat::V3008;
    if !(keeps_pillars(context) || is_new && keeps_data(context)) {
        return Ok(None);
    }
    let pattern = bound.text("minion")?.unwrap_or_else(|| "*".to_owned());
    let target = Target::Expression(TargetType::Glob, pattern);
    Ok(Some(context.fleet()?.matching(&target)?))
}

fn pillarenv<'a>(bound: &Bound<'a>) -> Option<&'a str> {
    let (_, value) = bound
        .own_keywords()
        .find(|(name, _)| *name == "pillarenv")?;
    value.as_str()
}

/// The minion of a call; stock takes `*` for a name if there is none.
fn named_minion(bound: &Bound<'_>) -> Result<MinionId, RunnerError> {
    match minion(bound)? {
        Some(minion) => Ok(minion),
        None => MinionId::parse("*").map_err(|error| RunnerError::Refused(error.to_string())),
    }
}

fn own_id(context: &RunnerContext) -> Result<MinionId, RunnerError> {
    let id = MinionId::parse(&context.config.id);
    id.map_err(|error| RunnerError::Refused(error.to_string()))
}

fn nothing() -> Arc<Value> {
    Arc::new(Value::Map(Vec::new()))
}

#[cfg(test)]
mod tests;
