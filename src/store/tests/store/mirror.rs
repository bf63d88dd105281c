//! The job-cache files: stock's names, repaired when cut short, never in the way.

use std::fs;
use std::time::Duration;

use saltern_model::{Compat, Packed};
use saltern_store::{
    DatabaseLimits, JobDatabase, JobFiles, Mirror, MirrorLag, MirrorMode, StoreOptions, Write,
};
use saltern_wire::msgpack::{Limits, Value, decode_exact};
use tempfile::TempDir;

use crate::common::{id, jid, job, place, ret, text, tree};

struct Site {
    dir: TempDir,
    options: StoreOptions,
    database: JobDatabase,
}

impl Site {
    fn new(compat: Compat, change: impl FnOnce(&mut StoreOptions)) -> Self {
        let (dir, mut options) = place(compat);
        change(&mut options);
        fs::create_dir_all(options.private_dir()).expect("a directory");
        let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
        Self {
            dir,
            options,
            database: database.expect("a database"),
        }
    }

    fn commit(&mut self, writes: &[Write]) {
        self.database.commit(writes).expect("committed");
    }

    fn mirror(&self) -> Mirror {
        let reader = self.database.reader().expect("a reader");
        Mirror::with_options(&self.options, reader).expect("a mirror")
    }

    fn job_dir(&self, number: u32) -> std::path::PathBuf {
        let files = JobFiles::with_options(&self.options).expect("files");
        files.job_dir(&jid(number)).expect("a path")
    }
}

fn run(mirror: &mut Mirror) {
    while mirror.step(3).expect("a step") > 0 {}
}

fn unpacked(path: impl AsRef<std::path::Path>) -> Value {
    decode_exact(&fs::read(path).expect("a file"), &Limits::WIRE).expect("msgpack")
}

#[test]
fn jobs_and_returns_become_stocks_files() {
    let mut site = Site::new(Compat::V3008, |_| {});
    site.commit(&[
        Write::Job(job(1, &["m2", "m1"])),
        Write::Return(ret(1, "m1", Value::from(true))),
        Write::Return(ret(1, "m2", Value::from("pong"))),
    ]);
    let mut mirror = site.mirror();
    assert_eq!(
        mirror.lag().expect("lag"),
        MirrorLag {
            jobs: 1,
            returns: 2
        }
    );
    run(&mut mirror);
    assert_eq!(mirror.lag().expect("lag"), MirrorLag::default());
    let dir = site.job_dir(1);
    assert_eq!(
        tree(&dir),
        [
            ".load.p",
            ".minions.p",
            "jid",
            "m1",
            "m1/out.p",
            "m1/return.p",
            "m2",
            "m2/out.p",
            "m2/return.p"
        ]
    );
    assert_eq!(text(dir.join("jid")), jid(1).as_str());
    assert_eq!(
        fs::read(dir.join(".load.p")).expect("a load"),
        job(1, &[]).load.as_ref()
    );
    assert_eq!(unpacked(dir.join("m2/out.p")), Value::from("nested"));
    let expected = Value::map([
        ("return", Value::from("pong")),
        ("retcode", Value::from(0_i64)),
        ("success", Value::from(true)),
    ]);
    assert_eq!(unpacked(dir.join("m2/return.p")), expected);
}

#[test]
fn end_of_what_is_stored_is_reached_whatever_is_stored_later() {
    let mut site = Site::new(Compat::V3008, |_| {});
    let mut mirror = site.mirror();
    assert!(mirror.has_reached(mirror.end().expect("an end")));
    site.commit(&[
        Write::Job(job(1, &["m1"])),
        Write::Return(ret(1, "m1", Value::from(true))),
    ]);
    let end = mirror.end().expect("an end");
    site.commit(&[Write::Job(job(2, &["m1"]))]);
    assert!(!mirror.has_reached(end));
    mirror.step(1).expect("a step");
    assert!(mirror.has_reached(end));
    assert!(site.job_dir(1).join("m1").exists());
    assert!(!site.job_dir(2).exists());
    assert!(!mirror.has_reached(mirror.end().expect("an end")));
}

