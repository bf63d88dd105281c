//! `saltern_cluster`: several masters as one on PostgreSQL, of which one is active.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::connection_string::connections;
use crate::reader::Reader;
use crate::sql::SqlStore;
use crate::yaml::{Key, Mapping, Node, NodeValue};

const NAME: &str = "saltern_cluster";

const ENTRIES: &[&str] = &[
    "postgres",
    "name",
    "secret_file",
    "share_keys",
    "advertise",
    "lease",
    "member_port",
];

/// Seconds of a lease: its default and its bounds.
const LEASE: f64 = 15.0;
const LEASES: std::ops::RangeInclusive<f64> = 3.0..=MAX_LEASE.as_secs_f64();

/// Longest lease.
pub const MAX_LEASE: Duration = Duration::from_secs(600);

/// Longest text that says where a master is reached.
const MAX_ADDRESS: usize = 200;

/// Membership of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The name of the cluster, which its schema in the database bears.
    pub name: String,
    /// The servers of the database: the one that takes writes is used.
    pub servers: Vec<SqlStore>,
    /// The file of the secret under which the members share their state; without one each has its own.
    pub secret_file: Option<PathBuf>,
    /// Whether the members share the keys of minions under that secret.
    pub share_keys: bool,
    /// Where this master is reached, for people.
    pub advertise: String,
    /// Time after which a silent active master is replaced.
    pub lease: Duration,
    /// The port of the active master to which the others relay connections; none relays without it.
    pub member_port: Option<u16>,
}

impl ClusterConfig {
    /// Where this member is reached: with its member port, if it has one, the address that the others
    /// relay to.
    pub fn address(&self) -> String {
        match (self.member_port, self.advertise.parse::<Ipv6Addr>()) {
            (None, _) => self.advertise.clone(),
            (Some(port), Ok(ip)) => format!("[{ip}]:{port}"),
            (Some(port), Err(_)) => format!("{}:{port}", self.advertise),
        }
    }

    /// Reads the option; `id` is that of the master.
    pub(crate) fn take(reader: &mut Reader<'_>, id: &str) -> Option<Self> {
        let node = reader.applies(NAME)?;
        reader.mark_read(NAME);
        let map = match &node.value {
            NodeValue::Null | NodeValue::Bool(false) => return None,
            NodeValue::Map(map) => map,
            _ => {
                reader.error(
                    NAME,
                    "is not a mapping of postgres, name, secret_file, share_keys, advertise, lease and member_port",
                );
                return None;
            }
        };
        let before = reader.findings.len();
        if let Some((key, _)) = map.iter().find(|(key, _)| !is_known(key)) {
            let message = format!("{} is not one of {}", shown(key), ENTRIES.join(", "));
            reader.error(NAME, message);
        }
        let config = Self {
            name: name(reader, map),
            servers: servers(reader, map),
            secret_file: secret_file(reader, map),
            share_keys: share_keys(reader, map),
            advertise: advertise(reader, map).unwrap_or_else(|| id.to_owned()),
            lease: lease(reader, map),
            member_port: member_port(reader, map),
        };
        if config.share_keys && config.secret_file.is_none() {
            reader.error(
                NAME,
                "share_keys needs secret_file: keys of minions are sealed under its secret",
            );
        }
        if config.member_port.is_some() {
            check_relays(reader, map, &config);
        }
        (reader.findings.len() == before).then_some(config)
    }
}

fn is_known(key: &Key) -> bool {
    matches!(key, Key::Str(name) if ENTRIES.contains(&name.as_str()))
}

/// A key for people. One that is no word may be a connection with its password, written in a wrong place.
fn shown(key: &Key) -> String {
    let is_word = |text: &&str| {
        let mut bytes = text.bytes();
        bytes.all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
    };
    match key.as_str().filter(is_word) {
        Some(word) => format!("\"{word}\""),
        None => "an entry".to_owned(),
    }
}

