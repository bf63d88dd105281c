//! `minion_pub`, `minion_publish`, `pub_ret`, `minion_runner`: permission of minions to run jobs
//! and functions, and to read their results.

use std::os::unix::fs::PermissionsExt as _;

use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_requests::{Effect, Outcome, PeerCall, PeerCallWork, StartJob};
use saltern_store::Write;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::wire::client::{Load, Minion};
use crate::wire::site::{Site, decode, sent};

const RULES: &str = "
peer:
  asker: ['test\\..*', 'grains.get']
  limited:
  - 'web*': [test.ping]
  - '*': [{test.echo: {args: [safe]}}]
peer_run:
  asker: ['jobs\\..*', 'no\\..*']
";

fn site() -> Site {
    let site = Site::new(RULES);
    for id in ["web1", "web2", "db1"] {
        site.accept(id, "minion");
    }
    site
}

fn texts(items: &[&str]) -> Value {
    Value::Array(items.iter().map(|text| Value::from(*text)).collect())
}

fn asked(site: &Site, id: &str, cmd: &str, change: impl FnOnce(Load) -> Load) -> (Value, Outcome) {
    asked_by(site, &Minion::signed_in(site, id), cmd, change)
}

fn asked_by(
    site: &Site,
    minion: &Minion,
    cmd: &str,
    change: impl FnOnce(Load) -> Load,
) -> (Value, Outcome) {
    let outcome = site.ask(minion.sealed(change(minion.load(cmd)), 3));
    (minion.open(&outcome.reply, 3), outcome)
}

fn wish(load: Load, fun: &str, arg: &[&str], tgt: &str) -> Load {
    load.set("fun", fun)
        .set("arg", texts(arg))
        .set("tgt", tgt)
        .set("ret", "")
}

fn published(site: &Site, id: &str, fun: &str, arg: &[&str], tgt: &str) -> (Value, Outcome) {
    asked(site, id, "minion_pub", |load| wish(load, fun, arg, tgt))
}

fn started(outcome: &Outcome) -> Option<&StartJob> {
    match outcome.effects.as_slice() {
        [Effect::StartJob(start)] => Some(start),
        [] => None,
        _ => panic!("a job is all that comes of it"),
    }
}

fn nothing() -> Value {
    Value::Map(Vec::new())
}

#[test]
fn peer_job_is_masters_and_records_its_minion() {
    let site = site();
    let (answer, outcome) = published(&site, "asker", "test.echo", &["5", "a=b"], "web*");
    let start = started(&outcome).expect("a job");
    let jid = start.job.jid.as_str();
    let expected = Value::map([
        ("jid", Value::from(jid)),
        ("minions", texts(&["web1", "web2"])),
    ]);
    assert_eq!(answer, expected);
    assert_eq!(
        start.publisher.as_ref().map(MinionId::as_str),
        Some("asker")
    );
    assert_eq!(
        (start.job.user.as_str(), start.job.fun.as_str()),
        ("root", "test.echo")
    );
    let load = decode(start.job.load.bytes());
    let named = Value::map([("__kwarg__", Value::from(true)), ("a", "b".into())]);
    assert_eq!(
        load.get("arg"),
        Some(&Value::Array(vec![5_i64.into(), named]))
    );
    assert_eq!(load.get("kwargs"), Some(&Value::map([("id", "asker")])));
}

/// Masters below apply the minion's rules to their own minions; a target that matches no minion
/// here may match one there.
#[test]
fn peer_job_for_syndics_carries_rules_and_goes_without_local_match() {
    let site = Site::new(&format!("order_masters: True\n{RULES}"));
    let (answer, outcome) = published(&site, "asker", "test.ping", &[], "below*");
    let start = started(&outcome).expect("a job");
    assert_eq!(answer.get("minions"), Some(&texts(&[])));
    let load = decode(start.job.load.bytes());
    let carried = load
        .get("kwargs")
        .and_then(|kwargs| kwargs.get("auth_list"));
    let rules = texts(&["test\\..*", "grains.get"]);
    assert_eq!(carried, Some(&rules));
    let (_, outcome) = asked(&site, "asker", "minion_publish", |load| {
        wish(load, "test.ping", &[], "below*")
    });
    assert!(matches!(call(outcome).work, PeerCallWork::Job { .. }));
    let (answer, outcome) = published(&site, "asker", "cmd.run", &["id"], "below*");
    assert_eq!(answer, nothing());
    assert!(started(&outcome).is_none());
}

