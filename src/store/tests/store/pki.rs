//! The tree of minion keys: stock's files, stock's order, and changes made behind our back.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{KEYS, id, mode, pem, place, text, tree};
use proptest::prelude::*;
use saltern_base::clock::Clock;
use saltern_model::{Compat, KeyState, MinionId};
use saltern_store::{PkiTree, StoreError};

#[test]
fn the_directories_are_stocks_and_pki_dir_is_private() {
    let (_dir, options) = place(Compat::V3008);
    PkiTree::with_options(&options, Clock::system()).expect("a tree");
    assert_eq!(mode(&options.pki_dir), 0o700);
    assert_eq!(
        tree(&options.pki_dir),
        [
            "minions",
            "minions_autosign",
            "minions_denied",
            "minions_pre",
            "minions_rejected"
        ]
    );
}

#[test]
fn a_pki_dir_that_is_open_to_others_is_closed_but_0750_stays() {
    use std::os::unix::fs::PermissionsExt;
    for (before, after) in [(0o755, 0o700), (0o750, 0o750), (0o700, 0o700)] {
        let (_dir, options) = place(Compat::V3006);
        fs::create_dir_all(&options.pki_dir).expect("pki_dir");
        fs::set_permissions(&options.pki_dir, fs::Permissions::from_mode(before)).expect("mode");
        PkiTree::with_options(&options, Clock::system()).expect("a tree");
        assert_eq!(mode(&options.pki_dir), after, "{before:o}");
    }
}

#[test]
fn each_version_writes_keys_in_its_own_way() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
        tree.pend(&id("m1"), &pem(0)).expect("pending");
        let path = options.pki_dir.join("minions_pre/m1");
        if compat == Compat::V3008 {
            assert_eq!(text(&path), pem(0).trim());
            assert_eq!(mode(&path), 0o600);
        } else {
            assert_eq!(text(&path), pem(0));
            assert_eq!(mode(&path) & 0o700, 0o600);
        }
    }
}

#[test]
fn a_key_goes_from_pending_to_accepted_to_gone() {
    let (_dir, options) = place(Compat::V3008);
    let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
    let m1 = id("m1");
    assert_eq!(tree.state(&m1).expect("state"), None);
    tree.pend(&m1, &pem(0)).expect("pending");
    assert_eq!(tree.state(&m1).expect("state"), Some(KeyState::Pending));
    assert!(tree.accepted_key(&m1).expect("no key").is_none());

    tree.accept(&m1, &pem(0)).expect("accepted");
    assert_eq!(tree.state(&m1).expect("state"), Some(KeyState::Accepted));
    assert_eq!(tree.stored_pem(&m1, KeyState::Pending).expect("none"), None);
    let key = tree.accepted_key(&m1).expect("read").expect("a key");
    assert_eq!(key.pem(), KEYS[0].public().pem());

    tree.deny(&m1, &pem(1)).expect("denied");
    assert!(tree.is_denied(&m1).expect("denied"));
    assert_eq!(tree.state(&m1).expect("state"), Some(KeyState::Accepted));

    assert!(tree.remove(&m1, KeyState::Accepted).expect("removed"));
    assert!(!tree.remove(&m1, KeyState::Accepted).expect("gone"));
    assert!(tree.accepted_key(&m1).expect("no key").is_none());
    assert_eq!(tree.state(&m1).expect("state"), None);
}

#[test]
fn key_state_precedence_follows_each_version() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
        for (dir, key) in [("minions", pem(0)), ("minions_pre", pem(1))] {
            fs::write(options.pki_dir.join(dir).join("m1"), key).expect("a key");
        }
        let expected = match compat {
            Compat::V3008 => KeyState::Pending,
            _ => KeyState::Accepted,
        };
        assert_eq!(tree.state(&id("m1")).expect("state"), Some(expected));
        fs::write(options.pki_dir.join("minions_rejected/m1"), pem(0)).expect("a key");
        let state = tree.state(&id("m1")).expect("state");
        assert_eq!(state, Some(KeyState::Rejected));
    }
}

