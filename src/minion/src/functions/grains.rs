//! `grains.*`: what this machine is. A modest set, read once at the start, with stock's names and
//! formats for those it has; further ones come from the configuration.

use std::fs;
use std::net::{IpAddr, ToSocketAddrs};

use futures_util::FutureExt;
use saltern_config::yaml::{Key, Node, NodeValue};
use saltern_wire::msgpack::Value;

use super::arguments::{Parameter, Signature};
use super::{Function, FunctionResult};
use crate::python;
use saltern_channel::MinionConfig;

pub(crate) const GET: Function = Function {
    name: "grains.get",
    doc: "The grain at a path like `os` or `ip_interfaces:lo`, or the default.",
    signature: Signature {
        function: "get",
        parameters: &[
            Parameter::Required("key"),
            Parameter::Optional("default"),
            Parameter::Optional("delimiter"),
            Parameter::Optional("ordered"),
        ],
        more: false,
        keywords: false,
    },
    body: |call| {
        let key = call
            .arguments
            .get("key")
            .map(python::text)
            .unwrap_or_default();
        let delimiter = call
            .arguments
            .get("delimiter")
            .map_or_else(|| ":".to_owned(), python::text);
        let default = || {
            call.arguments
                .get("default")
                .cloned()
                .unwrap_or_else(|| Value::from(""))
        };
        let found = traverse(&call.context.grains, &key, &delimiter).cloned();
        std::future::ready(Ok(FunctionResult::ok(found.unwrap_or_else(default)))).boxed()
    },
    quick: true,
    out: None,
};

pub(crate) const ITEM: Function = Function {
    name: "grains.item",
    doc: "The named grains; those that are not there are empty.",
    signature: Signature {
        function: "item",
        parameters: &[],
        more: true,
        keywords: true,
    },
    body: |call| {
        let grains = &call.context.grains;
        let names = call.arguments.rest.iter().map(python::text);
        let found = names.map(|name| {
            let value = traverse(grains, &name, ":").cloned();
            (Value::from(name), value.unwrap_or_else(|| Value::from("")))
        });
        std::future::ready(Ok(FunctionResult::ok(Value::Map(found.collect())))).boxed()
    },
    quick: true,
    out: Some("nested"),
};

pub(crate) const ITEMS: Function = Function {
    name: "grains.items",
    doc: "All grains.",
    signature: Signature {
        function: "items",
        parameters: &[Parameter::Optional("sanitize")],
        more: false,
        keywords: false,
    },
    body: |call| {
        std::future::ready(Ok(FunctionResult::ok(Value::clone(&call.context.grains)))).boxed()
    },
    quick: true,
    out: Some("nested"),
};

pub(crate) const LS: Function = Function {
    name: "grains.ls",
    doc: "The names of all grains.",
    signature: Signature {
        function: "ls",
        parameters: &[],
        more: false,
        keywords: false,
    },
    body: |call| {
        let mut names: Vec<String> = call
            .context
            .grains
            .as_map()
            .into_iter()
            .flatten()
            .map(|(key, _)| python::text(key))
            .collect();
        names.sort();
        let names: Vec<Value> = names.into_iter().map(Value::from).collect();
        std::future::ready(Ok(FunctionResult::ok(names))).boxed()
    },
    quick: true,
    out: None,
};

/// Follows a path through maps and lists.
pub(crate) fn traverse<'a>(value: &'a Value, path: &str, delimiter: &str) -> Option<&'a Value> {
    if delimiter.is_empty() {
        return value.get(path);
    }
    path.split(delimiter)
        .try_fold(value, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            map => map.get(part),
        })
}

/// Result of `test.version`: Saltern's version, so that nobody takes this for a Salt minion.
pub(crate) fn version() -> String {
    format!("saltern {}", env!("CARGO_PKG_VERSION"))
}

/// Reads the grains of this machine and adds those of the configuration.
#[must_use]
pub fn collect(config: &MinionConfig) -> Value {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| Value::from(text.to_string_lossy().as_ref());
    let node = uname.nodename().to_string_lossy().into_owned();
    let fqdn = fqdn(&node);
    let (os, family, release, code_name) = distribution();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let addresses = addresses();
    let of = |four: bool| {
        let chosen = addresses.iter().filter(|address| address.is_ipv4() == four);
        Value::from(
            chosen
                .map(|address| Value::from(address.to_string()))
                .collect::<Vec<_>>(),
        )
    };
    let (host, domain) = fqdn.split_once('.').unwrap_or((&fqdn, ""));
    let mut grains = vec![
        ("id", Value::from(config.id.as_str())),
        ("kernel", text(uname.sysname())),
        ("kernelrelease", text(uname.release())),
        ("kernelversion", text(uname.version())),
        ("cpuarch", text(uname.machine())),
        ("nodename", Value::from(node.as_str())),
        ("localhost", Value::from(node.as_str())),
        ("host", Value::from(host)),
        ("domain", Value::from(domain)),
        ("fqdn", Value::from(fqdn.as_str())),
        ("os", Value::from(os)),
        ("os_family", Value::from(family)),
        ("osrelease", Value::from(release)),
        ("oscodename", Value::from(code_name)),
        ("num_cpus", Value::from(cpus)),
        ("mem_total", Value::from(mem_total())),
        ("ipv4", of(true)),
        ("ipv6", of(false)),
        ("master", Value::from(config.master.as_str())),
        ("pid", Value::from(i64::from(std::process::id()))),
        ("saltern", Value::from(env!("CARGO_PKG_VERSION"))),
    ];
    grains.sort_by_key(|(name, _)| *name);
    let mut grains: Vec<(Value, Value)> = grains
        .into_iter()
        .map(|(name, value)| (Value::from(name), value))
        .collect();
    for (name, node) in &config.grains {
        grains.retain(|(known, _)| known.as_str() != Some(name));
        grains.push((Value::from(name.as_str()), from_yaml(node)));
    }
    Value::Map(grains)
}

