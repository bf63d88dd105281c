//! Members of a cluster on a real server: one is active, and whoever is not changes nothing.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use saltern_base::fail_point::PanicPoint;
use saltern_config::{ClusterConfig, load_master};
use saltern_sql::{
    ClusterError, Layout, MemberIdentity, Membership, Standing, Tables, check_cluster,
    cluster_state, contract_cluster, forget_member, init_cluster, missing_tables,
};
use saltern_stock::databases::PASSWORD;
use saltern_store::{StoreError, Write};

use crate::common::job;
use crate::site::{Database, append};

pub(crate) const GLANCE: Duration = Duration::from_millis(20);

/// Longer than a test may take.
const LEASE: u32 = 600;

/// A cluster of the server, behind a host that does not answer.
pub(crate) fn config(database: &Database) -> ClusterConfig {
    config_of(database, "saltern")
}

/// The same of this name.
pub(crate) fn config_of(database: &Database, name: &str) -> ClusterConfig {
    let path = database.path("cluster");
    let host = database.server.host();
    let text = format!(
        "id: a\nsaltern_cluster: {{postgres: 'host=/nowhere,{host} user=salt password={PASSWORD} connect_timeout=10', \
         name: {name}, lease: {LEASE}}}\n"
    );
    std::fs::write(&path, text).expect("a file");
    let loaded = load_master(&path).map_err(|errors| errors.to_string());
    let config = loaded.expect("a configuration").config;
    config.saltern_cluster.expect("a cluster")
}

pub(crate) fn me(name: &str, instance: &str, key: &str) -> MemberIdentity {
    MemberIdentity {
        name: name.to_owned(),
        instance: instance.to_owned(),
        address: format!("{name}.example.com"),
        version: "0".to_owned(),
        master_key: key.to_owned(),
        secret_check: None,
    }
}

pub(crate) fn join(
    config: &ClusterConfig,
    me: MemberIdentity,
) -> (Arc<Membership>, Receiver<ClusterError>) {
    let (lost, losses) = channel();
    let joined = Membership::join(config, me, move |loss| drop(lost.send(loss)));
    (joined.expect("joined"), losses)
}

/// Waits until the standing is one of these, or a refusal.
pub(crate) fn standing(
    member: &Membership,
    is_it: impl Fn(&Standing) -> bool,
) -> Result<Standing, ClusterError> {
    loop {
        let standing = member.standing()?;
        if is_it(&standing) {
            return Ok(standing);
        }
        thread::sleep(GLANCE);
    }
}

pub(crate) fn is_active(standing: &Standing) -> bool {
    matches!(standing, Standing::Active { .. })
}

fn is_behind(name: &'static str) -> impl Fn(&Standing) -> bool {
    move |standing| matches!(standing, Standing::Standby { active: Some(one) } if one.name == name)
}

/// Its lease goes on, so nobody else would write either.
#[test]
fn active_member_whose_writer_panics_has_lost_its_lease() {
    let database = Database::start();
    let config = config(&database);
    init_cluster(&config).expect("made");
    let (member, losses) = join(&config, me("a", "1", "key"));
    standing(&member, is_active).expect("a member");
    let engine = member.open_engine().expect("the owner");
    append(&engine, vec![Write::Job(job(1, &["m1"]))]).expect("stored");
    PanicPoint::ClusterWriter.arm();
    let lost = append(&engine, vec![Write::Job(job(2, &["m1"]))]);
    assert!(lost.is_err(), "nobody has stored it");
    let loss = losses
        .recv_timeout(Duration::from_secs(60))
        .expect("a loss");
    assert!(matches!(loss, ClusterError::WriterEnded), "{loss}");
}

