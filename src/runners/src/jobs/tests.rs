//! Each function on a small database; `tests/e2e/runners.rs` compares with stock.

use std::sync::Arc;

use saltern_config::load_master;
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_store::jobs::{JobState, Write};
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tempfile::TempDir;

use crate::{Arguments, Call, Notice, Notices, Ran, RunnerContext, Runners};

fn jid(number: u32) -> Jid {
    Jid::parse(&format!("2026112107{number:010}")).unwrap()
}

fn id(name: &str) -> MinionId {
    MinionId::parse(name).unwrap()
}

fn packed(value: &Value) -> Packed {
    Packed::new(encode(value, Dialect::Bin))
}

fn job(number: u32, fun: &str, minions: &[&str], more: &[(&str, Value)]) -> Write {
    let names: Vec<Value> = minions.iter().map(|name| Value::from(*name)).collect();
    let mut load = vec![
        ("fun", Value::from(fun)),
        ("arg", Value::Array(vec!["one".into()])),
        ("tgt", Value::Array(names)),
        ("tgt_type", "list".into()),
        ("user", "me".into()),
    ];
    load.extend(more.iter().cloned());
    Write::Job(JobRecord {
        jid: jid(number),
        created: 0,
        user: "me".to_owned(),
        fun: fun.to_owned(),
        tgt: minions.join(","),
        tgt_type: "list".to_owned(),
        load: packed(&Value::map(load)),
        minions: minions.iter().map(|name| id(name)).collect(),
        nocache: false,
    })
}

fn returned(number: u32, minion: &str, parts: &[(&str, Value)]) -> Write {
    Write::Return(ReturnRecord {
        jid: jid(number),
        minion: id(minion),
        received: 1_795_244_782_637_714,
        fun: "test.ping".to_owned(),
        retcode: 0,
        success: true,
        load: packed(&Value::map(parts.iter().cloned())),
    })
}

struct Site {
    runners: Runners,
    _dir: TempDir,
}

impl Site {
    fn new(options: &str, writes: &[Write]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("master"), options).unwrap();
        let Ok(loaded) = load_master(dir.path()) else {
            panic!("the options of this test are wrong")
        };
        let path = dir.path().join("jobs.sqlite");
        let mut database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        database.commit(writes).unwrap();
        let jobs = database.reader().unwrap();
        Self {
            runners: Runners::new(RunnerContext::new(Arc::new(loaded.config), jobs)),
            _dir: dir,
        }
    }

    fn run(&self, fun: &str, positional: &[Value], named: &[(&str, Value)]) -> Ran {
        self.run_with_notices(fun, positional, named, &mut |_| {})
    }

    fn run_with_notices(
        &self,
        fun: &str,
        positional: &[Value],
        named: &[(&str, Value)],
        notify: &mut dyn FnMut(Notice),
    ) -> Ran {
        let call = Call {
            jid: jid(4_000_000),
            fun: format!("jobs.{fun}"),
            arguments: Arguments {
                positional: positional.to_vec(),
                named: named
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.clone()))
                    .collect(),
            },
            user: "me".to_owned(),
        };
        self.runners.run(&call, &mut Notices::new(notify))
    }

    fn value(&self, fun: &str, positional: &[Value], named: &[(&str, Value)]) -> Value {
        let ran = self.run(fun, positional, named);
        assert_eq!(ran.retcode, None, "{:?}", ran.value);
        ran.value
    }

    /// The last digits of the jids that a listing gives.
    fn listed(&self, named: &[(&str, Value)]) -> Vec<u32> {
        let jobs = self.value("list_jobs", &[], named);
        let jids = jobs.as_map().unwrap().iter();
        jids.map(|(jid, _)| jid.as_str().unwrap()[10..].parse().unwrap())
            .collect()
    }
}

