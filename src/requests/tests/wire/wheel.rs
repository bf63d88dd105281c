//! `wheel`: permission, answers and events.

use saltern_model::{Event, MinionId};
use saltern_requests::NO_ANSWER;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion, clear};
use crate::wire::site::{Site, data, decode, events, names};

/// The load of stock's `WheelClient.master_call` with a user's key.
fn load(site: &Site, fun: &str, named: &[(&str, Value)]) -> Load {
    let load = Load::new()
        .set("cmd", "wheel")
        .set("fun", fun)
        .set("user", "root")
        .with_key_of_root(site);
    let named = named.iter().cloned();
    named.fold(load, |load, (name, value)| load.set(name, value))
}

fn ask(site: &Site, load: Load) -> (Value, Vec<Event>) {
    let outcome = site.ask(clear(load, 3));
    (decode(&outcome.reply), events(&outcome))
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

fn tags(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.tag.to_string()).collect()
}

#[test]
fn wheel_call_answers_value_and_fires_once() {
    let site = Site::new("");
    site.write("pki/minions/m1", "a key");
    let named = [("match", "accepted".into())];
    let (answer, fired) = ask(&site, load(&site, "key.list", &named));
    let answered = answer.get("data").unwrap();
    assert_eq!(
        names(answered),
        ["fun", "jid", "tag", "user", "return", "success"]
    );
    let jid = text(answered, "jid").unwrap();
    let tag = format!("salt/wheel/{jid}");
    assert_eq!(text(&answer, "tag"), Some(tag.as_str()));
    assert_eq!(text(answered, "tag"), Some(tag.as_str()));
    assert_eq!(text(answered, "fun"), Some("wheel.key.list"));
    let value = Value::map([("minions", Value::Array(vec!["m1".into()]))]);
    assert_eq!(answered.get("return"), Some(&value));

    assert_eq!(tags(&fired), [format!("{tag}/new"), format!("{tag}/ret")]);
    let arguments = Value::Array(vec![Value::map(named)]);
    let expected = Load::new()
        .set("fun", "wheel.key.list")
        .set("jid", jid)
        .set("user", "root")
        .set("fun_args", arguments);
    assert_eq!(data(&fired[0]), expected.clone().value());
    let expected = expected.set("return", value).set("success", true);
    assert_eq!(data(&fired[1]), expected.value());
}

#[test]
fn wheel_call_before_3008_fires_twice() {
    for compat in ["3006", "3007"] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        let (answer, fired) = ask(&site, load(&site, "key.list_all", &[]));
        let answered = answer.get("data").unwrap();
        assert!(text(answered, "_stamp").is_some());
        let jid = text(answered, "jid").unwrap();
        let inner = data(&fired[1]);
        let other = text(&inner, "jid").unwrap();
        assert_ne!(jid, other);
        let tag = |jid, what| format!("salt/wheel/{jid}/{what}");
        let expected = [
            tag(jid, "new"),
            tag(other, "new"),
            tag(other, "ret"),
            tag(jid, "ret"),
        ];
        assert_eq!(tags(&fired), expected);
        assert_eq!(names(&data(&fired[0])), ["fun", "jid", "tag", "user"]);
        assert_eq!(names(&inner), ["fun", "jid", "user", "fun_args"]);
        assert_eq!(text(&inner, "user"), Some("UNKNOWN"));
        let end = data(&fired[3]);
        assert_eq!(
            names(&end),
            ["fun", "jid", "tag", "user", "return", "success"]
        );
    }
}

/// `wheel_async` of stock's clients waits for the events of a jid that the client has made up.
#[test]
fn wheel_events_bear_jid_of_client() {
    for compat in ["3006", "3007", "3008"] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        let named = [("__jid__", "20260102030405060708".into())];
        let (_, fired) = ask(&site, load(&site, "key.list_all", &named));
        let tags = tags(&fired);
        let waited_for = "salt/wheel/20260102030405060708/ret".to_owned();
        assert!(tags.contains(&waited_for), "{tags:?}");
        let named = [("__jid__", "../../x\n".into())];
        let (answer, _) = ask(&site, load(&site, "key.list_all", &named));
        assert!(answer.get("data").is_some());
    }
}

#[test]
fn unknown_wheel_function_fires_failure() {
    let site = Site::new("");
    let (answer, fired) = ask(&site, load(&site, "no.such", &[]));
    let answered = answer.get("data").unwrap();
    let returned = text(answered, "return").unwrap();
    assert!(
        returned.contains("'no.such' is not available"),
        "{returned}"
    );
    assert_eq!(answered.get("success"), Some(&Value::from(false)));
    assert_eq!(tags(&fired).len(), 1);
    assert_eq!(data(&fired[0]).get("retcode"), Some(&Value::from(1)));
}

#[test]
fn key_delete_removes_session_and_data() {
    for compat in ["3006", "3007", "3008"] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        let minion = Minion::signed_in(&site, "m1");
        let id = MinionId::parse("m1").unwrap();
        let grains = Value::map([("os", "Debian")]);
        site.services
            .minions
            .data
            .store_grains(&id, &grains)
            .unwrap();
        assert!(site.services.minions.sessions.get(&id).unwrap().is_some());
        let named = [("match", "m1".into())];
        let (_, fired) = ask(&site, load(&site, "key.delete", &named));
        assert!(tags(&fired).contains(&"salt/key".to_owned()));
        assert!(site.services.keys.pki.accepted_key(&id).unwrap().is_none());
        assert!(site.services.minions.sessions.get(&id).unwrap().is_none());
        assert!(site.services.minions.data.grains(&id).unwrap().is_none());
        drop(minion);
    }
}

#[test]
fn wheel_needs_trusted_user() {
    let site = Site::new("");
    site.write("pki/minions_pre/m1", "a key");
    let all = [("match", Value::from("*"))];
    let attempts = [
        load(&site, "key.accept", &all).without("key"),
        load(&site, "key.accept", &all).set("key", "wrong"),
        load(&site, "key.delete", &all).set("token", "wrong"),
        load(&site, "key.delete", &all).set("eauth", "pam"),
        load(&site, "file_roots.write", &[]).set("key", 5),
    ];
    for load in attempts {
        let reply = decode(&site.ask_in_vain("wheel", clear(load, 3)));
        let name = reply.get("error").and_then(|error| text(error, "name"));
        assert!(name.is_some_and(|it| it.ends_with("AuthenticationError")));
    }
    let nothing = load(&site, "", &[]).set("fun", Value::Nil);
    let reply = site.ask_in_vain("fun", clear(nothing, 3));
    assert_eq!(decode(&reply).as_str(), Some(NO_ANSWER));
}