/// Minions may read another target than these otherwise than the master that held it against rules.
#[test]
fn limited_peer_above_syndics_targets_by_name_and_contained_wildcard() {
    let site = Site::new(&format!("order_masters: True\n{RULES}"));
    for (tgt, kind, sent_tgt) in [
        ("web*", "compound", Value::from("web*")),
        ("below1", "list", texts(&["below1"])),
    ] {
        let (_, outcome) = published(&site, "limited", "test.ping", &[], tgt);
        let load = sent(started(&outcome).expect("a job"));
        assert_eq!(load.get("tgt_type"), Some(&kind.into()), "{tgt}");
        assert_eq!(load.get("tgt"), Some(&sent_tgt), "{tgt}");
    }
    for tgt in ["zzz*", "DB*", "web[12]"] {
        let (answer, outcome) = published(&site, "limited", "test.ping", &[], tgt);
        assert_eq!(answer, nothing(), "{tgt}");
        assert!(started(&outcome).is_none(), "{tgt}");
    }
}

/// Minions cannot resolve a range.
#[test]
fn peer_job_for_a_range_is_sent_by_names() {
    let site = site();
    let (_, outcome) = asked(&site, "asker", "minion_pub", |load| {
        wish(load, "test.ping", &[], "web1..2").set("tgt_type", "range")
    });
    let load = sent(started(&outcome).expect("a job"));
    assert_eq!(load.get("tgt_type"), Some(&"list".into()));
    assert_eq!(load.get("tgt"), Some(&texts(&["web1", "web2"])));
}

#[test]
fn publisher_is_minion_of_the_channel() {
    let site = site();
    let (answer, outcome) = asked(&site, "web1", "minion_pub", |load| {
        wish(load, "test.ping", &[], "*").set("user", "asker")
    });
    assert_eq!(answer, nothing());
    assert!(started(&outcome).is_none());
}

#[test]
fn peer_job_without_rule_is_refused() {
    let site = site();
    let table: &[(&str, &str, &[&str], &str)] = &[
        ("asker", "cmd.run", &["id"], "*"),
        ("asker", "test.ping,cmd.run", &["", "id"], "*"),
        ("asker", "publish.publish", &["*", "test.ping"], "*"),
        (
            "asker",
            "test.ping,publish.publish",
            &["", "* test.ping"],
            "*",
        ),
        (
            "asker",
            "test.ping, publish.publish",
            &["", "* test.ping"],
            "*",
        ),
        ("web1", "test.ping", &[], "*"),
        ("limited", "test.ping", &[], "db1"),
        ("limited", "test.ping", &[], "*"),
        ("limited", "test.echo", &["other"], "db1"),
        ("limited", "test.echo", &["text=other"], "db1"),
    ];
    for (id, fun, arg, tgt) in table {
        let (answer, outcome) = published(&site, id, fun, arg, tgt);
        assert_eq!(answer, nothing(), "{id} {fun} {tgt}");
        assert!(started(&outcome).is_none(), "{id} {fun} {tgt}");
    }
    assert_eq!(site.refused(), table.len() as u64);
    for (id, fun, arg, tgt) in [
        ("limited", "test.ping", "", "web1"),
        ("limited", "test.echo", "safe", "db1"),
    ] {
        let (_, outcome) = published(&site, id, fun, &[arg], tgt);
        assert!(started(&outcome).is_some(), "{id} {fun} {tgt}");
    }
}

