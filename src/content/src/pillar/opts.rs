//! The options that templates see as `opts`, and that `pillar_opts` shows to minions.
//!
//! The options that all minions share are made once; the few entries of one minion are put beside
//! them (`Pillar.__gen_opts` in `salt/pillar/__init__.py`). Secrets and this master's own options
//! are not among them: `pillar_opts` shows these to every minion, and functions of the master show
//! them on the bus.

use saltern_config::{MasterConfig, is_secret, options};
use saltern_wire::msgpack::Value;

use crate::git;
use crate::render::data::from_yaml;

/// Options in which remote repositories and other sources stand with their passwords. What sites
/// keep below names of their own is theirs to show.
const SOURCES: [&str; 6] = [
    "ext_pillar",
    "gitfs_remotes",
    "hgfs_remotes",
    "svnfs_remotes",
    "winrepo_remotes",
    "winrepo_remotes_ng",
];

/// The options of the master, with the master's id; without secrets and our own options.
pub fn of_master(config: &MasterConfig) -> Value {
    let mut entries: Vec<(Value, Value)> = config
        .shown_values()
        .filter(|(name, _)| options::ours(name).is_none())
        .map(|(name, node)| {
            let value = from_yaml(node.clone());
            let is_source = SOURCES.contains(&name);
            let value = if is_source {
                without_secrets(value)
            } else {
                value
            };
            (Value::from(name), value)
        })
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

/// A value without the passwords in its maps and URLs.
fn without_secrets(value: Value) -> Value {
    match value {
        Value::Str(text) => git::shown(&text).as_str().into(),
        Value::Array(items) => Value::Array(items.into_iter().map(without_secrets).collect()),
        Value::Map(entries) => {
            let is_open = |name: &Value| !name.as_str().is_some_and(is_secret);
            let entries = entries.into_iter().filter(|(name, _)| is_open(name));
            let shown =
                entries.map(|(name, value)| (without_secrets(name), without_secrets(value)));
            Value::Map(shown.collect())
        }
        other => other,
    }
}

/// Entries of one minion.
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
