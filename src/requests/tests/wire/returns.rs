//! `_return`: the stored return, its events, and whose claims count.

use bytes::Bytes;
use saltern_crypto::SigAlgo;
use saltern_requests::{Effect, NO_ANSWER, Outcome, ReceivedReturn};
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::wire::client::{JID, Load, Minion};
use crate::wire::site::{Site, data, decode, events, names, tags};

fn load(minion: &Minion) -> Load {
    minion
        .load("_return")
        .set("success", true)
        .set("return", "pong")
        .set("retcode", 0_i64)
        .set("jid", JID)
        .set("fun", "test.ping")
        .set("fun_args", Value::Array(Vec::new()))
        .set("user", "root")
}

fn stored(outcome: &Outcome) -> &ReceivedReturn {
    match outcome.effects.as_slice() {
        [Effect::StoreReturn(stored)] => stored,
        _ => panic!("one return is stored"),
    }
}

fn ask(site: &Site, minion: &Minion, load: Load) -> Outcome {
    let outcome = site.ask(minion.sealed(load, 3));
    assert_eq!(minion.open(&outcome.reply, 3), Value::Nil);
    outcome
}

fn dropped(site: &Site, minion: &Minion, load: Load) {
    let reply = site.ask_in_vain("dropped", minion.sealed(load, 3));
    assert_eq!(
        minion.open(&reply, 3),
        Value::Nil,
        "stock answers nil all the same"
    );
}

#[test]
fn probe_answer_is_neither_stored_nor_fired() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    *site.around.asked.lock() = Some(JID.to_owned());
    dropped(&site, &m1, load(&m1));
    assert_eq!(site.refused(), 0);
    let other = load(&m1).set("jid", "20260102030405060709");
    stored(&ask(&site, &m1, other));
}

#[test]
fn return_is_stored_and_fired_as_it_came() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let value = Value::map([("bytes", Value::Bin(Bytes::from_static(b"\xff\xfe")))]);
    let outcome = ask(
        &site,
        &m1,
        load(&m1).set("return", value.clone()).set("retcode", 3_i64),
    );
    assert_eq!(decode(&outcome.reply_if_not_stored), NO_ANSWER.into());
    let kept = stored(&outcome);
    assert_eq!(
        (kept.record.jid.as_str(), kept.record.minion.as_str()),
        (JID, "m1")
    );
    assert_eq!(
        (kept.record.fun.as_str(), kept.record.retcode),
        ("test.ping", 3)
    );
    assert!(kept.keep && !kept.standalone && kept.record.success);
    let whole = decode(kept.record.load.bytes());
    assert_eq!(whole.get("return"), Some(&value), "not UTF-8, and intact");
    assert_eq!(tags(&outcome), [format!("salt/job/{JID}/ret/m1")]);
    let fired = data(&events(&outcome)[0]);
    let order = [
        "cmd", "id", "ts", "success", "return", "retcode", "jid", "fun", "fun_args", "user",
    ];
    assert_eq!(names(&fired), order, "neither token nor nonce");
}

#[test]
fn standalone_return_gets_jid_and_brings_its_job() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let arguments = Value::Array(vec!["x".into()]);
    let outcome = ask(
        &site,
        &m1,
        load(&m1)
            .set("jid", "req")
            .set("fun_args", arguments.clone()),
    );
    let kept = stored(&outcome);
    assert!(kept.standalone && kept.keep);
    let jid = kept.record.jid.as_str();
    assert_eq!((kept.job.jid.as_str(), jid.len()), (jid, 20));
    let fired = data(&events(&outcome)[0]);
    assert_eq!(fired.get("jid"), Some(&jid.into()));
    assert_eq!(fired.get("arg"), Some(&arguments));
    assert_eq!(
        (fired.get("tgt"), fired.get("tgt_type")),
        (Some(&"m1".into()), Some(&"glob".into()))
    );
    assert_eq!(tags(&outcome), [format!("salt/job/{jid}/ret/m1")]);
}

