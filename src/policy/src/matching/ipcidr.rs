//! Addresses and networks, as Python's `ipaddress` reads them and stock's `ipcidr` compares them.
//!
//! Stock fails as a whole, and so matches nobody, when any minion's grains hold something that is
//! no address; here only that value does not match.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use saltern_wire::msgpack::Value;

/// Parsed `ipcidr` target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// One address, in the form that grains have it in.
    Address { text: String, is_v6: bool },
    /// The addresses that begin with these bits.
    Prefix { base: IpAddr, bits: u32 },
}

impl Network {
    /// Nothing when the text is neither an address nor a network; a network with bits set behind
    /// its prefix is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some((address, zone)) = address(text) {
            return Some(Self::Address {
                text: canonical(address, zone),
                is_v6: address.is_ipv6(),
            });
        }
        let (base, mask) = text.split_once('/')?;
        let base: IpAddr = base.parse().ok()?;
        let bits = match base {
            IpAddr::V4(_) => prefix(mask, 32).or_else(|| mask_bits(mask.parse().ok()?))?,
            IpAddr::V6(_) => prefix(mask, 128)?,
        };
        (masked(base, bits) == base).then_some(Self::Prefix { base, bits })
    }

    /// The grain that lists the minion's addresses.
    pub(super) fn grain(&self) -> &'static str {
        let is_v6 = match self {
            Self::Address { is_v6, .. } => *is_v6,
            Self::Prefix { base, .. } => base.is_ipv6(),
        };
        if is_v6 { "ipv6" } else { "ipv4" }
    }

    /// Whether the value of that grain fits. `addresses` gives what [`addresses`] reads in it, which
    /// may be remembered from an earlier question.
    pub(super) fn holds<'a>(
        &self,
        grain: &Value,
        addresses: impl FnOnce() -> &'a [IpAddr],
    ) -> bool {
        match (self, grain) {
            (Self::Address { text, .. }, Value::Array(items)) => {
                items.iter().any(|item| item.as_str() == Some(text))
            }
            (Self::Address { text, .. }, Value::Map(entries)) => {
                entries.iter().any(|(key, _)| key.as_str() == Some(text))
            }
            // A lone text is searched, not compared.
            (Self::Address { text, .. }, Value::Str(grain)) => grain.contains(text.as_str()),
            (Self::Address { .. }, _) => false,
            (Self::Prefix { base, bits }, _) => {
                let is_inside = |item: &IpAddr| {
                    item.is_ipv6() == base.is_ipv6() && masked(*item, *bits) == *base
                };
                addresses().iter().any(is_inside)
            }
        }
    }
}

/// The addresses in the value of a grain: in a list, or the lone value. What is none is left out.
pub(super) fn addresses(grain: &Value) -> Box<[IpAddr]> {
    match grain {
        Value::Array(items) => items.iter().filter_map(address_in).collect(),
        lone => address_in(lone).into_iter().collect(),
    }
}

fn address_in(item: &Value) -> Option<IpAddr> {
    match item {
        Value::Str(text) => address(text).map(|(address, _)| address),
        Value::Int(number) => u32::try_from(*number)
            .ok()
            .map(|number| IpAddr::V4(Ipv4Addr::from(number))),
        _ => None,
    }
}

/// An address and, for version 6, its zone.
fn address(text: &str) -> Option<(IpAddr, Option<&str>)> {
    match text.split_once('%') {
        None => text.parse().ok().map(|address| (address, None)),
        Some((_, zone)) if zone.is_empty() || zone.contains('%') => None,
        Some((address, zone)) => {
            let address: Ipv6Addr = address.parse().ok()?;
            Some((IpAddr::V6(address), Some(zone)))
        }
    }
}

/// Python prints addresses as Rust does, but IPv4-mapped ones in hexadecimal.
fn canonical(address: IpAddr, zone: Option<&str>) -> String {
    let text = match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            let [.., high, low] = v6.segments();
            format!("::ffff:{high:x}:{low:x}")
        }
        other => other.to_string(),
    };
    match zone {
        Some(zone) => format!("{text}%{zone}"),
        None => text,
    }
}

fn prefix(text: &str, most: u32) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let bits = is_number.then(|| text.parse().ok()).flatten()?;
    (bits <= most).then_some(bits)
}

