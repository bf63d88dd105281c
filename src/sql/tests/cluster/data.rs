//! The table of grains and mines on a real server: its owner alone writes it, and every member follows it.

use std::collections::BTreeMap;
use std::time::Duration;

use saltern_config::ClusterConfig;
use saltern_sql::{Tables, cluster_state, init_cluster, missing_tables};
use saltern_store::shared_state::minion_data::{DataTable, DataWrite, MAX_SEALED_LEN};
use saltern_store::shared_state::{RowPosition, SealedRow};
use saltern_store::{Result, StoreError};

use crate::members::{GLANCE, config, is_active, join, me, standing};
use crate::site::Database;
use crate::state::row;

fn write(number: u16, version: i64, content: &str) -> DataWrite {
    DataWrite {
        row: row(number, version, content),
        is_tombstone: content.is_empty(),
    }
}

/// All rows behind a position, and the next one.
fn read(
    table: &dyn DataTable,
    mut position: RowPosition,
) -> Result<(Vec<SealedRow>, RowPosition, i64)> {
    let mut all = Vec::new();
    loop {
        let page = table.changed_after(&position)?;
        for (revision, row) in page.rows {
            let next = RowPosition {
                revision,
                id: row.id,
            };
            assert!(next > position);
            position = next;
            all.push(row);
        }
        if page.is_last {
            return Ok((all, position, page.head));
        }
    }
}

/// The tables of the release before get what they lack, and its members go on.
fn add_to_the_release_before(database: &Database, config: &ClusterConfig) {
    database.server.query(&[
        "ALTER TABLE saltern.member DROP COLUMN note",
        "DROP TABLE saltern.minion_data, saltern.minion_data_head",
        "UPDATE saltern.meta SET value = '4' WHERE name IN ('layout', 'layout_floor') RETURNING 1",
    ]);
    assert_eq!(init_cluster(config).expect("upgraded"), Tables::Upgraded);
    let layout = cluster_state(config).expect("a state").layout;
    let layout = layout.expect("a layout");
    assert_eq!((layout.version, layout.floor), (5, 4));
    assert_eq!(missing_tables(config).expect("read"), [""; 0]);
    // As a member of it refreshes its row.
    database.server.query(&[
        "INSERT INTO saltern.member (name, instance, address, version, master_key, role, seen, until, layout) \
         VALUES ('old', '1', 'old', '0.1', 'key', 'standby', now(), now(), 4) RETURNING 1",
    ]);
}

/// The note of a member, as the others read it.
fn note(config: &ClusterConfig, name: &str) -> String {
    let state = cluster_state(config).expect("a state");
    let mut members = state.members.into_iter();
    let member = members.find(|member| member.name == name);
    member.expect("a member").note
}

#[test]
fn member_says_in_its_row_what_it_does_not_share() {
    let database = Database::start();
    let config = config(&database);
    init_cluster(&config).expect("made");
    let (member, _losses) = join(&config, me("a", "a", "key"));
    standing(&member, is_active).expect("a member");
    let wait_for = |expected: &str| {
        while note(&config, "a") != expected {
            std::thread::sleep(GLANCE);
        }
    };
    wait_for("");
    member.note("keys", Some("too many".to_owned()));
    member.note("grains", Some("no disk".to_owned()));
    wait_for("grains: no disk\nkeys: too many");
    member.note("grains", None);
    wait_for("keys: too many");
    // One of the release before writes none, and leaves the last one.
    let sql = "UPDATE saltern.member SET layout = 4 WHERE name = 'a' RETURNING 1";
    database.server.query(&[sql]);
    wait_for("");
    member.leave();
}

#[test]
fn only_the_owner_writes_grains_and_every_member_follows_them() {
    let database = Database::start();
    let config = config(&database);
    assert_eq!(init_cluster(&config).expect("made"), Tables::Made);
    add_to_the_release_before(&database, &config);
    let (first, _losses) = join(&config, me("a", "a", "key"));
    standing(&first, is_active).expect("a member");
    let (second, _losses) = join(&config, me("b", "b", "key"));
    let [a, b] = [&first, &second].map(|member| member.data_table().expect("a table"));

    let many: Vec<DataWrite> = (0..300).map(|number| write(number, 1, "old")).collect();
    assert_eq!(a.write(&many).expect("written"), Some(1));
    let (rows, position, head) = read(&*b, RowPosition::default()).expect("read");
    assert_eq!((rows.len(), head), (300, 1));
    // By who stands by.
    assert_eq!(b.write(&[write(1, 9, "new")]).expect("an answer"), None);
    assert!(matches!(
        b.first_version(),
        Err(StoreError::NotOwner { .. })
    ));

    let changes = [
        write(1, 2, "new"),
        write(300, 2, "one more"),
        write(2, 2, ""),
    ];
    assert_eq!(a.write(&changes).expect("written"), Some(2));
    // A statement of before that comes after its repetition.
    assert_eq!(a.write(&[write(1, 1, "late")]).expect("written"), Some(3));
    let (rows, position, head) = read(&*b, position).expect("read");
    let rows: BTreeMap<_, _> = rows
        .iter()
        .map(|row| (row.id, row.sealed.as_slice()))
        .collect();
    let expected = changes
        .each_ref()
        .map(|one| (one.row.id, one.row.sealed.as_slice()));
    assert_eq!((rows, head), (BTreeMap::from(expected), 3));

    // What is removed goes when it is old, and nothing else.
    assert_eq!(a.expire(Duration::from_secs(3600)).expect("none"), 0);
    assert_eq!(a.expire(Duration::ZERO).expect("one"), 1);
    assert_eq!(
        read(&*b, RowPosition::default()).expect("read").0.len(),
        300
    );

    // Whoever writes to the database cannot fill the memory of a member.
    let of_length = |number, length| write(number, 3, &"x".repeat(length));
    let long = [
        of_length(3, MAX_SEALED_LEN),
        of_length(4, MAX_SEALED_LEN + 1),
    ];
    a.write(&long).expect("written");
    let (rows, _, _) = read(&*b, position).expect("read");
    let lengths: Vec<usize> = rows.iter().map(|row| row.sealed.len()).collect();
    assert_eq!(lengths, [MAX_SEALED_LEN, 0]);

    // Without its head nothing is taken for written.
    let sql = "DELETE FROM saltern.minion_data_head RETURNING 1";
    database.server.query(&[sql]);
    assert!(a.write(&[write(5, 3, "new")]).is_err());
    assert!(read(&*b, RowPosition::default()).is_err());
    assert_eq!(init_cluster(&config).expect("put back"), Tables::Upgraded);
    assert_eq!(a.write(&[write(5, 3, "new")]).expect("written"), Some(5));

    let of_first = a.first_version().expect("the owner");
    first.leave();
    assert_eq!(a.write(&[write(6, 9, "late")]).expect("an answer"), None);
    standing(&second, is_active).expect("it follows");
    assert!(b.first_version().expect("the owner") > of_first);
    assert_eq!(b.write(&[write(6, 9, "new")]).expect("written"), Some(6));
    assert_eq!(a.write(&[write(6, 10, "late")]).expect("an answer"), None);
    second.leave();
}
