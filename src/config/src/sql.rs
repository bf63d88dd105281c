//! Options of the SQL databases that this master writes to by itself: stock's options of the returners
//! `pgjsonb`, `postgres`, `postgres_local_cache` and `mysql`, under their names.
//!
//! Both forms that stock reads are read: `mysql.host: db` and `mysql: {host: db}`. A returner whose
//! options hold what is not built in is left to Python.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::finding::Severity;
use crate::reader::{Reader, shown};
use crate::values::Secret;
use crate::yaml::{Mapping, Node, NodeValue};

/// Tables of one of stock's returners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SqlSchema {
    /// PostgreSQL, documents as `jsonb`.
    PgJsonb,
    /// PostgreSQL, documents as text.
    Postgres,
    /// PostgreSQL, a column for each part of a job.
    PostgresLocalCache,
    /// MySQL and MariaDB, documents as text.
    Mysql,
}

impl SqlSchema {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::PgJsonb,
        Self::Postgres,
        Self::PostgresLocalCache,
        Self::Mysql,
    ];

    /// The name of stock's returner.
    pub fn name(self) -> &'static str {
        match self {
            Self::PgJsonb => "pgjsonb",
            Self::Postgres => "postgres",
            Self::PostgresLocalCache => "postgres_local_cache",
            Self::Mysql => "mysql",
        }
    }

    /// The schema of a returner that is built in.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|schema| schema.name() == name)
    }

    /// The beginning of the names of its options.
    pub fn option_prefix(self) -> &'static str {
        match self {
            Self::PgJsonb => "returner.pgjsonb",
            Self::Postgres => "returner.postgres",
            Self::PostgresLocalCache => "master_job_cache.postgres",
            Self::Mysql => "mysql",
        }
    }

    fn password_option(self) -> &'static str {
        match self {
            Self::PgJsonb | Self::Mysql => "pass",
            Self::Postgres | Self::PostgresLocalCache => "passwd",
        }
    }

    fn default_host(self) -> &'static str {
        match self {
            Self::Mysql => "salt",
            Self::PgJsonb | Self::Postgres | Self::PostgresLocalCache => "localhost",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Mysql => 3306,
            Self::PgJsonb | Self::Postgres | Self::PostgresLocalCache => 5432,
        }
    }

    /// Options beside those of every returner.
    fn tls_options(self) -> &'static [&'static str] {
        match self {
            Self::PgJsonb => &["sslmode", "sslcert", "sslkey", "sslrootcert"],
            Self::Postgres | Self::PostgresLocalCache => &[],
            Self::Mysql => &["ssl_ca", "ssl_cert", "ssl_key"],
        }
    }
}

/// Whether a connection is encrypted, and what is checked of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqlTlsMode {
    /// Never.
    Disable,
    /// Where the server offers it; nothing is checked.
    #[default]
    Prefer,
    /// Always; nothing is checked.
    Require,
    /// Always; the certificate is of a trusted authority.
    VerifyCa,
    /// Always; the certificate is of a trusted authority and for this host.
    VerifyFull,
}

/// The values of `sslmode`.
pub(crate) const TLS_MODES: &str = "disable, allow, prefer, require, verify-ca, verify-full";

impl SqlTlsMode {
    /// `sslmode` as `libpq` reads it: `require` checks the authority where there is a file of
    /// authorities. `None` of a text that is no mode.
    pub(crate) fn of_libpq(text: Option<&str>, has_authorities: bool) -> Option<Self> {
        Some(match (text, has_authorities) {
            (None | Some("prefer" | "allow"), _) => Self::Prefer,
            (Some("disable"), _) => Self::Disable,
            (Some("require"), false) => Self::Require,
            (Some("require"), true) | (Some("verify-ca"), _) => Self::VerifyCa,
            (Some("verify-full"), _) => Self::VerifyFull,
            (Some(_), _) => return None,
        })
    }
}

/// TLS of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlTls {
    /// Whether and how.
    pub mode: SqlTlsMode,
    /// Authorities, in the place of the system's.
    pub authorities: Option<PathBuf>,
    /// The client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A SQL database with tables of one of stock's returners.
#[derive(Clone)]
pub struct SqlStore {
    /// The tables.
    pub schema: SqlSchema,
    /// Name or address; of PostgreSQL also the directory of its socket.
    pub host: String,
    /// The port, or the number in the socket's name.
    pub port: u16,
    /// The role.
    pub user: String,
    /// Its password.
    pub password: Secret,
    /// The database.
    pub database: String,
    /// Longest time that connecting may take.
    pub connect_timeout: Option<Duration>,
    /// Encryption.
    pub tls: SqlTls,
}