#[test]
fn directories_follow_hash_type() {
    // As Python's hashlib says of "20261121070622000001".
    for hash in ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"] {
        let (_dir, mut options) = place(Compat::V3008);
        options.hash_type = hash.to_owned();
        let files = JobFiles::with_options(&options).expect("files");
        let path = files.job_dir(&jid(1)).expect("a path");
        let relative = path.strip_prefix(options.job_files()).expect("below jobs");
        let parts: Vec<_> = relative.iter().map(|part| part.len()).collect();
        assert_eq!(parts[0], 2, "{hash}");
    }
    let (_dir, mut options) = place(Compat::V3008);
    options.hash_type = "no-such-hash".to_owned();
    assert!(JobFiles::with_options(&options).is_err());
}

#[test]
fn only_3008_merges_lists_of_minions() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let files = JobFiles::with_options(&options).expect("files");
        let load = job(1, &[]).load;
        for minions in [[id("b"), id("c")], [id("c"), id("a")]] {
            files
                .write_load(&jid(1), &load, Some(&minions), false)
                .expect("written");
        }
        let path = files.job_dir(&jid(1)).expect("a path").join(".minions.p");
        let expected: &[&str] = match compat {
            Compat::V3008 => &["a", "b", "c"],
            _ => &["c", "a"],
        };
        let list = Value::Array(expected.iter().map(|name| Value::from(*name)).collect());
        assert_eq!(unpacked(path), list, "{compat}");
    }
}

#[test]
fn mirror_resumes_at_its_cursor() {
    let mut site = Site::new(Compat::V3008, |_| {});
    site.commit(&[
        Write::Job(job(1, &["m1"])),
        Write::Return(ret(1, "m1", Value::Nil)),
    ]);
    let mut mirror = site.mirror();
    run(&mut mirror);
    mirror.save().expect("saved");
    drop(mirror);
    let mut mirror = site.mirror();
    assert_eq!(mirror.lag().expect("lag"), MirrorLag::default());
    assert_eq!(mirror.step(10).expect("a step"), 0);
    site.commit(&[Write::Return(ret(1, "m2", Value::Nil))]);
    assert_eq!(mirror.step(10).expect("a step"), 1);
    assert!(site.job_dir(1).join("m2/return.p").exists());
}

#[test]
fn files_truncated_by_power_loss_are_repaired() {
    let mut site = Site::new(Compat::V3008, |_| {});
    site.commit(&[
        Write::Job(job(1, &["m1"])),
        Write::Return(ret(1, "m1", Value::from("pong"))),
        Write::Return(ret(1, "m2", Value::from("pong"))),
    ]);
    let mut mirror = site.mirror();
    run(&mut mirror);
    drop(mirror);
    // Not saved: files may be empty, half there, or there with their temporary names.
    let dir = site.job_dir(1);
    let whole = fs::read(dir.join("m1/return.p")).expect("a return");
    for name in [".load.p", "m1/return.p", "m1/out.p"] {
        fs::write(dir.join(name), b"").expect("cut short");
    }
    fs::remove_file(dir.join("m2/return.p")).expect("lost");
    fs::create_dir(dir.join(".saltern-return")).expect("left behind");
    fs::write(dir.join(".saltern-return/out.p"), b"old").expect("left behind");
    run(&mut site.mirror());
    assert_eq!(fs::read(dir.join("m1/return.p")).expect("a return"), whole);
    assert_eq!(fs::read(dir.join("m2/return.p")).expect("a return"), whole);
    assert_eq!(unpacked(dir.join("m1/out.p")), Value::from("nested"));
    assert_eq!(
        fs::read(dir.join(".load.p")).expect("a load"),
        job(1, &[]).load.as_ref()
    );
}

#[test]
fn cursor_of_another_database_is_ignored() {
    let mut site = Site::new(Compat::V3008, |_| {});
    site.commit(&[Write::Return(ret(1, "m1", Value::Nil))]);
    let mut mirror = site.mirror();
    run(&mut mirror);
    mirror.save().expect("saved");
    let path = site.options.private_dir().join("mirror_cursor");
    let cursor = text(&path).replace(char::is_alphabetic, "0");
    fs::write(&path, cursor).expect("another database");
    assert_eq!(site.mirror().lag().expect("lag").returns, 1);
    for damage in [&b"\xff\xfe"[..], &[b'x'; 2000]] {
        fs::write(&path, damage).expect("damaged");
        assert_eq!(site.mirror().lag().expect("lag").returns, 1);
    }
}

