//! `network.*` that only computes with addresses, as Python's `ipaddress` does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use saltern_wire::msgpack::Value;

use super::lookup::Called;
use super::network::strict_network;
use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::jinja::network::Address;

/// Adds the functions.
pub(super) fn addresses(registry: &mut Registry) {
    registry.add("network.calc_net", |args| {
        let network = network_of(&args)?;
        let (first, _) = network.range();
        let first = ip(first, network.ip.is_ipv4());
        Ok(Value::from(format!("{first}/{}", network.prefix)))
    });
    registry.add("network.convert_cidr", |args| {
        let network = network_of(&args)?;
        let is_v4 = network.ip.is_ipv4();
        let (first, last) = network.range();
        let all = if is_v4 {
            u128::from(u32::MAX)
        } else {
            u128::MAX
        };
        let text = |bits| Value::from(ip(bits, is_v4).to_string());
        Ok(Value::map([
            ("network", text(first)),
            ("netmask", text(all & !(first ^ last))),
            ("broadcast", text(last)),
        ]))
    });
    registry.add("network.is_private", |args| {
        Ok(Value::Bool(address_of(&args)?.is_private()))
    });
    registry.add("network.is_loopback", |args| {
        Ok(Value::Bool(address_of(&args)?.ip.is_loopback()))
    });
    registry.add("network.reverse_ip", |args| {
        Ok(Value::from(reverse(address_of(&args)?.ip)))
    });
    registry.add("network.ip_in_subnet", |args| {
        let Some(network) = strict_network(&args.need_text(1, "cidr")?) else {
            return Ok(Value::Bool(false));
        };
        let addresses = match args.need(0, "ip_addr")? {
            Value::Array(all) => all.clone(),
            one => vec![one.clone()],
        };
        for address in &addresses {
            let text = address.as_str().unwrap_or_default();
            if network.holds(parsed(text)?.ip) {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    });
    registry.add("network.iphexval", |args| iphexval(&args));
}

/// An address from its bits.
pub(super) fn ip(bits: u128, is_v4: bool) -> IpAddr {
    match u32::try_from(bits) {
        Ok(bits) if is_v4 => IpAddr::V4(Ipv4Addr::from(bits)),
        _ => IpAddr::V6(Ipv6Addr::from(bits)),
    }
}

fn parsed(text: &str) -> Result<Address, CallError> {
    let plain = Address::parse(text).filter(|_| !text.contains('/'));
    plain.ok_or_else(|| {
        let message = format!("'{text}' does not appear to be an IPv4 or IPv6 address");
        CallError::Failed(message)
    })
}

fn address_of(args: &CallArgs) -> Result<Address, CallError> {
    parsed(&args.need_text(0, "ip_addr")?)
}

/// A network with any of its addresses in front of the prefix; the mask may be apart.
fn network_of(args: &CallArgs) -> Result<Address, CallError> {
    let mut text = args.text(0, "ip_addr").or_else(|| args.text(0, "cidr"));
    if let (Some(text), Some(mask)) = (&mut text, args.text(1, "netmask")) {
        *text = format!("{text}/{mask}");
    }
    let text =
        text.ok_or_else(|| CallError::Failed("missing a required argument: 'ip_addr'".to_owned()))?;
    Address::parse(&text).ok_or_else(|| {
        let message = format!("'{text}' does not appear to be an IPv4 or IPv6 network");
        CallError::Failed(message)
    })
}

fn reverse(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            let digits = (0..32).map(|at| format!("{:x}.", bits >> (4 * at) & 15));
            digits.collect::<String>() + "ip6.arpa"
        }
    }
}

fn iphexval(args: &CallArgs) -> Called {
    let text = args.need_text(0, "ip")?;
    let parts = text.split('.').map(|part| {
        let number: u32 = part.trim().parse().map_err(|_| {
            let message = format!("invalid literal for int() with base 10: '{part}'");
            CallError::Failed(message)
        })?;
        Ok(format!("{number:02X}"))
    });
    Ok(Value::from(parts.collect::<Result<String, CallError>>()?))
}