/// Minions have no limit on the steps of an expression.
#[test]
fn limited_peer_rule_refuses_target_whose_match_was_given_up() {
    let site = site();
    site.accept(&"a".repeat(200), "minion");
    for (id, is_started) in [("limited", false), ("asker", true)] {
        let (_, outcome) = asked(&site, id, "minion_pub", |load| {
            let tgt = r"web|(a|a|(?=a)a)*\1b";
            wish(load, "test.ping", &[], tgt).set("tgt_type", "pcre")
        });
        assert_eq!(started(&outcome).is_some(), is_started, "{id}");
    }
}

/// The job of a minion whose rules name minions goes to those that were resolved here, however
/// others would evaluate the target.
#[test]
fn limited_peers_job_goes_out_as_ids() {
    let site = site();
    for (id, kind, tgt) in [
        ("limited", "list", texts(&["web1", "web2"])),
        ("asker", "pcre", "web.*".into()),
    ] {
        let (_, outcome) = asked(&site, id, "minion_pub", |load| {
            wish(load, "test.ping", &[], "web.*").set("tgt_type", "pcre")
        });
        let start = started(&outcome).expect("a job");
        let sent = sent(start);
        assert_eq!(sent.get("tgt_type"), Some(&kind.into()), "{id}");
        assert_eq!(sent.get("tgt"), Some(&tgt), "{id}");
        assert_eq!(
            (start.job.tgt_type.as_str(), start.job.tgt.as_str()),
            ("pcre", "web.*")
        );
    }
}

#[test]
fn several_functions_have_one_argument_list_each() {
    let site = site();
    let (_, outcome) = published(&site, "asker", "test.ping,test.echo", &["", "a b"], "db1");
    let start = started(&outcome).expect("a job");
    let load = decode(start.job.load.bytes());
    assert_eq!(load.get("fun"), Some(&texts(&["test.ping", "test.echo"])));
    let lists = Value::Array(vec![texts(&[]), texts(&["a", "b"])]);
    assert_eq!(load.get("arg"), Some(&lists));
    let (answer, _) = published(&site, "asker", "test.ping,test.echo", &["a"], "db1");
    assert_eq!(answer, "".into());
}

#[test]
fn malformed_peer_loads_get_stocks_answers() {
    let site = site();
    let (answer, _) = asked(&site, "asker", "minion_pub", |load| {
        load.set("fun", "test.ping")
    });
    assert_eq!(answer, nothing());
    let full = |load| wish(load, "test.ping", &[], "*");
    let (answer, _) = asked(&site, "asker", "minion_pub", |load| {
        full(load).set("fun", texts(&["test.ping"]))
    });
    assert_eq!(answer, "".into());
    let (answer, _) = asked(&site, "asker", "minion_pub", |load| {
        full(load).set("arg", "id")
    });
    assert_eq!(answer, "".into());
    let (answer, _) = asked(&site, "asker", "minion_pub", |load| {
        full(load).set("tgt_type", "nodegroup")
    });
    assert_eq!(answer, nothing());
    let (answer, outcome) = published(&site, "asker", "test.ping", &[], "ghost*");
    let nobody = Value::map([("jid", Value::from(0_i64)), ("minions", texts(&[]))]);
    assert_eq!(answer, nobody);
    assert!(outcome.effects.is_empty());
}

#[test]
fn peer_target_matches_pillars_exactly_and_expands_nodegroups() {
    let options =
        "peer: {asker: ['.*']}\nnodegroups: {webs: 'L@web1,web2', all: 'N@webs or db1'}\n";
    let site = Site::new(options);
    for (id, role) in [("web1", "web"), ("web2", "we*")] {
        site.accept(id, "minion");
        let id = MinionId::parse(id).unwrap();
        let pillar = Value::map([("role", role)]);
        let store = &site.services.minions.data;
        store
            .store_grains_and_pillar(&id, &nothing(), &pillar)
            .unwrap();
    }
    let wanted = |tgt: &str, kind: &str| {
        let (_, outcome) = asked(&site, "asker", "minion_pub", |load| {
            wish(load, "test.ping", &[], tgt).set("tgt_type", kind)
        });
        started(&outcome).map(|start| {
            let load = decode(start.job.load.bytes());
            let part = |name| load.get(name).and_then(Value::as_str).unwrap().to_owned();
            (part("tgt"), part("tgt_type"), start.job.minions.len())
        })
    };
    let some = |tgt: &str, kind: &str, count| Some((tgt.to_owned(), kind.to_owned(), count));
    assert_eq!(
        wanted("role:web", "pillar"),
        some("role:web", "pillar_exact", 1)
    );
    // As a wildcard it would match both, and so reveal a pillar's value.
    assert_eq!(wanted("role:we*", "pillar"), None);
    assert_eq!(wanted("role:w.*", "pillar_pcre"), None);
    assert_eq!(wanted("I@role:we*", "compound"), None);
    assert_eq!(
        wanted("webs", "nodegroup"),
        some("L@web1,web2", "compound", 2)
    );
    assert_eq!(
        wanted("N@webs and web1", "compound"),
        some("L@web1,web2 and web1", "compound", 1)
    );
}