#[test]
fn cursor_behind_the_end_of_a_restored_database_is_at_its_end() {
    let mut site = Site::new(Compat::V3008, |_| {});
    site.commit(&[
        Write::Job(job(1, &["m1"])),
        Write::Return(ret(1, "m1", Value::Nil)),
    ]);
    let mut mirror = site.mirror();
    run(&mut mirror);
    mirror.save().expect("saved");
    drop(mirror);
    let path = site.options.private_dir().join("mirror_cursor");
    let cursor = text(&path);
    let ahead = cursor.trim_end().strip_suffix("1 1").expect("two numbers");
    fs::write(&path, format!("{ahead}70 90\n")).expect("of rows that are no more");
    let mirror = site.mirror();
    let writes = (2..102).flat_map(|number| {
        [
            Write::Job(job(number, &["m1"])),
            Write::Return(ret(number, "m1", Value::Nil)),
        ]
    });
    site.commit(&writes.collect::<Vec<_>>());
    // Also when nothing was written until the next start.
    drop(mirror);
    run(&mut site.mirror());
    assert!(site.job_dir(2).join("m1/return.p").exists());
}

#[test]
fn returns_of_a_job_without_cache_have_no_files() {
    let mut site = Site::new(Compat::V3008, |_| {});
    let mut record = job(1, &["m1"]);
    record.nocache = true;
    site.commit(&[Write::Job(record), Write::Return(ret(1, "m1", Value::Nil))]);
    run(&mut site.mirror());
    assert_eq!(
        tree(&site.job_dir(1)),
        [".load.p", ".minions.p", "jid", "nocache"]
    );
}

#[test]
fn mirror_mode_selects_the_files_written() {
    for (mode, expected) in [(MirrorMode::Off, 0), (MirrorMode::Loads, 3)] {
        let mut site = Site::new(Compat::V3008, |options| options.mirror = mode);
        site.commit(&[
            Write::Job(job(1, &["m1"])),
            Write::Return(ret(1, "m1", Value::Nil)),
        ]);
        let mut mirror = site.mirror();
        run(&mut mirror);
        assert_eq!(mirror.lag().expect("lag"), MirrorLag::default());
        let dir = site.job_dir(1);
        let files = if dir.exists() { tree(&dir).len() } else { 0 };
        assert_eq!(files, expected);
    }
}

#[test]
fn endtime_is_written_in_stocks_words_when_wanted() {
    let mut site = Site::new(Compat::V3006, |options| options.store_endtime = true);
    let mut record = ret(1, "m1", Value::Nil);
    record.received = 1_795_244_782_637_714;
    site.commit(&[Write::Job(job(1, &["m1"])), Write::Return(record)]);
    run(&mut site.mirror());
    assert_eq!(
        text(site.job_dir(1).join("endtime")),
        "2026, Nov 21 07:06:22.637714"
    );
}

#[test]
fn a_job_cleaned_away_while_it_returns_is_written_anew() {
    let mut site = Site::new(Compat::V3008, |_| {});
    site.commit(&[
        Write::Job(job(1, &["m1"])),
        Write::Return(ret(1, "m1", Value::Nil)),
    ]);
    let mut mirror = site.mirror();
    run(&mut mirror);
    fs::remove_dir_all(site.job_dir(1)).expect("cleaned");
    site.commit(&[Write::Return(ret(1, "m2", Value::Nil))]);
    run(&mut mirror);
    assert!(site.job_dir(1).join("m2/return.p").exists());
    assert!(site.job_dir(1).join(".load.p").exists());
}

