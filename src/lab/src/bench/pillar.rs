//! The pillar phase: what the minions of the load must get from the site in
//! `tests/bench/site/pillar`, which `make bench` gives to both masters.

use std::time::Duration;

use saltern_minion::swarm::PillarDifference;
use saltern_wire::msgpack::Value;

use super::server::{DOMAIN, KERNEL, Server, list};

/// How many requests are under way at a time.
pub(crate) const IN_FLIGHT: usize = 16;
/// Pillars requested before the measurement begins, and the maximum time for them.
pub(crate) const WARM_UP: usize = 64;
pub(crate) const WARM_UP_LIMIT: Duration = Duration::from_secs(60);
/// Number of first pillars that are decrypted and compared, and then one in this many.
pub(crate) const CHECK_FIRST: usize = 200;
pub(crate) const CHECK_EVERY: usize = 16;

const PORTS: [(&str, i64); 20] = [
    ("http", 8080),
    ("https", 8443),
    ("admin", 9000),
    ("metrics", 9100),
    ("grpc", 9443),
    ("health", 9001),
    ("debug", 6060),
    ("amqp", 5672),
    ("redis", 6379),
    ("postgres", 5432),
    ("statsd", 8125),
    ("syslog", 6514),
    ("ntp", 1123),
    ("dns", 5353),
    ("ldap", 3389),
    ("smtp", 2525),
    ("imap", 1143),
    ("sftp", 2222),
    ("rsync", 8873),
    ("backup", 10050),
];

/// Compares a pillar with the expected one.
///
/// # Errors
/// The first difference.
pub(crate) fn check(number: usize, id: &str, pillar: &Value) -> Result<(), PillarDifference> {
    let expected = expected(Server(number), id);
    let entries = pillar.as_map().unwrap_or_default();
    for (name, value) in &expected {
        match pillar.get(name) {
            Some(found) if found == value => {}
            Some(found) => {
                return Err(PillarDifference::Value {
                    name: name.clone(),
                    found: found.clone(),
                    expected: value.clone(),
                });
            }
            None => {
                return Err(PillarDifference::Missing {
                    name: name.clone(),
                    errors: pillar.get("_errors").cloned(),
                });
            }
        }
    }
    if entries.len() != expected.len() {
        return Err(PillarDifference::Keys {
            found: entries.len(),
            expected: expected.len(),
        });
    }
    Ok(())
}

/// The pillar, key by key.
fn expected(server: Server, id: &str) -> Vec<(String, Value)> {
    let (cpus, domain) = (server.cpus(), DOMAIN.to_lowercase());
    let is_web = server.role() == "web";
    let (owner, tls_package, conf) = match server.os_family() {
        "RedHat" => ("nginx", "openssl-libs", "/etc/nginx/conf.d"),
        _ => ("www-data", "libssl3", "/etc/nginx/sites-enabled"),
    };
    let vhosts = ["shop", "api", "static", "admin"];
    let vhosts = vhosts.iter().zip(1_i64..).map(|(name, at)| {
        let entries = [
            ("server_name", Value::from(format!("{name}.{domain}"))),
            ("root", format!("{conf}/{name}").into()),
            ("workers", (at * cpus).into()),
        ];
        (*name, Value::map(entries))
    });
    let mut keys = vec![
        ("service".to_owned(), Value::from("storefront")),
        ("fleet".to_owned(), "north".into()),
        ("node".to_owned(), id.into()),
        (
            "fqdn".to_owned(),
            format!("{}.{domain}", server.host()).into(),
        ),
        ("workers".to_owned(), (cpus * 2).min(24).into()),
        ("heap_mb".to_owned(), (server.memory() * 6 / 10).into()),
        ("tls".to_owned(), is_web.into()),
        ("owner".to_owned(), owner.into()),
        (
            "packages".to_owned(),
            list(&["nginx", tls_package, "ca-certificates"]),
        ),
        ("kernel".to_owned(), KERNEL.replace('.', "_").into()),
        ("addresses".to_owned(), list(&[&server.address()])),
        ("vhosts".to_owned(), Value::map(vhosts)),
    ];
    keys.extend(PORTS.map(|(name, port)| {
        let port = port + if is_web { cpus } else { 0 };
        (format!("listen_{name}"), port.into())
    }));
    keys.extend((0..16_i64).map(|shard| {
        let value = (shard * 37 + cpus) % 101;
        (format!("shard_{shard:02}"), value.into())
    }));
    keys.extend(if is_web { web(server) } else { backend(server) });
    keys
}

fn web(server: Server) -> [(String, Value); 2] {
    let balancer = [
        ("weight", Value::from(server.cpus() * 10)),
        ("sticky", true.into()),
    ];
    let certificate = |name: &str| format!("/etc/ssl/{}/{name}.pem", server.host());
    let certificates = list(&[&certificate("shop"), &certificate("api")]);
    [
        ("balancer".to_owned(), Value::map(balancer)),
        ("certificates".to_owned(), certificates),
    ]
}

fn backend(server: Server) -> [(String, Value); 2] {
    let replicas: i64 = if server.role() == "db" { 3 } else { 2 };
    let dump = [
        ("hour", Value::from(server.cpus() % 24)),
        ("keep", list(&["daily", "weekly"])),
    ];
    [
        ("replicas".to_owned(), replicas.into()),
        ("dump".to_owned(), Value::map(dump)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pillar(number: usize) -> Vec<(Value, Value)> {
        let keys = expected(Server(number), "swarm-1").into_iter();
        keys.map(|(name, value)| (name.into(), value)).collect()
    }

    #[test]
    fn expected_pillar_has_fifty_keys_and_differences_are_found() {
        for number in 0..100 {
            let whole = pillar(number);
            assert_eq!(whole.len(), 50, "minion {number}");
            assert_eq!(check(number, "swarm-1", &Value::Map(whole.clone())), Ok(()));
            let mut short = whole.clone();
            short.pop();
            assert!(check(number, "swarm-1", &Value::Map(short)).is_err());
            let mut long = whole.clone();
            long.push(("_errors".into(), list(&["no"])));
            assert!(check(number, "swarm-1", &Value::Map(long)).is_err());
            assert!(check(number, "swarm-2", &Value::Map(whole)).is_err());
        }
    }
}