fn some_jobs() -> Site {
    let metadata = Value::map([("who", "me"), ("why", "test")]);
    let kwarg = Value::map([
        ("__kwarg__", Value::from(true)),
        ("metadata", Value::map([("who", "you")])),
    ]);
    Site::new(
        "",
        &[
            job(1, "test.ping", &["m1", "m2"], &[]),
            returned(1, "m1", &[("return", true.into()), ("retcode", 0.into())]),
            job(2, "state.apply", &["m1"], &[("metadata", metadata)]),
            returned(
                2,
                "m1",
                &[
                    (
                        "return",
                        Value::map([("a", Value::map([("result", false)]))]),
                    ),
                    ("out", "highstate".into()),
                ],
            ),
            job(
                3,
                "test.echo",
                &["db1"],
                &[("arg", Value::Array(vec![kwarg]))],
            ),
            job(4, "saltutil.find_job", &["m1"], &[]),
            returned(4, "m1", &[("return", Value::Map(Vec::new()))]),
            Write::JobState {
                jid: jid(4),
                state: JobState::Complete,
                at: 0,
                notes: None,
            },
        ],
    )
}

#[test]
fn listings_are_filtered() {
    let site = some_jobs();
    let text = |text: &str| Value::from(text);
    assert_eq!(site.listed(&[]), [4, 3, 2, 1]);
    assert_eq!(site.listed(&[("limit", 2.into())]), [4, 3]);
    assert_eq!(
        site.listed(&[("limit", 2.into()), ("before", text(jid(3).as_str()))]),
        [2, 1]
    );
    assert_eq!(site.listed(&[("search_function", text("test.*"))]), [3, 1]);
    assert_eq!(site.listed(&[("search_function", text("test.ping"))]), [1]);
    assert_eq!(
        site.listed(&[("search_function", text("test.ping, state.apply"))]),
        [2, 1]
    );
    assert_eq!(site.listed(&[("search_target", text("db*"))]), [3]);
    assert_eq!(site.listed(&[("search_target", text("m2"))]), [1]);
    let metadata = Value::map([("who", "me"), ("other", "thing")]);
    assert_eq!(site.listed(&[("search_metadata", metadata)]), [2]);
    let metadata = Value::map([("who", "you")]);
    assert_eq!(site.listed(&[("search_metadata", metadata)]), [3]);
    assert_eq!(site.listed(&[("search_metadata", text("who"))]), [0; 0]);
    let first = jid(2);
    assert_eq!(
        site.listed(&[("start_time", text(first.as_str()))]),
        [4, 3, 2]
    );
    assert_eq!(site.listed(&[("end_time", text(first.as_str()))]), [2, 1]);
    assert_eq!(site.listed(&[("end_time", text("2026-11-20"))]), [0; 0]);
}

#[test]
fn filter_scans_all_pages() {
    let jobs: Vec<Write> = (0..1_500)
        .map(|number| {
            let fun = if number % 700 == 3 { "a.b" } else { "c.d" };
            job(number, fun, &["m1"], &[])
        })
        .collect();
    let site = Site::new("", &jobs);
    assert_eq!(site.listed(&[]).len(), 1_500);
    let glob = [("search_function", Value::from("a.*"))];
    assert_eq!(site.listed(&glob), [1_403, 703, 3]);
    let exactly = [("search_function", Value::from("a.b"))];
    assert_eq!(site.listed(&exactly), [1_403, 703, 3]);
}

#[test]
fn list_job_describes_job_as_stock() {
    let site = some_jobs();
    let found = site.value("list_job", &[jid(1).as_str().into()], &[]);
    let result = [(
        "m1",
        Value::map([("return", Value::from(true)), ("retcode", 0.into())]),
    )];
    let names = |names: &[&str]| -> Value {
        Value::Array(names.iter().map(|name| Value::from(*name)).collect())
    };
    let expected = Value::map([
        ("jid", Value::from(jid(1).as_str())),
        ("Function", "test.ping".into()),
        ("Arguments", names(&["one"])),
        ("Target", names(&["m1", "m2"])),
        ("Target-type", "list".into()),
        ("User", "me".into()),
        ("Minions", names(&["m1", "m2"])),
        ("StartTime", "2026, Nov 21 07:00:00.000001".into()),
        ("Result", Value::map(result)),
    ]);
    assert_eq!(found, expected);
    let unknown = site.value("list_job", &["nonsense".into()], &[]);
    let expected = Value::map([
        ("jid", Value::from("nonsense")),
        (
            "Error",
            "Cannot contact returner or no job with this jid".into(),
        ),
        ("StartTime", "".into()),
        ("Result", Value::Map(Vec::new())),
    ]);
    assert_eq!(unknown, expected);
}