#[test]
fn reported_job_bears_nothing_that_its_minion_claims() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    for jid in ["req", "20260102030405060709"] {
        let claims = load(&m1)
            .set("jid", jid)
            .set("user", "root")
            .set("tgt", "db*")
            .set("tgt_type", "compound")
            .set("return", "x".repeat(100_000))
            .set("metadata", "m".repeat(100_000))
            .set("arg", Value::Array(vec!["x".into()]));
        let outcome = ask(&site, &m1, claims);
        let kept = stored(&outcome);
        let job = &kept.job;
        assert_eq!(kept.reporter.as_ref().map(|id| id.as_str()), Some("m1"));
        let of_columns = [&*job.user, &*job.tgt, &*job.tgt_type];
        assert_eq!(of_columns, ["minion:m1", "m1", "glob"], "{jid}");
        let packed = decode(job.load.bytes());
        let of_load = ["user", "tgt", "tgt_type"].map(|name| packed.get(name).cloned());
        assert_eq!(
            of_load,
            ["minion:m1", "m1", "glob"].map(|text| Some(text.into()))
        );
        assert_eq!(packed.get("arg"), Some(&Value::Array(vec!["x".into()])));
        assert!(packed.get("return").is_none() && packed.get("metadata").is_none());
        assert!(job.load.bytes().len() < 512);
    }
}

#[test]
fn long_function_name_is_cut() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let outcome = ask(&site, &m1, load(&m1).set("fun", "ä".repeat(1 << 20)));
    let kept = stored(&outcome);
    assert_eq!(kept.record.fun, "ä".repeat(2048));
    assert_eq!(kept.job.fun, kept.record.fun);
}

#[test]
fn unkept_return_is_fired_and_not_stored() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let outcome = ask(&site, &m1, load(&m1).set("jid", "nocache"));
    assert!(!stored(&outcome).keep);
    assert_eq!(
        tags(&outcome),
        ["salt/job/nocache/ret/m1"],
        "fired under the name it came with"
    );
    let outcome = ask(&site, &m1, load(&m1).set("nocache", true));
    assert!(!stored(&outcome).keep);
    let without = Site::new("job_cache: False\n");
    let m1 = Minion::signed_in(&without, "m1");
    assert!(!stored(&ask(&without, &m1, load(&m1))).keep);
}

/// A syndic's returns go up from the job database.
#[test]
fn syndic_without_a_job_cache_stores_returns() {
    for (kind, is_kept) in [("native", true), ("stock", false)] {
        let options = "job_cache: False\nsyndic_master: top.example\nsaltern_syndic: ";
        let site = Site::new(&format!("{options}{kind}\n"));
        let m1 = Minion::signed_in(&site, "m1");
        assert_eq!(stored(&ask(&site, &m1, load(&m1))).keep, is_kept, "{kind}");
    }
}

#[test]
fn malformed_or_foreign_return_is_dropped() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    site.accept("m2", "minion");
    site.write("pki/minions_pre/m3", "x");
    let table = [
        load(&m1).without("return"),
        load(&m1).without("jid"),
        load(&m1).set("jid", 5_i64),
        load(&m1).set("jid", "../../x"),
        load(&m1).set("jid", ""),
        load(&m1).set("resource_id", "m2"),
        load(&m1).set("resource_id", "m3"),
        load(&m1).set("resource_id", "a/b"),
        load(&m1).set("resource_id", 5_i64),
    ];
    for load in table {
        dropped(&site, &m1, load);
    }
}

fn register(site: &Site, minion: &Minion, resource: &str) {
    let names = Value::Array(vec![resource.into()]);
    let load = minion.load("_register_resources");
    let load = load.set("resources", Value::map([("switch", names)]));
    let outcome = site.ask(minion.sealed(load, 3));
    assert_eq!(minion.open(&outcome.reply, 3), true.into());
}

