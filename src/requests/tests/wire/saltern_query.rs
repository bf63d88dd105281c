//! `saltern_query`: pages, their bounds, and whose rules hold.

use std::time::Duration;

use saltern_model::query::{
    DeadLettersPage, JobReport, JobRequest, JobsPage, KeysPage, MinionsPage, ReactorReport,
    ReturnsPage, RunningCall, Versions,
};
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_requests::{BatchPlan, BatchSnapshot};
use saltern_store::Write;
use saltern_wire::msgpack::{Dialect, Limits, Value, encode, from_slice, pack};
use serde::de::DeserializeOwned;

use crate::wire::auth::pends;
use crate::wire::client::{Load, clear};
use crate::wire::site::Site;

fn jid(number: u32) -> Jid {
    Jid::parse(&format!("20261121070622{number:06}")).unwrap()
}

fn id(name: &str) -> MinionId {
    MinionId::parse(name).unwrap()
}

/// Jobs 1 to 3 of two minions each, of which `m1` returned.
fn site(options: &str) -> Site {
    let site = Site::new(options);
    site.accept("m1", "minion");
    site.accept("m2", "large");
    let mut writes = Vec::new();
    for number in 1..=3 {
        let value = Value::map([("return", Value::from(i64::from(number)))]);
        let load = Packed::new(encode(&value, Dialect::Bin));
        writes.push(Write::Job(JobRecord {
            jid: jid(number),
            created: 1_795_244_782_000_000 + i64::from(number),
            user: "root".to_owned(),
            fun: "test.ping".to_owned(),
            tgt: "*".to_owned(),
            tgt_type: "glob".to_owned(),
            load: load.clone(),
            minions: vec![id("m1"), id("m2")],
            nocache: false,
        }));
        writes.push(Write::Return(ReturnRecord {
            jid: jid(number),
            minion: id("m1"),
            received: 5,
            fun: "test.ping".to_owned(),
            retcode: 0,
            success: true,
            load,
        }));
    }
    site.database.lock().commit(&writes).unwrap();
    site
}

fn load(site: &Site, fun: &str, arguments: &[(&str, Value)]) -> Load {
    asked(fun, arguments)
        .set("user", "root")
        .with_key_of_root(site)
}

fn asked(fun: &str, arguments: &[(&str, Value)]) -> Load {
    Load::new()
        .set("cmd", "saltern_query")
        .set("fun", fun)
        .set("kwarg", Value::map(arguments.iter().cloned()))
}

fn ask(site: &Site, load: Load) -> Value {
    let outcome = site.ask(clear(load, 3));
    assert!(outcome.effects.is_empty(), "a query has effects");
    from_slice(&outcome.reply, &Limits::WIRE).unwrap()
}

fn page<T: DeserializeOwned>(site: &Site, fun: &str, arguments: &[(&str, Value)]) -> T {
    let answer = ask(site, load(site, fun, arguments));
    let page = answer.get("return").unwrap_or_else(|| panic!("{answer:?}"));
    from_slice(&pack(page, Dialect::Bin), &Limits::WIRE).unwrap()
}

#[test]
fn jobs_are_paged_and_each_is_explained() {
    let site = site("");
    let first: JobsPage = page(&site, "jobs.page", &[("limit", 2_i64.into())]);
    let jids =
        |page: &JobsPage| -> Vec<Jid> { page.jobs.iter().map(|job| job.jid.clone()).collect() };
    assert_eq!(jids(&first), [jid(3), jid(2)]);
    assert_eq!((first.jobs[0].expected, first.jobs[0].returned), (2, 1));
    let next = first.next.unwrap();
    let rest: JobsPage = page(&site, "jobs.page", &[("before", next.as_str().into())]);
    assert_eq!(jids(&rest), [jid(1)]);
    assert_eq!(rest.next, None);

    let arguments = [("jid", Value::from(jid(1).as_str()))];
    let report: JobReport = page(&site, "jobs.explain", &arguments);
    assert_eq!(report.returned[0].minion, id("m1"));
    let missing: Vec<&str> = report
        .missing
        .iter()
        .map(|one| one.minion.as_str())
        .collect();
    assert_eq!((missing, report.state.as_str()), (vec!["m2"], "open"));
    let returns: ReturnsPage<Value> = page(&site, "jobs.returns", &arguments);
    assert_eq!(returns.returns[0].value, Value::from(1_i64));
}

