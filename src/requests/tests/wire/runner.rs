//! `runner`: permission, events and stored return.

use saltern_model::Event;
use saltern_requests::{Effect, NO_ANSWER, Ran, Run};
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, clear};
use crate::wire::site::{Site, data, decode};

/// The load of stock's `RunnerClient`.
fn load(site: &Site, fun: &str, arguments: &[&str]) -> Load {
    let arguments = arguments.iter().map(|text| Value::from(*text));
    let kwarg = Value::map([
        ("kwarg", Value::Map(Vec::new())),
        ("arg", Value::Array(arguments.collect())),
    ]);
    Load::new()
        .set("cmd", "runner")
        .set("fun", fun)
        .set("kwarg", kwarg)
        .set("user", "root")
        .with_key_of_root(site)
}

/// The answer, and the events and result of the run.
fn run(site: &Site, load: Load) -> (Value, Vec<Event>, Ran) {
    let mut outcome = site.ask(clear(load, 3));
    let Some(Effect::Run(run)) = outcome.effects.pop() else {
        panic!("a function runs")
    };
    let run: Run = *run;
    let (_, work) = run.into_parts();
    let mut fired = Vec::new();
    let ran = work(&mut |event| fired.push(event));
    (decode(&outcome.reply), fired, ran)
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

#[test]
fn runner_call_by_sudo_runs_as_masters_own_user() {
    let site = Site::new("");
    let load = load(&site, "jobs.list_jobs", &[]).set("user", "sudo_bob");
    let (_, fired, _) = run(&site, load);
    let [new] = fired.as_slice() else {
        panic!("one event comes before the end")
    };
    assert_eq!(text(&data(new), "user"), Some("root"));
}

#[test]
fn runner_call_fires_start_and_end_and_is_stored() {
    let site = Site::new("");
    let (answer, fired, ran) = run(&site, load(&site, "jobs.list_jobs", &[]));
    let jid = text(&answer, "jid").unwrap();
    let tag = format!("salt/run/{jid}");
    assert_eq!(text(&answer, "tag"), Some(tag.as_str()));
    let [new] = fired.as_slice() else {
        panic!("one event comes before the end")
    };
    assert_eq!(new.tag.to_string(), format!("{tag}/new"));
    let expected = Load::new()
        .set("fun", "runner.jobs.list_jobs")
        .set("jid", jid)
        .set("user", "root")
        .set("fun_args", Value::Array(Vec::new()));
    assert_eq!(data(new), expected.clone().value());
    assert_eq!(
        ran.end.as_ref().unwrap().tag.to_string(),
        format!("{tag}/ret")
    );
    let expected = expected
        .set("return", Value::Map(Vec::new()))
        .set("success", true);
    assert_eq!(data(ran.end.as_ref().unwrap()), expected.value());

    let kept = ran.store.unwrap();
    assert_eq!(kept.record.minion.as_str(), "host_master");
    assert!(kept.standalone && kept.keep && kept.events.is_empty());
    let load = decode(kept.record.load.bytes());
    assert_eq!(text(&load, "fun"), Some("runner.jobs.list_jobs"));
    assert_eq!(text(&load, "tgt"), Some("host_master"));
    let returned = load.get("return").unwrap();
    assert_eq!(returned.get("success"), Some(&Value::from(true)));
    assert!(text(returned, "_stamp").is_some());
}

#[test]
fn runner_call_is_not_stored_without_runner_returns() {
    for option in ["runner_returns: False\n", "job_cache: False\n"] {
        let site = Site::new(option);
        let (_, _, ran) = run(&site, load(&site, "jobs.list_jobs", &[]));
        assert!(ran.store.is_none(), "{option}");
    }
}

#[test]
fn unknown_runner_function_fires_failure() {
    let site = Site::new("");
    let (_, fired, ran) = run(&site, load(&site, "no.such", &["one"]));
    assert!(fired.is_empty());
    let end = data(ran.end.as_ref().unwrap());
    let returned = text(&end, "return").unwrap();
    assert!(
        returned.contains("'no.such' is not available"),
        "{returned}"
    );
    assert_eq!(end.get("success"), Some(&Value::from(false)));
    assert_eq!(end.get("retcode"), Some(&Value::from(1)));
}

#[test]
fn runner_progress_is_fired_during_run() {
    let site = Site::new("");
    let mut load = load(&site, "jobs.list_jobs", &[]);
    let kwarg = Value::map([
        ("arg", Value::Array(Vec::new())),
        ("kwarg", Value::map([("display_progress", true)])),
    ]);
    load = load.set("kwarg", kwarg);
    let (_, fired, _) = run(&site, load);
    let tags: Vec<String> = fired.iter().map(|event| event.tag.to_string()).collect();
    assert!(tags[0].ends_with("/new") && tags[1].ends_with("/progress"));
    assert!(text(&data(&fired[1]), "message").is_some());
}

#[test]
fn runner_without_proof_or_rule_is_refused() {
    let site = Site::new("publisher_acl: {ana: ['.*']}\nsudo_acl: True\n");
    let kinds = [
        ("token", "TokenAuthenticationError"),
        ("eauth", "EauthAuthenticationError"),
    ];
    for (field, name) in kinds {
        let load = load(&site, "jobs.list_jobs", &[]).set(field, "pam");
        let reply = decode(&site.ask_in_vain(field, clear(load, 3)));
        assert_eq!(text(reply.get("error").unwrap(), "name"), Some(name));
    }
    let wrong = [
        load(&site, "jobs.list_jobs", &[]).set("key", "wrong"),
        load(&site, "jobs.list_jobs", &[]).set("key", 5),
        load(&site, "jobs.list_jobs", &[]).set("user", "sudo_"),
    ];
    for load in wrong {
        let reply = decode(&site.ask_in_vain("key", clear(load, 3)));
        let error = reply.get("error").unwrap();
        assert_eq!(text(error, "name"), Some("UserAuthenticationError"));
        assert_eq!(
            text(error, "message"),
            Some("Authentication failure of type \"user\" occurred")
        );
    }
    // A user whose rules name no runner.
    let limited = load(&site, "jobs.list_jobs", &[]).set("user", "sudo_ana");
    let reply = decode(&site.ask_in_vain("rules", clear(limited, 3)));
    let error = reply.get("error").unwrap();
    assert_eq!(text(error, "name"), Some("UserAuthenticationError"));
    assert_eq!(
        text(error, "message"),
        Some("Authentication failure of type \"user\" occurred for user sudo_ana.")
    );
    assert_eq!(site.refused(), 6);
}

#[test]
fn runner_load_without_function_is_not_handled() {
    let site = Site::new("");
    let load = load(&site, "", &[]).set("fun", Value::Nil);
    let reply = site.ask_in_vain("fun", clear(load, 3));
    assert_eq!(decode(&reply).as_str(), Some(NO_ANSWER));
}

#[test]
fn mk_token_by_runner_hides_password() {
    let site =
        Site::new("external_auth: {sharedsecret: {ana: ['.*']}}\nsharedsecret: open sesame\n");
    let log_in = |password: &str| {
        let named = Value::map([
            ("username", "ana"),
            ("password", password),
            ("eauth", "sharedsecret"),
        ]);
        let kwarg = Value::map([("kwarg", named), ("arg", Value::Array(Vec::new()))]);
        run(&site, load(&site, "auth.mk_token", &[]).set("kwarg", kwarg))
    };
    let (_, fired, ran) = log_in("open sesame");
    let end = data(ran.end.as_ref().unwrap());
    let token = end.get("return").and_then(|token| text(token, "token"));
    let found = site.services.users.tokens.find(token.unwrap()).unwrap();
    assert_eq!(found.unwrap().name(), "ana");
    let reports = [
        &fired[0].data,
        &ran.end.as_ref().unwrap().data,
        &ran.store.unwrap().record.load,
    ];
    for packed in reports {
        let seen = String::from_utf8_lossy(packed.bytes());
        assert!(seen.contains("ana") && !seen.contains("sesame"));
    }
    let (_, _, ran) = log_in("open barley");
    assert_eq!(
        data(ran.end.as_ref().unwrap()).get("return"),
        Some(&Value::from(""))
    );
}

/// A call that asks a backend waits in the queue of all log-ins, and a wrong password counts there.
#[test]
fn mk_token_by_runner_is_queued_as_login() {
    let site =
        Site::new("external_auth: {sharedsecret: {ana: ['.*']}}\nsharedsecret: open sesame\n");
    let from = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    for (password, is_refused) in [("open sesame", false), ("open barley", true)] {
        let named = Value::map([
            ("username", "ana"),
            ("password", password),
            ("eauth", "sharedsecret"),
        ]);
        let kwarg = Value::map([("kwarg", named), ("arg", Value::Array(Vec::new()))]);
        let load = load(&site, "auth.mk_token", &[]).set("kwarg", kwarg);
        let mut handled = saltern_requests::handle(clear(load, 3), from, &site.services);
        let Some(Effect::LogIn(log_in)) = handled.outcome.effects.pop() else {
            panic!("the backend is asked first")
        };
        assert_eq!((log_in.from(), log_in.user()), (from, "ana"));
        let end = log_in.run();
        assert_eq!(end.is_refused, is_refused);
        let effects = end.handled.outcome.effects;
        assert!(matches!(effects.as_slice(), [Effect::Run(_)]));
    }
    let named = Value::map([("username", "x".repeat(64 << 10).as_str())]);
    let kwarg = Value::map([("kwarg", named), ("arg", Value::Array(Vec::new()))]);
    let load = load(&site, "auth.mk_token", &[]).set("kwarg", kwarg);
    let reply = decode(&site.ask_in_vain("too large", clear(load, 3)));
    let error = reply.get("error").unwrap();
    assert_eq!(text(error, "name"), Some("EauthAuthenticationError"));
}