/// The grains of one of many minions on a machine that has these.
pub(crate) fn of_member(machine: &Value, id: &str) -> Value {
    let entries = machine.as_map().into_iter().flatten();
    let grains = entries.map(|(name, value)| match name.as_str() {
        Some("id") => (name.clone(), Value::from(id)),
        _ => (name.clone(), value.clone()),
    });
    Value::Map(grains.collect())
}

/// Name, family, release and code name of the distribution, from `os-release`.
fn distribution() -> (String, String, String, String) {
    let text = fs::read_to_string("/etc/os-release")
        .or_else(|_| fs::read_to_string("/usr/lib/os-release"))
        .unwrap_or_default();
    let field = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_default()
            .trim_matches(['"', '\''])
            .to_owned()
    };
    let (id, like) = (field("ID"), field("ID_LIKE"));
    let is = |name: &str| id == name || like.split_whitespace().any(|other| other == name);
    let family = if is("debian") {
        "Debian"
    } else if is("rhel") || is("fedora") {
        "RedHat"
    } else if is("suse") {
        "Suse"
    } else if is("arch") {
        "Arch"
    } else if is("alpine") {
        "Alpine"
    } else {
        "Linux"
    };
    let os = match id.as_str() {
        "debian" => "Debian".to_owned(),
        "ubuntu" => "Ubuntu".to_owned(),
        "" => "Linux".to_owned(),
        _ => field("NAME"),
    };
    (
        os,
        family.to_owned(),
        field("VERSION_ID"),
        field("VERSION_CODENAME"),
    )
}

/// Megabytes of memory, as stock counts them.
fn mem_total() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// The full name that the resolver knows for this host, else the host's own name.
fn fqdn(node: &str) -> String {
    let text = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split('#').next());
    let mut named = lines.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
    let names = named.find(|names| names.contains(&node));
    let full = names.and_then(|names| names.into_iter().find(|name| name.contains('.')));
    full.unwrap_or(node).to_owned()
}

/// The addresses of this host's name, and the loopback ones.
fn addresses() -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = vec![IpAddr::from([127, 0, 0, 1])];
    if fs::exists("/proc/net/if_inet6").unwrap_or(false) {
        found.push(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST));
    }
    let resolved = (host_name(), 0).to_socket_addrs();
    found.extend(resolved.into_iter().flatten().map(|address| address.ip()));
    found.sort();
    found.dedup();
    found
}

fn from_yaml(node: &Node) -> Value {
    match &node.value {
        NodeValue::Null => Value::Nil,
        NodeValue::Bool(flag) => Value::from(*flag),
        NodeValue::Int(number) => Value::from(*number),
        NodeValue::Float(number) => Value::from(*number),
        NodeValue::BigInt(text) | NodeValue::Str(text) | NodeValue::Timestamp(text) => {
            Value::from(text.as_str())
        }
        NodeValue::Binary(bytes) => Value::from(bytes.as_slice()),
        NodeValue::Seq(items) => Value::from(items.iter().map(from_yaml).collect::<Vec<_>>()),
        NodeValue::Map(map) => {
            let entries = map
                .iter()
                .map(|(key, entry)| (from_key(key), from_yaml(&entry.value)));
            Value::Map(entries.collect())
        }
    }
}

fn from_key(key: &Key) -> Value {
    match key {
        Key::Null => Value::Nil,
        Key::Bool(flag) => Value::from(*flag),
        Key::Int(number) => Value::from(*number),
        Key::Float(number) => Value::from(*number),
        Key::BigInt(text) | Key::Str(text) => Value::from(text.as_str()),
        Key::Binary(bytes) => Value::from(bytes.as_slice()),
    }
}

/// The host's name as the kernel knows it; stock looks further, through the resolver.
fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grain_paths_traverse_maps_and_lists() {
        let list = Value::from(vec![Value::from("a"), Value::from("b")]);
        let grains = Value::map([("x", Value::map([("y", list)]))]);
        assert_eq!(traverse(&grains, "x:y:1", ":"), Some(&Value::from("b")));
        assert_eq!(traverse(&grains, "x/y/0", "/"), Some(&Value::from("a")));
        assert_eq!(traverse(&grains, "x:z", ":"), None);
    }
}