/// As `salt-key -a` of 3008 leaves it when the minion asks while the key is on its way.
#[test]
fn a_key_that_is_accepted_and_still_pending_is_accepted() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
        let accepted = format!("{}\n\n", pem(0));
        for (dir, key) in [("minions", accepted), ("minions_pre", pem(0))] {
            fs::write(options.pki_dir.join(dir).join("m1"), key).expect("a key");
        }
        let state = tree.state(&id("m1")).expect("state");
        assert_eq!(state, Some(KeyState::Accepted));
        let pending = tree.count(KeyState::Pending).expect("count");
        assert_eq!(pending == 0, compat == Compat::V3008);
    }
}

#[test]
fn only_3008_forgets_a_rejection_when_it_accepts() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
        tree.pend(&id("m1"), &pem(0)).expect("pending");
        tree.reject(&id("m1"), &pem(0)).expect("rejected");
        assert_eq!(tree.count(KeyState::Pending).expect("count"), 0);
        tree.accept(&id("m1"), &pem(0)).expect("accepted");
        let still_rejected = tree.count(KeyState::Rejected).expect("count") == 1;
        assert_eq!(still_rejected, compat != Compat::V3008);
    }
}

#[test]
fn salt_key_changes_hold_at_once() {
    let (_dir, options) = place(Compat::V3006);
    let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
    let m1 = id("m1");
    let path = |state: KeyState| options.pki_dir.join(state.directory()).join("m1");
    tree.pend(&m1, &pem(0)).expect("pending");
    assert!(tree.accepted().expect("ids").is_empty());

    fs::rename(path(KeyState::Pending), path(KeyState::Accepted)).expect("salt-key -a");
    assert!(tree.accepted().expect("ids").contains("m1"));
    let first = tree.accepted_key(&m1).expect("read").expect("a key");

    // Another key of the same size in the same file, within the same tick of the file system.
    fs::write(path(KeyState::Accepted), pem(1)).expect("written in place");
    let second = tree.accepted_key(&m1).expect("read").expect("a key");
    assert_ne!(first.pem(), second.pem());
    assert_eq!(second.pem(), KEYS[1].public().pem());

    fs::remove_file(path(KeyState::Accepted)).expect("salt-key -d");
    assert!(tree.accepted_key(&m1).expect("read").is_none());
    assert!(!tree.accepted().expect("ids").contains("m1"));
}

#[test]
fn an_unchanged_key_is_parsed_once() {
    let (_dir, options) = place(Compat::V3008);
    let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
    tree.accept(&id("m1"), &pem(0)).expect("accepted");
    let first = tree.accepted_key(&id("m1")).expect("read").expect("a key");
    // Rewritten with other line ends: still the same key, which keeps what it has verified.
    let text = pem(0).replace('\n', "\r\n");
    fs::write(options.pki_dir.join("minions/m1"), text).expect("written in place");
    let second = tree.accepted_key(&id("m1")).expect("read").expect("a key");
    assert!(Arc::ptr_eq(&first, &second));
}

#[test]
fn a_file_without_a_key_is_an_error_with_its_path() {
    let (_dir, options) = place(Compat::V3008);
    let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
    fs::write(options.pki_dir.join("minions/m1"), "no key").expect("a file");
    let error = tree.accepted_key(&id("m1")).err().expect("an error");
    assert!(matches!(error, StoreError::Key { .. }), "{error}");
    assert!(error.to_string().contains("minions/m1"), "{error}");
}

#[test]
fn a_token_is_valid_only_for_its_own_key() {
    let (_dir, options) = place(Compat::V3008);
    let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
    tree.accept(&id("m1"), &pem(0)).expect("accepted");
    let key = tree.accepted_key(&id("m1")).expect("read").expect("a key");
    let good = KEYS[0].x931_sign(b"salt").expect("a token");
    let foreign = KEYS[1].x931_sign(b"salt").expect("a token");
    let other_text = KEYS[0].x931_sign(b"pepper").expect("a token");
    for _ in 0..2 {
        assert!(!key.token_valid(&foreign));
        assert!(!key.token_valid(&other_text));
        assert!(!key.token_valid(b""));
        assert!(key.token_valid(&good));
    }
}