impl fmt::Debug for SqlStore {
    /// Without the password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SqlStore({self})")
    }
}

impl fmt::Display for SqlStore {
    /// Where the database is, for logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            database,
            ..
        } = self;
        write!(out, "{}:{host}:{port}/{database}", self.schema.name())
    }
}

impl SqlStore {
    /// The options of `schema`; `None`, with a finding, where Python has to run the returner.
    pub(crate) fn read(schema: SqlSchema, reader: &mut Reader<'_>) -> Option<Self> {
        let mut options = Options { schema, reader };
        if options.node("sslcrl").is_some() {
            let option = options.name("sslcrl");
            let message = format!(
                "lists of revoked certificates are not built in, so the returner \"{}\" runs in Python",
                schema.name()
            );
            options.find(Severity::Warning, &option, message);
            return None;
        }
        let password = schema.password_option();
        let or_salt = |text: Option<String>| text.unwrap_or_else(|| "salt".to_owned());
        Some(Self {
            host: options
                .text("host")
                .unwrap_or_else(|| schema.default_host().to_owned()),
            port: options.port(),
            user: or_salt(options.text("user")),
            password: Secret::new(&Zeroizing::new(or_salt(options.text(password)))),
            database: or_salt(options.text("db")),
            connect_timeout: match schema {
                SqlSchema::PgJsonb => options.number("connect_timeout").map(Duration::from_secs),
                _ => None,
            },
            tls: options.tls(),
            schema,
        })
    }
}

/// Whether a returner needs no Python.
pub(crate) fn is_native(reader: &Reader<'_>, name: &str) -> bool {
    let schema = SqlSchema::named(name);
    schema.is_some_and(|schema| written(schema, "sslcrl", reader.settings).is_none())
}

/// The written value: stock takes neither null nor the empty text nor `None` for one.
fn written<'a>(schema: SqlSchema, option: &str, settings: &'a Mapping) -> Option<&'a Node> {
    let prefix = schema.option_prefix();
    let nested = settings.get(prefix).and_then(Node::as_map);
    let nested = nested.and_then(|map| map.get(option));
    let node = nested.or_else(|| settings.get(&format!("{prefix}.{option}")))?;
    let is_none = |text: &str| text.is_empty() || text.eq_ignore_ascii_case("none");
    (!node.is_null() && !node.as_str().is_some_and(is_none)).then_some(node)
}

/// Reads the options of one schema.
struct Options<'r, 'a> {
    schema: SqlSchema,
    reader: &'r mut Reader<'a>,
}

