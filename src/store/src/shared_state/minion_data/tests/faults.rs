//! Directories that are lost or cannot be changed, kills at the wrong moment, and names that change their owner.

use super::*;
use crate::minion_data::DataName;

fn update(member: &Machine, id: &str, mine: &Value) {
    let updated = member.store.mine_update(&minion(id), mine, false);
    assert!(updated.expect("stored"));
}

#[test]
fn lost_directory_of_keys_takes_no_data_away_until_it_is_confirmed() {
    let (rows, clock, mut a, mut b) = pair(Compat::V3008);
    for number in 0..30 {
        a.store_all(&format!("m{number}"), "Debian");
    }
    while a.rounds.pending() + a.store.changed_len() > 0 {
        a.round();
    }
    b.round();
    let all: BTreeSet<String> = (0..30).map(|number| format!("m{number}")).collect();
    *a.keyless.lock() = all;
    let head = rows.lock().head;
    for _ in 0..2 {
        clock.advance(Duration::from_secs(3600));
        a.round();
        a.round();
        assert_eq!(a.rounds.held_back().map(|(lost, _)| lost), Some(30));
        assert_eq!(a.os("m7").as_deref(), Some("Debian"));
    }
    assert_eq!(rows.lock().head, head);
    // The keys are there again.
    let lost = std::mem::take(&mut *a.keyless.lock());
    clock.advance(Duration::from_secs(600));
    a.round();
    assert_eq!(a.rounds.held_back(), None);
    // Somebody has deleted them.
    *a.keyless.lock() = lost;
    clock.advance(Duration::from_secs(3600));
    a.round();
    let confirmation = a.rounds.held_back().map(|(_, path)| path.to_owned());
    let confirmation = confirmation.expect("a file");
    fs::create_dir_all(confirmation.parent().expect("one")).expect("made");
    fs::write(&confirmation, "").expect("confirmed");
    clock.advance(Duration::from_secs(600));
    while b.os("m7").is_some() {
        a.round();
        b.round();
    }
    assert_eq!(a.rounds.held_back(), None);
    assert!(a.has_nothing_of("m7") && !confirmation.exists());
}

#[test]
fn file_that_cannot_be_removed_does_not_stop_the_others() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    for id in ["m1", "m2", "m3"] {
        a.store_all(id, "Debian");
    }
    a.round();
    b.round();
    for id in ["m1", "m2"] {
        a.keyless.lock().insert(id.to_owned());
    }
    fs::remove_file(a.file("m1")).expect("removed");
    fs::create_dir_all(a.file("m1").join("one")).expect("a directory");
    clock.advance(Duration::from_secs(3600));
    a.store("m3", "Fedora");
    a.round();
    b.round();
    assert_eq!(b.os("m3").as_deref(), Some("Fedora"));
    for id in ["m1", "m2"] {
        assert!(b.has_nothing_of(id), "{id}");
    }
    assert_eq!(a.rounds.pending(), 0);
}

#[test]
fn data_of_the_next_owner_replaces_that_of_the_one_before_at_once() {
    for compat in Compat::ALL {
        let (_, _, mut a, mut b) = pair(compat);
        update(&a, "m1", &map("g", "old owner"));
        a.round();
        b.round();
        a.store.purge(&minion("m1")).expect("purged");
        update(&a, "m1", &map("f", "new owner"));
        a.round();
        b.round();
        assert_eq!(b.mine("m1"), Some(map("f", "new owner")), "{compat:?}");
        assert_eq!((a.rounds.pending(), a.store.removed()), (0, Vec::new()));

        // Another process has removed the files.
        a.purge_elsewhere("m1");
        a.store.note_owner(&minion("m1"));
        update(&a, "m1", &map("h", "third owner"));
        a.round();
        b.round();
        assert_eq!(b.mine("m1"), Some(map("h", "third owner")), "{compat:?}");
    }
}

#[test]
fn mine_of_an_owner_before_is_not_merged_where_the_row_says_that_it_is_gone() {
    for compat in Compat::ALL {
        let (_, _, mut a, mut b) = pair(compat);
        update(&a, "m1", &map("g", "old owner"));
        a.round();
        b.round();
        b.restart();
        a.store.purge(&minion("m1")).expect("purged");
        a.round();
        b.begin_takeover();
        update(&b, "m1", &map("f", "new owner"));
        b.round();
        assert_eq!(b.mine("m1"), Some(map("f", "new owner")), "{compat:?}");
        b.round();
        a.restart();
        a.round();
        assert_eq!(a.mine("m1"), Some(map("f", "new owner")), "{compat:?}");
    }
}

