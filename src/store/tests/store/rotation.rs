//! Rotation of the master's own key: files, and what a master makes of them after a kill anywhere.

use std::fs;
use std::path::Path;

use crate::common::{KEYS, mode, place, text};
use saltern_model::Compat;
use saltern_store::master_keys::ReplacingStep;
use saltern_store::{MasterKeyRotation, MasterKeys, RotationError, StoreOptions};

const NEXT: &str = "master_next.pem";
const PREVIOUS: &str = "master_previous.pem";
const STATEMENTS: &str = "master_previous.sig";

/// When the previous key is accepted no longer.
const UNTIL: i64 = 1_800_000_000;

/// The public keys that a master which starts now has: the present one, and the previous one.
fn started(options: &StoreOptions) -> (String, Option<String>) {
    let keys = MasterKeys::with_options(options).expect("the master starts");
    let previous = keys.both(UNTIL - 1).map(|keys| keys.previous);
    let previous = previous.map(|key| key.public_pem.to_owned());
    (keys.public_pem, previous)
}

fn write(path: &Path, text: &str) {
    // Keys are read-only.
    let _ = fs::remove_file(path);
    fs::write(path, text).expect("written");
}

#[test]
fn rotation_keeps_the_previous_key_until_it_is_finished() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let (old, none) = started(&options);
        assert_eq!(none, None);
        let begun = MasterKeyRotation::begin(&options, UNTIL).expect("begun");
        assert_ne!(begun.current, old);
        assert_eq!(begun.previous.as_deref(), Some(&*old));
        assert_eq!(begun.until, UNTIL);
        assert_eq!(begun.interrupted, None);
        assert_eq!(MasterKeyRotation::of(&options).expect("read"), begun);
        let pki = &options.pki_dir;
        assert_eq!(mode(&pki.join(PREVIOUS)), 0o400);
        assert_eq!(mode(&pki.join(STATEMENTS)), 0o600);
        assert_eq!(text(pki.join("master.pub")).trim(), begun.current);
        let key = fs::canonicalize(pki.join("master.pem")).expect("a key");
        assert_eq!(mode(&key), 0o400, "also behind a link");
        let again = MasterKeyRotation::begin(&options, UNTIL);
        assert!(matches!(again, Err(RotationError::UnderWay)));

        let keys = MasterKeys::with_options(&options).expect("the master starts");
        assert_eq!(keys.public_pem, begun.current);
        let both = keys.both(UNTIL - 1).expect("both are accepted");
        assert_eq!(both.first().public_pem, old);
        assert_eq!(both.made().public_pem, begun.current);
        MasterKeyRotation::finish(&options).expect("finished");
        assert!(keys.both(UNTIL - 1).is_none(), "without a restart");
        assert_eq!(started(&options), (begun.current, None));
        let again = MasterKeyRotation::finish(&options);
        assert!(matches!(again, Err(RotationError::NotBegun)));
    }
}

#[test]
fn previous_key_is_accepted_for_the_stated_time() {
    let (_dir, options) = place(Compat::V3006);
    started(&options);
    MasterKeyRotation::begin(&options, UNTIL).expect("begun");
    let keys = MasterKeys::with_options(&options).expect("the master starts");
    assert!(keys.both(UNTIL - 1).is_some());
    assert!(keys.both(UNTIL).is_none());
    let extended = MasterKeyRotation::extend(&options, UNTIL + 10).expect("extended");
    assert_eq!(extended.until, UNTIL + 10);
    assert!(keys.both(UNTIL + 9).is_some(), "without a restart");
    assert!(keys.both(UNTIL + 10).is_none());
    // Nobody but the previous key changes its time.
    let path = options.pki_dir.join(STATEMENTS);
    let forged = text(&path).replace(&(UNTIL + 10).to_string(), "9999999999");
    write(&path, &forged);
    assert!(keys.both(UNTIL - 1).is_none());
    assert_eq!(started(&options).1, None);
}

/// A full table of descriptors or a disk that stutters is no end of the rotation.
#[test]
fn unreadable_statement_leaves_the_previous_key_accepted() {
    let (_dir, options) = place(Compat::V3006);
    started(&options);
    MasterKeyRotation::begin(&options, UNTIL).expect("begun");
    let keys = MasterKeys::with_options(&options).expect("the master starts");
    let path = options.pki_dir.join(STATEMENTS);
    let statement = text(&path);
    // A link to itself cannot be followed, by root neither.
    let make_unreadable = || {
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(&path, &path).expect("linked");
    };
    make_unreadable();
    assert!(keys.both(UNTIL - 1).is_some(), "before it was read again");
    assert!(keys.both(UNTIL).is_none(), "its time is over all the same");
    write(&path, &statement);
    assert!(keys.both(UNTIL - 1).is_some());
    make_unreadable();
    assert!(keys.both(UNTIL - 1).is_some(), "after it was read");
    fs::remove_file(&path).expect("removed");
    assert!(keys.both(UNTIL - 1).is_none(), "removed is finished");
}

