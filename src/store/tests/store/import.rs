//! Jobs out of a job cache that stock wrote, or that a lost database left behind.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use saltern_model::{Compat, Jid, Packed};
use saltern_store::jobs::JobsPage;
use saltern_store::{
    DatabaseLimits, Imported, JobCacheReader, JobDatabase, JobFollower, JobState, Mirror,
    StoreOptions, Write,
};
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, encode};

use crate::common::{id, jid, job, place, ret};

fn database(options: &StoreOptions) -> JobDatabase {
    fs::create_dir_all(options.private_dir()).expect("a directory");
    JobDatabase::open(&options.job_database, DatabaseLimits::default()).expect("a database")
}

/// Reads everything in; what was new, and what could not be read.
fn import(
    options: &StoreOptions,
    database: &mut JobDatabase,
    since: Option<i64>,
) -> (Imported, u64) {
    let mut reader = JobCacheReader::with_options(options, since);
    let mut total = Imported::default();
    while let Some(slice) = reader.next_slice() {
        let new = database.import(&slice).expect("imported");
        total.jobs += new.jobs;
        total.returns += new.returns;
    }
    database.finish_import().expect("remembered");
    (total, reader.unreadable())
}

fn imported(jobs: u64, returns: u64) -> Imported {
    Imported { jobs, returns }
}

