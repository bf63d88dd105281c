//! Pillars of an owner before, and other data without rows, on members that stand by.

use super::*;

/// The pillar of a member, that of an environment, and whether it has one of `pillar_cache`.
fn pillars(member: &Machine, id: &str) -> (Option<Value>, Option<Value>, bool) {
    let of = |environment| {
        let pillar = member.store.pillar_of(&minion(id), environment);
        pillar.expect("read")
    };
    // Releases before 3008 make no difference between environments.
    let dev = of(Some("dev")).filter(|_| member.compat == Compat::V3008);
    (of(None), dev, kept_pillar(member, id).exists())
}

fn kept_pillar(member: &Machine, id: &str) -> PathBuf {
    let cachedir = StoreOptions::below(member.dir.path(), member.compat).cachedir;
    cachedir.join("pillar_cache").join(id)
}

const NONE: (Option<Value>, Option<Value>, bool) = (None, None, false);

/// Grains and all pillars of a minion, as of a time when the member was active.
fn store_pillars(member: &Machine, id: &str) {
    if member.compat == Compat::V3008 {
        let dev = map("secret", "dev");
        let stored =
            member
                .store
                .store_with_pillarenv(&minion(id), &map("os", "Debian"), &dev, "dev");
        stored.expect("stored");
    }
    member.store(id, "Debian");
    let kept = kept_pillar(member, id);
    fs::create_dir_all(kept.parent().expect("one")).expect("made");
    fs::write(kept, "secret").expect("kept");
}

fn wait_for_turn(clock: &Clock) {
    clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
}

#[test]
fn pillar_of_the_owner_before_goes_although_only_rows_of_the_next_one_are_seen() {
    for compat in Compat::ALL {
        let (_, clock, mut a, mut b) = pair(compat);
        for id in ["purged", "replaced", "elsewhere", "same"] {
            store_pillars(&b, id);
            a.store(id, "Debian");
        }
        a.round();
        // Meanwhile it is away.
        a.store.purge(&minion("purged")).expect("purged");
        a.store.note_owner(&minion("replaced"));
        a.purge_elsewhere("elsewhere");
        assert!(!a.store.purge(&minion("elsewhere")).expect("purged"));
        for id in ["purged", "replaced", "elsewhere", "same"] {
            a.store(id, "Fedora");
        }
        wait_for_turn(&clock);
        a.write_all();
        b.restart();
        b.round();
        for id in ["purged", "replaced", "elsewhere"] {
            assert_eq!(b.os(id).as_deref(), Some("Fedora"), "{compat:?}: {id}");
            assert_eq!(pillars(&b, id), NONE, "{compat:?}: {id}");
        }
        let (pillar, _, is_kept) = pillars(&b, "same");
        assert_eq!(pillar, Some(map("secret", "same")), "{compat:?}");
        assert!(is_kept);
        // The member that wrote so has the next owner's, also when it reads its rows again.
        a.restart();
        a.round();
        for id in ["purged", "replaced"] {
            let pillar = pillars(&a, id).0;
            assert_eq!(pillar, Some(map("secret", id)), "{compat:?}: {id}");
        }
    }
}

#[test]
fn pillar_that_a_member_has_made_since_it_took_over_stays() {
    for compat in Compat::ALL {
        let (rows, clock, mut a, mut b) = pair(compat);
        rows.lock().is_young = true;
        for id in ["before", "during", "after"] {
            store_pillars(&b, id);
            a.store(id, "Debian");
            a.store.purge(&minion(id)).expect("purged");
            a.store(id, "Fedora");
        }
        wait_for_turn(&clock);
        a.write_all();
        b.begin_takeover();
        let stored = b.store.store_grains_and_pillar(
            &minion("during"),
            &map("os", "Fedora"),
            &map("secret", "next owner"),
        );
        stored.expect("stored");
        b.round();
        b.round();
        store_pillars(&b, "after");
        b.write_all();
        b.restart();
        b.round();
        for _ in 0..2 {
            assert_eq!(pillars(&b, "before"), NONE, "{compat:?}");
            let during = pillars(&b, "during").0;
            assert_eq!(during, Some(map("secret", "next owner")), "{compat:?}");
            assert!(!kept_pillar(&b, "during").exists(), "{compat:?}");
            let (after, _, is_kept) = pillars(&b, "after");
            assert_eq!(after, Some(map("secret", "after")), "{compat:?}");
            assert!(is_kept, "{compat:?}");
            // Whatever was written while it was active.
            b.restart();
            b.round();
        }
    }
}

