//! The options that templates see as `opts`, and that `pillar_opts` shows to minions.
//!
//! What all minions have in common is made once; the few entries that belong to one minion are
//! put beside them (`Pillar.__gen_opts` in `salt/pillar/__init__.py`). Passphrases and this
//! master's own options are not among them.

use saltern_config::MasterConfig;
use saltern_config::options::OURS;
use saltern_wire::msgpack::Value;

use crate::render::data::from_yaml;

/// The options of the master, with the master's id; without passphrases and our own options.
pub fn of_master(config: &MasterConfig) -> Value {
    let is_ours = |name: &str| OURS.iter().any(|option| option.name == name);
    let mut entries: Vec<(Value, Value)> = config
        .all_raw()
        .filter(|(name, _)| !is_ours(name))
        .map(|(name, node)| (Value::from(name), from_yaml(node.clone())))
        .collect();
    let path = |path: &std::path::Path| Value::from(path.to_string_lossy().into_owned());
    let resolved = [
        ("id", Value::from(config.id.as_str())),
        ("conf_file", path(&config.conf_file)),
        ("root_dir", path(&config.root_dir)),
        ("pki_dir", path(&config.pki_dir)),
        ("cachedir", path(&config.cachedir)),
        ("sock_dir", path(&config.sock_dir)),
        ("file_client", Value::from("local")),
        ("__role", Value::from("master")),
    ];
    for (name, value) in resolved {
        set(&mut entries, name, value);
    }
    Value::Map(entries)
}

/// What belongs to one minion.
pub(super) struct OfMinion<'a> {
    pub(super) id: &'a str,
    pub(super) grains: &'a Value,
    pub(super) saltenv: Option<&'a str>,
    pub(super) pillarenv: Option<&'a str>,
    /// The path of the top file.
    pub(super) state_top: &'a str,
    pub(super) roots: &'a [(String, Vec<String>)],
}

/// The options as the templates of one minion see them.
pub(super) fn of_minion(master: &Value, minion: &OfMinion<'_>) -> Value {
    let mut entries = master.as_map().unwrap_or_default().to_vec();
    let roots = minion.roots.iter().map(|(name, roots)| {
        let roots = roots.iter().map(Value::from).collect();
        (Value::from(name), Value::Array(roots))
    });
    let own = [
        ("id", Value::from(minion.id)),
        ("minion_id", Value::from(minion.id)),
        ("grains", minion.grains.clone()),
        ("saltenv", Value::from(minion.saltenv)),
        ("pillarenv", Value::from(minion.pillarenv)),
        (
            "state_top",
            Value::from(format!("salt://{}", minion.state_top)),
        ),
        ("pillar_roots", Value::Map(roots.collect())),
    ];
    for (name, value) in own {
        set(&mut entries, name, value);
    }
    Value::Map(entries)
}

fn set(entries: &mut Vec<(Value, Value)>, name: &str, value: Value) {
    match entries
        .iter_mut()
        .find(|(key, _)| key.as_str() == Some(name))
    {
        Some((_, there)) => *there = value,
        None => entries.push((Value::from(name), value)),
    }
}