fn servers(reader: &mut Reader<'_>, map: &Mapping) -> Vec<SqlStore> {
    let Some(text) = map.get("postgres").and_then(Node::as_str) else {
        reader.error(
            NAME,
            "postgres is missing: the connection to PostgreSQL as a text",
        );
        return Vec::new();
    };
    connections(text).unwrap_or_else(|error| {
        reader.error(NAME, format!("postgres {error}"));
        Vec::new()
    })
}

fn name(reader: &mut Reader<'_>, map: &Mapping) -> String {
    let Some(node) = map.get("name") else {
        return "saltern".to_owned();
    };
    let name = node.as_str().filter(|name| is_schema_name(name));
    if name.is_none() {
        let message =
            "name is not a name of lower-case letters, digits and underscores, 60 at most";
        reader.error(NAME, message);
    }
    name.unwrap_or_default().to_owned()
}

fn secret_file(reader: &mut Reader<'_>, map: &Mapping) -> Option<PathBuf> {
    let node = map.get("secret_file").filter(|node| !node.is_null())?;
    let path = node.as_str().map(PathBuf::from);
    let path = path.filter(|path| path.is_absolute());
    if path.is_none() {
        reader.error(NAME, "secret_file is not a path that begins with a slash");
    }
    path
}

fn share_keys(reader: &mut Reader<'_>, map: &Mapping) -> bool {
    let Some(node) = map.get("share_keys").filter(|node| !node.is_null()) else {
        return false;
    };
    let NodeValue::Bool(shares) = node.value else {
        reader.error(NAME, "share_keys is not true or false");
        return false;
    };
    shares
}

fn advertise(reader: &mut Reader<'_>, map: &Mapping) -> Option<String> {
    let node = map.get("advertise").filter(|node| !node.is_null())?;
    let is_usable = |text: &&str| {
        !text.is_empty() && text.len() <= MAX_ADDRESS && !text.chars().any(char::is_control)
    };
    let text = node.as_str().filter(is_usable);
    if text.is_none() {
        reader.error(
            NAME,
            "advertise is not a text of one line, such as a name or an address",
        );
    }
    text.map(str::to_owned)
}

fn member_port(reader: &mut Reader<'_>, map: &Mapping) -> Option<u16> {
    let node = map.get("member_port").filter(|node| !node.is_null())?;
    let port = node.as_i64().and_then(|port| u16::try_from(port).ok());
    let port = port.filter(|port| *port > 0);
    if port.is_none() {
        reader.error(NAME, "member_port is not a port from 1 to 65535");
    }
    port
}

/// Members know each other by the secret, and find each other by what they advertise.
fn check_relays(reader: &mut Reader<'_>, map: &Mapping, config: &ClusterConfig) {
    if config.secret_file.is_none() {
        reader.error(
            NAME,
            "member_port needs secret_file: by its secret members know each other",
        );
    }
    let ip = config.advertise.parse::<IpAddr>();
    let is_address = ip.is_ok_and(|ip| !ip.is_unspecified())
        || (config.advertise.bytes()).all(|it| it.is_ascii_alphanumeric() || b".-_".contains(&it));
    if map.get("advertise").is_none_or(Node::is_null) || !is_address {
        reader.error(
            NAME,
            "member_port needs advertise: the address or name, without a port, by which the other \
             members reach this one, and not one that means any",
        );
    }
}

fn lease(reader: &mut Reader<'_>, map: &Mapping) -> Duration {
    let node = map.get("lease").filter(|node| !node.is_null());
    let seconds = node.map_or(Some(LEASE), |node| {
        let text = node.as_str().and_then(|text| text.trim().parse().ok());
        text.or_else(|| node.as_f64())
    });
    let seconds = seconds.filter(|seconds| LEASES.contains(seconds));
    if seconds.is_none() {
        reader.error(NAME, "lease is not a number of seconds from 3 to 600");
    }
    Duration::from_secs_f64(seconds.unwrap_or(LEASE))
}

