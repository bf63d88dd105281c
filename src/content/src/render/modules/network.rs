//! `network.*` that asks about the master itself, as in stock (`salt/utils/network.py`): its
//! interfaces, as the program `ip` prints them, and the addresses on them.

use std::collections::BTreeSet;
use std::error::Error;
use std::process::Command;
use std::time::Duration;

use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

use super::lookup::Called;
use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::jinja::network::Address;
use crate::render::{json, process};

/// The longest time of `ip`, and the most that it may print.
const IP_TIME: Duration = Duration::from_secs(10);
const IP_OUTPUT: u64 = 16 << 20;

/// Adds the functions.
pub(super) fn network(registry: &mut Registry) {
    registry.add("network.interfaces", |_| interfaces().map(Value::Map));
    registry.add("network.get_hostname", |_| {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Ok(Value::from(name))
    });
    for name in ["network.hw_addr", "network.hwaddr"] {
        registry.add(name, |args| {
            of_interface(&args, |it| it.get("hwaddr").cloned())
        });
    }
    registry.add("network.interface", |args| {
        of_interface(&args, |it| it.get("inet").cloned())
    });
    registry.add("network.interface_ip", |args| {
        of_interface(&args, |it| {
            it.get("inet")?.as_array()?.first()?.get("address").cloned()
        })
    });
    for name in ["network.ip_addrs", "network.ipaddrs"] {
        registry.add(name, |args| listed(&args, "inet"));
    }
    for name in ["network.ip_addrs6", "network.ipaddrs6"] {
        registry.add(name, |args| listed(&args, "inet6"));
    }
    registry.add("network.subnets", |args| {
        let wanted = match args.get(0, "interfaces") {
            None | Some(Value::Nil) => None,
            Some(Value::Array(names)) => Some(names.clone()),
            Some(name) => Some(vec![name.clone()]),
        };
        let mut found = interfaces()?;
        found.retain(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted.contains(name)));
        Ok(networks(&found, "inet", false))
    });
    registry.add("network.subnets6", |_| {
        Ok(networks(&interfaces()?, "inet6", false))
    });
    for (name, family) in [
        ("network.ip_networks", "inet"),
        ("network.ip_networks6", "inet6"),
    ] {
        registry.add(name, move |args| {
            if args.flag(2, "verbose", false) {
                let message = format!("\"{name}\" has no \"verbose\" here");
                return Err(CallError::Refused(message));
            }
            let all = filtered(&args)?;
            Ok(networks(
                &all,
                family,
                args.flag(1, "include_loopback", false),
            ))
        });
    }
    registry.add("network.in_subnet", |args| {
        let Some(network) = strict_network(&args.need_text(0, "cidr")?) else {
            return Ok(Value::Bool(false));
        };
        let all = interfaces()?;
        let mut own = addresses(&all, "inet", false);
        own.extend(addresses(&all, "inet6", false));
        Ok(Value::Bool(
            own.iter().any(|address| network.holds(address.ip)),
        ))
    });
    registry.add("network.ifacestartswith", |args| {
        let start = args.need_text(0, "cidr")?;
        let all = interfaces()?;
        let labels = all
            .iter()
            .flat_map(|(_, it)| entries(it, "inet"))
            .filter(|it| {
                let address = it.get("address").and_then(Value::as_str);
                address.is_some_and(|address| address.starts_with(&start))
            });
        Ok(Value::Array(
            labels.filter_map(|it| it.get("label").cloned()).collect(),
        ))
    });
}

/// A network whose own address has no bits behind the prefix.
pub(super) fn strict_network(text: &str) -> Option<Address> {
    Address::parse(text).filter(|network| network.range().0 == network.bits())
}

type Interfaces = Vec<(Value, Value)>;

/// All interfaces, each with the fields of stock.
fn interfaces() -> Result<Interfaces, CallError> {
    let failed = |reason: &dyn Error| {
        CallError::Refused(format!(
            "the interfaces of the master are not known: {reason}"
        ))
    };
    let mut command = Command::new("ip");
    command.args(["-json", "addr", "show"]);
    command.stderr(std::process::Stdio::null());
    let done = process::run(command, Vec::new(), IP_TIME, IP_OUTPUT);
    let done = done.map_err(|error| failed(&error))?;
    let parsed = json::parse(&String::from_utf8_lossy(&done.output));
    let parsed = parsed.map_err(|error| failed(&error))?;
    let parsed = parsed.as_array().unwrap_or_default();
    let named = |it: &Value| Some((it.get("ifname")?.clone(), interface(it)));
    Ok(parsed.iter().filter_map(named).collect())
}

