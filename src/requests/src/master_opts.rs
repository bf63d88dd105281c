//! `_master_opts`: the options of the master that a minion's states follow
//! (`AESFuncs._master_opts` in `salt/master.py`).

use saltern_config::{MasterConfig, OptionValue};
use saltern_content::render::data::from_yaml;
use saltern_wire::msgpack::{Dialect, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::{Content, Context, Outcome};

/// Options for a minion that only asks for environments, with stock's defaults.
fn always(config: &MasterConfig, content: &Content) -> Vec<(Value, Value)> {
    let environments = content.files.file_envs();
    let empty = || Value::Array(Vec::new());
    let roots = environments.as_array().unwrap_or_default();
    let roots = roots.iter().map(|name| (name.clone(), empty())).collect();
    vec![
        ("file_roots".into(), Value::Map(roots)),
        option(config.top_file_merging_strategy(), "merge".into()),
        option(config.env_order(), empty()),
        option(config.default_top(), "base".into()),
    ]
}

/// The other options, with stock's defaults.
fn for_states(config: &MasterConfig) -> Vec<(Value, Value)> {
    let no = || Value::Bool(false);
    let nothing = || Value::Map(Vec::new());
    vec![
        option(config.renderer(), "jinja|yaml".into()),
        option(config.failhard(), no()),
        option(config.state_top(), "top.sls".into()),
        option(config.state_top_saltenv(), Value::Nil),
        option(config.nodegroups(), nothing()),
        option(config.state_auto_order(), Value::Bool(true)),
        option(config.state_events(), no()),
        option(config.state_aggregate(), no()),
        option(config.jinja_env(), nothing()),
        option(config.jinja_sls_env(), nothing()),
        option(config.jinja_lstrip_blocks(), no()),
        option(config.jinja_trim_blocks(), no()),
    ]
}

/// Answers with the options.
pub(crate) fn handle(sealed: &Sealed, context: &Context, content: &Content) -> Outcome {
    let mut options = always(&context.config, content);
    let env_only = sealed.load.get("env_only").and_then(RawValue::as_bool);
    if env_only != Some(true) {
        options.extend(for_states(&context.config));
    }
    let packed = encode(&Value::Map(options), Dialect::Raw);
    Outcome::reply(sealed.answer.seal(&packed))
}

fn option(option: OptionValue<'_>, default: Value) -> (Value, Value) {
    let value = option.node().cloned().map(from_yaml);
    (option.name().into(), value.unwrap_or(default))
}