#[test]
fn listings_skip_files_that_are_no_keys() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
        let dir = options.pki_dir.join("minions");
        for name in ["b", "a", ".key_cache", ".hidden", "bad\\id"] {
            fs::write(dir.join(name), pem(0)).expect("a file");
        }
        fs::create_dir(dir.join("directory")).expect("a directory");
        symlink(dir.join("a"), dir.join("link")).expect("a link");
        symlink("nowhere", dir.join("dangling")).expect("a link");
        let names: Vec<String> = tree
            .list(KeyState::Accepted)
            .expect("a list")
            .iter()
            .map(ToString::to_string)
            .collect();
        // Only 3008 refuses a link as a key.
        if compat == Compat::V3008 {
            assert_eq!(names, ["a", "b"]);
            assert!(tree.accepted_key(&id("link")).expect("read").is_none());
        } else {
            assert_eq!(names, ["a", "b", "link"]);
            assert!(tree.accepted_key(&id("link")).expect("read").is_some());
        }
        assert_eq!(tree.count(KeyState::Accepted).expect("count"), names.len());
    }
}

#[test]
fn the_key_cache_lists_the_accepted_names_and_is_left_alone_while_they_are_the_same() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
        let path = options.pki_dir.join("minions/.key_cache");
        assert!(tree.write_key_cache().expect("written"));
        assert_eq!(fs::read(&path).expect("a file"), b"\x90");
        tree.accept(&id("m2"), &pem(0)).expect("accepted");
        tree.accept(&id("m1"), &pem(1)).expect("accepted");
        fs::create_dir(options.pki_dir.join("minions/x")).expect("a directory");
        assert!(tree.write_key_cache().expect("written"));
        let expected: &[u8] = match compat {
            Compat::V3006 => b"\x92\xa2m1\xa2m2",
            Compat::V3007 | Compat::V3008 => b"\x93\xa2m1\xa2m2\xa1x",
        };
        assert_eq!(fs::read(&path).expect("a file"), expected);
        assert!(!tree.write_key_cache().expect("looked at"));
    }
}

#[test]
fn an_autosign_stub_is_used_up_and_expires() {
    let (_dir, options) = place(Compat::V3008);
    let clock = Clock::manual(Clock::system().now());
    let tree = PkiTree::with_options(&options, clock.clone()).expect("a tree");
    let timeout = Duration::from_secs(120 * 60);
    let stub = |name: &str| options.pki_dir.join("minions_autosign").join(name);
    fs::write(stub("m1"), "").expect("a stub");
    assert!(tree.take_autosign_stub(&id("m1"), timeout).expect("taken"));
    assert!(
        !tree
            .take_autosign_stub(&id("m1"), timeout)
            .expect("used up")
    );

    fs::write(stub("m2"), "").expect("a stub");
    fs::write(stub("m3"), "").expect("a stub");
    clock.advance(timeout + Duration::from_secs(60));
    assert!(
        tree.take_autosign_stub(&id("m2"), Duration::ZERO)
            .expect("kept for ever")
    );
    assert!(!tree.take_autosign_stub(&id("m4"), timeout).expect("none"));
    assert!(!stub("m3").exists());
}

#[test]
fn moving_a_key_that_is_not_there_is_no_error() {
    let (_dir, options) = place(Compat::V3006);
    let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
    let (from, to) = (KeyState::Pending, KeyState::Rejected);
    assert!(!tree.move_to(&id("m1"), from, to).expect("nothing to move"));
    tree.pend(&id("m1"), &pem(0)).expect("pending");
    assert!(tree.move_to(&id("m1"), from, to).expect("moved"));
    assert_eq!(tree.state(&id("m1")).expect("state"), Some(to));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_written_outside_the_tree(name in ".{1,40}|[./\\\\~a-z-]{1,12}") {
        let Ok(minion) = MinionId::parse(&name) else { return Ok(()) };
        let (dir, options) = place(Compat::V3008);
        let pki = PkiTree::with_options(&options, Clock::system()).expect("a tree");
        let before = tree(dir.path()).len();
        for write in [PkiTree::pend, PkiTree::deny, PkiTree::accept] {
            write(&pki, &minion, &pem(0)).expect("written");
        }
        let added = tree(dir.path()).len() - before;
        prop_assert_eq!(added, 2);
        for state in ["minions", "minions_denied"] {
            let path = options.pki_dir.join(state).join(&name);
            prop_assert!(path.is_file());
            let parent = options.pki_dir.join(state);
            prop_assert_eq!(path.parent(), Some(parent.as_path()));
        }
    }
}