fn packed(entries: &Value) -> Packed {
    Packed::new(encode(entries, Dialect::Bin))
}

/// The return of a `test.ping` from web1.
fn pinged(jid: &Jid, load: &Value) -> ReturnRecord {
    ReturnRecord {
        jid: jid.clone(),
        minion: MinionId::parse("web1").unwrap(),
        received: 0,
        fun: "test.ping".to_owned(),
        retcode: 0,
        success: true,
        load: packed(load),
    }
}

#[test]
fn pub_ret_answers_publisher_only() {
    let site = site();
    let jid = Jid::parse("20261121210000123456").unwrap();
    let returned = pinged(
        &jid,
        &Value::map([("return", Value::from(true)), ("out", "nested".into())]),
    );
    let job = JobRecord {
        jid: jid.clone(),
        created: 0,
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: "web1".to_owned(),
        tgt_type: "glob".to_owned(),
        load: packed(&nothing()),
        minions: vec![returned.minion.clone()],
        nocache: false,
    };
    let minion = MinionId::parse("asker").unwrap();
    let publisher = Write::PublishedFor {
        jid: jid.clone(),
        minion,
    };
    let writes = [Write::Job(job), publisher, Write::Return(returned)];
    site.database.lock().commit(&writes).unwrap();
    let answer = |id: &str, jid: Value| asked(&site, id, "pub_ret", |load| load.set("jid", jid)).0;
    let entry = Value::map([("ret", Value::from(true)), ("out", "nested".into())]);
    assert_eq!(
        answer("asker", jid.as_str().into()),
        Value::map([("web1", entry)])
    );
    assert_eq!(answer("web1", jid.as_str().into()), nothing());
    assert_eq!(answer("asker", "20261121210000999999".into()), "".into());
    assert_eq!(answer("asker", "../../etc/passwd".into()), "".into());
    assert_eq!(asked(&site, "asker", "pub_ret", |load| load).0, nothing());
}

fn call(outcome: Outcome) -> PeerCall {
    match outcome.effects.into_iter().next() {
        Some(Effect::RunPeerCall(call)) => *call,
        _ => panic!("a minion waits"),
    }
}

#[test]
fn minion_publish_answers_with_returns() {
    let site = site();
    let minion = Minion::signed_in(&site, "asker");
    let wait = |timeout: Value| {
        let change = |load| wish(load, "test.ping", &[], "web1").set("tmo", timeout);
        asked_by(&site, &minion, "minion_publish", change)
    };
    let (_, outcome) = wait("7".into());
    let waits = call(outcome);
    assert_eq!((waits.minion.as_str(), waits.wait.as_secs()), ("asker", 7));
    let PeerCallWork::Job { start, returned } = waits.work else {
        panic!("it waits for a job");
    };
    assert_eq!(start.publisher, Some(waits.minion));
    assert_eq!(minion.open(&returned.run().reply, 3), nothing());
    let (answer, outcome) = wait("soon".into());
    assert_eq!(answer, nothing());
    assert!(outcome.effects.is_empty());
    let (_, outcome) = wait(Value::from(1_000_000_i64));
    assert_eq!(call(outcome).wait.as_secs(), 55);
}