#[test]
fn minions_and_keys_are_paged() {
    let site = site("");
    site.write(
        "pki/minions_pre/new",
        &crate::wire::site::key_pair("minion").public,
    );
    let limit = ("limit", Value::from(1_i64));
    let first: MinionsPage<Value> = page(&site, "minions.page", std::slice::from_ref(&limit));
    assert_eq!(
        (first.minions[0].minion.id.as_str(), first.total),
        ("m1", 2)
    );
    let after = ("after", Value::from(first.next.unwrap()));
    let rest: MinionsPage<Value> = page(&site, "minions.page", &[after, limit]);
    assert_eq!(
        (rest.minions[0].minion.id.as_str(), rest.next),
        ("m2", None)
    );
    let one = [("minion", Value::from("m2"))];
    let one: MinionsPage<Value> = page(&site, "minions.page", &one);
    assert_eq!(one.minions.len(), 1);

    let keys: KeysPage = page(&site, "keys.page", &[]);
    let rows: Vec<_> = keys
        .keys
        .iter()
        .map(|key| (key.minion.as_str(), key.state.as_str()))
        .collect();
    assert_eq!(
        rows,
        [("m1", "accepted"), ("m2", "accepted"), ("new", "pending")]
    );
    assert!(
        keys.keys
            .iter()
            .all(|key| key.fingerprint.is_some() && key.written.is_some())
    );
    let pending: KeysPage = page(&site, "keys.page", &[("state", "pending".into())]);
    assert_eq!(pending.keys.len(), 1);
    let version: Versions = page(&site, "saltern.version", &[]);
    assert_eq!(version.salt, "3008.3");
}

#[test]
fn pending_key_has_the_address_it_came_from() {
    let site = site("");
    let of_pending = [("state", Value::from("pending"))];
    let addresses = || {
        let keys: KeysPage = page(&site, "keys.page", &of_pending);
        let keys = keys.keys.into_iter();
        keys.map(|key| (key.minion.to_string(), key.address))
            .collect::<Vec<_>>()
    };
    let row = |id: &str, address: Option<&str>| (id.to_owned(), address.map(str::to_owned));
    // One that an earlier process has kept.
    let public = crate::wire::site::key_pair("minion").public;
    site.write("pki/minions_pre/old", &public);
    assert!(pends(&site, "new", [10, 0, 0, 1]));
    let expected = [row("new", Some("10.0.0.1")), row("old", None)];
    assert_eq!(addresses(), expected);
    assert!(pends(&site, "old", [10, 0, 1, 2]));
    assert_eq!(addresses()[1], row("old", Some("10.0.1.2")));
}

#[test]
fn wrong_argument_is_refused_by_its_name() {
    let site = site("");
    let table = [
        ("jobs.page", "limit", Value::from(501_i64)),
        ("jobs.page", "limit", 0_i64.into()),
        ("jobs.page", "state", "lost".into()),
        ("jobs.page", "since", "today".into()),
        ("jobs.page", "minion", "../m1".into()),
        ("jobs.page", "function", 1_i64.into()),
        ("jobs.page", "user", "x".repeat(5_000).into()),
        ("jobs.page", "jid", "1".into()),
        ("jobs.explain", "jid", "..".into()),
        ("minions.page", "target", "( and".into()),
        ("minions.page", "grains", "os".into()),
        ("keys.page", "state", "open".into()),
        ("reactor.replay", "letter", 1_i64.into()),
        ("functions.doc", "function", 1_i64.into()),
    ];
    for (fun, argument, value) in table {
        let answer = ask(&site, load(&site, fun, &[(argument, value.clone())]));
        let error = answer
            .get("error")
            .unwrap_or_else(|| panic!("{fun} {argument} {value:?}"));
        let part = |name: &str| error.get(name).and_then(Value::as_str);
        assert_eq!(part("name"), Some("SaltInvocationError"), "{error:?}");
        assert_eq!(part("argument"), Some(argument), "{error:?}");
    }
    let answer = ask(
        &site,
        load(&site, "jobs.explain", &[("jid", jid(9).as_str().into())]),
    );
    let name = answer
        .get("error")
        .and_then(|error| error.get("name")?.as_str());
    assert_eq!(name, Some("NotFoundError"));
}

