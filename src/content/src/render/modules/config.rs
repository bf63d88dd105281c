//! `config.*`: options, grains and pillar in one (`salt/modules/config.py`).

use std::sync::LazyLock;

use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

use super::lookup::{
    Called, Facts, default_of, delimiter_of, hashable, merge, row_of, shown, traverse_by,
};
use super::sdb::Sdb;
use crate::render::functions::{CallArgs, Registry};
use crate::render::json;

/// Stock's defaults (`DEFAULTS` in its module), as JSON.
const DEFAULTS: &str = r#"{
    "mongo.db": "salt", "mongo.password": "", "mongo.port": 27017, "mongo.user": "",
    "redis.db": "0", "redis.host": "salt", "redis.port": 6379,
    "test.foo": "unconfigured", "ca.cert_base_path": "/etc/pki",
    "solr.cores": [], "solr.host": "localhost", "solr.port": "8983", "solr.baseurl": "/solr",
    "solr.type": "master", "solr.request_timeout": null,
    "solr.init_script": "/etc/rc.d/solr",
    "solr.dih.import_options":
        {"clean": false, "optimize": true, "commit": true, "verbose": false},
    "solr.backup_path": null, "solr.num_backups": 1,
    "poudriere.config": "/usr/local/etc/poudriere.conf",
    "poudriere.config_dir": "/usr/local/etc/poudriere.d",
    "ldap.uri": "", "ldap.server": "localhost", "ldap.port": "389", "ldap.tls": false,
    "ldap.no_verify": false, "ldap.anonymous": true, "ldap.scope": 2, "ldap.attrs": null,
    "ldap.binddn": "", "ldap.bindpw": "",
    "hosts.file": "/etc/hosts", "aliases.file": "/etc/aliases",
    "virt": {"tunnel": false, "images": "/srv/salt-images"},
    "docker.exec_driver": "docker-exec",
    "docker.compare_container_networks": {
        "static": ["Aliases", "Links", "IPAMConfig"],
        "automatic": ["IPAddress", "Gateway", "GlobalIPv6Address", "IPv6Gateway"]}
}"#;

static FALLBACK: LazyLock<Value> =
    LazyLock::new(|| json::parse(DEFAULTS).expect("invariant: the table is JSON"));

/// Adds `config.get`, `config.option`, `config.merge` and `config.manage_mode`.
pub(super) fn config(registry: &mut Registry, facts: &Facts) {
    let mut add = |name: &str, function: fn(&Facts, &CallArgs) -> Called| {
        let facts = facts.clone();
        registry.add(name, move |args| function(&facts, &args));
    };
    add("config.get", get);
    add("config.option", option);
    add("config.merge", merged);
    add("config.manage_mode", |_, args| {
        Ok(match args.need(0, "mode")? {
            Value::Nil => Value::Nil,
            mode => Value::from(normal_mode(mode)),
        })
    });
}

/// `normalize_mode` in `salt/utils/files.py`.
fn normal_mode(mode: &Value) -> String {
    let text = shown(mode).replace("0o", "0");
    let text = text
        .trim_matches('"')
        .trim_matches('\'')
        .trim_start_matches('0');
    // `zfill` puts zeros behind a sign.
    match text.strip_prefix('-') {
        Some(digits) => format!("-{digits:0>3}"),
        None => format!("{text:0>4}"),
    }
}

/// The options that `pillar_opts` put into the pillar.
fn master(facts: &Facts) -> Value {
    let master = facts.pillar.get("master").cloned();
    master.unwrap_or_else(|| Value::Map(Vec::new()))
}

/// The value of the first place that has it; or, with `merge`, of all places merged.
fn get(facts: &Facts, args: &CallArgs) -> Called {
    let key = args.need(0, "key")?;
    let delimiter = delimiter_of(args, 2);
    let omits = |index, name| args.flag(index, name, false);
    let sdb = Sdb::of(facts);
    let master = master(facts);
    if let Some(strategy) = args
        .text(3, "merge")
        .filter(|strategy| !strategy.is_empty())
    {
        let recursive = strategy != "overwrite";
        let mut all = FALLBACK.clone();
        for part in [&master, &*facts.pillar, &*facts.grains, &*facts.opts] {
            all = if recursive {
                merge(all, part, false)
            } else {
                overwritten(all, part)
            };
        }
        return match traverse_by(&all, key, &delimiter)? {
            Some(found) => sdb.resolved(found),
            None => Ok(default_of(args, 1, Value::from(""))),
        };
    }
    let places = [
        (omits(4, "omit_opts"), &*facts.opts),
        (omits(7, "omit_grains"), &*facts.grains),
        (omits(5, "omit_pillar"), &*facts.pillar),
        (omits(6, "omit_master"), &master),
        (false, &*FALLBACK),
    ];
    for (_, place) in places.into_iter().filter(|(is_omitted, _)| !is_omitted) {
        if let Some(found) = traverse_by(place, key, &delimiter)? {
            return sdb.resolved(found);
        }
    }
    Ok(default_of(args, 1, Value::from("")))
}