/// Whether a text may name a schema of PostgreSQL without quotes.
pub fn is_schema_name(name: &str) -> bool {
    let is_letter = |one: char| one.is_ascii_lowercase() || one == '_';
    name.len() <= 60
        && name.starts_with(is_letter)
        && !name.starts_with("pg_")
        && name
            .chars()
            .all(|one| is_letter(one) || one.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{Limits, parse};

    fn read(text: &str) -> (Option<ClusterConfig>, Vec<String>) {
        let node = parse(text, "test", &Limits::DEFAULT).expect("YAML");
        let (settings, defaults) = (node.as_map().expect("a map"), Mapping::default());
        let mut reader = Reader::new(settings, &defaults, Vec::new());
        let config = ClusterConfig::take(&mut reader, "a");
        let findings = reader.findings.iter().map(ToString::to_string).collect();
        (config, findings)
    }

    #[test]
    fn connection_is_all_that_must_be_written() {
        let (config, findings) = read("saltern_cluster: {postgres: 'host=a,b user=salt'}");
        let config = config.unwrap_or_else(|| panic!("{findings:?}"));
        assert_eq!((config.name.as_str(), config.servers.len()), ("saltern", 2));
        assert_eq!(
            (config.advertise.as_str(), config.lease.as_secs()),
            ("a", 15)
        );
        assert!(config.secret_file.is_none());
        assert!(!config.share_keys);
        let (config, findings) =
            read("saltern_cluster: {postgres: 'host=a user=u', secret_file: /a, share_keys: true}");
        assert!(config.is_some_and(|it| it.share_keys), "{findings:?}");
        assert!(read("saltern_cluster: null").0.is_none());
        assert!(read("a: 1").0.is_none());
    }

    #[test]
    fn address_of_a_member_has_the_port_that_others_relay_to() {
        for (advertise, address) in [
            ("192.0.2.1", "192.0.2.1:4508"),
            ("'2001:db8::1'", "[2001:db8::1]:4508"),
        ] {
            let (config, findings) = read(&format!(
                "saltern_cluster: {{postgres: 'host=a user=u', secret_file: /a, advertise: {advertise}, member_port: 4508}}"
            ));
            let config = config.unwrap_or_else(|| panic!("{findings:?}"));
            assert_eq!(config.address(), address);
        }
    }

    #[test]
    fn wrong_entry_is_an_error_without_the_password() {
        for (entries, part) in [
            ("host=a user=u password=hidden", "is not a mapping"),
            ("{name: a}", "postgres is missing"),
            (
                "{postgres: 'host=a user=u', nme: a}",
                "\"nme\" is not one of",
            ),
            (
                "{'postgresql://u:hidden@a/d': null}",
                "an entry is not one of",
            ),
            ("{postgres: 'host=a user=u', name: A-b}", "lower-case"),
            ("{postgres: 'host=a user=u', lease: 1}", "from 3 to 600"),
            ("{postgres: 'host=a user=u', lease: soon}", "from 3 to 600"),
            ("{postgres: 'host=a user=u', advertise: [a]}", "advertise"),
            ("{postgres: 'host=a user=u', secret_file: a}", "secret_file"),
            (
                "{postgres: 'host=a user=u', share_keys: true}",
                "share_keys needs secret_file",
            ),
            (
                "{postgres: 'host=a user=u', secret_file: /a, share_keys: yours}",
                "not true or false",
            ),
            (
                "{postgres: 'host=a user=u', member_port: 4508, advertise: a}",
                "member_port needs secret_file",
            ),
            (
                "{postgres: 'host=a user=u', member_port: 4508, secret_file: /a}",
                "member_port needs advertise",
            ),
            (
                "{postgres: 'host=a user=u', member_port: 4508, secret_file: /a, advertise: 'a:1'}",
                "member_port needs advertise",
            ),
            (
                "{postgres: 'host=a user=u', member_port: 0}",
                "from 1 to 65535",
            ),
            (
                "{postgres: 'host=a user=u', member_port: a}",
                "from 1 to 65535",
            ),
            (
                "{postgres: 'host=a user=u password=hidden sslmode=x'}",
                "sslmode",
            ),
        ] {
            let (config, findings) = read(&format!("saltern_cluster: {entries}"));
            let all = findings.concat();
            assert!(config.is_none() && all.contains(part), "{entries}: {all}");
            assert!(!all.contains("hidden"), "{all}");
        }
    }
}
