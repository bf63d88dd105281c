//! Salt's filters for IP addresses, as Python's `ipaddress` understands them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use minijinja::value::Value;

use super::args::Bound;
use super::fault::{Fault, Outcome};
use super::filters::Row;
use super::text::str_of;
use super::value::{Kind, dict, int, list, none};
use super::{ops, value};

/// The most addresses that `network_hosts` lists.
const MAX_HOSTS: u128 = 1 << 18;

pub(super) const FILTERS: &[Row] = &[
    ("is_ip", &["ip_addr", "options"], |_, args| {
        Ok(Value::from(
            tested(args, 4)?.is_some() || tested(args, 6)?.is_some(),
        ))
    }),
    ("is_ipv4", &["ip_addr", "options"], |_, args| {
        Ok(Value::from(tested(args, 4)?.is_some()))
    }),
    ("is_ipv6", &["ip_addr", "options"], |_, args| {
        Ok(Value::from(tested(args, 6)?.is_some()))
    }),
    ("ipv4", &["value", "options"], |_, args| filtered(args, 4)),
    ("ipv6", &["value", "options"], |_, args| filtered(args, 6)),
    ("ipaddr", &["value", "options"], |_, args| any_version(args)),
    ("ip_host", &["value", "options", "version"], |_, args| {
        each(args, |address| {
            Ok(Value::from(format!("{}/{}", address.ip, address.prefix)))
        })
    }),
    (
        "network_hosts",
        &["value", "options", "version"],
        |_, args| each(args, |address| hosts(address).map(list)),
    ),
    (
        "network_size",
        &["value", "options", "version"],
        |_, args| {
            each(args, |address| {
                let bits = address.width() - u32::from(address.prefix);
                match bits {
                    0..=126 => Ok(int(1 << bits)),
                    _ => Err(Fault::other("the network is too large")),
                }
            })
        },
    ),
    ("filter_by_networks", &["values", "networks"], |_, args| {
        by_networks(args)
    }),
    ("ipwrap", &["data"], |_, args| {
        let wrap = |value: &Value| match value.as_str().and_then(Address::parse) {
            Some(Address {
                ip: IpAddr::V6(_),
                text,
                ..
            }) => Value::from(format!("[{}]", text.trim_matches(['[', ']']))),
            _ => value.clone(),
        };
        let value = args.need(0)?;
        Ok(match Kind::of(value) {
            Kind::List(_) | Kind::Tuple(_) => list(ops::items(value)?.iter().map(wrap).collect()),
            _ => wrap(value),
        })
    }),
    ("mac_str_to_bytes", &["mac_str"], |_, args| {
        let text = str_of(args.need(0)?)?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        if digits.len() != 12 {
            return Err(Fault::other("Invalid MAC address"));
        }
        let bytes =
            (0..6).filter_map(|at| u8::from_str_radix(digits.get(at * 2..at * 2 + 2)?, 16).ok());
        Ok(Value::from_bytes(bytes.collect()))
    }),
];

/// An address, perhaps with a prefix: `10.0.0.1`, `10.0.0.1/24`.
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    pub(crate) prefix: u8,
    text: String,
}