#[test]
fn pillar_that_is_cleared_on_the_active_master_is_cleared_on_the_others() {
    for compat in Compat::ALL {
        let (_, clock, mut a, mut b) = pair(compat);
        a.store_all("m1", "Debian");
        store_pillars(&b, "m1");
        a.round();
        b.round();
        let long_ago = clock.now() - Duration::from_secs(86_400);
        let file = fs::File::options().append(true).open(b.file("m1"));
        file.and_then(|file| file.set_modified(long_ago))
            .expect("a time");
        a.store.clear(&minion("m1"), false, true).expect("cleared");
        a.round();
        b.round();
        assert_eq!(pillars(&b, "m1"), NONE, "{compat:?}");
        assert_eq!(b.os("m1").as_deref(), Some("Debian"), "{compat:?}");
        assert_eq!(b.mine("m1"), Some(map("os", "Debian")), "{compat:?}");
        // The grains are no newer by it.
        let modified = fs::metadata(b.file("m1")).and_then(|file| file.modified());
        let age = long_ago.duration_since(modified.expect("a time"));
        assert!(
            age.expect("no later") < Duration::from_millis(1),
            "{compat:?}"
        );
        assert_eq!(b.rounds.failed(), 0);
    }
}

#[test]
fn too_large_data_of_an_owner_before_goes_on_the_others() {
    let large = "x".repeat(MAX_DATA_LEN);
    for compat in Compat::ALL {
        let (_, clock, mut a, mut b) = pair(compat);
        for id in ["deleted", "cleared"] {
            a.store_all(id, &large);
            b.store_all(id, &large);
        }
        a.round();
        b.round();
        a.store.purge(&minion("deleted")).expect("purged");
        a.store
            .clear(&minion("cleared"), false, true)
            .expect("cleared");
        a.round();
        b.round();
        assert!(b.has_nothing_of("deleted"), "{compat:?}");
        assert_eq!(b.os("cleared").as_deref(), Some(large.as_str()));
        // One that reads so when it takes over has what the next owner sent meanwhile.
        a.store_all("deleted", "next owner");
        wait_for_turn(&clock);
        a.write_all();
        let mut c = Machine::new(&a.rows, compat, &clock);
        c.store_all("deleted", &large);
        c.take_over();
        assert_eq!(c.os("deleted").as_deref(), Some("next owner"), "{compat:?}");
    }
}

#[test]
fn nothing_is_written_about_a_name_of_which_nobody_has_anything() {
    let (rows, _, mut a, _) = pair(Compat::V3008);
    a.store("m1", "Debian");
    a.round();
    let head = rows.lock().head;
    for number in 0..100 {
        let id = minion(&format!("unknown{number}"));
        assert!(!a.store.purge(&id).expect("purged"));
    }
    // With what stands behind it, that is longer than a file name may be.
    for length in [254, 255] {
        let id = minion(&"x".repeat(length));
        assert!(!a.store.purge(&id).expect("purged"));
    }
    a.round();
    assert_eq!((rows.lock().head, a.rounds.pending()), (head, 0));
    // One row in an hour, however often.
    for _ in 0..3 {
        a.store.purge(&minion("m1")).expect("purged");
        a.store("m1", "Debian");
        a.round();
    }
    assert_eq!(rows.lock().rows.len(), 2);
    assert_eq!(rows.lock().writes, [1, 1], "the grains are the same");
}

#[test]
fn pillar_that_cannot_be_removed_is_tried_again() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    a.store("m1", "Debian");
    a.store("m2", "Debian");
    store_pillars(&b, "m1");
    store_pillars(&b, "m2");
    a.round();
    b.round();
    let kept = kept_pillar(&b, "m1");
    fs::remove_file(&kept).expect("removed");
    fs::create_dir_all(kept.join("one")).expect("a directory");
    for id in ["m1", "m2"] {
        a.store.purge(&minion(id)).expect("purged");
        a.store(id, "Fedora");
    }
    a.round();
    b.round();
    assert_eq!(b.rounds.failed(), 1);
    assert_eq!(pillars(&b, "m1").0, None, "the rest goes");
    assert_eq!(pillars(&b, "m2"), NONE);
    fs::remove_dir_all(&kept).expect("removed");
    fs::write(&kept, "secret").expect("written");
    b.round();
    assert_eq!(b.rounds.failed(), 1, "not at each look");
    clock.advance(Duration::from_micros(RETRY_INTERVAL.unsigned_abs()));
    b.round();
    assert_eq!(b.rounds.failed(), 0);
    assert_eq!(pillars(&b, "m1"), NONE);
}