#[test]
fn resource_returns_under_its_own_id() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    register(&site, &m1, "switch-7");
    let outcome = ask(&site, &m1, load(&m1).set("resource_id", "switch-7"));
    assert_eq!(stored(&outcome).record.minion.as_str(), "switch-7");
    assert_eq!(tags(&outcome), [format!("salt/job/{JID}/ret/switch-7")]);
    let fired = data(&events(&outcome)[0]);
    assert_eq!(fired.get("id"), Some(&"switch-7".into()));
    assert!(fired.get("resource_id").is_none());
    let own = ask(&site, &m1, load(&m1).set("resource_id", "m1"));
    assert_eq!(stored(&own).record.minion.as_str(), "m1");
}

#[test]
fn return_for_foreign_resource_is_dropped() {
    let site = Site::new("");
    let (m1, m2) = (
        Minion::signed_in(&site, "m1"),
        Minion::signed_in(&site, "m2"),
    );
    register(&site, &m1, "switch-7");
    for resource in ["switch-7", "switch-8", "m1"] {
        dropped(&site, &m2, load(&m2).set("resource_id", resource));
    }
    // A minion returns no more for a resource that it has unregistered.
    register(&site, &m1, "switch-9");
    dropped(&site, &m1, load(&m1).set("resource_id", "switch-7"));
    // The older versions have no resources: it is one more entry of the load.
    for compat in ["3006", "3007"] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        let m1 = Minion::signed_in(&site, "m1");
        let outcome = ask(&site, &m1, load(&m1).set("resource_id", "switch-7"));
        assert_eq!(stored(&outcome).record.minion.as_str(), "m1");
        let fired = data(&events(&outcome)[0]);
        assert_eq!(fired.get("resource_id"), Some(&"switch-7".into()));
    }
}

#[test]
fn failed_state_name_cannot_forge_a_tag() {
    let failed = |name: &str| {
        let state = Value::map([("result", Value::from(false))]);
        Value::map([(format!("{name}_|-x_|-y_|-run"), state)])
    };
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let tags_of = |name: &str| {
        let load = load(&m1).set("fun", "state.sls").set("retcode", 2_i64);
        tags(&ask(&site, &m1, load.set("return", failed(name))))
    };
    let of_job = [
        format!("salt/job/{JID}/ret/m1"),
        format!("salt/job/{JID}/sub/m1/error/state.sls"),
    ];
    for forged in [
        format!("salt/job/{JID}/ret/m2"),
        "salt/auth/x".to_owned(),
        "salt/batch/1/stop".to_owned(),
        JID.to_owned(),
    ] {
        assert_eq!(tags_of(&forged), of_job, "{forged}");
    }
    let honest = [&of_job[0], "cmd.run", &of_job[1]];
    assert_eq!(tags_of("cmd"), honest);
}

/// A load signed as by `minion_sign_messages`: over the entries without token and nonce.
fn signed(minion: &Minion, load: Load) -> Load {
    let message = load.clone().without("tok").without("nonce").value();
    let signature = minion
        .private
        .sign(SigAlgo::Pkcs1v15Sha1, &encode(&message, Dialect::Bin))
        .unwrap();
    load.set("sig", Value::Bin(signature.into()))
}

#[test]
fn return_signature_is_checked_under_both_options() {
    let stranger = Minion::new("m1", "large");
    for (require, drop) in [(false, false), (true, false), (false, true), (true, true)] {
        let site = Site::new(&format!(
            "require_minion_sign_messages: {require}\ndrop_messages_signature_fail: {drop}\n"
        ));
        let m1 = Minion::signed_in(&site, "m1");
        let binary = load(&m1).set("return", Value::Bin(Bytes::from_static(b"\xff")));
        let good = ask(&site, &m1, signed(&m1, binary));
        assert_eq!(
            stored(&good).record.minion.as_str(),
            "m1",
            "{require} {drop}"
        );
        let fired = data(&events(&good)[0]);
        assert!(
            fired.get("sig").is_some(),
            "the signature stays, as in stock"
        );
        let bad = [
            signed(&stranger, load(&m1)),
            signed(&m1, load(&m1)).set("return", "forged"),
            load(&m1).set("sig", "x"),
            load(&m1).set("sig", Value::Nil),
        ];
        for load in bad {
            match drop {
                true => dropped(&site, &m1, load),
                false => _ = stored(&ask(&site, &m1, load)),
            }
        }
        match require {
            true => dropped(&site, &m1, load(&m1)),
            false => _ = stored(&ask(&site, &m1, load(&m1))),
        }
    }
}