impl<'a> Options<'_, 'a> {
    fn name(&self, option: &str) -> String {
        format!("{}.{option}", self.schema.option_prefix())
    }

    fn find(&mut self, severity: Severity, name: &str, message: String) {
        self.reader.find(severity, name, message);
    }

    fn node(&mut self, option: &str) -> Option<&'a Node> {
        self.reader.mark_read(&self.name(option));
        self.reader.mark_read(self.schema.option_prefix());
        written(self.schema, option, self.reader.settings)
    }

    /// A text; YAML reads a password of digits as a number.
    fn text(&mut self, option: &str) -> Option<String> {
        let node = self.node(option)?;
        match &node.value {
            NodeValue::Str(text) => Some(text.to_string()),
            NodeValue::Int(number) => Some(number.to_string()),
            _ => self.refuse(option, node, "text"),
        }
    }

    fn number(&mut self, option: &str) -> Option<u64> {
        let node = self.node(option)?;
        let number = match &node.value {
            NodeValue::Int(number) => u64::try_from(*number).ok(),
            NodeValue::Str(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.or_else(|| self.refuse(option, node, "a whole number"))
    }

    fn port(&mut self) -> u16 {
        let default = self.schema.default_port();
        let Some(number) = self.number("port") else {
            return default;
        };
        match u16::try_from(number) {
            Ok(port) if port > 0 => port,
            _ => {
                let name = self.name("port");
                self.find(
                    Severity::Error,
                    &name,
                    format!("{number} is not a port, from 1 to 65535"),
                );
                default
            }
        }
    }

    fn refuse<T>(&mut self, option: &str, node: &Node, wanted: &str) -> Option<T> {
        let name = self.name(option);
        let message = match option.starts_with("pass") {
            true => format!("it is not {wanted}"),
            false => format!("{} is not {wanted}", shown(&name, node)),
        };
        self.find(Severity::Error, &name, message);
        None
    }

    fn tls(&mut self) -> SqlTls {
        let path = |text: Option<String>| text.map(PathBuf::from);
        let [mode, certificate, key, authorities] = match self.schema.tls_options() {
            [mode, certificate, key, authorities] => [*mode, *certificate, *key, *authorities],
            [authorities, certificate, key] => ["", *certificate, *key, *authorities],
            _ => return SqlTls::default(),
        };
        let authorities = path(self.text(authorities));
        let (certificate, key) = (path(self.text(certificate)), path(self.text(key)));
        let identity = certificate.zip(key);
        let mode = match mode {
            // Stock's client encrypts where one of the three is set, and then checks the authority.
            "" => match (&authorities, &identity) {
                (Some(_), _) => SqlTlsMode::VerifyCa,
                (None, Some(_)) => SqlTlsMode::Require,
                (None, None) => SqlTlsMode::Disable,
            },
            option => self.tls_mode(option, authorities.is_some()),
        };
        SqlTls {
            mode,
            authorities,
            identity,
        }
    }

    fn tls_mode(&mut self, option: &str, has_authorities: bool) -> SqlTlsMode {
        let text = self.text(option);
        SqlTlsMode::of_libpq(text.as_deref(), has_authorities).unwrap_or_else(|| {
            let other = text.unwrap_or_default();
            let message = format!("\"{other}\" is not one of {TLS_MODES}");
            let name = self.name(option);
            self.find(Severity::Error, &name, message);
            SqlTlsMode::VerifyFull
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{Limits, parse};

    fn read(schema: SqlSchema, text: &str) -> (Option<SqlStore>, Vec<String>) {
        let node = parse(text, "test", &Limits::DEFAULT).expect("YAML");
        let (settings, defaults) = (node.as_map().expect("a map"), Mapping::default());
        let mut reader = Reader::new(settings, &defaults, Vec::new());
        let store = SqlStore::read(schema, &mut reader);
        let findings = reader.findings.iter().map(ToString::to_string).collect();
        (store, findings)
    }

    #[test]
    fn options_have_stocks_names_forms_and_defaults() {
        for (schema, text, expected) in [
            (SqlSchema::PgJsonb, "a: 1", "pgjsonb:localhost:5432/salt"),
            (SqlSchema::Mysql, "a: 1", "mysql:salt:3306/salt"),
            (
                SqlSchema::Mysql,
                "mysql: {host: db, port: '33'}",
                "mysql:db:33/salt",
            ),
            (
                SqlSchema::Postgres,
                "returner.postgres.db: jobs",
                "postgres:localhost:5432/jobs",
            ),
            (
                SqlSchema::PostgresLocalCache,
                "master_job_cache.postgres.host: /run/pg",
                "postgres_local_cache:/run/pg:5432/salt",
            ),
        ] {
            let (store, findings) = read(schema, text);
            assert_eq!(store.expect("a store").to_string(), expected);
            assert_eq!(findings, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn password_is_neither_in_debug_nor_in_findings() {
        let (store, _) = read(SqlSchema::PgJsonb, "returner.pgjsonb.pass: 123456");
        let store = store.expect("a store");
        assert_eq!(store.password.expose(), "123456");
        assert!(!format!("{store:?} {store}").contains("123456"));
        let (_, findings) = read(SqlSchema::PgJsonb, "returner.pgjsonb.pass: [hidden]");
        assert_eq!(findings.len(), 1);
        assert!(!findings.concat().contains("hidden"), "{findings:?}");
    }

    #[test]
    fn tls_is_what_libpq_and_the_mysql_client_make_of_the_options() {
        for (text, expected) in [
            ("sslmode: require", SqlTlsMode::Require),
            (
                "sslmode: require\nreturner.pgjsonb.sslrootcert: /ca",
                SqlTlsMode::VerifyCa,
            ),
            ("sslmode: None", SqlTlsMode::Prefer),
            ("sslmode: verify-full", SqlTlsMode::VerifyFull),
        ] {
            let (store, findings) = read(SqlSchema::PgJsonb, &format!("returner.pgjsonb.{text}"));
            assert_eq!(store.expect("a store").tls.mode, expected, "{findings:?}");
        }
        let (store, _) = read(SqlSchema::Mysql, "mysql.ssl_ca: /ca");
        assert_eq!(store.expect("a store").tls.mode, SqlTlsMode::VerifyCa);
        let (_, findings) = read(SqlSchema::PgJsonb, "returner.pgjsonb.sslmode: always");
        assert!(findings.concat().contains("always"), "{findings:?}");
        // What is not built in is left to Python, and reported.
        let (store, findings) = read(SqlSchema::PgJsonb, "returner.pgjsonb.sslcrl: /crl");
        assert!(store.is_none() && findings.len() == 1, "{findings:?}");
    }
}
