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
    a.write_all();
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
    a.round();
    a.write_all();
    b.round();
    assert_eq!(a.rounds.held_back(), None);
    assert!(a.has_nothing_of("m7") && !confirmation.exists());
    assert!(b.has_nothing_of("m7"));

    // One that was made for nothing does not confirm the next loss.
    fs::write(&confirmation, "").expect("confirmed");
    clock.advance(Duration::from_secs(3600));
    a.round();
    assert!(!confirmation.exists());
    // Nor does one of before the report, as a member leaves it that is active no longer.
    fs::write(&confirmation, "").expect("confirmed");
    for number in 0..30 {
        a.store_all(&format!("m{number}"), "Fedora");
    }
    a.restart();
    a.take_over();
    assert_eq!(a.rounds.held_back().map(|(lost, _)| lost), Some(30));
    assert_eq!(a.os("m7").as_deref(), Some("Fedora"));
    assert!(!confirmation.exists());
    // One of after it counts although the process that said so has ended.
    a.restart();
    fs::write(&confirmation, "").expect("confirmed");
    a.take_over();
    assert_eq!(a.rounds.held_back(), None);
    assert!(a.has_nothing_of("m7"));
}

#[test]
fn directory_of_keys_that_is_not_this_masters_takes_no_data_away() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    for id in ["m1", "m2", "m3"] {
        a.store_all(id, "Debian");
    }
    a.write_all();
    b.round();
    let lost = ["m1", "m2", ALL_KEYS].map(str::to_owned);
    a.keyless.lock().extend(lost);
    clock.advance(Duration::from_secs(3600));
    a.store("m3", "Fedora");
    a.round();
    b.round();
    assert!(a.rounds.are_keys_lost());
    for id in ["m1", "m2"] {
        assert_eq!(a.os(id).as_deref(), Some("Debian"));
        assert_eq!(b.os(id).as_deref(), Some("Debian"));
    }
    assert_eq!(b.os("m3").as_deref(), Some("Fedora"), "the others go on");
    a.keyless.lock().remove(ALL_KEYS);
    clock.advance(Duration::from_secs(600));
    a.round();
    b.round();
    assert!(!a.rounds.are_keys_lost());
    assert!(a.has_nothing_of("m1") && b.has_nothing_of("m1"));
}

#[test]
fn too_large_data_of_the_next_owner_ends_the_row_of_the_one_before() {
    for compat in Compat::ALL {
        let (_, clock, mut a, mut b) = pair(compat);
        a.store_all("m1", "old owner");
        a.round();
        b.round();
        let large = "x".repeat(MAX_DATA_LEN);
        a.store.purge(&minion("m1")).expect("purged");
        a.store_all("m1", &large);
        // The row is newer than the files, also for one that has seen none before it.
        clock.advance(Duration::from_secs(60));
        a.round();
        b.restart();
        b.round();
        assert!(b.has_nothing_of("m1"), "{compat:?}");
        assert_eq!((a.rounds.pending(), a.store.removed()), (0, Vec::new()));
        // They stay, also when the row without content is read again.
        for _ in 0..2 {
            assert_eq!(a.os("m1").as_deref(), Some(large.as_str()), "{compat:?}");
            assert_eq!(a.mine("m1"), Some(map("os", large.as_str())), "{compat:?}");
            let pillar = a.store.pillar(&minion("m1")).expect("read");
            assert_eq!(pillar.as_deref(), Some(&map("secret", "m1")), "{compat:?}");
            a.restart();
            a.round();
        }
        a.take_over();
        // When it is small enough it is shared.
        clock.advance(Duration::from_secs(60));
        a.store_all("m1", "new owner");
        a.store.mine_flush(&minion("m1")).expect("flushed");
        a.round();
        b.round();
        assert_eq!(b.os("m1").as_deref(), Some("new owner"), "{compat:?}");
    }
}

/// Runs as a user who may do less than root, on a thread of its own.
fn as_nobody<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return run();
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            let changed = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
            changed.expect("a thread of another user");
            run()
        });
        thread.join().expect("it ended")
    })
}

const NOBODY: u32 = 65_534;

/// Gives what is below a directory to that user.
fn give_away(path: &std::path::Path) {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(NOBODY), None).expect("given");
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("listed") {
            give_away(&entry.expect("an entry").path());
        }
    }
}