#[test]
fn minion_ids_never_overwrite_job_files() {
    let mut site = Site::new(Compat::V3008, |_| {});
    let names = [
        "jid",
        ".load.p",
        ".saltern-return",
        "...",
        "~",
        "a b",
        "-rf",
        "return.p",
    ];
    let mut writes = vec![Write::Job(job(1, &[]))];
    writes.extend(
        names
            .iter()
            .map(|name| Write::Return(ret(1, name, Value::Nil))),
    );
    site.commit(&writes);
    let before = tree(site.dir.path()).len();
    run(&mut site.mirror());
    assert_eq!(text(site.job_dir(1).join("jid")), jid(1).as_str());
    assert!(site.job_dir(1).join(".load.p").is_file());
    assert!(site.job_dir(1).join("-rf/return.p").is_file());
    let jobs = site.options.job_files();
    let outside = tree(site.dir.path()).len() - tree(&jobs).len();
    // Nothing but `jobs` itself was added outside of `jobs`.
    assert_eq!(outside, before + 1);
}

#[test]
fn a_return_that_is_no_map_is_passed_over() {
    let mut site = Site::new(Compat::V3008, |_| {});
    let mut odd = ret(1, "m1", Value::Nil);
    odd.load = Packed::new(vec![0xc1]);
    site.commit(&[Write::Return(odd), Write::Return(ret(1, "m2", Value::Nil))]);
    run(&mut site.mirror());
    assert_eq!(
        tree(&site.job_dir(1)),
        ["jid", "m2", "m2/out.p", "m2/return.p"]
    );
}

#[test]
fn old_jobs_are_cleaned_by_the_time_of_their_jid_file() {
    let (_dir, options) = place(Compat::V3008);
    let files = JobFiles::with_options(&options).expect("files");
    let load = job(1, &[]).load;
    for number in 1..=3 {
        files
            .write_load(&jid(number), &load, None, false)
            .expect("written");
    }
    let path = |number| files.job_dir(&jid(number)).expect("a path");
    let now = saltern_base::clock::Clock::system().now();
    let set_age = |path: &std::path::Path, age: u64| {
        let file = fs::File::open(path).expect("a file");
        file.set_modified(now - Duration::from_secs(age))
            .expect("its time");
    };
    set_age(&path(1).join("jid"), 7_200);
    // The directory of a job in the making, and one of a job that was never made.
    fs::remove_file(path(2).join("jid")).expect("removed");
    fs::remove_file(path(3).join("jid")).expect("removed");
    set_age(&path(3), 600);
    let now = saltern_base::clock::unix_micros(now) / 1_000_000;
    assert_eq!(files.clean_old(Duration::ZERO, now).expect("cleaned"), 0);
    assert_eq!(
        files
            .clean_old(Duration::from_secs(3_600), now)
            .expect("cleaned"),
        2
    );
    assert!(!path(1).exists() && path(2).exists() && !path(3).exists());
}

#[test]
fn publish_auth_file_is_stocks_and_expires() {
    let mut site = Site::new(Compat::V3008, |_| {});
    site.commit(&[
        Write::Job(job(1, &["m1"])),
        Write::PublishedFor {
            jid: jid(1),
            minion: id("asker"),
        },
        Write::Job(job(2, &["m1"])),
    ]);
    let mut mirror = site.mirror();
    run(&mut mirror);
    let dir = site.options.publish_auth();
    assert_eq!(tree(&dir), [jid(1).as_str()]);
    let path = dir.join(jid(1).as_str());
    assert_eq!(text(&path), "asker");
    let files = mirror.files();
    let written = fs::metadata(&path).and_then(|meta| meta.modified());
    let written = saltern_base::clock::unix_micros(written.expect("its time")) / 1_000_000;
    let hour = Duration::from_secs(3_600);
    let cleaned = |keep, now| files.clean_publishers(keep, now).expect("cleaned");
    assert_eq!(cleaned(Duration::ZERO, written + 7_200), 0);
    assert_eq!(cleaned(hour, written + 3_600), 0);
    assert_eq!(cleaned(hour, written + 3_601), 1);
    assert_eq!(cleaned(hour, written + 3_601), 0);
    run_again_and_remove(&mut site, &path);
}

/// A job removed before its time is removed with all its files.
fn run_again_and_remove(site: &mut Site, path: &std::path::Path) {
    let files = JobFiles::with_options(&site.options).expect("files");
    files
        .write_publisher(&jid(1), &id("asker"))
        .expect("written");
    assert!(path.exists());
    files.remove(&jid(1)).expect("removed");
    assert!(!path.exists());
}