#[test]
fn rule_of_the_function_that_shows_the_same_admits_a_query() {
    let site = site(
        "sharedsecret: s3cret\nexternal_auth:\n  sharedsecret:\n    jobs: ['@jobs']\n    runner: \
         ['@runner']\n    one: [{'@runner': [jobs.list_jobs]}]\n    wheel: ['@wheel']\n    keys: \
         [{'@wheel': [key.list_all]}]\n    none: ['.*']\n",
    );
    let admitted = |user: &str, fun: &str| {
        let login = asked(fun, &[])
            .set("eauth", "sharedsecret")
            .set("username", user)
            .set("password", "s3cret");
        let answer = ask(&site, login);
        let name = answer
            .get("error")
            .and_then(|error| error.get("name")?.as_str());
        !name.is_some_and(|name| name.ends_with("AuthenticationError"))
    };
    let queries = [
        "jobs.page",
        "jobs.explain",
        "minions.page",
        "keys.page",
        "saltern.version",
    ];
    for (user, expected) in [
        ("jobs", [true, true, false, false, false]),
        ("runner", [true, true, true, false, true]),
        ("one", [true, false, false, false, false]),
        ("wheel", [false, false, false, true, false]),
        ("keys", [false, false, false, true, false]),
        ("none", [false; 5]),
    ] {
        assert_eq!(queries.map(|fun| admitted(user, fun)), expected, "{user}");
    }
}

/// The test's master drives no batches, so whoever is admitted learns that.
#[test]
fn user_who_began_a_batch_may_change_it() {
    let site = site(
        "sharedsecret: s3cret\nexternal_auth:\n  sharedsecret:\n    ann: ['.*']\n    bob: ['.*']\n    \
         runner: ['@runner']\n    stop: [{'@runner': [batch.stop]}]\n",
    );
    let batch = BatchPlan {
        jid: jid(1),
        created: 1,
        minions: vec![id("m1")],
        size: 1,
        wait: Duration::ZERO,
        failhard: false,
        timeout: Duration::from_secs(1),
        gather_job_timeout: Duration::from_secs(1),
        user: "ann".to_owned(),
        backend: Some("sharedsecret".to_owned()),
        tgt: "*".into(),
        tgt_type: "glob".to_owned(),
        fun: "test.ping".into(),
        arg: Vec::new(),
        kwargs: Value::Map(Vec::new()),
        ret: "".into(),
        options: Value::Map(Vec::new()),
        audit: None,
    };
    let of_a_local_user = BatchPlan {
        jid: jid(2),
        backend: None,
        ..batch.clone()
    };
    let writes = [batch, of_a_local_user].map(|plan| Write::Batch {
        jid: plan.jid.clone(),
        plan: plan.pack(&BatchSnapshot::default()),
    });
    site.database.lock().commit(&writes).unwrap();
    let is_admitted = |user: &str, fun: &str, number| {
        let login = asked(fun, &[("jid", jid(number).as_str().into())])
            .set("eauth", "sharedsecret")
            .set("username", user)
            .set("password", "s3cret");
        let outcome = site.ask(clear(login, 3));
        let answer: Value = from_slice(&outcome.reply, &Limits::WIRE).unwrap();
        let error = answer.get("error").and_then(|error| error.get("name"));
        match error.and_then(Value::as_str) {
            Some("EauthAuthenticationError") => false,
            Some("SaltReqTimeoutError") => true,
            other => panic!("{other:?}"),
        }
    };
    let changes = ["batches.pause", "batches.resume", "batches.stop"];
    for (user, number, expected) in [
        ("ann", 1, [true; 3]),
        ("ann", 2, [false; 3]),
        ("ann", 9, [false; 3]),
        ("bob", 1, [false; 3]),
        ("runner", 1, [true; 3]),
        ("stop", 1, [false, false, true]),
    ] {
        let admitted = changes.map(|fun| is_admitted(user, fun, number));
        assert_eq!(admitted, expected, "{user}, batch {number}");
    }
    // To see it takes what it took before.
    assert!(!is_admitted("ann", "batches.status", 1));
}