#[test]
fn lookup_has_returns_missing_and_outputter() {
    let site = some_jobs();
    let first = [Value::from(jid(1).as_str())];
    assert_eq!(
        site.value("lookup_jid", &first, &[]),
        Value::map([("m1", true)])
    );
    let with_missing = site.value("lookup_jid", &first, &[("missing", true.into())]);
    let expected = [
        ("m1", Value::from(true)),
        ("m2", "Minion did not return".into()),
    ];
    assert_eq!(with_missing, Value::map(expected));
    let states = site.run("lookup_jid", &[jid(2).as_str().into()], &[]);
    assert_eq!(
        states.value.get("outputter").and_then(Value::as_str),
        Some("highstate")
    );
    // A state of the minion failed.
    assert!(!states.success);
    let mut messages = Vec::new();
    site.run_with_notices(
        "lookup_jid",
        &first,
        &[("display_progress", true.into())],
        &mut |message| messages.push(message),
    );
    let texts = ["Querying returner: local_cache", "m1"];
    let texts = texts.map(|text| Notice::Progress(Value::map([("message", text)])));
    assert_eq!(messages, texts);
}

#[test]
fn returns_come_in_pages() {
    let mut writes = vec![job(1, "test.ping", &["a", "b", "c", "d"], &[])];
    writes.extend(["c", "a", "b"].map(|minion| returned(1, minion, &[("return", minion.into())])));
    let site = Site::new("", &writes);
    let page = |named: &[(&str, Value)]| {
        let found = site.value("lookup_jid", &[jid(1).as_str().into()], named);
        let entries = found.as_map().unwrap().iter();
        entries
            .map(|(name, _)| name.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(page(&[]), ["a", "b", "c"]);
    assert_eq!(page(&[("limit", 2.into())]), ["a", "b"]);
    assert_eq!(page(&[("limit", 2.into()), ("after", "b".into())]), ["c"]);
    assert_eq!(
        page(&[("limit", 1.into()), ("missing", true.into())]),
        ["a", "d"]
    );
}

#[test]
fn oversize_lookup_is_refused_without_limit() {
    let large = Value::from("x".repeat(20 << 20));
    let site = Site::new(
        "",
        &[
            job(1, "test.ping", &["a", "b"], &[]),
            returned(1, "a", &[("return", large.clone())]),
            returned(1, "b", &[("return", large)]),
        ],
    );
    let jid = [Value::from(jid(1).as_str())];
    let ran = site.run("lookup_jid", &jid, &[]);
    assert!(ran.value.as_str().unwrap().contains("limit=NUMBER"));
    assert_eq!(ran.retcode, Some(1));
    let page = site.value("lookup_jid", &jid, &[("limit", 1.into())]);
    assert_eq!(page.as_map().unwrap().len(), 1);
}

#[test]
fn last_run_returns_newest_matching_job() {
    let site = some_jobs();
    let last = |named: &[(&str, Value)]| {
        let found = site.value("last_run", &[], named);
        let (jid, _) = found.as_map()?.first()?.clone();
        jid.as_str().map(str::to_owned)
    };
    assert_eq!(last(&[]).as_deref(), Some(jid(4).as_str()));
    let by_function = [("function", Value::from("test.*"))];
    assert_eq!(last(&by_function).as_deref(), Some(jid(3).as_str()));
    let by_target = [("target", Value::from("m2"))];
    assert_eq!(last(&by_target).as_deref(), Some(jid(1).as_str()));
    assert_eq!(last(&[("function", "no.such".into())]), None);
    assert_eq!(last(&[("metadata", "no map".into())]), None);
}

#[test]
fn active_lists_open_jobs_with_running_minions() {
    let site = some_jobs();
    let active = site.value("active", &[], &[]);
    let jobs: Vec<&str> = active
        .as_map()
        .unwrap()
        .iter()
        .map(|(jid, _)| jid.as_str().unwrap())
        .collect();
    // The second has all its returns, the fourth is closed.
    assert_eq!(jobs, [jid(3).as_str(), jid(1).as_str()]);
    let first = active.get(jid(1).as_str()).unwrap();
    let running = Value::Array(vec![Value::map([("m2", Value::Nil)])]);
    assert_eq!(first.get("Running"), Some(&running));
    let returned = Value::Array(vec!["m1".into()]);
    assert_eq!(first.get("Returned"), Some(&returned));
    let below = site.value("active", &[], &[("before", jid(3).as_str().into())]);
    assert_eq!(below.as_map().unwrap().len(), 1);
}

#[test]
fn exit_success_is_true_return() {
    let site = some_jobs();
    let verdicts = site.value("exit_success", &[jid(1).as_str().into()], &[]);
    assert_eq!(verdicts, Value::map([("m1", true), ("m2", false)]));
}

#[test]
fn list_jobs_filter_gives_newest_jobs_oldest_first() {
    let site = some_jobs();
    let jids = |named: &[(&str, Value)]| {
        let jobs = site.value("list_jobs_filter", &[2.into()], named);
        let jobs = jobs.as_array().unwrap().iter();
        jobs.map(|job| job.get("JID").and_then(Value::as_str).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(jids(&[]), [jid(2).to_string(), jid(3).to_string()]);
    let probes_too = [("filter_find_job", Value::from(false))];
    assert_eq!(jids(&probes_too), [jid(3).to_string(), jid(4).to_string()]);
}

#[test]
fn master_lists_running_calls() {
    let site = some_jobs();
    let found = site.value("master", &[], &[]);
    let [itself] = found.as_array().unwrap() else {
        panic!("{found:?}")
    };
    assert_eq!(
        itself.get("fun").and_then(Value::as_str),
        Some("runner.jobs.master")
    );
    assert!(site.runners.has("jobs.master"));
    assert_eq!(site.value("master", &[], &[]).as_array().unwrap().len(), 1);
}

#[test]
fn print_job_has_stored_end_time() {
    let writes = [
        job(1, "test.ping", &["m1"], &[]),
        returned(1, "m1", &[("return", true.into())]),
    ];
    let site = Site::new("job_cache_store_endtime: True\n", &writes);
    let end = "2026, Nov 21 07:06:22.637714";
    let found = site.value("print_job", &[jid(1).as_str().into()], &[]);
    let job = found.get(jid(1).as_str()).unwrap();
    assert_eq!(job.get("EndTime").and_then(Value::as_str), Some(end));
}

#[test]
fn error_names_unknown_function_source_or_time() {
    let site = some_jobs();
    let ran = site.run("no_such", &[], &[]);
    assert_eq!(
        ran.value.as_str(),
        Some("Exception occurred in runner jobs.no_such: 'jobs.no_such' is not available.")
    );
    assert_eq!((ran.success, ran.retcode), (false, Some(1)));
    let ran = site.run("lookup_jid", &[], &[]);
    let text = ran.value.as_str().unwrap();
    assert!(text.starts_with("\nPassed invalid arguments: lookup_jid() missing 1 required"));
    assert!(ran.success);
    let ran = site.run("list_jobs", &[], &[("ext_source", "mysql".into())]);
    assert!(ran.value.as_str().unwrap().contains("\"mysql\""));
    let ran = site.run("list_jobs", &[], &[("start_time", "soon".into())]);
    assert!(ran.value.as_str().unwrap().contains("\"soon\""));
}