/// The files in the order in which they are written; a kill may come behind each of them.
#[test]
fn interrupted_rotation_starts_and_goes_on() {
    let (_dir, options) = place(Compat::V3006);
    let pki = &options.pki_dir;
    let (old, _) = started(&options);
    let old_files = ["master.pem", "master.pub"].map(|name| text(pki.join(name)));
    let begun = MasterKeyRotation::begin(&options, UNTIL).expect("begun");
    let new = begun.current;
    let new_key = text(pki.join("master.pem"));
    let steps = [
        (NEXT, new_key.clone()),
        (STATEMENTS, text(pki.join(STATEMENTS))),
        (PREVIOUS, text(pki.join(PREVIOUS))),
        ("master.pem", new_key),
        ("master.pub", text(pki.join("master.pub"))),
    ];
    for done in 1..=steps.len() {
        for name in [NEXT, STATEMENTS, PREVIOUS] {
            let _ = fs::remove_file(pki.join(name));
        }
        write(&pki.join("master.pem"), &old_files[0]);
        write(&pki.join("master.pub"), &old_files[1]);
        for (name, content) in &steps[..done] {
            write(&pki.join(name), content);
        }
        let expected = match done {
            ..4 => (old.clone(), None),
            _ => (new.clone(), Some(old.clone())),
        };
        assert_eq!(started(&options), expected, "after {done} steps");
        let seen = MasterKeyRotation::of(&options).expect("read");
        let step = ReplacingStep::Begin;
        assert_eq!(seen.interrupted, Some(step), "after {done} steps");
        let finished = MasterKeyRotation::finish(&options);
        assert!(matches!(finished, Err(RotationError::Interrupted(of)) if of == step));
        let reverted = MasterKeyRotation::revert(&options, UNTIL);
        assert!(matches!(reverted, Err(RotationError::Interrupted(of)) if of == step));
        assert_eq!(MasterKeyRotation::of(&options).expect("read"), seen);
        let begun = MasterKeyRotation::begin(&options, UNTIL).expect("goes on");
        assert_eq!(begun.current, new, "the same new key after {done} steps");
        assert_eq!(begun.previous.as_deref(), Some(&*old));
        assert_eq!(begun.interrupted, None);
        assert_eq!(started(&options), (new.clone(), Some(old.clone())));
        assert_eq!(text(pki.join("master.pub")).trim(), new);
    }
}

/// Both keys are accepted at each moment of a return, and sessions stay with the key that they had.
#[test]
fn interrupted_return_to_the_previous_key_accepts_both() {
    let (_dir, options) = place(Compat::V3006);
    let pki = &options.pki_dir;
    let (old, _) = started(&options);
    let names = ["master.pem", "master.pub", PREVIOUS, STATEMENTS];
    let new = MasterKeyRotation::begin(&options, UNTIL)
        .expect("begun")
        .current;
    let before = names.map(|name| text(pki.join(name)));
    let reverted = MasterKeyRotation::revert(&options, UNTIL).expect("reverted");
    assert_eq!(reverted.current, old);
    assert_eq!(reverted.previous.as_deref(), Some(&*new));
    let after = names.map(|name| text(pki.join(name)));
    let steps = [
        (NEXT, &after[0]),
        (STATEMENTS, &after[3]),
        (PREVIOUS, &after[2]),
        ("master.pem", &after[0]),
        ("master.pub", &after[1]),
    ];
    for done in 1..=steps.len() {
        for (name, content) in names.iter().zip(&before) {
            write(&pki.join(name), content);
        }
        let _ = fs::remove_file(pki.join(NEXT));
        for (name, content) in &steps[..done] {
            write(&pki.join(name), content);
        }
        let keys = MasterKeys::with_options(&options).expect("the master starts");
        let both = keys.both(UNTIL - 1).expect("both are accepted");
        assert_eq!(both.first().public_pem, old, "after {done} steps");
        assert_eq!(both.made().public_pem, new, "after {done} steps");
        let current = if done < 4 { &new } else { &old };
        assert_eq!(both.current.public_pem, current, "after {done} steps");
        let step = ReplacingStep::Revert;
        let begun = MasterKeyRotation::begin(&options, UNTIL);
        assert!(matches!(begun, Err(RotationError::Interrupted(of)) if of == step));
        let again = MasterKeyRotation::revert(&options, UNTIL).expect("goes on");
        assert_eq!(again, reverted, "after {done} steps");
    }
    // And forth again.
    let again = MasterKeyRotation::revert(&options, UNTIL + 1).expect("reverted");
    assert_eq!((again.current, again.until), (new.clone(), UNTIL + 1));
    let keys = MasterKeys::with_options(&options).expect("the master starts");
    let both = keys.both(UNTIL).expect("both are accepted");
    assert_eq!(both.made().public_pem, new);
    MasterKeyRotation::finish(&options).expect("finished");
    let none = MasterKeyRotation::revert(&options, UNTIL);
    assert!(matches!(none, Err(RotationError::NotBegun)));
}

#[test]
fn previous_key_that_signed_another_key_is_not_accepted() {
    let (_dir, options) = place(Compat::V3006);
    let pki = &options.pki_dir;
    started(&options);
    MasterKeyRotation::begin(&options, UNTIL).expect("begun");
    let pem = KEYS[0].to_pem(None).expect("pem");
    write(&pki.join("master.pem"), pem.expose());
    let (current, previous) = started(&options);
    assert_eq!(current, KEYS[0].public().pem());
    assert_eq!(previous, None);
}

#[test]
fn rotation_is_refused_where_the_signature_of_the_key_is_ready_made() {
    let (_dir, mut options) = place(Compat::V3008);
    started(&options);
    options.master_sign_pubkey = true;
    options.master_use_pubkey_signature = true;
    let refused = MasterKeyRotation::begin(&options, UNTIL);
    assert!(matches!(refused, Err(RotationError::SignatureIsMade)));
}

#[test]
fn shared_key_is_signed_by_each_key_of_the_master() {
    let key = {
        let (_dir, options) = place(Compat::V3008);
        let clock = saltern_base::clock::Clock::system();
        saltern_store::SharedKeys::with_options(&options, clock)
            .expect("a key")
            .current()
    };
    for master in &*KEYS {
        for _ in 0..2 {
            let signature = key.signature(master).expect("signed");
            let digest = master
                .public()
                .x931_recover(&signature)
                .expect("a signature");
            assert_eq!(digest, key.key.digest_hex().as_bytes());
        }
    }
}
