//! Connections to PostgreSQL in the two forms of `libpq`: words (`host=a,b dbname=salt`) and addresses
//! (`postgresql://salt@a,b/salt`).
//!
//! What is not known is refused: a setting that is passed over could be the one that keeps a connection
//! safe. No error quotes the text, which may hold a password.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use saltern_base::percent_decoded;

use crate::sql::{SqlSchema, SqlStore, SqlTls, SqlTlsMode, TLS_MODES};
use crate::values::Secret;

/// The settings of a connection that are understood.
const SETTINGS: &[&str] = &[
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "connect_timeout",
    "target_session_attrs",
];

/// Hosts of a connection at most: each may take its time when it is dead.
const MAX_HOSTS: usize = 8;

/// Time for connecting to one host, and its longest.
const CONNECT: Duration = Duration::from_secs(3);
const MAX_CONNECT: u64 = 10;

/// Why a text is no connection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(
        "is neither words such as \"host=db user=salt\" nor an address such as postgresql://salt@db"
    )]
    Form,
    #[error("has a setting that is not one of {}", SETTINGS.join(", "))]
    Unknown,
    #[error("names no {0}")]
    Missing(&'static str),
    #[error("has a {0} that cannot be used: {1} is wanted")]
    Value(&'static str, &'static str),
    #[error("has {hosts} hosts and {ports} ports: one port, or one for each host, is wanted")]
    Ports { hosts: usize, ports: usize },
    #[error("has more than {MAX_HOSTS} hosts")]
    Hosts,
}

type Settings = BTreeMap<&'static str, String>;

/// The connection to each of its hosts, in their order.
pub(crate) fn connections(text: &str) -> Result<Vec<SqlStore>, ConnectionError> {
    let address = ["postgresql://", "postgres://"];
    let address = address.iter().find_map(|scheme| text.strip_prefix(scheme));
    let settings = match address {
        Some(address) => of_address(address)?,
        None => of_words(text)?,
    };
    stores(&settings)
}

fn set(settings: &mut Settings, name: &str, value: String) -> Result<(), ConnectionError> {
    let known = SETTINGS.iter().find(|known| **known == name);
    settings.insert(known.ok_or(ConnectionError::Unknown)?, value);
    Ok(())
}

fn of_words(text: &str) -> Result<Settings, ConnectionError> {
    let mut settings = Settings::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=').ok_or(ConnectionError::Form)?;
        let (value, others) = word(value.trim_start())?;
        set(&mut settings, name.trim_end(), value)?;
        rest = others.trim_start();
    }
    Ok(settings)
}

/// A value, which may be quoted, and what is behind it.
fn word(text: &str) -> Result<(String, &str), ConnectionError> {
    let (is_quoted, text) = match text.strip_prefix('\'') {
        Some(quoted) => (true, quoted),
        None => (false, text),
    };
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            '\'' if is_quoted => return Ok((value, text.get(at + 1..).unwrap_or_default())),
            blank if !is_quoted && blank.is_whitespace() => {
                return Ok((value, text.get(at..).unwrap_or_default()));
            }
            other => value.push(other),
        }
    }
    match is_quoted {
        true => Err(ConnectionError::Form),
        false => Ok((value, "")),
    }
}

/// An address without its scheme.
fn of_address(text: &str) -> Result<Settings, ConnectionError> {
    let mut settings = Settings::new();
    let (text, query) = text.split_once('?').unwrap_or((text, ""));
    let (authority, database) = text.split_once('/').unwrap_or((text, ""));
    let hosts = match authority.rsplit_once('@') {
        Some((user, hosts)) => {
            if let Some((_, password)) = user.split_once(':') {
                set(&mut settings, "password", decoded(password)?)?;
            }
            let user = user.split_once(':').map_or(user, |(user, _)| user);
            set(&mut settings, "user", decoded(user)?)?;
            hosts
        }
        None => authority,
    };
    if !database.is_empty() {
        set(&mut settings, "dbname", decoded(database)?)?;
    }
    if !hosts.is_empty() {
        let hosts = hosts.split(',').map(host_and_port);
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let list = |parts: Vec<&String>| {
            parts
                .into_iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(",")
        };
        let names = list(hosts.iter().map(|(host, _)| host).collect());
        let ports = list(hosts.iter().map(|(_, port)| port).collect());
        set(&mut settings, "host", names)?;
        set(&mut settings, "port", ports)?;
    }
    // Not as in a form: `+` is a plus sign.
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(ConnectionError::Form)?;
        set(&mut settings, &decoded(name)?, decoded(value)?)?;
    }
    Ok(settings)
}

/// A host of an address with its port, which may be empty. IPv6 addresses are in brackets.
fn host_and_port(text: &str) -> Result<(String, String), ConnectionError> {
    let wrong = ConnectionError::Value("host", "a name or an address, those of IPv6 in brackets");
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => text.split_once(']').ok_or(wrong)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = port.strip_prefix(':').unwrap_or(port);
    Ok((decoded(host)?, port.to_owned()))
}

fn decoded(text: &str) -> Result<String, ConnectionError> {
    String::from_utf8(percent_decoded(text)).map_err(|_| ConnectionError::Form)
}

