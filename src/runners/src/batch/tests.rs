//! The functions over files as the master and stock's command line leave them.

use std::sync::Arc;

use parking_lot::Mutex;
use saltern_config::load_master;
use saltern_model::{Compat, Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_store::jobs::Write;
use saltern_store::{BatchFiles, DatabaseLimits, JobDatabase, StoreOptions};
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::{BatchCommand, Batches};
use crate::{Arguments, Call, Notices, Ran, RunnerContext, Runners};

const JID: &str = "20260102030405060708";

struct Rig {
    _dir: tempfile::TempDir,
    database: JobDatabase,
    files: BatchFiles,
    runners: Runners,
    asked: Arc<Mutex<Vec<(Jid, BatchCommand)>>>,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("master"), "id: m\n").unwrap();
        let config = load_master(dir.path()).map_err(|errors| errors.to_string());
        let config = Arc::new(config.unwrap().config);
        let path = dir.path().join("jobs.sqlite");
        let database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        let options = StoreOptions::below(dir.path(), Compat::V3008);
        let files = BatchFiles::with_options(&options).unwrap();
        let asked = Arc::<Mutex<Vec<(Jid, BatchCommand)>>>::default();
        let requests = asked.clone();
        let batches = Batches::new(files.clone(), move |jid, command| {
            requests.lock().push((jid.clone(), command));
            Some(true)
        });
        let context = RunnerContext::new(config, database.reader().unwrap()).with_batches(batches);
        Self {
            _dir: dir,
            database,
            files,
            runners: Runners::new(context),
            asked,
        }
    }

    fn write(&self, changed: &[(&str, Value)]) {
        let jid = Jid::parse(JID).unwrap();
        self.files.write(&jid, &Self::state(changed)).unwrap();
        self.files.set_active(&jid, true).unwrap();
    }

    fn state(changed: &[(&str, Value)]) -> Vec<u8> {
        let list = |names: &[&str]| Value::Array(names.iter().map(|n| (*n).into()).collect());
        let mut state = vec![
            ("jid", Value::from(JID)),
            ("all_minions", list(&["m1", "m2", "m3"])),
            ("pending", list(&["m3"])),
            ("active", Value::map([("m2", 1.5)])),
            ("done", Value::map([("m1", Value::Map(Vec::new()))])),
            ("failed", Value::Map(Vec::new())),
            ("batch_size", 1.into()),
            ("fun", "test.ping".into()),
            ("tgt", "*".into()),
            ("tgt_type", "glob".into()),
            ("halted", false.into()),
            ("halted_reason", Value::Nil),
            ("driver", "master".into()),
            ("user", "root".into()),
            ("created", 1.0.into()),
            ("last_progress", 2.0.into()),
        ];
        for (name, value) in changed {
            state.retain(|(known, _)| known != name);
            state.push((name, value.clone()));
        }
        encode(&Value::map(state), Dialect::Bin)
    }

    fn run(&self, fun: &str, positional: Vec<Value>) -> Ran {
        let call = Call {
            jid: Jid::parse("20260102030405060709").unwrap(),
            fun: format!("batch.{fun}"),
            arguments: Arguments {
                positional,
                named: Vec::new(),
            },
            user: "me".to_owned(),
        };
        self.runners.run(&call, &mut Notices::new(&mut |_| {}))
    }
}

#[test]
fn batch_status_has_stocks_fields() {
    let rig = Rig::new();
    assert_eq!(rig.run("status", vec![JID.into()]).value, Value::Nil);
    assert_eq!(
        rig.run("list_active", Vec::new()).value,
        Value::Array(Vec::new())
    );
    rig.write(&[]);
    let status = rig.run("status", vec![JID.into()]).value;
    let names: Vec<_> = status
        .as_map()
        .unwrap()
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let expected = [
        "jid",
        "fun",
        "tgt",
        "tgt_type",
        "total",
        "completed",
        "active",
        "pending",
        "failed",
        "batch_size",
        "halted",
        "halted_reason",
        "driver",
        "user",
        "created",
        "last_progress",
        "age_seconds",
    ];
    assert_eq!(names, expected.map(Some));
    let counts = ["total", "completed", "active", "pending", "failed"];
    let counts = counts.map(|name| status.get(name).and_then(Value::as_i64).unwrap());
    assert_eq!(counts, [3, 1, 1, 1, 0]);
    let active = rig.run("list_active", Vec::new()).value;
    assert_eq!(active.as_array().map(<[Value]>::len), Some(1));
    assert_eq!(rig.run("status", vec!["../x".into()]).value, Value::Nil);
}