impl Address {
    pub(crate) fn parse(text: &str) -> Option<Address> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let ip: IpAddr = address.parse().ok()?;
        let width = if ip.is_ipv4() { 32 } else { 128 };
        let length = match prefix {
            None => width,
            Some(prefix) => match (prefix.parse::<u8>(), prefix.parse::<Ipv4Addr>()) {
                (Ok(length), _) if length <= width => length,
                (_, Ok(mask)) if ip.is_ipv4() => {
                    let bits = u32::from(mask);
                    let ones = bits.leading_ones();
                    if bits.checked_shl(ones).unwrap_or(0) != 0 {
                        return None;
                    }
                    u8::try_from(ones).ok()?
                }
                _ => return None,
            },
        };
        let text = match prefix {
            None => ip.to_string(),
            Some(_) => format!("{ip}/{length}"),
        };
        Some(Address {
            ip,
            prefix: length,
            text,
        })
    }

    /// A value that Python's `ipaddress` takes: a text, a number, or four or sixteen bytes.
    fn of_value(value: &Value) -> Option<Address> {
        let ip = match Kind::of(value) {
            Kind::Str(text) => return Address::parse(text),
            Kind::Bool(flag) => IpAddr::V4(Ipv4Addr::from(u32::from(flag))),
            Kind::Int(number) => match u32::try_from(number) {
                Ok(bits) => IpAddr::V4(Ipv4Addr::from(bits)),
                Err(_) => IpAddr::V6(Ipv6Addr::from(u128::try_from(number).ok()?)),
            },
            Kind::Bytes(bytes) => match <[u8; 4]>::try_from(bytes) {
                Ok(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
                Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
            },
            _ => return None,
        };
        Address::parse(&ip.to_string())
    }

    pub(crate) fn width(&self) -> u32 {
        if self.ip.is_ipv4() { 32 } else { 128 }
    }

    pub(crate) fn bits(&self) -> u128 {
        match self.ip {
            IpAddr::V4(ip) => u128::from(u32::from(ip)),
            IpAddr::V6(ip) => u128::from(ip),
        }
    }

    /// The first and the last address of its network.
    pub(crate) fn range(&self) -> (u128, u128) {
        let free = self.width() - u32::from(self.prefix);
        let mask = 1_u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
        let first = self.bits() & !mask;
        (first, first | mask)
    }

    pub(crate) fn holds(&self, ip: IpAddr) -> bool {
        let other = Address {
            ip,
            prefix: 0,
            text: String::new(),
        };
        let (first, last) = self.range();
        self.ip.is_ipv4() == ip.is_ipv4() && (first..=last).contains(&other.bits())
    }

    fn within(&self, networks: &[&str]) -> bool {
        networks
            .iter()
            .any(|network| Address::parse(network).is_some_and(|n| n.holds(self.ip)))
    }

    pub(crate) fn is_private(&self) -> bool {
        self.within(&[
            "0.0.0.0/8",
            "10.0.0.0/8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/29",
            "192.0.0.170/31",
            "192.0.2.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "240.0.0.0/4",
            "255.255.255.255/32",
            "::1/128",
            "::/128",
            "::ffff:0:0/96",
            "64:ff9b:1::/48",
            "100::/64",
            "2001::/23",
            "2001:db8::/32",
            "2002::/16",
            "3fff::/20",
            "fc00::/7",
            "fe80::/10",
        ])
    }

    /// Whether it has the property of an option's name; unknown names have no effect.
    fn has(&self, option: &str) -> bool {
        match option {
            "global" | "public" => !self.is_private(),
            "private" => self.is_private(),
            "multicast" => self.within(&["224.0.0.0/4", "ff00::/8"]),
            "loopback" | "lo" => self.within(&["127.0.0.0/8", "::1/128"]),
            "link-local" | "linklocal" | "link_local" | "ll" => {
                self.within(&["169.254.0.0/16", "fe80::/10"])
            }
            "reserved" => self.within(&[
                "240.0.0.0/4",
                "::/8",
                "100::/8",
                "200::/7",
                "400::/6",
                "800::/5",
                "1000::/4",
                "4000::/3",
                "6000::/3",
                "8000::/3",
                "a000::/3",
                "c000::/3",
                "e000::/4",
                "f000::/5",
                "f800::/6",
                "fe00::/9",
            ]),
            "site-local" | "site_local" | "sl" => self.within(&["fec0::/10"]),
            "unspecified" => self.within(&["0.0.0.0/32", "::/128"]),
            _ => true,
        }
    }
}

/// The address as text if it is of the version and has all wanted properties.
fn accepted(value: &Value, version: u8, options: &str) -> Option<String> {
    let address = Address::of_value(value)?;
    if address.ip.is_ipv4() != (version == 4) {
        return None;
    }
    let all = options
        .split(',')
        .map(str::trim)
        .all(|option| address.has(option));
    all.then_some(address.text)
}