/// The length of the prefix of a netmask, or of a host mask, which is one turned round.
fn mask_bits(mask: Ipv4Addr) -> Option<u32> {
    let mask = u32::from(mask);
    let is_netmask = |mask: &u32| mask.leading_ones() + mask.trailing_zeros() == 32;
    let netmask = [mask, !mask].into_iter().find(is_netmask);
    netmask.map(u32::leading_ones)
}

fn masked(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipcidr_targets_match_their_addresses() {
        let list = |text: &str| Value::from(text.split(' ').map(Value::from).collect::<Vec<_>>());
        let table = [
            ("10.0.0.1", "127.0.0.1 10.0.0.1", true),
            ("10.0.0.1", "10.0.0.11", false),
            ("10.0.0.0/24", "127.0.0.1 10.0.0.77", true),
            ("10.0.0.0/24", "10.0.1.77", false),
            ("10.0.0.0/255.255.255.0", "10.0.0.77", true),
            ("10.0.0.0/0.0.0.255", "10.0.0.77", true),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("10.0.0.0/8", "bogus 10.9.9.9", true),
            ("fe80::/10", "::1 fe80::1%eth0", true),
            ("2001:db8::1", "2001:db8::1", true),
            ("2001:DB8:0::1", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "::1", true),
            ("::ffff:1.2.3.4", "::ffff:102:304", true),
        ];
        for (text, addresses, expected) in table {
            let network = Network::parse(text).unwrap();
            let grain = list(addresses);
            let read = super::addresses(&grain);
            assert_eq!(
                network.holds(&grain, || &read),
                expected,
                "{text} {addresses}"
            );
        }
    }

    #[test]
    fn address_is_found_in_each_kind_of_grain() {
        let texts = |items: &[&str]| {
            let items = items.iter().map(|text| Value::from(*text));
            Value::Array(items.collect())
        };
        let table = [
            ("10.0.0.1", Value::map([("10.0.0.1", "eth0")]), true),
            ("10.0.0.1", Value::map([("10.0.0.2", "eth0")]), false),
            // A lone text is searched.
            ("10.0.0.1", Value::from("on 10.0.0.11"), true),
            ("10.0.0.1", Value::from("10.0.0.2"), false),
            ("10.0.0.1", Value::Int(0x0a00_0001), false),
            ("10.0.0.0/30", Value::Int(0x0a00_0001), true),
            ("10.0.0.0/30", Value::from("10.0.0.3"), true),
            ("10.0.0.0/30", Value::from("10.0.0.4"), false),
            ("10.0.0.0/30", Value::Int(-1), false),
            ("10.0.0.0/30", Value::Bool(true), false),
            ("0.0.0.0/0.0.0.0", Value::from("8.8.8.8"), true),
            ("8.8.8.8/255.255.255.255", Value::from("8.8.8.8"), true),
            ("8.8.8.8/255.255.255.255", Value::from("8.8.8.9"), false),
            ("::/0", Value::from("8.8.8.8"), false),
            ("0.0.0.0/0", Value::from("::1"), false),
            ("fe80::1%eth0", texts(&["fe80::1%eth0"]), true),
            ("fe80::1%eth0", texts(&["fe80::1"]), false),
            ("fe80::/10", texts(&["fe80::1%", "fe80::1%a%b"]), false),
        ];
        for (text, grain, expected) in table {
            let network = Network::parse(text).unwrap();
            let read = super::addresses(&grain);
            let found = network.holds(&grain, || &read);
            assert_eq!(found, expected, "{text} {grain:?}");
        }
    }

    #[test]
    fn grain_is_that_of_the_version() {
        for (text, grain) in [
            ("10.0.0.1", "ipv4"),
            ("10.0.0.0/8", "ipv4"),
            ("::1", "ipv6"),
            ("fe80::/10", "ipv6"),
        ] {
            assert_eq!(Network::parse(text).unwrap().grain(), grain, "{text}");
        }
    }

    #[test]
    fn malformed_ipcidr_target_is_refused() {
        for text in [
            "",
            "10.0.0",
            "10.0.0.1/24",
            "10.0.0.0/33",
            "010.0.0.1",
            "10.0.0.0/",
            "::/129",
            "10.0.0.0/255.0.255.0",
            "10.0.0.0/+8",
            "fe80::1%",
            "fe80::1%a%b",
            "10.0.0.1%eth0",
            "x",
        ] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
