//! Batches in the job database, and in the files that stock keeps them in.

use saltern_model::{Compat, Packed};
use saltern_store::files::ensure_dir;
use saltern_store::{BatchFiles, DatabaseLimits, JobDatabase, Write, Written};
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::common::{id, jid, job, mode, place, ret};

fn plan() -> Packed {
    Packed::new(&b"\x81\xa1a\x01"[..])
}

#[test]
fn batch_state_is_read_from_its_rows_and_its_job() {
    let (_dir, options) = place(Compat::V3008);
    ensure_dir(&options.private_dir(), 0o700).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    let reader = database.reader().expect("a reader");
    let begin = |number| Write::Batch {
        jid: jid(number),
        plan: plan(),
    };
    let written = database
        .commit(&[
            begin(1),
            begin(1),
            begin(2),
            Write::JobPart(job(1, &["b"])),
            Write::JobPart(job(1, &["a", "b"])),
            Write::Return(ret(1, "a", Value::from(true))),
            Write::BatchFailed {
                jid: jid(1),
                minions: vec![id("b")],
                reason: "timeout",
            },
        ])
        .expect("committed");
    assert_eq!(written[..2], [Written::Updated, Written::Duplicate]);
    let batch = reader.batch(&jid(1)).expect("read").expect("a batch");
    assert_eq!(batch.plan, plan());
    assert_eq!(batch.sent, [id("a"), id("b")]);
    assert_eq!(batch.failed, [(id("b"), "timeout".to_owned())]);
    let [returned] = batch.returned.as_slice() else {
        panic!("one minion has returned");
    };
    assert_eq!((&returned.minion, returned.retcode), (&id("a"), 0));
    assert_eq!(batch.last_return(), returned.received);
    assert!(batch.is_open && batch.published.is_none());

    let pause = |number, since| Write::BatchPaused {
        jid: jid(number),
        since,
    };
    let written = database
        .commit(&[pause(1, Some(7)), pause(2, Some(8)), pause(2, None)])
        .expect("committed");
    assert_eq!(written, [Written::Updated; 3]);
    assert_eq!(reader.batch_paused_since(&jid(1)).expect("read"), Some(7));
    assert_eq!(reader.batch_paused_since(&jid(2)).expect("read"), None);
    let open = reader.open_batches().expect("read");
    assert_eq!(open[0].paused_since, Some(7));

    let left = Write::Published { jid: jid(1), at: 5 };
    let over = |number, halted: Option<&str>| Write::BatchOver {
        jid: jid(number),
        halted: halted.map(str::to_owned),
    };
    let written = database
        .commit(&[left, over(2, Some("stop")), over(3, None)])
        .expect("committed");
    assert_eq!(written[1..], [Written::Updated, Written::NoSuchJob]);
    let open = reader.open_batches().expect("read");
    assert_eq!((open.len(), open[0].published), (1, Some(5)));
    let stopped = reader.batch(&jid(2)).expect("read").expect("a batch");
    assert!(!stopped.is_open);
    let written = database.commit(&[pause(2, Some(9))]).expect("committed");
    assert_eq!(written, [Written::NoSuchJob]);
    assert_eq!(stopped.halted.as_deref(), Some("stop"));
    assert!(reader.batch(&jid(3)).expect("read").is_none());

    let delete = Write::DeleteJob { jid: jid(1) };
    database.commit(&[delete]).expect("committed");
    assert!(reader.batch(&jid(1)).expect("read").is_none());
}

#[test]
fn batch_files_lie_where_stock_looks_for_them() {
    let (_dir, options) = place(Compat::V3008);
    let files = BatchFiles::with_options(&options).expect("batch files");
    assert_eq!(files.read(&jid(1)).expect("read"), None);
    assert!(files.active().expect("read").is_empty());
    let state = Value::map([("jid", jid(1).as_str())]);
    files
        .write(&jid(1), &encode(&state, Dialect::Bin))
        .expect("written");
    assert_eq!(files.read(&jid(1)).expect("read"), Some(state));
    assert!(files.has_state(&jid(1)).expect("read"));

    for (number, is_active) in [(2, true), (1, true), (2, true), (1, false), (3, false)] {
        files.set_active(&jid(number), is_active).expect("written");
    }
    assert_eq!(files.active().expect("read"), [jid(2)]);
    let index = options.cachedir.join("batch_active.p");
    assert_eq!(mode(&index) & 0o600, 0o600);
    std::fs::write(&index, b"\x93").expect("written");
    assert!(files.active().expect("a damaged list is empty").is_empty());
    files.write(&jid(4), b"\xc1").expect("written");
    assert!(files.read(&jid(4)).is_err(), "a damaged state is an error");
}
