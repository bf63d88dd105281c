//! The table of minions' keys on a real server: every member writes it, each in place of what it has seen.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_sql::{Membership, Tables, init_cluster};
use saltern_store::shared_state::minion_keys::{KeyTable, KeyWrite};
use saltern_store::shared_state::{MAX_ROWS, RowId, RowPosition, SealedRow};

use crate::members::{config, is_active, join, me, standing};
use crate::site::Database;

fn id(number: u16) -> RowId {
    let mut id = RowId::default();
    id[..2].copy_from_slice(&number.to_be_bytes());
    id
}

fn write(number: u16, (version, replaces): (i64, i64), content: &str) -> KeyWrite {
    KeyWrite {
        row: SealedRow {
            id: id(number),
            version,
            sealed: content.as_bytes().to_vec(),
        },
        replaces,
        is_tombstone: content.is_empty(),
    }
}

/// All rows behind a position, and the next one.
fn read(table: &dyn KeyTable, mut position: RowPosition) -> (Vec<SealedRow>, RowPosition) {
    let mut all = Vec::new();
    loop {
        let page = table.changed_after(&position).expect("a page");
        assert!(page.rows.len() <= MAX_ROWS);
        for (revision, row) in page.rows {
            let next = RowPosition {
                revision,
                id: row.id,
            };
            assert!((next.revision, next.id) > (position.revision, position.id));
            position = next;
            all.push(row);
        }
        if table
            .changed_after(&position)
            .expect("a page")
            .rows
            .is_empty()
        {
            return (all, position);
        }
    }
}

/// Two members, the first of which is active.
fn members(database: &Database) -> [(Arc<Membership>, Arc<dyn KeyTable>); 2] {
    let config = config(database);
    init_cluster(&config).expect("made");
    ["a", "b"].map(|name| {
        let (member, _losses) = join(&config, me(name, name, "key"));
        if name == "a" {
            standing(&member, is_active).expect("a member");
        }
        let table = member.key_table().expect("a table");
        (member, table)
    })
}

#[test]
fn row_of_keys_is_written_only_in_place_of_what_its_writer_has_seen() {
    let database = Database::start();
    let [(first, a), (second, b)] = members(&database);
    let page = a.changed_after(&RowPosition::default()).expect("a page");
    assert_eq!((page.head, page.rows.len()), (0, 0));
    let many: Vec<KeyWrite> = (0..600).map(|n| write(n, (1, 0), "one")).collect();
    assert_eq!(a.write(&many).expect("written").len(), 600);
    let (rows, position) = read(&*b, RowPosition::default());
    assert_eq!(rows.len(), 600);
    assert_eq!(read(&*b, position).0, []);

    let by_b = [
        write(1, (2, 1), "two"),
        write(2, (9, 0), "there is one"),
        write(3, (9, 7), "of another version"),
        write(600, (5, 4), "a new one"),
    ];
    let written = b.write(&by_b).expect("an answer");
    assert_eq!(written, HashSet::from([id(1), id(600)]));
    let late = a.write(&[write(1, (2, 1), "late")]).expect("an answer");
    assert!(late.is_empty());
    let (changed, after) = read(&*a, position);
    let changed: Vec<_> = changed
        .iter()
        .map(|row| (row.id, row.sealed.as_slice()))
        .collect();
    assert_eq!(changed, [(id(1), &b"two"[..]), (id(600), b"a new one")]);

    // A deleted minion's row goes when it is old, and no other.
    a.write(&[write(4, (2, 1), "")]).expect("written");
    assert_eq!(a.expire(Duration::from_secs(3600)).expect("none"), 0);
    assert_eq!(a.expire(Duration::ZERO).expect("one"), 1);
    assert_eq!(read(&*a, RowPosition::default()).0.len(), 600);
    assert_eq!(read(&*a, after).0, []);

    a.clear_unless(&id(600)).expect("it is there");
    assert_eq!(read(&*a, RowPosition::default()).0.len(), 600);
    b.clear_unless(&id(601)).expect("cleared");
    assert_eq!(read(&*a, RowPosition::default()).0, []);
    let page = a.changed_after(&after).expect("a page");
    assert!(page.head >= after.revision, "revisions go on");
    // The clock of the server, which is that of this machine.
    let ahead = page.now - Clock::system().unix_micros();
    assert!(ahead.abs() < 60_000_000, "{ahead}");

    // Whoever writes to the database can neither fill the memory of a member, nor have it write for nothing.
    a.write(&[write(1, (1, 0), &"x".repeat(131_073))])
        .expect("written");
    a.write(&[write(2, (1, 0), &"x".repeat(131_072))])
        .expect("written");
    let (rows, _) = read(&*b, RowPosition::default());
    let lengths: Vec<usize> = rows.iter().map(|row| row.sealed.len()).collect();
    assert_eq!(lengths, [0, 131_072]);
    database
        .server
        .query(&["DELETE FROM saltern.minion_key_head RETURNING 1"]);
    assert!(b.changed_after(&RowPosition::default()).is_err());
    // The row that is put back is not behind those of the keys, or every member would read all of them for ever.
    let config = config(&database);
    assert_eq!(init_cluster(&config).expect("put back"), Tables::Upgraded);
    assert_eq!(init_cluster(&config).expect("there"), Tables::Present);
    let (rows, position) = read(&*b, RowPosition::default());
    assert_eq!(rows.len(), 2);
    let page = b.changed_after(&position).expect("a page");
    assert_eq!(page.head, position.revision);
    a.write(&[write(3, (1, 0), "behind")]).expect("written");
    assert_eq!(read(&*b, position).0.len(), 1);
    second.leave();
    first.leave();
}

/// The order in which rows are seen is that of their commits, whoever writes them.
#[test]
fn reader_behind_several_writers_misses_no_row() {
    const WRITES: u16 = 60;
    let database = Database::start();
    let [(first, a), (second, b)] = members(&database);
    let writers: Vec<_> = [a, b]
        .into_iter()
        .zip([0, WRITES])
        .map(|(table, from)| {
            thread::spawn(move || {
                for number in from..from + WRITES {
                    let written = table.write(&[write(number, (1, 0), "one")]);
                    assert_eq!(written.expect("written").len(), 1);
                }
            })
        })
        .collect();
    let reader = second.key_table().expect("a table");
    let (mut seen, mut position) = (HashSet::new(), RowPosition::default());
    while seen.len() < usize::from(WRITES) * 2 {
        let is_over = writers.iter().all(thread::JoinHandle::is_finished);
        let page = reader.changed_after(&position).expect("a page");
        for (revision, row) in page.rows {
            position = RowPosition {
                revision,
                id: row.id,
            };
            assert!(seen.insert(row.id), "no row comes twice");
        }
        let missing = usize::from(WRITES) * 2 - seen.len();
        assert!(!is_over || missing == 0, "{missing} rows were not seen");
    }
    for writer in writers {
        writer.join().expect("it wrote");
    }
    second.leave();
    first.leave();
}