#[test]
fn file_that_cannot_be_removed_is_not_the_next_owners() {
    for compat in Compat::ALL {
        let (_, clock, mut a, mut b) = pair(compat);
        let cachedir = StoreOptions::below(a.dir.path(), compat).cachedir;
        let locked = match compat {
            Compat::V3008 => vec![cachedir.join("grains"), cachedir.join("mine")],
            // As the files that it pushed; the data goes. Several, as nobody knows which entry comes first.
            _ => {
                let numbers = 0..12;
                let files = numbers.map(|number| format!("minions/m1/files-{number}"));
                files.map(|files| cachedir.join(files)).collect()
            }
        };
        for files in locked.iter().filter(|_| compat != Compat::V3008) {
            fs::create_dir_all(files.join("base")).expect("made");
        }
        a.store_all("m1", "old owner");
        a.round();
        b.round();
        give_away(a.dir.path());
        let mode = |mode: u32| {
            for dir in &locked {
                fs::set_permissions(dir, fs::Permissions::from_mode(mode)).expect("a mode");
            }
        };
        mode(0o555);
        let purged = as_nobody(|| a.store.purge(&minion("m1")));
        assert!(purged.is_err(), "{compat:?}");
        let mine = match compat {
            Compat::V3008 => cachedir.join("mine/m1.p"),
            _ => cachedir.join("minions/m1/mine.p"),
        };
        for file in [a.file("m1"), mine] {
            assert_eq!(file.exists(), compat == Compat::V3008, "{compat:?}");
        }
        assert!(a.has_nothing_of("m1"), "{compat:?}");
        // Also when all files are compared.
        for _ in 0..2 {
            a.round();
            b.round();
            assert!(b.has_nothing_of("m1"), "{compat:?}");
            clock.advance(Duration::from_secs(3600));
        }
        mode(0o755);
        a.store_all("m1", "new owner");
        a.round();
        b.round();
        assert_eq!(b.os("m1").as_deref(), Some("new owner"), "{compat:?}");
        assert_eq!(b.mine("m1"), Some(map("os", "new owner")), "{compat:?}");
    }
}

#[test]
fn directory_that_cannot_be_listed_and_file_that_confirms_nothing_stop_no_round() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    for number in 0..30 {
        a.store(&format!("m{number}"), "Debian");
    }
    a.write_all();
    b.round();
    let cachedir = StoreOptions::below(a.dir.path(), a.compat).cachedir;
    fs::write(cachedir.join("mine"), "").expect("no directory");
    let confirmation = cachedir.join("saltern/confirm_lost_data");
    fs::create_dir_all(&confirmation).expect("made");
    let all: BTreeSet<String> = (0..30).map(|number| format!("m{number}")).collect();
    *a.keyless.lock() = all;
    clock.advance(Duration::from_secs(3600));
    a.store("m30", "Fedora");
    a.round();
    b.round();
    assert_eq!(a.rounds.held_back().map(|(lost, _)| lost), Some(30));
    assert_eq!(b.os("m30").as_deref(), Some("Fedora"));
    assert_eq!(b.os("m7").as_deref(), Some("Debian"));
}

#[test]
fn row_that_follows_a_removal_is_above_it_and_so_is_the_next() {
    let (rows, _, mut a, _) = pair(Compat::V3008);
    for id in ["m1", "m2"] {
        a.store(id, "Debian");
    }
    a.round();
    let highest = || {
        let rows = rows.lock();
        let versions = rows.rows.values().map(|(_, write)| write.row.version);
        versions.max().expect("a row")
    };
    let last = highest() + 100;
    a.store.note_version(last);
    a.store.purge(&minion("m1")).expect("purged");
    a.store("m3", "Debian");
    a.round();
    assert!(highest() > last);
    let before = highest();
    a.store("m4", "Debian");
    a.round();
    assert!(highest() > before);
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
    let reads = rows.lock().reads;
    a.stop();
    assert_eq!(rows.lock().reads, reads);
    assert_eq!(a.rounds.pending(), 0);
    b.round();
    assert_eq!(b.os("m9").as_deref(), Some("Fedora"));
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

#[test]
fn file_that_cannot_be_read_for_a_while_is_written_later_and_is_not_taken_for_removed() {
    for compat in Compat::ALL {
        let (rows, clock, mut a, mut b) = pair(compat);
        a.store("m1", "Debian");
        a.round();
        let head = rows.lock().head;
        a.store("m1", "Fedora");
        clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
        // As with EIO, whatever the user.
        let (file, aside) = (a.file("m1"), a.dir.path().join("aside"));
        fs::rename(&file, &aside).expect("moved");
        fs::create_dir(&file).expect("a directory");
        for _ in 0..3 {
            a.round();
        }
        assert_eq!((rows.lock().head, a.rounds.pending()), (head, 1));
        fs::remove_dir(&file).expect("removed");
        fs::rename(&aside, &file).expect("moved back");
        clock.advance(Duration::from_secs(10));
        a.round();
        b.round();
        assert_eq!(b.os("m1").as_deref(), Some("Fedora"), "{compat:?}");
        assert_eq!(a.rounds.pending(), 0);
    }
}

#[test]
fn report_of_a_loss_does_not_count_once_another_member_was_active() {
    let (_, _, mut a, mut b) = pair(Compat::V3008);
    for number in 0..30 {
        a.store_all(&format!("m{number}"), "Debian");
    }
    a.write_all();
    b.round();
    let all: BTreeSet<String> = (0..30).map(|number| format!("m{number}")).collect();
    *a.keyless.lock() = all;
    a.restart();
    a.take_over();
    let confirmation = a.rounds.held_back().map(|(_, path)| path.to_owned());
    let confirmation = confirmation.expect("a file");
    fs::write(&confirmation, "").expect("confirmed, and it was too late");
    b.take_over();
    b.store("m7", "Fedora");
    b.round();
    a.restart();
    a.round();
    assert!(!confirmation.exists());
    fs::write(&confirmation, "").expect("confirmed");
    a.take_over();
    assert_eq!(a.rounds.held_back().map(|(lost, _)| lost), Some(30));
    assert_eq!(a.os("m8").as_deref(), Some("Debian"));
    assert!(!confirmation.exists());
}