/// A mapping whose entries another replaces, not deeper.
fn overwritten(into: Value, from: &Value) -> Value {
    match (into, from) {
        (Value::Map(mut entries), Value::Map(more)) => {
            for (key, value) in more {
                match entries.iter_mut().find(|(found, _)| found == key) {
                    Some((_, old)) => *old = value.clone(),
                    None => entries.push((key.clone(), value.clone())),
                }
            }
            Value::Map(entries)
        }
        (into, _) => into,
    }
}

/// `option(value, default, omit_opts, omit_grains, omit_pillar, omit_master, omit_all, wildcard)`:
/// as `get` without paths.
fn option(facts: &Facts, args: &CallArgs) -> Called {
    let key = hashable(args.need(0, "value")?)?;
    let omits_all = args.flag(6, "omit_all", false);
    let omits = |index, name| omits_all || args.flag(index, name, false);
    let master = master(facts);
    let places = [
        (omits(2, "omit_opts"), &*facts.opts),
        (omits(3, "omit_grains"), &*facts.grains),
        (omits(4, "omit_pillar"), &*facts.pillar),
        (omits(5, "omit_master"), &master),
        (false, &*FALLBACK),
    ];
    let mut places = places.into_iter().filter(|(is_omitted, _)| !is_omitted);
    let default = |missing| match args.get(1, "default") {
        None | Some(Value::Nil) => missing,
        Some(default) => default.clone(),
    };
    if !args.flag(7, "wildcard", false) {
        let found = places.find_map(|(_, place)| row_of(place.as_map().unwrap_or_default(), key));
        return Ok(found.cloned().unwrap_or_else(|| default(Value::from(""))));
    }
    let key = args.need_text(0, "value")?;
    let wanted = Glob::new(&key);
    let mut all: Vec<(Value, Value)> = Vec::new();
    for (_, place) in places {
        for (name, value) in place.as_map().unwrap_or_default() {
            let is_meant = name.as_str().is_some_and(|name| wanted.matches(name));
            if is_meant && !all.iter().any(|(found, _)| found == name) {
                all.push((name.clone(), value.clone()));
            }
        }
    }
    if all.is_empty() {
        return Ok(default(Value::Map(all)));
    }
    Ok(Value::Map(all))
}

/// `merge(value, default, omit_opts, omit_master, omit_pillar)`: mappings and lists of all places
/// joined, a text from the first that has one.
fn merged(facts: &Facts, args: &CallArgs) -> Called {
    let key = hashable(args.need(0, "value")?)?;
    let omits = |index, name| args.flag(index, name, false);
    let master = master(facts);
    let places = [
        (omits(2, "omit_opts"), &*facts.opts),
        (omits(3, "omit_master"), &master),
        (omits(4, "omit_pillar"), &*facts.pillar),
    ];
    let mut result: Option<Value> = None;
    for (is_omitted, place) in places {
        let rows = place.as_map().unwrap_or_default();
        let Some(found) = row_of(rows, key).filter(|_| !is_omitted) else {
            continue;
        };
        result = match (result, found) {
            (None | Some(Value::Nil), text @ Value::Str(_)) => return Ok(text.clone()),
            (None | Some(Value::Nil), found) => Some(found.clone()),
            (Some(first @ Value::Map(_)), more @ Value::Map(_)) => {
                Some(overwritten(more.clone(), &first))
            }
            (Some(Value::Array(mut items)), Value::Array(more)) => {
                items.extend(more.iter().cloned());
                Some(Value::Array(items))
            }
            (kept, _) => kept,
        };
    }
    let result = result.filter(|value| !value.is_nil());
    let fallback = || row_of(FALLBACK.as_map().unwrap_or_default(), key).cloned();
    Ok(result
        .or_else(fallback)
        .unwrap_or_else(|| default_of(args, 1, Value::from(""))))
}