/// One interface, from the words of `ip` to those of stock.
fn interface(parsed: &Value) -> Value {
    let flags = parsed
        .get("flags")
        .and_then(Value::as_array)
        .unwrap_or_default();
    let mut fields = vec![("up", Value::Bool(flags.contains(&Value::from("UP"))))];
    if let Some(parent) = parsed.get("link") {
        fields.push(("parent", parent.clone()));
    }
    if let Some(hardware) = parsed.get("address") {
        fields.push(("hwaddr", hardware.clone()));
    }
    let all = parsed
        .get("addr_info")
        .and_then(Value::as_array)
        .unwrap_or_default();
    for key in ["inet", "inet6", "secondary"] {
        let meant = all.iter().filter(|it| {
            let is_secondary = it.get("secondary") == Some(&Value::Bool(true));
            match key {
                "secondary" => is_secondary,
                family => !is_secondary && it.get("family") == Some(&Value::from(family)),
            }
        });
        let meant: Vec<Value> = meant.map(|it| address(it, key == "secondary")).collect();
        if !meant.is_empty() {
            fields.push((key, Value::Array(meant)));
        }
    }
    Value::map(fields)
}

fn address(parsed: &Value, is_secondary: bool) -> Value {
    let part = |name: &str| parsed.get(name).cloned().unwrap_or(Value::Nil);
    let mut fields = Vec::new();
    if is_secondary {
        fields.push(("type", part("family")));
    }
    fields.push(("address", part("local")));
    // The other end of a line takes the place of the prefix.
    let prefix = match parsed.get("address") {
        Some(_) => 32,
        None => parsed
            .get("prefixlen")
            .and_then(Value::as_i64)
            .unwrap_or(32),
    };
    if parsed.get("family") == Some(&Value::from("inet")) {
        let free = u32::try_from(32 - prefix).unwrap_or(0);
        let mask = u32::MAX.checked_shl(free).unwrap_or(0);
        let mask = std::net::Ipv4Addr::from(mask).to_string();
        fields.push(("netmask", Value::from(mask)));
        fields.push(("broadcast", part("broadcast")));
        fields.push(("label", part("label")));
    } else {
        fields.push(("prefixlen", Value::from(prefix.to_string())));
        fields.push(("scope", part("scope")));
    }
    Value::map(fields)
}

fn entries<'a>(interface: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    interface
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// A field of the named interface, or stock's text that there is no such interface.
fn of_interface(args: &CallArgs, field: impl Fn(&Value) -> Option<Value>) -> Called {
    let name = args.need_text(0, "iface")?;
    let all = interfaces()?;
    let found = all.iter().find(|(found, _)| found.as_str() == Some(&name));
    Ok(match found {
        Some((_, interface)) => field(interface).unwrap_or_else(|| Value::from("")),
        None => {
            let names: Vec<&str> = all.iter().filter_map(|(name, _)| name.as_str()).collect();
            Value::from(format!(
                "Interface \"{name}\" not in available interfaces: \"{}\"",
                names.join("\", \"")
            ))
        }
    })
}

/// The interfaces that the argument `interface` names by wildcards, several parted by commas.
fn filtered(args: &CallArgs) -> Result<Interfaces, CallError> {
    let patterns: Vec<String> = match args.get(0, "interface") {
        None | Some(Value::Nil) => return interfaces(),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            names.map(str::to_owned).collect()
        }
        Some(_) => {
            let names = args.need_text(0, "interface")?;
            names
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect()
        }
    };
    let patterns: Vec<Glob> = patterns.iter().map(|pattern| Glob::new(pattern)).collect();
    let mut all = interfaces()?;
    all.retain(|(name, _)| {
        let name = name.as_str().unwrap_or_default();
        patterns.iter().any(|pattern| pattern.matches(name))
    });
    Ok(all)
}