fn stores(settings: &Settings) -> Result<Vec<SqlStore>, ConnectionError> {
    let text = |name: &str| {
        settings
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    let user = text("user").ok_or(ConnectionError::Missing("user"))?;
    let hosts: Vec<&str> = text("host")
        .ok_or(ConnectionError::Missing("host"))?
        .split(',')
        .collect();
    if hosts.len() > MAX_HOSTS {
        return Err(ConnectionError::Hosts);
    }
    if hosts.iter().any(|host| host.trim().is_empty()) {
        return Err(ConnectionError::Missing("host"));
    }
    match text("target_session_attrs") {
        None | Some("any" | "read-write" | "primary") => {}
        Some(_) => return Err(ConnectionError::Value("target_session_attrs", "read-write")),
    }
    let (ports, tls, limit) = (
        ports(text("port"), hosts.len())?,
        tls(&text)?,
        limit(text("connect_timeout"))?,
    );
    let store = |(host, port): (&&str, u16)| SqlStore {
        schema: SqlSchema::PgJsonb,
        host: host.trim().to_owned(),
        port,
        user: user.to_owned(),
        password: Secret::new(text("password").unwrap_or_default()),
        database: text("dbname").unwrap_or(user).to_owned(),
        connect_timeout: Some(limit),
        tls: tls.clone(),
    };
    Ok(hosts.iter().zip(ports).map(store).collect())
}

fn ports(text: Option<&str>, hosts: usize) -> Result<Vec<u16>, ConnectionError> {
    let port = |text: &str| match text.trim() {
        "" => Ok(5432),
        text => {
            let port = text.parse().ok().filter(|port| *port > 0);
            port.ok_or(ConnectionError::Value("port", "a number from 1 to 65535"))
        }
    };
    let ports = text.unwrap_or_default().split(',').map(port);
    let ports = ports.collect::<Result<Vec<u16>, _>>()?;
    match ports.as_slice() {
        [one] => Ok(vec![*one; hosts]),
        several if several.len() == hosts => Ok(ports),
        several => Err(ConnectionError::Ports {
            hosts,
            ports: several.len(),
        }),
    }
}

fn limit(text: Option<&str>) -> Result<Duration, ConnectionError> {
    let Some(text) = text else {
        return Ok(CONNECT);
    };
    let seconds = text
        .trim()
        .parse()
        .ok()
        .filter(|seconds| (1..=MAX_CONNECT).contains(seconds));
    let wanted = ConnectionError::Value("connect_timeout", "a number of seconds from 1 to 10");
    Ok(Duration::from_secs(seconds.ok_or(wanted)?))
}

fn tls<'t>(text: &dyn Fn(&str) -> Option<&'t str>) -> Result<SqlTls, ConnectionError> {
    let path = |name| text(name).map(PathBuf::from);
    let authorities = path("sslrootcert");
    let identity = match (path("sslcert"), path("sslkey")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err(ConnectionError::Missing("sslkey, but an sslcert")),
        (None, Some(_)) => return Err(ConnectionError::Missing("sslcert, but an sslkey")),
    };
    let mode = SqlTlsMode::of_libpq(text("sslmode"), authorities.is_some());
    Ok(SqlTls {
        mode: mode.ok_or(ConnectionError::Value("sslmode", TLS_MODES))?,
        authorities,
        identity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let stores = match connections(text) {
            Ok(stores) => stores,
            Err(error) => return error.to_string(),
        };
        let stores = stores.iter().map(|store| {
            let SqlStore {
                host,
                port,
                user,
                database,
                ..
            } = store;
            format!(
                "{user}:{}@{host}:{port}/{database} {:?}",
                store.password.expose(),
                store.tls.mode
            )
        });
        stores.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn both_forms_of_libpq_are_read_with_their_hosts() {
        for (text, expected) in [
            ("host=db user=salt", "salt:@db:5432/salt Prefer"),
            (
                " host = a,b port=1,2 user=u password='it''s' ",
                "is neither words such as \"host=db user=salt\" nor an address such as postgresql://salt@db",
            ),
            (
                r"host=a,b port=1,2 user=u password='it\'s a\\b' dbname=d sslmode=verify-full",
                r"u:it's a\b@a:1/d VerifyFull, u:it's a\b@b:2/d VerifyFull",
            ),
            ("host=a,b user=u port=7", "u:@a:7/u Prefer, u:@b:7/u Prefer"),
            (
                "postgresql://u:p%40%2f@a:1,[::1]:2,c/d?sslmode=require&connect_timeout=2",
                "u:p@/@a:1/d Require, u:p@/@::1:2/d Require, u:p@/@c:5432/d Require",
            ),
            (
                "postgres://u@%2Frun%2Fpg/d?sslmode=require&sslrootcert=/ca",
                "u:@/run/pg:5432/d VerifyCa",
            ),
            ("postgresql:///d?host=a&user=u", "u:@a:5432/d Prefer"),
            (
                "postgresql://u@a/d?password=a+b%2B%20c",
                "u:a+b+ c@a:5432/d Prefer",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_without_a_quote() {
        for (text, part) in [
            (
                "host=a user=u passwort=hidden",
                "a setting that is not one of",
            ),
            ("host=a hidden", "is neither"),
            ("user=u", "names no host"),
            ("host=a", "names no user"),
            ("host=a user=u sslmode=always", "sslmode"),
            ("host=a user=u port=0", "port"),
            ("host=a,b user=u port=1,2,3", "2 hosts and 3 ports"),
            ("host=a user=u connect_timeout=60", "connect_timeout"),
            ("host=a user=u target_session_attrs=standby", "read-write"),
            ("host=a,,b user=u", "names no host"),
            ("host=a user=u sslcert=/c", "names no sslkey"),
            ("host=a user=u sslkey=/k", "names no sslcert"),
            ("postgresql://u@a/d?hidden", "is neither"),
            ("postgresql://u@[::1/d", "in brackets"),
            ("host=a,a,a,a,a,a,a,a,a user=u", "more than 8"),
        ] {
            let found = shown(text);
            assert!(
                found.contains(part) && !found.contains("hidden"),
                "{text}: {found}"
            );
        }
    }
}