#[test]
fn members_follow_each_other_and_only_the_active_one_writes() {
    let database = Database::start();
    let config = config(&database);
    let early = join(&config, me("a", "1", "key")).0;
    let refusal = standing(&early, |_| false).expect_err("there are no tables");
    assert!(
        refusal.to_string().contains("saltern cluster init"),
        "{refusal}"
    );
    assert_eq!(init_cluster(&config).expect("made"), Tables::Made);
    assert_eq!(init_cluster(&config).expect("there"), Tables::Present);

    let (first, losses) = join(&config, me("a", "1", "key"));
    standing(&first, is_active).expect("a member");
    let engine = first.open_engine().expect("the owner");
    append(&engine, vec![Write::Job(job(1, &["m1"]))]).expect("stored");
    let (second, _losses) = join(&config, me("b", "2", "key"));
    standing(&second, is_behind("a")).expect("a member");
    assert!(matches!(
        second.open_engine(),
        Err(StoreError::NotOwner { .. })
    ));

    // Another machine with the same name, and one with another key.
    let (same, _losses) = join(&config, me("b", "3", "key"));
    let refusal = standing(&same, |_| false).expect_err("the name is taken");
    assert!(
        matches!(refusal, ClusterError::NameTaken { .. }),
        "{refusal}"
    );
    let (other, _losses) = join(&config, me("c", "4", "another key"));
    let refusal = standing(&other, |_| false).expect_err("the key is another one");
    assert!(
        matches!(refusal, ClusterError::OtherKey { .. }),
        "{refusal}"
    );
    drop(other);

    // The lease would have lasted for longer than this test.
    first.leave();
    standing(&second, is_active).expect("a member");
    let engine_of_second = second.open_engine().expect("the owner");
    assert!(
        engine_of_second
            .queries
            .has(&job(1, &["m1"]).jid)
            .expect("a read")
    );
    let late = append(&engine, vec![Write::Job(job(2, &["m1"]))]);
    assert!(matches!(late, Err(StoreError::NotOwner { .. })), "{late:?}");
    append(&engine_of_second, vec![Write::Job(job(3, &["m1"]))]).expect("stored");
    assert!(matches!(
        first.open_engine(),
        Err(StoreError::NotOwner { .. })
    ));
    let state = cluster_state(&config).expect("a state");
    assert_eq!((state.active(), state.standbys()), (Some("b"), 0));
    assert!(losses.try_recv().is_err(), "who leaves has lost nothing");
    second.leave();
}

#[test]
fn member_whose_lease_is_taken_from_it_reports_the_loss() {
    let database = Database::start();
    let config = config(&database);
    init_cluster(&config).expect("made");
    let (member, losses) = join(&config, me("a", "1", "key"));
    standing(&member, is_active).expect("a member");
    let engine = member.open_engine().expect("the owner");
    // As one that followed would leave it.
    let sql = "UPDATE saltern.writer SET epoch = epoch + 1";
    database.server.query(&[sql]);
    let late = append(&engine, vec![Write::Job(job(1, &["m1"]))]);
    assert!(matches!(late, Err(StoreError::NotOwner { .. })), "{late:?}");
    let loss = losses.recv().expect("a loss");
    assert!(matches!(loss, ClusterError::TakenOver), "{loss}");
}

/// The layout of the tables.
fn layout(config: &ClusterConfig) -> Layout {
    let state = cluster_state(config).expect("a state");
    state.layout.expect("a layout")
}

/// The next layout comes by `cluster init` of its release, and is contracted by it in the end.
#[test]
fn member_of_the_release_before_takes_part_until_the_tables_are_contracted() {
    let database = Database::start();
    let config = config(&database);
    init_cluster(&config).expect("made");
    let (first, _losses) = join(&config, me("a", "1", "key"));
    standing(&first, is_active).expect("a member");
    append(&first.open_engine().expect("the owner"), vec![]).expect("stored");
    let (second, _losses) = join(&config, me("b", "2", "key"));
    standing(&second, is_behind("a")).expect("a member");
    let known = layout(&config);
    assert!(!known.is_expanded(), "{known:?}");
    database.server.query(&[
        "CREATE TABLE saltern.newer (name text)",
        "UPDATE saltern.meta SET value = (value::bigint + 1)::text WHERE name = 'layout' RETURNING 1",
    ]);
    assert!(layout(&config).is_expanded());
    first.leave();
    standing(&second, is_active).expect("a member");
    let engine = second.open_engine().expect("the owner");
    append(&engine, vec![Write::Job(job(1, &["m1"]))]).expect("stored");
    let (again, _losses) = join(&config, me("a", "1", "key"));
    standing(&again, is_behind("b")).expect("restarted during the upgrade");
    let refused = contract_cluster(&config).expect_err("that is done by the next release");
    assert!(
        matches!(&refused, ClusterError::Expanded { found, .. } if *found == known.version + 1),
        "{refused}"
    );
    assert!(layout(&config).is_expanded());

    let sql = "UPDATE saltern.meta SET value = (value::bigint + 1)::text WHERE name = 'layout_floor' RETURNING 1";
    database.server.query(&[sql]);
    let (late, _losses) = join(&config, me("c", "3", "key"));
    let refusal = standing(&late, |_| false).expect_err("too old");
    assert!(
        matches!(&refusal, ClusterError::Newer { found, .. } if *found == known.version + 1),
        "{refusal}"
    );
    // One that was cut off looks at the tables again.
    database.server.query(&[
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
         AND datname = current_database() AND backend_type = 'client backend'",
    ]);
    let refusal = standing(&again, |_| false).expect_err("too old");
    assert!(matches!(refusal, ClusterError::Newer { .. }), "{refusal}");
    second.leave();
}