#[test]
fn stop_ends_running_batch_only() {
    let rig = Rig::new();
    let stop = |kill: bool| rig.run("stop", vec![JID.into(), kill.into()]).value;
    assert_eq!(stop(false), false.into(), "it is not known");
    rig.write(&[]);
    assert_eq!(stop(true), true.into());
    rig.write(&[("halted", true.into())]);
    assert_eq!(stop(false), false.into());
    let finished = [
        ("pending", Value::Array(Vec::new())),
        ("active", Value::Map(Vec::new())),
    ];
    rig.write(&finished);
    assert_eq!(stop(false), false.into());
    let stopped = BatchCommand::Stop { kill: true };
    assert_eq!(*rig.asked.lock(), [(Jid::parse(JID).unwrap(), stopped)]);
}

#[test]
fn pause_and_resume_reach_only_the_masters_running_batch() {
    let rig = Rig::new();
    let call = |fun| rig.run(fun, vec![JID.into()]);
    for fun in ["pause", "resume"] {
        assert_eq!(call(fun).value, false.into(), "{fun}: it is not known");
    }
    rig.write(&[]);
    for fun in ["pause", "resume"] {
        assert_eq!(call(fun).value, true.into(), "{fun}");
    }
    rig.write(&[("driver", "cli".into())]);
    assert!(!call("pause").success, "a command line does not hear of it");
    rig.write(&[("halted", true.into())]);
    assert_eq!(call("resume").value, false.into());
    let jid = || Jid::parse(JID).unwrap();
    let expected = [BatchCommand::Pause, BatchCommand::Resume].map(|asked| (jid(), asked));
    assert_eq!(*rig.asked.lock(), expected);
}

/// Without state files, as with `local_cache_mirror: off`.
#[test]
fn master_driven_batch_is_read_from_database() {
    let mut rig = Rig::new();
    let (jid, id) = (Jid::parse(JID).unwrap(), |id: &str| {
        MinionId::parse(id).unwrap()
    });
    let nothing = || Value::Map(Vec::new());
    let names = ["m1", "m2", "m3", "m4"].map(Value::from);
    let plan = Rig::state(&[
        ("all_minions", Value::Array(names.to_vec())),
        ("done", nothing()),
        ("active", nothing()),
    ]);
    let part = JobRecord {
        jid: jid.clone(),
        created: 1,
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: "*".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(&b"\x80"[..]),
        minions: ["m1", "m2", "m3"].map(id).to_vec(),
        nocache: false,
    };
    let returned = ReturnRecord {
        jid: jid.clone(),
        minion: id("m1"),
        received: 5_000_000,
        fun: "test.ping".to_owned(),
        retcode: 0,
        success: true,
        load: Packed::new(&b"\x80"[..]),
    };
    let plan = Packed::new(plan);
    let mut commit = |writes: &[Write]| _ = rig.database.commit(writes).unwrap();
    commit(&[
        Write::Batch {
            jid: jid.clone(),
            plan,
        },
        Write::JobPart(part),
        Write::Return(returned),
        Write::BatchFailed {
            jid: jid.clone(),
            minions: vec![id("m2")],
            reason: "timeout",
        },
    ]);
    let read = |rig: &Rig| rig.run("status", vec![JID.into()]).value;
    let status = read(&rig);
    let counts = ["total", "completed", "active", "pending", "failed"];
    let counts = counts.map(|name| status.get(name).and_then(Value::as_i64).unwrap());
    assert_eq!(counts, [4, 1, 1, 1, 1]);
    assert_eq!(status.get("last_progress"), Some(&5.0.into()));
    let listed = rig.run("list_active", Vec::new()).value;
    assert_eq!(listed.as_array().map(<[Value]>::len), Some(1));
    assert_eq!(rig.run("stop", vec![JID.into()]).value, true.into());
    assert_eq!(status.get("paused_since"), None);
    let pause = |since| Write::BatchPaused {
        jid: jid.clone(),
        since,
    };
    rig.database.commit(&[pause(Some(2_500_000))]).unwrap();
    assert_eq!(read(&rig).get("paused_since"), Some(&2.5.into()));

    let over = Write::BatchOver {
        jid: jid.clone(),
        halted: Some("stop".to_owned()),
    };
    rig.database.commit(&[over]).unwrap();
    assert_eq!(read(&rig).get("halted_reason"), Some(&"stop".into()));
    assert_eq!(rig.run("stop", vec![JID.into()]).value, false.into());
    let listed = rig.run("list_active", Vec::new()).value;
    assert_eq!(listed, Value::Array(Vec::new()));
}
