//! Permission to have something done.

use std::time::Duration;

use super::*;
use crate::wire::client::Minion;
use crate::wire::site::list;

fn wheel(fun: &str) -> Load {
    Load::new()
        .set("cmd", "wheel")
        .set("fun", fun)
        .set("user", "root")
        .set("match", "*")
}

/// Methods of stock's class could be called by their names, and gave the key of root away.
#[test]
fn cve_2020_11651_methods_are_no_commands() {
    let site = Site::new("");
    let minion = Minion::signed_in(&site, "m1");
    let key = {
        let rules = site.services.users.rules();
        rules.users.key("root").unwrap().expose().to_owned()
    };
    for name in [
        "_prep_auth_info",
        "_prep_pub",
        "_prep_jid",
        "_send_pub",
        "__init__",
        "check_authentication",
        "rm_token",
        "destroy",
    ] {
        let load = Load::new()
            .set("cmd", name)
            .set("user", "root")
            .set("tgt", "*")
            .set("fun", "cmd.run");
        let reply = refused_bytes(&site, name, load);
        assert!(!holds(&reply, &key), "{name}");
        let sealed = minion.sealed(minion.load(name).set("user", "root"), 3);
        let answer = minion.open(&site.ask_in_vain(name, sealed), 3);
        assert_eq!(answer, Value::Map(Vec::new()), "{name}, sealed");
    }
}

/// Functions of the master were run without a look at the credentials.
#[test]
fn cve_2021_25281_wheel_needs_proof() {
    let site = Site::new(LOGIN);
    site.write("pki/minions_pre/m1", "a key");
    let attempts = [
        ("nothing", wheel("key.accept")),
        ("an empty token", wheel("key.accept").set("token", "")),
        (
            "a token of nobody",
            wheel("key.accept").set("token", "0123456789abcdef"),
        ),
        ("a backend alone", wheel("key.accept").set("eauth", "pam")),
        (
            "a backend that is not configured",
            wheel("key.accept")
                .set("eauth", "auto")
                .set("username", "ana"),
        ),
        ("an empty key", wheel("key.accept").set("key", "")),
    ];
    for (what, load) in attempts {
        let reply = refused(&site, what, load);
        assert!(error_of(&reply).ends_with("AuthenticationError"), "{what}");
    }
    // A proved user without a rule for it.
    let Value::Map(entries) = login("ana").value() else {
        panic!("a map");
    };
    let limited = entries
        .into_iter()
        .fold(wheel("key.accept"), |load, (name, value)| {
            load.set(name.as_str().unwrap(), value)
        });
    let reply = refused(&site, "a user without the right", limited);
    assert!(error_of(&reply).ends_with("Error"), "{reply:?}");
    assert!(site.path("pki/minions_pre/m1").exists());
}

/// A job of several functions ran when the rules allowed one of them.
#[test]
fn cve_2013_4435_each_function_of_a_job_needs_a_rule() {
    let site = Site::new(LOGIN);
    site.accept("web1", "minion");
    let functions = |names: &[&str]| {
        let arguments = vec![Value::Array(Vec::new()); names.len()];
        publish(login("ana"), list(names), "web1").set("arg", Value::Array(arguments))
    };
    let allowed = site.ask(clear(functions(&["test.ping", "test.version"]), 3));
    assert!(starts_a_job(&allowed));
    for load in [
        functions(&["test.ping", "cmd.run"]),
        functions(&["cmd.run", "test.ping"]),
    ] {
        let outcome = site.ask(clear(load, 3));
        assert!(!starts_a_job(&outcome));
        assert_eq!(error_of(&decode(&outcome.reply)), "AuthorizationError");
    }
}

/// A target that matched no minion of a master with syndics passed every rule.
#[test]
fn cve_2022_22941_target_without_minions_needs_the_rule_too() {
    for options in ["", "order_masters: True\n"] {
        let site = Site::new(&format!("{LOGIN}{options}"));
        site.accept("web1", "minion");
        site.accept("db1", "large");
        for target in ["nobody*", "db*", "*"] {
            let load = publish(login("ana"), "state.apply", target);
            let outcome = site.ask(clear(load, 3));
            assert!(!starts_a_job(&outcome), "{options}: {target}");
        }
    }
}

/// A token could be used once more after its end.
#[test]
fn cve_2021_3144_expired_token_is_refused_at_once() {
    let site = Site::new(LOGIN);
    site.accept("web1", "minion");
    let token = decode(
        &site
            .ask(clear(login("ana").set("cmd", "mk_token"), 3))
            .reply,
    );
    let load = || {
        let with = Load::new().set("token", text(&token, "token").unwrap());
        publish(with, "test.ping", "web1")
    };
    site.clock.advance(Duration::from_micros(59_999_999));
    assert!(starts_a_job(&site.ask(clear(load(), 3))));
    site.clock.advance(Duration::from_micros(1));
    for _ in 0..2 {
        let outcome = site.ask(clear(load(), 3));
        assert!(!starts_a_job(&outcome));
    }
}

/// The backend `pki` took a certificate, which is public, for a proof.
#[test]
fn cve_2024_38825_certificate_is_no_proof() {
    let site = Site::new(
        "client_acl_verify: False\nexternal_auth: {pki: {ana: ['.*', '@wheel', '@runner']}}\n",
    );
    site.accept("web1", "minion");
    let certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let proof = Load::new()
        .set("eauth", "pki")
        .set("username", "ana")
        .set("password", certificate);
    let outcome = site.ask(clear(publish(proof.clone(), "test.ping", "web1"), 3));
    assert!(!starts_a_job(&outcome));
    let token = site.ask(clear(proof.set("cmd", "mk_token"), 3)).reply;
    assert_eq!(text(&decode(&token), "token"), None);
}
