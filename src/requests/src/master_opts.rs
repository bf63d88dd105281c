//! `_master_opts`: the options of the master that a minion's states follow
//! (`AESFuncs._master_opts` in `salt/master.py`).

use saltern_content::render::data::from_yaml;
use saltern_wire::msgpack::{Dialect, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::{Content, Context, Outcome};

/// Options for a minion that only asks for environments, with stock's defaults.
fn always(context: &Context, content: &Content) -> Vec<(Value, Value)> {
    let environments = content.files.file_envs();
    let empty = || Value::Array(Vec::new());
    let roots = environments.as_array().unwrap_or_default();
    let roots = roots.iter().map(|name| (name.clone(), empty())).collect();
    vec![
        ("file_roots".into(), Value::Map(roots)),
        option(context, "top_file_merging_strategy", "merge".into()),
        option(context, "env_order", empty()),
        option(context, "default_top", "base".into()),
    ]
}

/// The other options, with stock's defaults.
fn for_states(context: &Context) -> Vec<(Value, Value)> {
    let no = || Value::Bool(false);
    let nothing = || Value::Map(Vec::new());
    vec![
        option(context, "renderer", "jinja|yaml".into()),
        option(context, "failhard", no()),
        option(context, "state_top", "top.sls".into()),
        option(context, "state_top_saltenv", Value::Nil),
        option(context, "nodegroups", nothing()),
        option(context, "state_auto_order", Value::Bool(true)),
        option(context, "state_events", no()),
        option(context, "state_aggregate", no()),
        option(context, "jinja_env", nothing()),
        option(context, "jinja_sls_env", nothing()),
        option(context, "jinja_lstrip_blocks", no()),
        option(context, "jinja_trim_blocks", no()),
    ]
}

/// Answers with the options.
pub(crate) fn handle(sealed: &Sealed, context: &Context, content: &Content) -> Outcome {
    let mut options = always(context, content);
    let env_only = sealed.load.get("env_only").and_then(RawValue::as_bool);
    if env_only != Some(true) {
        options.extend(for_states(context));
    }
    let packed = encode(&Value::Map(options), Dialect::Raw);
    Outcome::reply(sealed.answer.seal(&packed))
}

fn option(context: &Context, name: &str, default: Value) -> (Value, Value) {
    let written = context.config.raw(name).cloned().map(from_yaml);
    (name.into(), written.unwrap_or(default))
}