#[test]
fn tables_of_the_release_before_are_contracted_when_its_members_are_gone() {
    let database = Database::start();
    let config = config(&database);
    init_cluster(&config).expect("made");
    // As a release made them that knows no floor, and has a member.
    database.server.query(&[
        "ALTER TABLE saltern.member DROP COLUMN layout",
        "DROP TABLE saltern.member_report",
        "DELETE FROM saltern.meta WHERE name = 'layout_floor' RETURNING 1",
        "UPDATE saltern.meta SET value = '2' WHERE name = 'layout' RETURNING 1",
        "INSERT INTO saltern.member VALUES ('old', '1', 'old', '0.1', 'key', 'standby', now(), \
         now() + interval '10 minutes') RETURNING 1",
    ]);
    let (early, _losses) = join(&config, me("a", "1", "key"));
    let refusal = standing(&early, |_| false).expect_err("older tables");
    assert!(
        matches!(refusal, ClusterError::Older { found: 2, .. }),
        "{refusal}"
    );
    assert!(refusal.to_string().contains("do not take over any more"));
    assert_eq!(init_cluster(&config).expect("upgraded"), Tables::Upgraded);
    assert_eq!(layout(&config).floor, 2);
    assert!(!layout(&config).admits_release_before());
    let refused = contract_cluster(&config).expect_err("a member is older");
    assert!(
        matches!(&refused, ClusterError::NotUpgraded { name, .. } if name == "old"),
        "{refused}"
    );
    let sql = "UPDATE saltern.member SET until = now() WHERE name = 'old' RETURNING 1";
    database.server.query(&[sql]);
    contract_cluster(&config).expect("it is gone");
    assert!(!layout(&config).is_expanded());

    check_cluster(&config, "a", "one").expect("a check");
    check_cluster(&config, "b", "two").expect("a check");
    let check = check_cluster(&config, "a", "three").expect("a check");
    let reports = check.reports.iter();
    let reports: Vec<_> = reports
        .map(|one| (one.name.as_str(), one.report.as_str()))
        .collect();
    assert_eq!(reports, [("a", "three"), ("b", "two")]);

    // The account of a member goes with it.
    check_cluster(&config, "old", "one").expect("a check");
    assert!(forget_member(&config, "old").expect("removed"));
    let check = check_cluster(&config, "a", "three").expect("a check");
    assert_eq!(check.reports.len(), 2, "{:?}", check.reports);
    contract_cluster(&config).expect("a second time");
}

#[test]
fn missing_tables_are_named() {
    let database = Database::start();
    let config = config(&database);
    let refused = missing_tables(&config).expect_err("none is there");
    assert!(
        matches!(refused, ClusterError::NotInitialised { .. }),
        "{refused}"
    );
    init_cluster(&config).expect("made");
    assert_eq!(missing_tables(&config).expect("all"), [""; 0]);
    for (more, missing) in [
        ("lease", &["lease"][..]),
        ("meta", &["meta", "lease"]),
        ("member", &["meta", "lease", "member"]),
    ] {
        let sql = format!("DROP TABLE saltern.{more}");
        database.server.query(&[&sql]);
        assert_eq!(missing_tables(&config).expect("read"), missing);
    }
}
