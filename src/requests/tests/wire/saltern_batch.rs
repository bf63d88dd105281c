//! `saltern_batch`: permission, the plan of a batch, and the publication of each part.

use std::time::Duration;

use saltern_model::MinionId;
use saltern_requests::{BatchPlan, Effect, NO_ANSWER, Outcome, PartRefused, batch_part};
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, clear};
use crate::wire::site::{Site, data, decode, names};

fn site(options: &str) -> Site {
    let site = Site::new(options);
    for id in ["m1", "m2", "m3", "db"] {
        site.accept(id, "minion");
    }
    site
}

fn load(site: &Site, wishes: Value) -> Load {
    Load::new()
        .set("cmd", "saltern_batch")
        .set("tgt", "m*")
        .set("fun", "test.arg")
        .set("arg", Value::Array(vec!["one".into()]))
        .with_key_of_root(site)
        .set("tgt_type", "glob")
        .set("ret", "")
        .set(
            "kwargs",
            Value::map([("metadata", "why"), ("password", "x")]),
        )
        .set("batch", wishes)
        .set("user", "root")
}

fn wish<V: Into<Value>>(name: &'static str, value: V) -> Value {
    Value::map([("size", "1".into()), (name, value.into())])
}

fn planned(outcome: &Outcome) -> &BatchPlan {
    match outcome.effects.as_slice() {
        [Effect::StartBatch(plan)] => plan,
        _ => panic!("one batch is begun"),
    }
}

fn ids(names: &[&str]) -> Vec<MinionId> {
    names
        .iter()
        .map(|id| MinionId::parse(id).unwrap())
        .collect()
}

#[test]
fn batch_is_planned_and_answered() {
    let site = site("timeout: 7\ngather_job_timeout: 3\n");
    let wishes = Value::map([
        ("size", Value::from("67%")),
        ("wait", 1.5.into()),
        ("failhard", true.into()),
    ]);
    let outcome = site.ask(clear(load(&site, wishes), 3));
    let plan = planned(&outcome);
    assert_eq!(
        (plan.minions.clone(), plan.size),
        (ids(&["m1", "m2", "m3"]), 2)
    );
    assert_eq!(
        (plan.wait, plan.failhard),
        (Duration::from_millis(1500), true)
    );
    assert_eq!(plan.patience(), Duration::from_secs(10));
    assert_eq!(
        (plan.user.as_str(), plan.tgt_type.as_str()),
        ("root", "glob")
    );
    assert_eq!(
        plan.options,
        Value::map([("metadata", "why")]),
        "no secrets"
    );
    let answer = decode(&outcome.reply);
    let answer = answer.get("load").unwrap();
    assert_eq!(
        names(answer),
        ["jid", "minions", "missing", "down", "batch_size"]
    );
    assert_eq!(
        answer.get("jid").and_then(Value::as_str),
        Some(plan.jid.as_str())
    );
    assert_eq!(answer.get("batch_size").and_then(Value::as_i64), Some(2));
    let not_stored = decode(&outcome.reply_if_not_stored);
    assert!(not_stored.get("error").and_then(Value::as_str).is_some());
}

#[test]
fn batch_options_are_applied_or_refused_with_reason() {
    let site = site("");
    let sizes = |wishes: &[(&str, Value)]| {
        let wishes = Value::map(wishes.iter().cloned());
        let outcome = site.ask(clear(load(&site, wishes), 3));
        let plan = planned(&outcome);
        (plan.minions.len(), plan.size)
    };
    let limited = |limit: u32| [("safe_limit", limit.into()), ("safe_size", "2".into())];
    assert_eq!(sizes(&limited(3)), (3, 2));
    assert_eq!(sizes(&limited(4)), (3, 3));
    assert_eq!(sizes(&[("size", 2.into()), ("subset", 1.into())]), (1, 2));
    assert_eq!(sizes(&[("size", "1".into()), ("subset", 9.into())]), (3, 1));

    let huge = Value::Float(f64::INFINITY);
    for (wishes, reason) in [
        (wish("size", "two"), "\"two\" is not a batch size"),
        (Value::Map(Vec::new()), "a batch has a \"size\""),
        (wish("wait", "soon"), "\"wait\" is not a number of seconds"),
        (
            wish("timeout", huge),
            "\"timeout\" is not a number of seconds",
        ),
        (wish("subset", 0), "\"subset\" is not a number of minions"),
        (wish("subset", -1), "\"subset\" is not a number of minions"),
    ] {
        let reply = decode(&site.ask_in_vain(reason, clear(load(&site, wishes), 3)));
        let error = reply.get("error").and_then(Value::as_str).unwrap();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn batch_needs_permission_to_publish() {
    let site = site("publisher_acl_blacklist:\n  modules: ['cmd.*']\n");
    let batch = || load(&site, wish("failhard", false));
    for (load, name) in [
        (batch().set("key", "wrong"), "AuthenticationError"),
        (batch().without("key"), "AuthenticationError"),
        (batch().set("fun", "cmd.run"), "AuthorizationError"),
    ] {
        let reply = decode(&site.ask_in_vain(name, clear(load, 3)));
        let error = reply.get("error").and_then(|error| error.get("name"));
        assert_eq!(error.and_then(Value::as_str), Some(name));
    }
    let reply = site.ask_in_vain("no batch", clear(batch().without("batch"), 3));
    assert_eq!(decode(&reply), NO_ANSWER.into());
    let reply = decode(&site.ask_in_vain("nobody", clear(batch().set("tgt", "x*"), 3)));
    assert!(reply.get("load").unwrap().get("jid").unwrap().is_nil());
}

#[test]
fn batch_part_is_publish_of_client_under_batch_jid() {
    let site = site("");
    let outcome = site.ask(clear(load(&site, wish("failhard", true)), 3));
    let mut plan = planned(&outcome).clone();
    plan.kwargs = Value::map([("name", "x")]);
    plan.ret = "carbon".into();
    let part = batch_part(&plan, &ids(&["m2", "gone", "m1"]), &site.services).unwrap();
    assert_eq!(part.gone, ids(&["gone"]));
    let start = part.start.unwrap();
    assert_eq!(start.job.jid, plan.jid);
    assert_eq!(start.job.minions, ids(&["m2", "m1"]));
    assert_eq!(start.job.tgt_type, "list");
    let stored = decode(start.job.load.bytes());
    assert_eq!(stored.get("ret").and_then(Value::as_str), Some("carbon"));
    let named = Value::map([("__kwarg__", Value::from(true)), ("name", "x".into())]);
    let arguments = Value::Array(vec!["one".into(), named]);
    assert_eq!(stored.get("arg"), Some(&arguments));
    let tags: Vec<_> = start
        .announce
        .iter()
        .map(|event| event.tag.to_string())
        .collect();
    let jid = &plan.jid;
    assert_eq!(
        tags,
        [
            format!("salt/job/{jid}/new"),
            format!("salt/job/{jid}/publish")
        ]
    );
    let sent = data(&start.announce[1]);
    assert_eq!(sent.get("metadata").and_then(Value::as_str), Some("why"));

    let nobody = batch_part(&plan, &ids(&["gone"]), &site.services).unwrap();
    assert!(nobody.start.is_none());
}

#[test]
fn batch_part_with_barred_function_is_not_sent() {
    let open = site("");
    let outcome = open.ask(clear(load(&open, wish("failhard", true)), 3));
    let barred = site("publisher_acl_blacklist:\n  modules: ['test.*']\n");
    let part = batch_part(planned(&outcome), &ids(&["m1"]), &barred.services);
    assert_eq!(part.err(), Some(PartRefused::Never("barred")));
}
