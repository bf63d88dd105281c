//! `_master_opts`: the options of the master that a minion's states follow
//! (`AESFuncs._master_opts` in `salt/master.py`).

use saltern_content::render::data::from_yaml;
use saltern_wire::msgpack::{Dialect, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::{Outcome, Services};

/// Options for a minion that only asks for environments, with stock's defaults.
fn always(services: &Services) -> Vec<(Value, Value)> {
    let environments = services.content.files.file_envs();
    let empty = || Value::Array(Vec::new());
    let roots = environments.as_array().unwrap_or_default();
    let roots = roots.iter().map(|name| (name.clone(), empty())).collect();
    vec![
        ("file_roots".into(), Value::Map(roots)),
        option(services, "top_file_merging_strategy", "merge".into()),
        option(services, "env_order", empty()),
        option(services, "default_top", "base".into()),
    ]
}

/// The other options, with stock's defaults.
fn for_states(services: &Services) -> Vec<(Value, Value)> {
    let no = || Value::Bool(false);
    let nothing = || Value::Map(Vec::new());
    vec![
        option(services, "renderer", "jinja|yaml".into()),
        option(services, "failhard", no()),
        option(services, "state_top", "top.sls".into()),
        option(services, "state_top_saltenv", Value::Nil),
        option(services, "nodegroups", nothing()),
        option(services, "state_auto_order", Value::Bool(true)),
        option(services, "state_events", no()),
        option(services, "state_aggregate", no()),
        option(services, "jinja_env", nothing()),
        option(services, "jinja_sls_env", nothing()),
        option(services, "jinja_lstrip_blocks", no()),
        option(services, "jinja_trim_blocks", no()),
    ]
}

/// Answers with the options.
pub(crate) fn handle(sealed: &Sealed, services: &Services) -> Outcome {
    let mut options = always(services);
    let env_only = sealed.load.get("env_only").and_then(RawValue::as_bool);
    if env_only != Some(true) {
        options.extend(for_states(services));
    }
    let packed = encode(&Value::Map(options), Dialect::Raw);
    Outcome::reply(sealed.answer.seal(&packed))
}

fn option(services: &Services, name: &str, default: Value) -> (Value, Value) {
    let written = services.config.raw(name).cloned().map(from_yaml);
    (name.into(), written.unwrap_or(default))
}