#[test]
fn wait_of_minion_is_what_it_asks_for_else_that_of_the_site() {
    let waits = |options: &str, change: fn(Load) -> Load| {
        let site = Site::new(&format!("{options}{RULES}"));
        site.accept("web1", "minion");
        let (answer, outcome) = asked(&site, "asker", "minion_publish", |load| {
            change(wish(load, "test.ping", &[], "web1"))
        });
        match outcome.effects.is_empty() {
            true => Err(answer),
            false => Ok(call(outcome).wait.as_secs_f64()),
        }
    };
    let nine = "timeout: 9\n";
    assert_eq!(waits(nine, |load| load), Ok(9.0));
    assert_eq!(waits("timeout: 90\n", |load| load), Ok(55.0));
    assert_eq!(
        waits(nine, |load| load.set("tmo", 7).set("timeout", 3)),
        Ok(3.0)
    );
    assert_eq!(waits(nine, |load| load.set("tmo", " 7 ")), Ok(7.0));
    assert_eq!(waits(nine, |load| load.set("timeout", 2.5)), Ok(2.5));
    assert_eq!(waits(nine, |load| load.set("timeout", -1)), Ok(0.0));
    assert_eq!(
        waits(nine, |load| load.set("timeout", "2.5")),
        Err(nothing())
    );
    assert_eq!(
        waits(nine, |load| load.set("timeout", texts(&[]))),
        Err("".into())
    );
}

#[test]
fn minion_publish_answers_in_the_form_that_is_asked_for() {
    let site = site();
    let minion = Minion::signed_in(&site, "asker");
    let answer = |form: &str| {
        let (_, outcome) = asked_by(&site, &minion, "minion_publish", |load| {
            wish(load, "test.ping", &[], "web1").set("form", form)
        });
        let PeerCallWork::Job { start, returned } = call(outcome).work else {
            panic!("it waits for a job");
        };
        let jid = start.job.jid.clone();
        let record = pinged(&jid, &Value::map([("return", true)]));
        let writes = [Write::Job(start.job.clone()), Write::Return(record)];
        site.database.lock().commit(&writes).unwrap();
        (
            minion.open(&returned.run().reply, 3),
            Value::from(jid.as_str()),
        )
    };
    let (clean, _) = answer("clean");
    assert_eq!(clean, Value::map([("web1", true)]));
    let (full, jid) = answer("full");
    let whole = Value::map([("ret", Value::from(true))]);
    assert_eq!(full, Value::map([("web1", whole), ("__jid__", jid)]));
}

#[test]
fn peer_job_on_the_blacklist_is_not_started() {
    let site = Site::new(&format!(
        "publisher_acl_blacklist: {{modules: ['test.ping']}}\n{RULES}"
    ));
    site.accept("web1", "minion");
    for (fun, is_started) in [("test.ping", false), ("test.echo", true)] {
        let (answer, outcome) = published(&site, "asker", fun, &["a"], "web1");
        assert_eq!(started(&outcome).is_some(), is_started, "{fun}");
        assert_eq!(answer == "".into(), !is_started, "{fun}");
    }
}

/// Answers to waiting clients' probes go to them alone; a minion's are kept as returns of its job.
#[test]
fn peers_job_is_no_probe_and_may_be_a_signal() {
    let site = Site::new("peer: {asker: ['saltutil.*']}\n");
    site.accept("web1", "minion");
    for (fun, has_relation) in [("saltutil.find_job", false), ("saltutil.kill_job", true)] {
        let (_, outcome) = asked(&site, "asker", "minion_pub", |load| {
            let load = wish(load, fun, &["20261121210000123456"], "web1");
            load.set("tgt", texts(&["web1"])).set("tgt_type", "list")
        });
        let start = started(&outcome).expect("a job");
        assert_eq!(start.about.is_some(), has_relation, "{fun}");
    }
}

#[test]
fn condition_on_arguments_holds_for_each_of_several_functions() {
    let site = site();
    for (arg, is_started) in [(["safe", "safe"], true), (["safe", "other"], false)] {
        let (_, outcome) = published(&site, "limited", "test.echo,test.echo", &arg, "db1");
        assert_eq!(started(&outcome).is_some(), is_started, "{arg:?}");
    }
}