#[test]
fn failed_states_have_one_event_each() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let state =
        |result: bool| Value::map([("result", Value::Bool(result)), ("comment", "c".into())]);
    let states = Value::map([
        ("file_|-a_|-/a_|-managed", state(false)),
        ("pkg_|-b_|-b_|-installed", state(true)),
    ]);
    let failed = |fun: &str| {
        load(&m1)
            .set("fun", fun)
            .set("return", states.clone())
            .set("retcode", 2_i64)
    };
    let own = format!("salt/job/{JID}/ret/m1");
    for fun in ["state.sls", "state.highstate"] {
        let outcome = ask(&site, &m1, failed(fun));
        let long = format!("salt/job/{JID}/sub/m1/error/{fun}");
        assert_eq!(tags(&outcome), [own.as_str(), "file.managed", &long]);
        let fired = data(&events(&outcome)[2]);
        assert_eq!(fired.get("return"), Some(&"Error: file.managed".into()));
        assert_eq!(
            (fired.get("retcode"), fired.get("fun")),
            (Some(&Value::Int(2)), Some(&fun.into()))
        );
    }
    assert_eq!(
        tags(&ask(&site, &m1, failed("state.apply"))),
        [own.as_str()]
    );
    let fine = failed("state.sls").set("retcode", 0_i64);
    assert_eq!(tags(&ask(&site, &m1, fine)), [own.as_str()]);

    let funs = Value::Array(vec!["test.ping".into(), "state.sls".into()]);
    let returns = Value::map([
        ("test.ping", Value::Bool(true)),
        ("state.sls", states.clone()),
    ]);
    let codes = Value::map([("test.ping", 0_i64), ("state.sls", 2)]);
    let compound = load(&m1)
        .set("fun", funs.clone())
        .set("return", returns)
        .set("retcode", codes);
    assert_eq!(tags(&ask(&site, &m1, compound)).len(), 3);
    let returns = Value::Array(vec![true.into(), states.clone()]);
    let codes = Value::Array(vec![0_i64.into(), 2_i64.into()]);
    let ordered = load(&m1)
        .set("fun", funs)
        .set("return", returns)
        .set("retcode", codes);
    assert_eq!(tags(&ask(&site, &m1, ordered)).len(), 3);
}

#[test]
fn oversize_return_is_trimmed_on_bus_and_whole_in_store() {
    let site = Site::new("max_event_size: 4096\n");
    let m1 = Minion::signed_in(&site, "m1");
    let long = "x".repeat(10_000);
    let outcome = ask(&site, &m1, load(&m1).set("return", long.as_str()));
    let fired = &events(&outcome)[0];
    assert!(fired.data.bytes().len() <= 4096);
    assert_eq!(data(fired).get("return"), Some(&"VALUE_TRIMMED".into()));
    let whole = decode(stored(&outcome).record.load.bytes());
    assert_eq!(whole.get("return"), Some(&long.as_str().into()));
    assert_eq!(whole.get("jid"), Some(&JID.into()));
}

#[test]
fn marked_probe_answer_is_no_return() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let running = Value::Array(vec![Value::map([("jid", JID), ("fun", "cmd.run")])]);
    let mark = Value::map([("saltern_probe", true)]);
    let answer = load(&m1).set("fun", "saltutil.running");
    let answer = answer.set("metadata", mark).set("return", running.clone());
    let outcome = ask(&site, &m1, answer);
    let [Effect::TakeAnswer(answer)] = outcome.effects.as_slice() else {
        panic!("an answer is taken");
    };
    assert_eq!((answer.probe.as_str(), answer.minion.as_str()), (JID, "m1"));
    assert_eq!(answer.running.as_ref().unwrap()[0].0.as_str(), JID);
    // A user's own call is a job like any other.
    let users = load(&m1).set("fun", "saltutil.running");
    stored(&ask(&site, &m1, users.set("return", running)));
}