/// Has stock's own `local_cache` write three jobs.
fn stock_writes(release: &str, options: &StoreOptions) {
    let config = options.cachedir.with_file_name("master");
    fs::create_dir_all(&options.cachedir).expect("a directory");
    let text = format!(
        "root_dir: {root}\ncachedir: {cache}\nlog_file: {root}/log\nid: m\nuser: root\n",
        root = config.parent().expect("a root").display(),
        cache = options.cachedir.display(),
    );
    fs::write(&config, text).expect("a configuration");
    let script = format!(
        "import salt.config, salt.loader\n\
         opts = salt.config.master_config({:?})\n\
         opts['hash_type'] = {:?}\n\
         r = salt.loader.returners(opts, {{}})\n\
         def job(jid, fun, tgt, tgt_type, minions, **more):\n\
         \x20   r['local_cache.prep_jid'](passed_jid=jid)\n\
         \x20   load = {{'jid': jid, 'fun': fun, 'tgt': tgt, 'tgt_type': tgt_type, 'user': 'root',\n\
         \x20           'arg': ['größe'], 'ret': '', 'kwargs': {{}}, 'cmd': 'publish'}}\n\
         \x20   r['local_cache.save_load'](jid, load, minions=minions)\n\
         def ret(jid, id, value, **more):\n\
         \x20   r['local_cache.returner']({{'jid': jid, 'id': id, 'return': value, 'retcode': 0,\n\
         \x20                             'success': True, 'fun': 'x', **more}})\n\
         job('20261121070622000001', 'test.ping', '*', 'glob', ['m1', 'm2'])\n\
         ret('20261121070622000001', 'm1', True)\n\
         ret('20261121070622000001', 'm2', True)\n\
         job('20261121070622000002', 'state.apply', ['m1', 'm3'], 'list', ['m1', 'm3'])\n\
         ret('20261121070622000002', 'm1', {{'a': {{'result': False}}}}, out='highstate', retcode=2)\n\
         job('20261121070622000003', ['test.ping', 'cmd.run'], 'm*', 'glob', ['m1'])\n",
        config.display().to_string(),
        options.hash_type,
    );
    let output = Command::new(saltern_stock::program(release, "python"))
        .args(["-W", "ignore", "-c", &script])
        .output()
        .expect("stock's python starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
}

#[test]
fn jobs_that_stock_wrote_are_as_ours() {
    for (release, hash) in [
        ("3006.28", "sha256"),
        ("3007.15", "sha256"),
        ("3008.3", "md5"),
    ] {
        let (_dir, mut options) = place(Compat::V3008);
        options.hash_type = hash.to_owned();
        stock_writes(release, &options);
        let mut database = database(&options);
        assert!(
            !database
                .reader()
                .expect("a reader")
                .has_imported()
                .expect("read")
        );
        let found = import(&options, &mut database, None);
        assert_eq!(found, (imported(3, 3), 0), "{release}");

        let reader = database.reader().expect("a reader");
        assert!(reader.has_imported().expect("read"));
        let whole = reader.load(&jid(1)).expect("read").expect("a job");
        assert_eq!(whole.state, JobState::Complete, "{release}");
        assert_eq!(whole.record.minions, [id("m1"), id("m2")]);
        assert_eq!(
            (whole.record.user.as_str(), whole.record.tgt.as_str()),
            ("root", "*")
        );
        assert!(whole.record.created > 1_700_000_000_000_000, "{release}");
        let load = decode_exact(whole.record.load.as_ref(), &Limits::WIRE).expect("msgpack");
        let arg = load.get("arg").and_then(Value::as_array).expect("a list");
        assert_eq!(arg, [Value::from("größe")], "{release}");

        let part = reader.load(&jid(2)).expect("read").expect("a job");
        assert_eq!(part.state, JobState::Expired, "{release}");
        assert_eq!(part.record.tgt, "m1,m3");
        let returned = reader.returns(&jid(2)).expect("read");
        assert_eq!(returned.len(), 1, "{release}");
        let record = &returned[0];
        assert_eq!((record.retcode, record.fun.as_str()), (2, "state.apply"));
        let load = decode_exact(record.load.as_ref(), &Limits::WIRE).expect("msgpack");
        assert_eq!(load.get("out"), Some(&Value::from("highstate")));
        assert_eq!(load.get("id"), Some(&Value::from("m1")));

        let compound = reader.load(&jid(3)).expect("read").expect("a job");
        assert_eq!(compound.record.fun, "test.ping,cmd.run");
        // Once more: everything is there already.
        assert_eq!(import(&options, &mut database, None).0, imported(0, 0));
    }
}

#[test]
fn lost_database_comes_back_from_the_mirror_and_followers_do_not_meet_it() {
    let (_dir, options) = place(Compat::V3008);
    let mut first = database(&options);
    let returns = (0..1_200).map(|number| {
        let minion = format!("m{number}");
        Write::Return(ret(1, &minion, Value::from(number)))
    });
    let names: Vec<String> = (0..1_200).map(|number| format!("m{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut writes = vec![Write::Job(job(1, &names)), Write::Job(job(2, &["m1"]))];
    writes.extend(returns);
    first.commit(&writes).expect("committed");
    let mut mirror =
        Mirror::with_options(&options, first.reader().expect("a reader")).expect("a mirror");
    while mirror.step(1_000).expect("a step") > 0 {}
    mirror.save().expect("saved");
    drop((first, mirror));
    for suffix in ["", "-wal", "-shm"] {
        let mut name = options.job_database.clone().into_os_string();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }

    let mut second = database(&options);
    // A job of now comes first.
    let new = second
        .commit(&[Write::Job(job(3, &["m1"]))])
        .expect("committed");
    let found = import(&options, &mut second, None);
    assert_eq!(found, (imported(2, 1_200), 0));
    let reader = second.reader().expect("a reader");
    let old = reader.load(&jid(1)).expect("read").expect("a job");
    assert_eq!(old.state, JobState::Complete);
    assert_eq!(old.record.minions.len(), 1_200);
    assert_eq!(reader.returns(&jid(1)).expect("read").len(), 1_200);
    let page = JobsPage {
        limit: 10,
        ..JobsPage::default()
    };
    let listed: Vec<Jid> = reader
        .jobs_page(&page)
        .expect("listed")
        .into_iter()
        .map(|head| head.jid)
        .collect();
    assert_eq!(listed, [jid(3), jid(2), jid(1)]);

    // What follows from the beginning meets the job of now and nothing else.
    assert!(new[0].is_new());
    assert_eq!(reader.jobs_after(0, 10).expect("read").len(), 1);
    assert_eq!(reader.returns_after(0, 10).expect("read").len(), 0);
    let owner = ("ext_job_cache", "x");
    let follower = JobFollower::with_options(&options, owner, second.reader().expect("a reader"));
    drop(follower.expect("a follower"));
    // Numbers go on upwards, also after the next start.
    drop(second);
    let mut third = database(&options);
    third
        .commit(&[Write::Job(job(4, &["m1"]))])
        .expect("committed");
    let reader = third.reader().expect("a reader");
    assert_eq!(reader.jobs_after(0, 10).expect("read").len(), 2);
}

#[test]
fn unreadable_foreign_and_old_files_are_passed_over() {
    let (dir, options) = place(Compat::V3008);
    let jobs = options.job_files();
    let make = |name: &str| {
        let path = jobs.join("ab").join(name);
        fs::create_dir_all(&path).expect("a directory");
        path
    };
    fs::write(make("no-jid").join(".load.p"), b"\x80").expect("written");
    let wrong = make("wrong-jid");
    fs::write(wrong.join("jid"), "../../etc/passwd").expect("written");
    let cut = make("cut");
    fs::write(cut.join("jid"), jid(7).as_str()).expect("written");
    fs::write(cut.join(".load.p"), job(7, &[]).load.as_ref()).expect("written");
    fs::create_dir(cut.join("m1")).expect("a directory");
    fs::write(cut.join("m1/return.p"), b"\x82\xa6ret").expect("written");
    // Nothing is read through links.
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    fs::write(outside.join("return.p"), b"\x81\xa6return\xc3").expect("written");
    symlink(&outside, cut.join("m2")).expect("a link");
    symlink("/etc/passwd", cut.join(".minions.p")).expect("a link");
    symlink(&outside, jobs.join("ab/linked")).expect("a link");
    fs::create_dir_all(jobs.join("not-a-part/x")).expect("a directory");

    let mut database = database(&options);
    let (found, unreadable) = import(&options, &mut database, None);
    assert_eq!(found, imported(1, 0));
    assert_eq!(unreadable, 4, "two directories and two returns");
    let reader = database.reader().expect("a reader");
    let job = reader.load(&jid(7)).expect("read").expect("a job");
    assert!(job.record.minions.is_empty());

    let (_dir, fresh) = place(Compat::V3008);
    let mut other = StoreOptions {
        cachedir: options.cachedir.clone(),
        ..fresh
    };
    other.job_database = options.cachedir.join("saltern/other.sqlite");
    let mut database = self::database(&other);
    assert_eq!(
        import(&other, &mut database, Some(i64::MAX)).0,
        imported(0, 0)
    );
}

/// Writes the files of a job into the part of the job cache of this name.
fn cached(options: &StoreOptions, part: &str, number: u32) {
    let dir = options.job_files().join(part).join(format!("job{number}"));
    fs::create_dir_all(dir.join("m1")).expect("a directory");
    fs::write(dir.join("jid"), jid(number).as_str()).expect("written");
    let load = job(number, &["m1"]).load;
    fs::write(dir.join(".load.p"), load.as_ref()).expect("written");
    fs::write(dir.join("m1/return.p"), b"\x81\xa6return\xc3").expect("written");
}

fn read_all(reader: &mut JobCacheReader) -> Vec<Jid> {
    let slices = std::iter::from_fn(|| reader.next_slice());
    slices.flatten().map(|cached| cached.jid).collect()
}

#[test]
fn unlisted_part_delays_no_other_and_is_retried() {
    let (_dir, options) = place(Compat::V3008);
    cached(&options, "02", 1);
    cached(&options, "7f", 2);
    let part = options.job_files().join("05");
    // Nobody can list it, root neither.
    symlink("05", &part).expect("a link");
    fs::write(options.job_files().join("06"), "a file of somebody").expect("written");

    let mut reader = JobCacheReader::with_options(&options, None);
    assert_eq!(read_all(&mut reader), [jid(1), jid(2)]);
    assert_eq!(reader.unlisted(), 1);
    assert!(reader.try_again());
    assert_eq!(read_all(&mut reader), []);
    fs::remove_file(&part).expect("removed");
    cached(&options, "05", 3);
    assert!(reader.try_again());
    assert_eq!(read_all(&mut reader), [jid(3)]);
    assert_eq!(reader.unlisted(), 0);
    assert!(!reader.try_again(), "all is read");

    fs::remove_dir_all(&part).expect("removed");
    symlink("05", &part).expect("a link");
    let mut reader = JobCacheReader::with_options(&options, None);
    let mut passes = 1;
    read_all(&mut reader);
    while reader.try_again() {
        read_all(&mut reader);
        passes += 1;
    }
    assert_eq!((passes, reader.unlisted()), (5, 1));
}

/// A minion returned a job of the old master before that was read in; the job's files say the
/// truth.
#[test]
fn imported_job_takes_the_place_of_its_report_and_its_file_stays() {
    let (_dir, options) = place(Compat::V3008);
    cached(&options, "02", 1);
    let mut database = database(&options);
    let mut reported = job(1, &["late"]);
    reported.user = "minion:late".to_owned();
    reported.load = Packed::new(&b"\x81\xa3fun\xa4fake"[..]);
    let writes = [
        Write::ClosedJob {
            job: reported,
            reporter: Some(id("late")),
        },
        Write::Return(ret(1, "late", Value::from(1))),
    ];
    database.commit(&writes).expect("committed");
    let mirror = Mirror::with_options(&options, database.reader().expect("a reader"));
    let mut mirror = mirror.expect("a mirror");
    while mirror.step(100).expect("a step") > 0 {}

    assert_eq!(import(&options, &mut database, None).0, imported(1, 1));
    let reader = database.reader().expect("a reader");
    let found = reader.load(&jid(1)).expect("read").expect("a job");
    assert_eq!(found.record.user, job(1, &[]).user);
    assert_eq!(found.record.fun, job(1, &[]).fun);
    assert_eq!(found.reporter, None);
    assert_eq!(found.state, JobState::Complete);
    assert_eq!(reader.returns(&jid(1)).expect("read").len(), 2);
    // Once more: nothing is new, and nothing changes.
    assert_eq!(import(&options, &mut database, None).0, imported(0, 0));
}

/// The mirror wrote them like jobs that were published; a lost database must not make them so.
#[test]
fn reported_jobs_of_lost_database_come_back_as_reports() {
    let (_dir, options) = place(Compat::V3008);
    let mut first = database(&options);
    let report = |number, user: &str| {
        let mut job = job(number, &["m1"]);
        let load = Value::map([("jid", job.jid.as_str()), ("user", user), ("fun", "x")]);
        job.user = user.to_owned();
        job.load = Packed::new(encode(&load, Dialect::Bin));
        job
    };
    let reported = |number, user| Write::ClosedJob {
        job: report(number, user),
        reporter: Some(id("m1")),
    };
    let writes = [
        reported(1, "minion:m1"),
        reported(2, "syndic:m1"),
        Write::Job(report(3, "minion")),
    ];
    first.commit(&writes).expect("committed");
    let mirror = Mirror::with_options(&options, first.reader().expect("a reader"));
    let mut mirror = mirror.expect("a mirror");
    while mirror.step(100).expect("a step") > 0 {}
    drop((first, mirror));
    fs::remove_file(&options.job_database).expect("removed");

    let mut second = database(&options);
    // One of them was published meanwhile, and stays so.
    second
        .commit(&[Write::Job(report(2, "ann"))])
        .expect("committed");
    import(&options, &mut second, None);
    let reader = second.reader().expect("a reader");
    let found = [1, 2, 3].map(|number| reader.load(&jid(number)).expect("read").expect("a job"));
    let reporters = found.each_ref().map(|job| job.reporter.clone());
    assert_eq!(reporters, [Some(id("m1")), None, None]);
    assert_eq!(
        found.map(|job| job.record.user),
        ["minion:m1", "ann", "minion"]
    );
    for (number, is_published) in [(1, false), (2, true), (3, true)] {
        let published = reader.is_published_for(&jid(number), &id("m1"));
        assert_eq!(published.expect("read"), is_published, "{number}");
    }
    // What a master published takes the place of its report, and no report that of another.
    import(&options, &mut second, None);
    assert_eq!(
        reader.load(&jid(1)).expect("read").expect("a job").reporter,
        Some(id("m1"))
    );
}

/// The job that this master published itself, and that a report never was.
#[test]
fn imported_job_changes_no_published_one() {
    let (_dir, options) = place(Compat::V3008);
    cached(&options, "02", 1);
    let mut database = database(&options);
    let mut own = job(1, &["m1", "m2"]);
    own.user = "ann".to_owned();
    database.commit(&[Write::Job(own)]).expect("committed");
    assert_eq!(import(&options, &mut database, None).0, imported(0, 1));
    let reader = database.reader().expect("a reader");
    let found = reader.load(&jid(1)).expect("read").expect("a job");
    assert_eq!(found.record.user, "ann");
    assert_eq!(found.state, JobState::Open);
}
