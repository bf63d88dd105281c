//! Connections: what TLS checks of a server, one that is cut while it commits, a changed password.

use std::fs;
use std::sync::atomic::Ordering;

use saltern_config::SqlSchema;
use saltern_sql::{SqlReader, SqlWriter};
use saltern_stock::databases::{PASSWORD, Server};
use saltern_stock::tls::Identity;
use saltern_store::Followed;
use serde_json::{Value as Json, json};

use crate::common::{Site, job_row, load, ret, return_row};
use crate::proxy::Proxy;

/// Whether the writer and the reader connect with these options beside those of the site.
fn connects(site: &Site, options: &[(&str, Json)]) -> bool {
    let mut all = site.options();
    for (name, value) in options {
        all[format!("{}.{name}", site.schema.option_prefix())] = value.clone();
    }
    let store = site.store(&all);
    let mut writer = SqlWriter::new(store.clone(), "the_master").expect("a writer");
    let stored = writer.store(&[&job_row(&load(1, json!([])))]);
    let reader = SqlReader::new(store).expect("a reader");
    assert_eq!(reader.minions(1).is_ok(), stored.done == 1, "{stored:?}");
    stored.done == 1
}

/// Paths of the authority of a server, and of another.
fn authorities(site: &Site, authority: &Identity) -> [Json; 2] {
    let write = |name: &str, identity: &Identity| {
        let path = site.path(name);
        fs::write(&path, identity.certificate_pem()).expect("a file");
        json!(path.display().to_string())
    };
    [
        write("right", authority),
        write("wrong", &Identity::authority()),
    ]
}

#[test]
fn postgresql_is_verified_as_sslmode_says() {
    let authority = Identity::authority();
    let server = authority.sign_server();
    let start =
        |kind, directory: &std::path::Path| Server::start_on_tcp(kind, directory, Some(&server));
    let site = Site::with(SqlSchema::PgJsonb, start);
    let [right, wrong] = authorities(&site, &authority);
    // Only what comes over TLS is let in.
    let hba = site.path("server/data/pg_hba.conf");
    fs::write(&hba, "hostssl all all all scram-sha-256\n").expect("a file");
    site.server.query(&["SELECT pg_reload_conf()"]);
    // The certificate is for the address, and for no name.
    for (mode, authority, host, expected) in [
        ("disable", None, "127.0.0.1", false),
        ("prefer", None, "127.0.0.1", true),
        ("require", None, "localhost", true),
        ("require", Some(&wrong), "127.0.0.1", false),
        ("verify-ca", Some(&right), "localhost", true),
        ("verify-ca", Some(&wrong), "127.0.0.1", false),
        ("verify-full", Some(&right), "127.0.0.1", true),
        ("verify-full", Some(&right), "localhost", false),
        ("verify-full", Some(&wrong), "127.0.0.1", false),
    ] {
        let mut options = vec![("sslmode", json!(mode)), ("host", json!(host))];
        options.extend(authority.map(|path| ("sslrootcert", path.clone())));
        assert_eq!(
            connects(&site, &options),
            expected,
            "{mode} {authority:?} {host}"
        );
    }
}

#[test]
fn mariadb_is_verified_by_its_authority() {
    let authority = Identity::authority();
    let server = authority.sign_server();
    let start =
        |kind, directory: &std::path::Path| Server::start_on_tcp(kind, directory, Some(&server));
    let site = Site::with(SqlSchema::Mysql, start);
    let [right, wrong] = authorities(&site, &authority);
    assert!(connects(&site, &[]), "without TLS");
    site.server.query(&["ALTER USER 'salt'@'%' REQUIRE SSL"]);
    assert!(!connects(&site, &[]), "the server insists on TLS");
    assert!(connects(&site, &[("ssl_ca", right)]));
    assert!(!connects(&site, &[("ssl_ca", wrong)]));
}

/// Cuts of one test, and rows of a batch.
const CUTS: u32 = 20;
const BATCH: usize = 50;

fn rows_are_exact_when_commits_are_cut(schema: SqlSchema) {
    let site = Site::with(schema, |kind, directory| {
        Server::start_on_tcp(kind, directory, None)
    });
    let proxy = Proxy::new(site.server.port(), CUTS);
    let mut options = site.options();
    let prefix = schema.option_prefix();
    options[format!("{prefix}.port")] = json!(proxy.port);
    options[format!("{prefix}.sslmode")] = json!("disable");
    let mut writer = SqlWriter::new(site.store(&options), "the_master").expect("a writer");
    let mut rows = vec![job_row(&load(1, json!([])))];
    rows.extend(
        (1..2000).map(|number| return_row(&ret(1, &format!("web{number}"), json!(number)))),
    );
    let rows: Vec<&Followed> = rows.iter().collect();
    let (mut rest, mut problems) = (rows.as_slice(), 0);
    while !rest.is_empty() {
        let stored = writer.store(&rest[..rest.len().min(BATCH)]);
        assert_eq!((stored.skipped, stored.marks.cut), (0, 0), "{stored:?}");
        problems += u32::from(stored.problem.is_some());
        rest = &rest[stored.done..];
    }
    assert_eq!(proxy.left.load(Ordering::Acquire), 0, "all cuts were made");
    assert!(problems >= CUTS, "each was noticed: {problems}");
    for what in ["*", "DISTINCT id"] {
        let sql = format!("SELECT COUNT({what}) FROM salt_returns");
        assert_eq!(site.server.count(&sql), 1999, "{what}");
    }
    assert_eq!(site.server.count("SELECT COUNT(*) FROM jids"), 1);
}

#[test]
fn rows_in_postgresql_are_exact_when_commits_are_cut() {
    rows_are_exact_when_commits_are_cut(SqlSchema::PgJsonb);
}

#[test]
fn rows_in_mariadb_are_exact_when_commits_are_cut() {
    rows_are_exact_when_commits_are_cut(SqlSchema::Mysql);
}

#[test]
fn changed_password_keeps_rows_until_it_is_right_again() {
    let site = Site::new(SqlSchema::Postgres);
    let role = |verb: &str, password: &str| format!("{verb} ROLE writer PASSWORD '{password}'");
    let create = format!("{} LOGIN SUPERUSER", role("CREATE", PASSWORD));
    site.server.query(&[&create]);
    let mut options = site.options();
    options["returner.postgres.user"] = json!("writer");
    let mut writer = SqlWriter::new(site.store(&options), "the_master").expect("a writer");
    let one = |number| return_row(&ret(1, &format!("web{number}"), json!(number)));
    assert_eq!(writer.store(&[&one(1)]).done, 1);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'writer'";
    site.server.query(&[&role("ALTER", "another"), end]);
    let rows = [one(1), one(2), one(3)];
    let rows: Vec<&Followed> = rows.iter().collect();
    for _ in 0..3 {
        let stored = writer.store(&rows);
        assert_eq!((stored.done, stored.skipped), (0, 0), "{stored:?}");
    }
    site.server.query(&[&role("ALTER", PASSWORD)]);
    assert_eq!(writer.store(&rows).done, 3);
    assert_eq!(site.server.count("SELECT COUNT(*) FROM salt_returns"), 3);
}