/// The addresses of a family, sorted.
fn addresses(interfaces: &Interfaces, family: &str, with_loopback: bool) -> Vec<Address> {
    let mut found: Vec<Address> = interfaces
        .iter()
        .flat_map(|(_, it)| {
            let secondary = entries(it, "secondary")
                .filter(|it| it.get("type").and_then(Value::as_str) == Some(family));
            entries(it, family).chain(secondary)
        })
        .filter_map(|it| {
            let address = it.get("address")?.as_str()?;
            let mask = it.get("netmask").or_else(|| it.get("prefixlen"));
            let mask = mask.and_then(Value::as_str).unwrap_or("32");
            Address::parse(&format!("{address}/{mask}"))
        })
        .filter(|it| with_loopback || !it.ip.is_loopback())
        .collect();
    found.sort_by_key(Address::bits);
    found.dedup_by_key(|it| it.bits());
    found
}

/// `ip_addrs(interface, include_loopback, cidr, type)`.
fn listed(args: &CallArgs, family: &str) -> Called {
    let with_loopback = args.flag(1, "include_loopback", false);
    let mut found = addresses(&filtered(args)?, family, with_loopback);
    if let Some(cidr) = args.text(2, "cidr").filter(|cidr| !cidr.is_empty()) {
        match strict_network(&cidr) {
            Some(network) => found.retain(|it| network.holds(it.ip)),
            None => found.clear(),
        }
    } else {
        match args.text(3, "type").as_deref() {
            Some("public") => found.retain(|it| !it.is_private()),
            Some("private") => found.retain(Address::is_private),
            _ => {}
        }
    }
    let found = found.iter().map(|it| Value::from(it.ip.to_string()));
    Ok(Value::Array(found.collect()))
}

/// The networks of a family's addresses, sorted.
fn networks(interfaces: &Interfaces, family: &str, with_loopback: bool) -> Value {
    let found = addresses(interfaces, family, with_loopback);
    let found: BTreeSet<_> = found
        .iter()
        .map(|it| (it.range().0, it.prefix, it.ip.is_ipv4()))
        .collect();
    let text = |(first, prefix, is_v4): (u128, u8, bool)| {
        Value::from(format!("{}/{prefix}", super::addresses::ip(first, is_v4)))
    };
    Value::Array(found.into_iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use saltern_wire::msgpack::Value;

    use super::{addresses, interface, networks};
    use crate::render::json;

    #[test]
    fn interfaces_of_ip_are_read_as_by_stock() {
        let parsed = r#"{"ifname": "eth0", "link": "eth9", "flags": ["UP"], "address": "02:fc::1",
            "addr_info": [
            {"family": "inet", "local": "192.0.2.2", "prefixlen": 24, "broadcast": "192.0.2.255",
             "scope": "global", "label": "eth0"},
            {"family": "inet", "local": "10.0.0.2", "prefixlen": 8, "scope": "global",
             "secondary": true, "label": "eth0:1"},
            {"family": "inet6", "local": "fd00::2", "prefixlen": 64, "scope": "global"}]}"#;
        let wanted = r#"{"up": true, "parent": "eth9", "hwaddr": "02:fc::1",
            "inet": [{"address": "192.0.2.2", "netmask": "255.255.255.0",
                      "broadcast": "192.0.2.255", "label": "eth0"}],
            "inet6": [{"address": "fd00::2", "prefixlen": "64", "scope": "global"}],
            "secondary": [{"type": "inet", "address": "10.0.0.2", "netmask": "255.0.0.0",
                           "broadcast": null, "label": "eth0:1"}]}"#;
        let parsed = interface(&json::parse(parsed).expect("JSON"));
        assert_eq!(parsed, json::parse(wanted).expect("JSON"));
        let all = vec![(Value::from("eth0"), parsed)];
        let texts = |family| {
            let found = addresses(&all, family, false);
            found.iter().map(|it| it.ip.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(texts("inet"), ["10.0.0.2", "192.0.2.2"]);
        assert_eq!(texts("inet6"), ["fd00::2"]);
        let wanted = ["10.0.0.0/8", "192.0.2.0/24"].map(Value::from).to_vec();
        assert_eq!(networks(&all, "inet", false), Value::Array(wanted));
    }
}