#[test]
fn arguments_of_no_parse_are_taken_as_they_are() {
    let site = site();
    let (_, outcome) = asked(&site, "asker", "minion_pub", |load| {
        wish(load, "test.echo", &["a=5", "b=5"], "web1").set("no_parse", texts(&["a"]))
    });
    let load = decode(started(&outcome).expect("a job").job.load.bytes());
    let named = load
        .get("arg")
        .and_then(Value::as_array)
        .and_then(<[_]>::first);
    let named = named.expect("the named arguments");
    assert_eq!(named.get("a"), Some(&"5".into()));
    assert_eq!(named.get("b"), Some(&Value::Int(5)));
}

#[test]
fn minion_runner_needs_peer_run_rule() {
    let site = site();
    let wanted = |minion: &Minion, fun: &str| {
        let change = |load: Load| load.set("fun", fun).set("arg", texts(&["search_target=x"]));
        asked_by(&site, minion, "minion_runner", change)
    };
    for (id, fun) in [("asker", "manage.up"), ("web1", "jobs.list_jobs")] {
        let (answer, outcome) = wanted(&Minion::signed_in(&site, id), fun);
        assert_eq!(answer, nothing(), "{id} {fun}");
        assert!(outcome.effects.is_empty(), "{id} {fun}");
    }
    let minion = Minion::signed_in(&site, "asker");
    for (fun, expected) in [
        ("jobs.list_jobs", nothing()),
        ("no.such", "'no.such' is not available.".into()),
    ] {
        let (_, outcome) = wanted(&minion, fun);
        let PeerCallWork::Run(run) = call(outcome).work else {
            panic!("it waits for a function");
        };
        let mut fired = Vec::new();
        let (ran, reply) = (run.work)(&mut |event| fired.push(event.tag.to_string()));
        assert_eq!(minion.open(&reply, 3), expected, "{fun}");
        assert!(ran.end.unwrap().tag.to_string().ends_with("/ret"));
    }
}

/// A helper of the bridge that knows one runner function, whatever Salt there is. Answers are
/// MessagePack: the frame of an event `new`, that of a value, and that of a refusal.
const HELPER: &str = r#"#!/bin/sh
case "$3" in *find_spec*) exit 0;; esac
exec python3 -I -c '
import os

def take(count):
    taken = b""
    while len(taken) < count:
        piece = os.read(0, count - len(taken))
        if not piece:
            os._exit(0)
        taken += piece
    return taken

def take_frame():
    return take(int.from_bytes(take(4), "big"))

def give(packed):
    os.write(1, len(packed).to_bytes(4, "big") + packed)

take_frame()
take_frame()
give(b"\x81\xa2up\xa1x")
while True:
    if b"site.answer" in take_frame():
        give(b"\x82\xa5event\xa3new\xa4data\x80")
        give(b"\x81\xa2ok\x82\xa6return\x2a\xa7success\xc3")
    else:
        give(b"\x81\xa7refused\xa4none")
'
"#;

#[test]
fn minion_runner_runs_python_function() {
    let site = Site::new("python_bridge: ROOT/python3\npeer_run: {asker: ['.*']}\n");
    site.write("python3", HELPER);
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(site.path("python3"), executable).unwrap();
    let minion = Minion::signed_in(&site, "asker");
    for (fun, is_python, expected) in [
        ("site.answer", true, 42_i64.into()),
        ("no.such", true, "'no.such' is not available.".into()),
        ("jobs.list_jobs", false, nothing()),
    ] {
        let change = |load: Load| load.set("fun", fun).set("arg", texts(&[]));
        let (_, outcome) = asked_by(&site, &minion, "minion_runner", change);
        let PeerCallWork::Run(run) = call(outcome).work else {
            panic!("it waits for a function");
        };
        assert_eq!(run.is_python, is_python, "{fun}");
        let (_, reply) = (run.work)(&mut |_| ());
        assert_eq!(minion.open(&reply, 3), expected, "{fun}");
    }
}
