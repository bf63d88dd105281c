//! The shared state of a cluster on a real server: its owner alone writes it, and who has no or another
//! secret, or older tables, is no member.

use saltern_config::ClusterConfig;
use saltern_sql::{
    ClusterError, Membership, Tables, cluster_secret, init_cluster, set_cluster_secret,
};
use saltern_store::StoreError;
use saltern_store::shared_state::{MAX_ROWS, RowId, SealedRow, StateBatch, StateTable};

use crate::members::{config, is_active, join, me, standing};
use crate::site::Database;

pub(crate) fn row(number: u16, version: i64, content: &str) -> SealedRow {
    let mut id = RowId::default();
    id[..2].copy_from_slice(&number.to_be_bytes());
    SealedRow {
        id,
        version,
        sealed: content.as_bytes().to_vec(),
    }
}

fn all(table: &dyn StateTable) -> Vec<SealedRow> {
    let mut all = Vec::<SealedRow>::new();
    loop {
        let last = all.last().map(|row| row.id);
        let rows = table.read_after(last.as_ref()).expect("a page");
        assert!(rows.len() <= MAX_ROWS);
        if rows.is_empty() {
            return all;
        }
        all.extend(rows);
    }
}

/// A member that has the lease.
fn active(config: &ClusterConfig, name: &str) -> std::sync::Arc<Membership> {
    let (member, _losses) = join(config, me(name, name, "key"));
    standing(&member, is_active).expect("a member");
    member
}

#[test]
fn only_the_owner_writes_shared_state_and_the_next_one_reads_it() {
    let database = Database::start();
    let config = config(&database);
    assert_eq!(init_cluster(&config).expect("made"), Tables::Made);
    let first = active(&config, "a");
    let of_first = first.state_table().expect("the owner").table;
    let written: Vec<_> = (0..600).map(|number| row(number, 1, "old")).collect();
    let batch = |written, removed| StateBatch { written, removed };
    assert!(
        of_first
            .write(&batch(written, Vec::new()))
            .expect("written")
    );
    let changes = batch(
        vec![row(1, 2, "new"), row(600, 2, "")],
        vec![row(0, 0, "").id],
    );
    assert!(of_first.write(&changes).expect("written"));
    // A statement of before that comes after its repetition.
    let late = batch(vec![row(1, 1, "late")], Vec::new());
    assert!(of_first.write(&late).expect("an answer"));
    let rows = all(&*of_first);
    assert_eq!(rows.len(), 600);
    assert_eq!(rows.first(), Some(&row(1, 2, "new")));
    assert_eq!(rows.last(), Some(&row(600, 2, "")));

    first.leave();
    let refused = first.state_table().err();
    assert!(matches!(refused, Some(StoreError::NotOwner { .. })));
    let late = |table: &dyn StateTable| {
        table.write(&batch(vec![row(2, 9, "late")], vec![row(3, 0, "").id]))
    };
    assert!(!late(&*of_first).expect("an answer"), "nobody is the owner");
    let second = active(&config, "b");
    let of_second = second.state_table().expect("the owner").table;
    assert!(of_second.first_version() > of_first.first_version());
    assert!(
        !late(&*of_first).expect("an answer"),
        "another one is the owner"
    );
    assert_eq!(all(&*of_second), rows);
    assert!(of_second.write(&StateBatch::default()).expect("an answer"));
    second.leave();
}

#[test]
fn member_without_the_secret_of_the_others_is_refused() {
    let database = Database::start();
    let config = config(&database);
    init_cluster(&config).expect("made");
    let refusal = |check: Option<&str>| {
        let identity = saltern_sql::MemberIdentity {
            secret_check: check.map(str::to_owned),
            ..me("a", "1", "key")
        };
        let (member, _losses) = join(&config, identity);
        let refusal = standing(&member, is_active).err();
        member.leave();
        refusal
    };
    assert!(refusal(None).is_none());
    let new = refusal(Some("one"));
    assert!(
        matches!(new, Some(ClusterError::NewSecret { .. })),
        "{new:?}"
    );
    assert_eq!(cluster_secret(&config).expect("an answer"), None);
    set_cluster_secret(&config, "one").expect("the first");
    set_cluster_secret(&config, "one").expect("the same");
    let other = set_cluster_secret(&config, "two");
    assert!(matches!(other, Err(ClusterError::OtherSecret { .. })));
    let found = cluster_secret(&config).expect("an answer");
    assert_eq!(found.as_deref(), Some("one"));
    assert!(refusal(Some("one")).is_none());
    let other = refusal(Some("two"));
    assert!(
        matches!(other, Some(ClusterError::OtherSecret { .. })),
        "{other:?}"
    );
    let none = refusal(None);
    assert!(
        matches!(none, Some(ClusterError::NoSecret { .. })),
        "{none:?}"
    );
}

#[test]
fn tables_of_the_release_before_are_refused_until_init_adds_what_they_lack() {
    let database = Database::start();
    let config = config(&database);
    init_cluster(&config).expect("made");
    database.server.query(&[
        "DROP TABLE saltern.sealed_file",
        "UPDATE saltern.meta SET value = '1' WHERE name = 'layout' RETURNING 1",
    ]);
    let (member, _losses) = join(&config, me("a", "1", "key"));
    let older = standing(&member, is_active).expect_err("older tables");
    assert!(
        matches!(older, ClusterError::Older { found: 1, .. }),
        "{older}"
    );
    assert!(
        older.to_string().contains("saltern cluster init"),
        "{older}"
    );
    assert_eq!(init_cluster(&config).expect("upgraded"), Tables::Upgraded);
    assert_eq!(init_cluster(&config).expect("there"), Tables::Present);
    let member = active(&config, "a");
    let table = member.state_table().expect("the owner").table;
    assert!(all(&*table).is_empty());
    member.leave();
}