fn tested(args: &Bound, version: u8) -> Outcome<Option<String>> {
    let value = args.need(0)?;
    ops::defined(value)?;
    Ok(accepted(value, version, &args.text(1, "")?))
}

fn filtered(args: &Bound, version: u8) -> Outcome<Value> {
    let value = args.need(0)?;
    let options = args.text(1, "")?;
    Ok(match Kind::of(value) {
        Kind::Str(_) | Kind::Bytes(_) => {
            accepted(value, version, &options).map_or_else(none, Value::from)
        }
        Kind::List(_) | Kind::Tuple(_) => list(
            ops::items(value)?
                .iter()
                .filter_map(|item| accepted(item, version, &options))
                .map(Value::from)
                .collect(),
        ),
        _ => none(),
    })
}

fn any_version(args: &Bound) -> Outcome<Value> {
    let (four, six) = (filtered(args, 4)?, filtered(args, 6)?);
    if four.is_none() || six.is_none() {
        return Ok(if four.is_true() { four } else { six });
    }
    ops::arithmetic("+", &four, &six)
}

fn each(args: &Bound, work: fn(&Address) -> Outcome<Value>) -> Outcome<Value> {
    let found = match args.int(2, 0)? {
        4 => filtered(args, 4)?,
        6 => filtered(args, 6)?,
        0 => any_version(args)?,
        _ => return Ok(none()),
    };
    if !found.is_true() {
        return Ok(none());
    }
    let parse = |value: &Value| {
        value
            .as_str()
            .and_then(Address::parse)
            .ok_or_else(|| Fault::other("does not appear to be an IPv4 or IPv6 address"))
    };
    if found.as_str().is_some() {
        return work(&parse(&found)?);
    }
    let mut out = Vec::new();
    for item in ops::items(&found)? {
        out.push(work(&parse(&item)?)?);
    }
    Ok(list(out))
}

fn hosts(address: &Address) -> Outcome<Vec<Value>> {
    let (first, last) = address.range();
    let size = last - first;
    let (first, last) = match (address.ip, size) {
        (_, 0 | 1) => (first, last),
        (IpAddr::V4(_), _) => (first + 1, last - 1),
        (IpAddr::V6(_), _) => (first + 1, last),
    };
    if last - first >= MAX_HOSTS {
        return Err(Fault::limit(format!(
            "the network has more than {MAX_HOSTS} addresses"
        )));
    }
    let text = |bits: u128| match address.ip {
        IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(bits).unwrap_or(0)).to_string(),
        IpAddr::V6(_) => Ipv6Addr::from(bits).to_string(),
    };
    Ok((first..=last).map(|bits| Value::from(text(bits))).collect())
}

fn by_networks(args: &Bound) -> Outcome<Value> {
    let values = args.need(0)?;
    let wanted = args.or_none(1);
    if wanted.is_none() {
        return Ok(values.clone());
    }
    let mut networks = Vec::new();
    for network in ops::items(&wanted)? {
        let text = str_of(&network)?;
        networks.push(Address::parse(&text).ok_or_else(|| {
            Fault::other(format!(
                "'{text}' does not appear to be an IPv4 or IPv6 network"
            ))
        })?);
    }
    let choose = |value: &Value| -> Outcome<Value> {
        let mut out = Vec::new();
        for item in ops::items(value)? {
            let text = str_of(&item)?;
            let found = Address::of_value(&item).filter(|_| !text.contains('/'));
            let ip = found.map(|found| found.ip).ok_or_else(|| {
                Fault::other(format!(
                    "'{text}' does not appear to be an IPv4 or IPv6 address"
                ))
            })?;
            for network in &networks {
                if network.holds(ip) {
                    out.push(item.clone());
                }
            }
        }
        Ok(list(out))
    };
    if let Kind::Dict(entries) = Kind::of(values) {
        let mut chosen = value::Entries::new();
        let entries = entries.0.lock().clone();
        for (key, (name, value)) in entries {
            chosen.insert(key, (name, choose(&value)?));
        }
        return Ok(dict(chosen));
    }
    choose(values)
}
