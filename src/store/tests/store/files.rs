//! Small files: whole or not at all, private from birth, and never outside their directory.

use std::fs;
use std::path::Path;
use std::thread::yield_now;

use proptest::prelude::*;
use saltern_base::clock::Clock;
use saltern_model::{Compat, MinionId};
use saltern_store::files::{self, Create, Version};
use saltern_store::{JobFiles, PkiTree, Sessions, StoreError};

use crate::common::{admit, jid, job, mode, pem, place, text, tree};

#[test]
fn names_that_are_no_single_entry_are_refused() {
    let root = Path::new("/root/dir");
    for good in ["a", "..a", ".a", "a b", "-", "größe"] {
        assert_eq!(files::child(root, good).expect("safe").parent(), Some(root));
    }
    for bad in ["", ".", "..", "a/b", "/etc", "../x", "a\0b"] {
        let error = files::child(root, bad).expect_err("refused");
        assert!(matches!(error, StoreError::UnsafeName { .. }), "{bad:?}");
    }
}

#[test]
fn replace_is_atomic_and_leaves_no_temporary_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    for content in ["first", "second, longer", ""] {
        files::write_atomic(&path, content.as_bytes(), Create::PRIVATE).expect("written");
        assert_eq!(text(&path), content);
        assert_eq!(mode(&path), 0o600);
    }
    assert_eq!(tree(dir.path()), ["f"]);
    fs::create_dir(dir.path().join("d")).expect("a directory");
    let error = files::write_atomic(&dir.path().join("d"), b"x", Create::PRIVATE);
    assert!(error.is_err());
    assert_eq!(tree(dir.path()), ["d", "f"]);
}

#[test]
fn create_new_keeps_an_existing_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let create = Create::PRIVATE.mode(0o400);
    assert!(files::create_new(&path, b"first", create).expect("created"));
    assert!(!files::create_new(&path, b"second", create).expect("kept"));
    assert_eq!(text(&path), "first");
    assert_eq!(mode(&path), 0o400);
    assert_eq!(tree(dir.path()), ["f"]);
}

#[test]
fn reads_have_a_bound() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    assert_eq!(files::read(&path, 3).expect("none"), None);
    fs::write(&path, "abc").expect("a file");
    assert_eq!(
        files::read(&path, 3).expect("read").as_deref(),
        Some(&b"abc"[..])
    );
    let error = files::read(&path, 2).expect_err("refused");
    assert!(
        matches!(error, StoreError::TooLarge { limit: 2, .. }),
        "{error}"
    );
    fs::write(&path, [0xff]).expect("a file");
    let error = files::read_text(&path, 9).expect_err("refused");
    assert!(matches!(error, StoreError::Malformed { .. }), "{error}");
}

#[test]
fn version_settles_and_changes_with_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let version = || {
        Version::of(&path, false)
            .expect("examined")
            .map(|stat| stat.version)
    };
    assert_eq!(version(), None);
    // A busy machine may keep this thread from its look for longer than a version takes to settle.
    let mut young = (0..1_000).filter_map(|_| {
        fs::write(&path, "a").expect("a file");
        version().filter(|version| !version.is_settled())
    });
    let first = young.next().expect("a version that is not settled");
    while !first.is_settled() {
        yield_now();
    }
    assert_eq!(version(), Some(first));
    fs::write(&path, "b").expect("a file");
    assert_ne!(version(), Some(first));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sessions_and_returns_stay_below_their_directories(
        name in ".{1,40}|[./\\\\~a-z-]{1,12}|\\.minions\\.p|return\\.p"
    ) {
        let Ok(id) = MinionId::parse(&name) else { return Ok(()) };
        let (dir, options) = place(Compat::V3008);
        let sessions = Sessions::with_options(&options, Clock::system()).expect("sessions");
        let jobs = JobFiles::with_options(&options).expect("files");
        jobs.write_load(&jid(1), &job(1, &[]).load, Some(&[]), false).expect("written");
        let outside = |below: &Path| -> Vec<String> {
            let below = below.strip_prefix(dir.path()).expect("below").to_owned();
            let all = tree(dir.path()).into_iter();
            all.filter(|path| !Path::new(path).starts_with(&below)).collect()
        };
        let (session_dir, job_dir) = (options.cachedir.join("sessions"), options.job_files());

        let before = outside(&session_dir);
        admit(&sessions, &options, &id);
        prop_assert_eq!(outside(&session_dir), before);
        prop_assert!(session_dir.join(&name).is_file());

        let before = outside(&job_dir);
        let open = jobs.open_dir(&jid(1)).expect("opened").expect("a directory");
        jobs.write_return(&open, &id, &Default::default()).expect("written");
        // A name too long for a file is an error, everything else is one entry of the directory.
        let _ = jobs.write_minions(&jid(1), &[], Some(&id));
        prop_assert_eq!(outside(&job_dir), before);
    }
}

/// The names that somebody who watches a directory has seen.
fn watched(directory: &Path, change: impl FnOnce()) -> Vec<String> {
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("a watch");
    inotify::add_watch(&watch, directory, WatchFlags::ALL_EVENTS).expect("watched");
    change();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let mut names = Vec::new();
    while let Ok(event) = reader.next() {
        if let Some(name) = event.file_name() {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn watchers_of_keys_see_no_temporary_file() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let tree_of_keys = PkiTree::with_options(&options, Clock::system()).expect("a tree");
        let m1 = MinionId::parse("m1").expect("an id");
        let minions = options.pki_dir.join("minions");
        let names = watched(&minions, || {
            tree_of_keys.accept(&m1, &pem(0)).expect("accepted");
            tree_of_keys.accept(&m1, &pem(1)).expect("accepted");
            tree_of_keys.write_key_cache().expect("written");
        });
        assert_eq!(names, [".key_cache", "m1"], "{compat:?}");
        assert_eq!(tree(&minions), [".key_cache", "m1"]);
    }
}

#[test]
fn temporary_files_of_ended_processes_are_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let stays = [
        ".saltern-1-7",
        ".saltern-4000000000-x",
        ".saltern-return",
        "m1",
    ];
    let goes = [
        ".saltern-4000000000-7".to_owned(),
        format!(".saltern-{}-3", std::process::id()),
    ];
    for name in stays.into_iter().chain(goes.iter().map(String::as_str)) {
        fs::write(at(name), "x").expect("written");
    }
    files::remove_stale(dir.path()).expect("removed");
    assert_eq!(tree(dir.path()), stays);
    files::remove_stale(&at("no-such")).expect("nothing to do");
}
