//! Small files: whole or not at all, private from birth, and never outside their directory.

use std::fs;
use std::path::Path;
use std::thread::yield_now;

use proptest::prelude::*;
use saltern_base::clock::Clock;
use saltern_model::{Compat, MinionId};
use saltern_store::files::{self, Create, Version};
use saltern_store::{JobFiles, Sessions, StoreError};

use crate::common::{admit, jid, job, mode, place, text, tree};

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
fn a_file_is_replaced_as_a_whole_and_leaves_no_rest() {
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
fn a_file_that_is_there_is_kept() {
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
fn a_version_settles_and_a_change_makes_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let version = || {
        Version::of(&path, false)
            .expect("examined")
            .map(|stat| stat.version)
    };
    assert_eq!(version(), None);
    fs::write(&path, "a").expect("a file");
    let first = version().expect("a version");
    assert!(!first.is_settled());
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