#[test]
fn row_of_before_a_removal_does_not_replace_the_next_owners_file_after_a_kill() {
    for compat in Compat::ALL {
        let (rows, clock, mut a, mut b) = pair(compat);
        a.store_all("m1", "old owner");
        a.round();
        rows.lock().is_away = true;
        a.store.purge(&minion("m1")).expect("purged");
        a.store_all("m1", "new owner");
        // As when the clock of the machine was set back meanwhile.
        let file = fs::File::options().append(true).open(a.file("m1"));
        let time = clock.now() - Duration::from_secs(3600);
        file.and_then(|file| file.set_modified(time))
            .expect("a time");
        a.restart();
        rows.lock().is_away = false;
        a.round();
        assert_eq!(a.os("m1").as_deref(), Some("new owner"), "{compat:?}");
        a.take_over();
        b.round();
        assert_eq!(b.os("m1").as_deref(), Some("new owner"), "{compat:?}");
        assert_eq!(b.mine("m1"), Some(map("os", "new owner")), "{compat:?}");
    }
}

#[test]
fn damaged_mine_keeps_its_other_functions_in_a_takeover() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    update(&a, "m1", &map("g", "shared"));
    a.round();
    let bank = StoreOptions::below(b.dir.path(), b.compat).cachedir;
    let path = bank.join("mine/m1.p");
    fs::create_dir_all(path.parent().expect("one")).expect("made");
    fs::write(&path, b"").expect("damaged");
    let file = fs::File::options().append(true).open(&path);
    let time = clock.now() + Duration::from_secs(7200);
    file.and_then(|file| file.set_modified(time))
        .expect("a time");
    b.begin_takeover();
    update(&b, "m1", &map("f", "sent"));
    b.round();
    let both = Value::map([("g", "shared"), ("f", "sent")]);
    assert_eq!(b.mine("m1"), Some(both));
}

#[test]
fn last_round_writes_and_reads_nothing_although_a_reading_is_due() {
    let (rows, clock, mut a, mut b) = pair(Compat::V3008);
    for number in 0..10 {
        a.store(&format!("m{number}"), "Debian");
    }
    a.round();
    fs::write(a.file("m0"), b"").expect("damaged");
    clock.advance(Duration::from_secs(3600));
    a.round();
    assert_eq!(a.rounds.failed(), 1);
    clock.advance(Duration::from_secs(3600));
    a.store("m9", "Fedora");
    a.stop();
    assert_eq!(a.rounds.pending(), 0);
    b.round();
    assert_eq!(b.os("m9").as_deref(), Some("Fedora"));
    assert!(rows.lock().head > 0);
}

#[test]
fn removal_is_written_in_the_last_round_although_a_reading_was_broken_off() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    for number in 0..10 {
        a.store(&format!("m{number}"), "Debian");
    }
    a.round();
    b.round();
    fs::write(a.file("m0"), b"").expect("damaged");
    clock.advance(Duration::from_secs(3600));
    a.round();
    assert_eq!(a.rounds.failed(), 1);
    clock.advance(Duration::from_secs(3600));
    a.short_round();
    a.store.purge(&minion("m9")).expect("purged");
    a.stop();
    b.round();
    assert_eq!(b.os("m9"), None);
}

#[test]
fn later_version_of_a_removal_outlives_a_kill() {
    let (rows, _, mut a, _) = pair(Compat::V3008);
    for id in ["m1", "m2"] {
        a.store(id, "Debian");
    }
    a.round();
    rows.lock().is_away = true;
    let name = DataName {
        kind: DataKind::Grains,
        minion: minion("m1"),
    };
    a.store.purge(&minion("m1")).expect("purged");
    let first = a.store.removed_at(&name).expect("noted");
    a.store.note_version(first + 5);
    a.store.note_removal(&name);
    a.store.purge(&minion("m2")).expect("purged");
    // Settled is what has its row, and the rest stays.
    let settled = DataName {
        minion: minion("m2"),
        ..name.clone()
    };
    a.store.take_changed();
    a.store.settle([settled.clone()].into_iter());
    a.restart();
    assert_eq!(a.store.removed_at(&name), Some(first + 5));
    assert_eq!(a.store.removed_at(&settled), None);
}