#[test]
fn job_is_described_with_its_arguments_and_one_return_is_found() {
    let site = site("");
    let of_job = ("jid", Value::from(jid(1).as_str()));
    let request: JobRequest<Value> = page(&site, "jobs.request", std::slice::from_ref(&of_job));
    assert_eq!(request.function, Value::from("test.ping"));
    assert_eq!(request.user, "root");
    for (minion, count) in [("m1", 1), ("m2", 0)] {
        let arguments = [of_job.clone(), ("minion", minion.into())];
        let returns: ReturnsPage<Value> = page(&site, "jobs.returns", &arguments);
        assert_eq!(returns.returns.len(), count, "{minion}");
    }
}

#[test]
fn cached_data_is_that_of_exactly_one_minion() {
    let site = site("");
    let data = &site.services.minions.data;
    let value = |text: &str| Value::map([("os", text)]);
    let (grains, pillar) = (value("grain"), value("pillar"));
    data.store_grains_and_pillar(&id("m1"), &grains, &pillar)
        .unwrap();
    for (fun, text) in [("minions.grains", "grain"), ("minions.pillar", "pillar")] {
        let known: Value = page(&site, fun, &[("minion", "m1".into())]);
        assert_eq!(known, value(text), "{fun}");
        let unknown: Value = page(&site, fun, &[("minion", "nobody".into())]);
        assert_eq!(unknown, Value::Nil, "{fun}");
    }
}

#[test]
fn functions_are_completed_and_documented_from_kept_jobs() {
    let site = site("");
    let doc = Value::map([("test.ping", Value::from("Used to make sure"))]);
    let value = Value::map([("return", doc)]);
    let load = Packed::new(encode(&value, Dialect::Bin));
    let mut writes = Vec::new();
    for (number, fun) in [
        (4, "sys.doc"),
        (5, "runner.state.orchestrate"),
        (6, "a.b,c.d"),
    ] {
        writes.push(Write::Job(JobRecord {
            jid: jid(number),
            created: 1_795_244_782_000_000,
            user: "root".to_owned(),
            fun: fun.to_owned(),
            tgt: "m1".to_owned(),
            tgt_type: "glob".to_owned(),
            load: load.clone(),
            minions: vec![id("m1")],
            nocache: false,
        }));
    }
    writes.push(Write::Return(ReturnRecord {
        jid: jid(4),
        minion: id("m1"),
        received: 5,
        fun: "sys.doc".to_owned(),
        retcode: 0,
        success: true,
        load,
    }));
    site.database.lock().commit(&writes).unwrap();
    let names: Vec<String> = page(&site, "functions.names", &[]);
    assert_eq!(names, ["sys.doc", "test.ping"]);
    let names: Vec<String> = page(&site, "functions.names", &[("prefix", "te".into())]);
    assert_eq!(names, ["test.ping"]);
    for (function, expected) in [("test.ping", Some("Used to make sure")), ("test.arg", None)] {
        let doc: Option<String> = page(&site, "functions.doc", &[("function", function.into())]);
        assert_eq!(doc.as_deref(), expected, "{function}");
    }
}

#[test]
fn master_without_a_reactor_has_no_rules_and_replays_nothing() {
    let site = site("");
    let report: Option<ReactorReport> = page(&site, "reactor.report", &[]);
    assert_eq!(report, None);
    let letters: DeadLettersPage = page(&site, "reactor.letters", &[]);
    assert_eq!(letters, DeadLettersPage::default());
    let running: Vec<RunningCall<Value>> = page(&site, "calls.running", &[]);
    assert_eq!(running, []);
    let replay = load(&site, "reactor.replay", &[("letter", "1".into())]);
    let answer = ask(&site, replay);
    let name = answer
        .get("error")
        .and_then(|error| error.get("name")?.as_str());
    assert_eq!(name, Some("ConflictError"), "{answer:?}");
}

#[test]
fn access_is_checked_for_whoever_is_proved_and_runs_nothing() {
    let site = site("");
    let functions = [
        "runner jobs.list_jobs",
        "wheel key.accept",
        "wheel",
        "other jobs.list_jobs",
    ];
    let functions = Value::Array(
        functions
            .iter()
            .map(|function| (*function).into())
            .collect(),
    );
    let flags: Vec<bool> = page(&site, "access.check", &[("functions", functions.clone())]);
    assert_eq!(flags, [true, true, false, false]);
    let answer = ask(&site, asked("access.check", &[("functions", functions)]));
    assert!(answer.get("return").is_none(), "{answer:?}");
}
