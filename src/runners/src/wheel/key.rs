//! `key.*`: the keys of minions (`salt/wheel/key.py`, `salt/key.py`).
//!
//! The files are the ones that `salt-key` works on. Changes take effect with the minion's next
//! message: its session ends here, and the caller of the function purges its cached data
//! ([`Notice::KeyGone`](crate::Notice)). `key.gen_keys` and `key.gen_signature` are not here: they
//! write private keys to any path the caller names.

mod change;
mod listing;
mod show;

use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::{Needed, Optional};

const MATCH: &[Parameter] = &[Needed("match")];

const MATCH_FOR_ACCEPT: &[Parameter] = &[
    Needed("match"),
    Optional("include_rejected"),
    Optional("include_denied"),
];

const MATCH_FOR_REJECT: &[Parameter] = &[
    Needed("match"),
    Optional("include_accepted"),
    Optional("include_denied"),
];

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function("accept", MATCH_FOR_ACCEPT, change::accept),
    function("accept_dict", MATCH_FOR_ACCEPT, change::accept_dict),
    function("delete", MATCH, change::delete),
    function("delete_dict", MATCH, change::delete_dict),
    function(
        "finger",
        &[Needed("match"), Optional("hash_type")],
        show::finger,
    ),
    function(
        "finger_master",
        &[Optional("hash_type")],
        show::finger_master,
    ),
    function(
        "gen",
        &[Optional("id_"), Optional("keysize")],
        show::generate,
    ),
    function(
        "gen_accept",
        &[Needed("id_"), Optional("keysize"), Optional("force")],
        change::gen_accept,
    ),
    function("glob_match", MATCH, glob_match),
    function("list", MATCH, list),
    function("list_all", &[], list_all),
    function("master_key_str", &[], show::master_key_str),
    function("name_match", MATCH, name_match),
    function("print", MATCH, show::print),
    function("reject", MATCH_FOR_REJECT, change::reject),
    function("reject_dict", MATCH_FOR_REJECT, change::reject_dict),
];

fn list_all(context: &RunnerContext, _: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    Ok(listing::all(context)?.into_value())
}

fn list(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let kind = bound.text("match")?.unwrap_or_default();
    let lists = listing::all(context)?;
    // Stock looks at the first letters.
    let names = [
        ("acc", "minions"),
        ("pre", "minions_pre"),
        ("un", "minions_pre"),
        ("rej", "minions_rejected"),
        ("den", "minions_denied"),
    ];
    if let Some((_, name)) = names.iter().find(|(start, _)| kind.starts_with(start)) {
        return Ok(lists.only(&[name]).into_value());
    }
    Ok(match kind.starts_with("all") {
        true => lists.into_value(),
        false => Value::Map(Vec::new()),
    })
}

fn name_match(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let patterns = patterns(bound)?;
    Ok(patterns
        .choose_from(listing::managed(context)?)
        .into_value())
}

/// 3008's name; the other versions do not know it.
fn glob_match(context: &RunnerContext, bound: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    match context.config.salt_compat {
        saltern_model::Compat::V3008 => name_match(context, bound, notices),
        _ => Err(RunnerError::NotAvailable("key.glob_match".to_owned())),
    }
}

fn patterns(bound: &Bound<'_>) -> Result<listing::Patterns, RunnerError> {
    listing::Patterns::parse(bound.get("match").unwrap_or(&Value::Nil))
}

#[cfg(test)]
mod tests;
