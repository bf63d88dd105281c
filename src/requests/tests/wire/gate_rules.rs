//! Authorisation of proved users: the name in which things happen, the lifetime of a token, the
//! rules that hold, and the answers and events that reveal nothing else.
//!
//! Longer than 500 lines because it is a list: one test a rule.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use saltern_model::MinionId;
use saltern_requests::{Effect, LogIn, Outcome, StartJob};
use saltern_store::Claims;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, clear};
use crate::wire::site::{Site, decode, events, list};

const LOGIN: &str = "
client_acl_verify: False
sharedsecret: s3cret
token_expire: 60
external_auth:
  sharedsecret:
    ana:
      - 'test.*'
      - 'web*': [state.apply, {cmd.run: {args: ['^uptime$']}}]
      - '@jobs'
      - '@wheel': [{key.accept: {kwargs: {name: '^web'}}}]
    '*': ['grains.*']
";

fn site(options: &str) -> Site {
    let site = Site::new(&format!("{LOGIN}{options}"));
    for id in ["web1", "web2", "db"] {
        site.accept(id, "minion");
    }
    site
}

fn login(name: &str) -> Load {
    Load::new()
        .set("eauth", "sharedsecret")
        .set("username", name)
        .set("password", "s3cret")
}

/// A publish that claims to be root's, with this in its `kwargs`.
fn publish(beside: Load, fun: &str, tgt: &str) -> Load {
    Load::new()
        .set("cmd", "publish")
        .set("tgt", tgt)
        .set("fun", fun)
        .set("arg", Value::Array(Vec::new()))
        .set("tgt_type", "glob")
        .set("ret", "")
        .set("jid", "")
        .set("kwargs", beside)
        .set("user", "root")
}

fn token_of(site: &Site, load: Load) -> Value {
    decode(&site.ask(clear(load.set("cmd", "mk_token"), 3)).reply)
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

fn started(outcome: &Outcome) -> Option<&StartJob> {
    match outcome.effects.as_slice() {
        [Effect::StartJob(job)] => Some(job),
        _ => None,
    }
}

fn error_of(outcome: &Outcome) -> String {
    let reply = decode(&outcome.reply);
    let error = reply.get("error").cloned().unwrap_or(reply);
    text(&error, "name").unwrap_or("no error").to_owned()
}

fn with_token(token: &Value) -> Load {
    Load::new().set("token", text(token, "token").unwrap())
}

#[test]
fn token_has_stocks_form() {
    let site = site("");
    let token = token_of(&site, login("ana"));
    let Value::Map(entries) = &token else {
        panic!("a map")
    };
    let names: Vec<_> = entries
        .iter()
        .filter_map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["start", "expire", "name", "eauth", "token"]);
    assert_eq!(text(&token, "name"), Some("ana"));
    let time = |name: &str| token.get(name).and_then(Value::as_f64).unwrap();
    assert_eq!(time("expire") - time("start"), 60.0);
    let load = with_token(&token).set("cmd", "get_token");
    assert_eq!(decode(&site.ask(clear(load, 3)).reply), token);
    let no_token = Load::new().set("cmd", "get_token");
    assert_eq!(
        decode(&site.ask(clear(no_token, 3)).reply),
        Value::Bool(false)
    );
}

#[test]
fn job_bears_the_proved_name() {
    let site = site("");
    let token = token_of(&site, login("ana"));
    for beside in [login("ana"), with_token(&token)] {
        let outcome = site.ask(clear(publish(beside, "test.ping", "web*"), 3));
        let start = started(&outcome).expect("a job");
        assert_eq!(start.job.user, "ana");
        let stored = decode(start.job.load.bytes());
        assert_eq!(text(&stored, "user"), Some("ana"));
        for event in events(&outcome) {
            let fired = decode(event.data.bytes());
            if let Some(user) = text(&fired, "user") {
                assert_eq!(user, "ana", "{}", event.tag);
            }
        }
        let secret = text(&token, "token").unwrap();
        for bytes in [start.job.load.bytes(), &start.publication.packed] {
            for secret in [secret, "s3cret"] {
                let found = bytes
                    .windows(secret.len())
                    .any(|part| part == secret.as_bytes());
                assert!(!found, "a secret is kept or sent out");
            }
        }
    }
}

#[test]
fn token_ends_with_its_time_or_its_file() {
    let site = site("");
    let allowed = |token: &Value| {
        let load = publish(with_token(token), "test.ping", "web1");
        started(&site.ask(clear(load, 3))).is_some()
    };
    let token = token_of(&site, login("ana"));
    site.clock.advance(Duration::from_micros(59_999_999));
    assert!(allowed(&token));
    site.clock.advance(Duration::from_micros(1));
    assert!(!allowed(&token), "not once more (CVE-2021-3144)");
    let token = token_of(&site, login("ana"));
    assert!(allowed(&token));
    assert!(
        site.services
            .users
            .tokens
            .remove(text(&token, "token").unwrap())
            .unwrap()
    );
    assert!(!allowed(&token));
}

#[test]
fn token_lifetime_override_needs_permission() {
    let lasts = |options: &str, wish: Value| {
        let site = site(options);
        let token = token_of(&site, login("ana").set("token_expire", wish));
        let time = |name: &str| token.get(name).and_then(Value::as_f64);
        time("expire")
            .zip(time("start"))
            .map(|(end, start)| end - start)
    };
    let listed = |users: &str| {
        format!("token_expire_user_override: {{sharedsecret: [{users}], pam: [bob]}}\n")
    };
    let everybody = "token_expire_user_override: True\n";
    assert_eq!(lasts("", 5.into()), Some(60.0));
    assert_eq!(lasts(everybody, 5.into()), Some(5.0));
    assert_eq!(lasts(&listed("ana"), 5.into()), Some(5.0));
    assert_eq!(lasts(&listed("bob"), 5.into()), Some(60.0));
    for wish in [
        Value::from("5"),
        Value::Int(-1),
        Value::Float(f64::NAN),
        Value::Float(f64::INFINITY),
        Value::Float(1e18),
    ] {
        assert_eq!(lasts(everybody, wish.clone()), None, "{wish:?}");
    }
}

#[test]
fn rules_apply_to_the_resolved_job() {
    let site = site("");
    let arguments = |load: Load, arguments: &[&str]| load.set("arg", list(arguments));
    let job = |fun: &str, tgt: &str| publish(login("ana"), fun, tgt);
    let several =
        |funs: &[&str], arg: Value| job("", "web*").set("fun", list(funs)).set("arg", arg);
    let empty = || Value::Array(vec![list(&[]), list(&[])]);
    let nested = |arguments: &[&str]| Value::Array(vec![list(&[]), list(arguments)]);
    const RIGHTS: &str = "AuthorizationError";
    const NOBODY: &str = "nobody";
    let table = [
        ("a function for all", job("test.ping", "*"), ""),
        ("one for some minions", job("state.apply", "web*"), ""),
        ("one for some of them", job("state.apply", "*"), RIGHTS),
        ("one for others", job("state.apply", "db"), RIGHTS),
        ("always", job("saltutil.find_job", "*"), ""),
        (
            "an argument",
            arguments(job("cmd.run", "web1"), &["uptime"]),
            "",
        ),
        (
            "another one",
            arguments(job("cmd.run", "web1"), &["id"]),
            RIGHTS,
        ),
        ("no argument", job("cmd.run", "web1"), RIGHTS),
        (
            "by name",
            arguments(job("cmd.run", "web1"), &["cmd=id", "uptime"]),
            "",
        ),
        (
            "both allowed",
            several(&["test.ping", "state.apply"], empty()),
            "",
        ),
        (
            "one of both allowed",
            several(&["test.ping", "pkg.remove"], empty()),
            RIGHTS,
        ),
        (
            "the other one",
            several(&["pkg.remove", "test.ping"], empty()),
            RIGHTS,
        ),
        (
            "its arguments",
            several(&["test.ping", "cmd.run"], nested(&["uptime"])),
            "",
        ),
        (
            "its other arguments",
            several(&["test.ping", "cmd.run"], nested(&["id"])),
            RIGHTS,
        ),
        ("nobody", job("test.ping", "none"), NOBODY),
        ("nobody, for some", job("state.apply", "none"), NOBODY),
        ("nobody, not allowed", job("pkg.remove", "none"), RIGHTS),
        (
            "a target in error",
            job("pkg.remove", "*").set("tgt_type", "no"),
            RIGHTS,
        ),
    ];
    for (what, load, expected) in table {
        let outcome = site.ask(clear(load, 3));
        let found = match started(&outcome) {
            Some(_) => String::new(),
            None if error_of(&outcome) == "no error" => NOBODY.to_owned(),
            None => error_of(&outcome),
        };
        assert_eq!(found, expected, "{what}");
    }
}

/// A minion takes the arguments of a list of one function from a list of lists.
#[test]
fn arguments_of_list_of_one_function_are_nested_for_minions() {
    let site = site("");
    for command in ["publish", "saltern_batch"] {
        let outcome = |fun: Value, arg: Value| {
            let load = publish(login("ana"), "", "web1").set("cmd", command);
            let load = load.set("fun", fun).set("arg", arg);
            let outcome = site.ask(clear(load.set("batch", Value::map([("size", 1)])), 3));
            match outcome.effects.as_slice() {
                [Effect::StartJob(_) | Effect::StartBatch(_)] => String::new(),
                _ => error_of(&outcome),
            }
        };
        let nested = |argument: &str| Value::Array(vec![list(&[argument])]);
        assert_eq!(
            outcome(list(&["cmd.run"]), nested("uptime")),
            "",
            "{command}"
        );
        for arg in [nested("id"), list(&["uptime"]), list(&[])] {
            let found = outcome(list(&["cmd.run"]), arg);
            assert_eq!(found, "AuthorizationError", "{command}");
        }
        assert_eq!(
            outcome("cmd.run".into(), list(&["uptime"])),
            "",
            "{command}"
        );
    }
}

/// A publication through syndics reaches the minions here too, and these match against their
/// present grains.
#[test]
fn limited_rules_above_syndics_refuse_ambiguous_target() {
    let site = site("order_masters: True\n");
    let site_below = self::site("");
    let relay = MinionId::parse("webrelay").unwrap();
    site.accept("webrelay", "minion");
    site.accept("relay", "minion");
    site.services.minions.syndics.register(&relay).unwrap();
    let other = MinionId::parse("relay").unwrap();
    site.services.minions.syndics.register(&other).unwrap();
    let outcome = |site: &Site, fun: &str, kind: &str, tgt: &str| {
        let load = publish(login("ana"), fun, tgt).set("tgt_type", kind);
        let outcome = site.ask(clear(load, 3));
        match started(&outcome) {
            Some(_) => String::new(),
            None => error_of(&outcome),
        }
    };
    const RIGHTS: &str = "AuthorizationError";
    let table = [
        ("by name nobody is nobody", "glob", "below1", "", "no error"),
        ("the same", "list", "below1,below2", "", "no error"),
        ("wider than the rule", "glob", "below*", RIGHTS, "no error"),
        ("an expression", "pcre", "below.*", RIGHTS, "no error"),
        ("the same", "pcre", "web.*", RIGHTS, ""),
        ("some, covered", "glob", "web*", "", ""),
        (
            "a syndic that is covered",
            "list",
            "webrelay",
            "",
            "no error",
        ),
        ("one that is not", "list", "web1,relay", RIGHTS, RIGHTS),
        (
            "old grains, or none",
            "grain",
            "os:Debian",
            RIGHTS,
            "no error",
        ),
        ("the same", "compound", "G@os:Debian", RIGHTS, "no error"),
        ("an error", "pcre", "(", RIGHTS, "no error"),
        ("an error", "compound", "db or (", RIGHTS, "no error"),
        ("an error", "range", "%{", RIGHTS, "no error"),
    ];
    for (what, kind, tgt, above, below) in table {
        let found = outcome(&site, "state.apply", kind, tgt);
        assert_eq!(found, above, "{what}: {kind} {tgt}");
        if !tgt.contains("relay") {
            let found = outcome(&site_below, "state.apply", kind, tgt);
            assert_eq!(found, below, "{what}: {kind} {tgt}, without syndics");
        }
        if above.is_empty() || !tgt.contains("relay") {
            let found = outcome(&site, "test.ping", kind, tgt);
            assert_eq!(found, "", "{what}: {kind} {tgt}, a rule for all");
        }
    }
}

/// The minions have no limit on the steps of an expression: they may match where this master gave
/// up.
#[test]
fn limited_rules_refuse_target_whose_match_was_given_up() {
    let site = site("");
    site.accept(&"a".repeat(200), "minion");
    let outcome = |fun: &str| {
        let load = publish(login("ana"), fun, r"web|(a|a|(?=a)a)*\1b").set("tgt_type", "pcre");
        site.ask(clear(load, 3))
    };
    assert_eq!(error_of(&outcome("state.apply")), "AuthorizationError");
    assert!(started(&outcome("test.ping")).is_some());
}

/// Without cached minion data a compound target matches all minions, and so would a rule's.
#[test]
fn limited_rule_stays_limited_without_cache() {
    let site = site("minion_data_cache: False\n");
    let refused = site.ask(clear(publish(login("ana"), "state.apply", "db"), 3));
    assert_eq!(error_of(&refused), "AuthorizationError");
    let allowed = site.ask(clear(publish(login("ana"), "state.apply", "web*"), 3));
    assert!(started(&allowed).is_some());
}

#[test]
fn master_functions_need_rules_of_their_own() {
    let site = site("");
    let call = |fun: &str| {
        let load = login("ana").set("cmd", "runner").set("fun", fun);
        error_of(&site.ask(clear(load, 3)))
    };
    assert_eq!(call("jobs.list_jobs"), "no error");
    assert_eq!(call("manage.up"), "EauthAuthenticationError");
    assert_eq!(call("test.arg"), "EauthAuthenticationError");
    assert_eq!(call("salt.cmd.run"), "SaltInvocationError");
}

#[test]
fn token_carries_rules_with_keep_acl_in_token() {
    let site = site("keep_acl_in_token: True\n");
    let token = token_of(&site, login("bob"));
    assert_eq!(token.get("auth_list"), Some(&list(&["grains.*"])));
    let outcome = |fun: &str| site.ask(clear(publish(with_token(&token), fun, "db"), 3));
    assert!(started(&outcome("grains.items")).is_some());
    assert_eq!(error_of(&outcome("test.ping")), "AuthorizationError");
}

/// The rules were others when the token was made.
#[test]
fn rules_in_a_token_hold_with_keep_acl_in_token_only() {
    for (options, carried_hold) in [("keep_acl_in_token: True\n", true), ("", false)] {
        let site = site(options);
        let claims = Claims {
            name: "bob".to_owned(),
            eauth: "sharedsecret".to_owned(),
            groups: Vec::new(),
            auth_list: Some(list(&["test.ping"])),
            lasts: Duration::from_secs(60),
        };
        let token = site.services.users.tokens.create(claims).unwrap();
        let token = token.to_value();
        for (fun, is_carried) in [("test.ping", true), ("grains.items", false)] {
            let outcome = site.ask(clear(publish(with_token(token), fun, "db"), 3));
            let expected = carried_hold == is_carried;
            assert_eq!(started(&outcome).is_some(), expected, "{options}{fun}");
        }
    }
}

/// Good credentials are not called bad because this machine cannot read the file of passwords.
#[test]
fn login_that_cannot_be_checked_is_asked_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(&format!(
        "  file:\n    ^filename: {}\n    ana: ['.*', '@runner']\n",
        directory.path().display()
    ));
    let login = || login("ana").set("eauth", "file");
    let runner = login().set("cmd", "runner").set("fun", "jobs.list_jobs");
    for load in [publish(login(), "test.ping", "db"), runner] {
        let outcome = site.ask(clear(load.clone(), 3));
        assert_eq!(error_of(&outcome), "SaltClientError");
        assert!(started(&outcome).is_none());
        // It is delayed as a refusal, or a backend that fails would make guessing free.
        let (log_in, _) = waiting(&site, load).expect("a log-in");
        assert!(log_in.run().is_refused);
    }
}

/// Masters below apply the user's rules to their own minions. Only so can a user with a limited
/// rule publish a job that matches no minion here (CVE-2022-22941).
#[test]
fn job_for_syndics_carries_sender_rules_only() {
    for (options, is_carried) in [("order_masters: True\n", true), ("", false)] {
        let site = site(options);
        let beside = login("bob").set("auth_list", list(&[".*"]));
        let outcome = site.ask(clear(publish(beside, "grains.items", "db"), 3));
        let start = started(&outcome).expect("a job");
        let stored = decode(start.job.load.bytes());
        let carried = stored
            .get("kwargs")
            .and_then(|kwargs| kwargs.get("auth_list"));
        let rules = list(&["grains.*"]);
        assert_eq!(carried, is_carried.then_some(&rules), "{options}");
    }
}

/// A user who could say so would have returns of his jobs sent to a master above.
#[test]
fn master_above_is_named_with_master_key_only() {
    let site = site("publisher_acl: {bob: ['.*']}\n");
    let key = |user: &str| {
        let rules = site.services.users.rules();
        rules.users.key(user).unwrap().expose().to_owned()
    };
    let marked = |kwargs: Load| {
        let kwargs = kwargs.set("saltern_upper", "top").set("id", "x");
        publish(kwargs, "grains.items", "db")
    };
    let by_key = |user: &str| {
        let load = marked(Load::new()).set("user", user);
        load.set("key", key(user).as_str())
    };
    let senders = [
        (by_key("root"), true),
        (by_key("bob"), false),
        (marked(login("bob")), false),
    ];
    for (load, is_kept) in senders {
        let outcome = site.ask(clear(load, 3));
        let stored = decode(started(&outcome).expect("a job").job.load.bytes());
        let kwargs = stored.get("kwargs").expect("kwargs");
        assert_eq!(kwargs.get("saltern_upper").is_some(), is_kept, "{stored:?}");
        assert_eq!(kwargs.get("id"), Some(&"x".into()));
    }
}

#[test]
fn auth_list_counts_with_master_key_only() {
    let site = site("publisher_acl: {bob: ['test.*']}\n");
    let key = |user: &str| {
        let rules = site.services.users.rules();
        let key = rules.users.key(user).unwrap();
        key.expose().to_owned()
    };
    let ask = |user: &str, key: String, rules: Value| {
        let beside = Load::new().set("auth_list", rules);
        let load = publish(beside, "cmd.run", "db").set("user", user);
        let outcome = site.ask(clear(load.set("key", key.as_str()), 3));
        match started(&outcome) {
            Some(_) => String::new(),
            None => error_of(&outcome),
        }
    };
    let all = || list(&[".*"]);
    assert_eq!(ask("root", key("root"), all()), "");
    assert_eq!(
        ask("root", key("root"), list(&["test.*"])),
        "AuthorizationError"
    );
    assert_eq!(ask("root", key("root"), list(&[])), "");
    assert_eq!(ask("root", key("root"), Value::Nil), "");
    assert_eq!(
        ask("root", key("root"), "text".into()),
        "AuthenticationError"
    );
    assert_eq!(ask("bob", key("bob"), all()), "AuthorizationError");
    assert_eq!(ask("root", key("bob"), all()), "AuthenticationError");
}

const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The log-in that a load waits for, and its command; `None` if it waits for none.
fn waiting(site: &Site, load: Load) -> Option<(LogIn, &'static str)> {
    let mut handled = saltern_requests::handle(clear(load, 3), FROM, &site.services);
    match handled.outcome.effects.pop() {
        Some(Effect::LogIn(log_in)) => Some((log_in, handled.command)),
        _ => None,
    }
}

/// The load with a text in its `arg` that makes it this long, packed.
fn padded(load: &Load, length: usize) -> Load {
    let with = |size: usize| {
        let text = Value::from("x".repeat(size).as_str());
        load.clone().set("arg", Value::Array(vec![text]))
    };
    let lacking = length - with(length / 2).packed().len();
    let found = with(length / 2 + lacking);
    assert_eq!(found.clone().packed().len(), length);
    found
}

#[test]
fn login_runs_beside_workers_and_counts_refusals() {
    let site = site("");
    for (password, is_refused) in [("s3cret", false), ("wrong", true)] {
        for load in [
            publish(login("ana").set("password", password), "test.ping", "db"),
            login("ana")
                .set("password", password)
                .set("cmd", "mk_token"),
            login("ana")
                .set("password", password)
                .set("cmd", "runner")
                .set("fun", "jobs.list_jobs"),
        ] {
            let waiting = waiting(&site, load);
            let (log_in, command) = waiting.expect("a worker does not ask a backend");
            // One address, and one user, may wait for few at a time.
            assert_eq!((log_in.from(), log_in.user()), (FROM, "ana"), "{command}");
            let end = log_in.run();
            assert_eq!(end.is_refused, is_refused, "{command}");
            assert_eq!(end.handled.command, command);
        }
    }
    assert_eq!(site.refused(), 3);
}

/// Unproved loads wait packed and within bounds, whatever they hold.
#[test]
fn oversize_login_asks_no_backend() {
    let site = site("");
    let nils = |count| Value::Array(vec![Value::Nil; count]);
    let mut refused = 0;
    for (load, waits, answer) in [
        // Too many bytes: it is refused at once.
        (
            login("ana")
                .set("cmd", "mk_token")
                .set("x", "x".repeat(64 << 10).as_str()),
            false,
            "EauthAuthenticationError",
        ),
        (
            publish(
                login("ana").set("x", "x".repeat(1 << 20).as_str()),
                "test.ping",
                "db",
            ),
            false,
            "AuthenticationError",
        ),
        // Too many values: refused before a backend is asked.
        (
            login("ana").set("cmd", "mk_token").set("x", nils(1_000)),
            true,
            "EauthAuthenticationError",
        ),
        (
            publish(login("ana").set("x", nils(100_000)), "test.ping", "db"),
            true,
            "AuthenticationError",
        ),
        (
            login("ana")
                .set("cmd", "runner")
                .set("fun", "jobs.list_jobs")
                .set("kwarg", nils(100_000)),
            true,
            "EauthAuthenticationError",
        ),
    ] {
        let mut handled = saltern_requests::handle(clear(load, 3), FROM, &site.services);
        match handled.outcome.effects.pop() {
            Some(Effect::LogIn(log_in)) => {
                assert!(waits);
                handled = log_in.run().handled;
            }
            None => assert!(!waits),
            Some(_) => panic!("no backend was asked"),
        }
        refused += 1;
        assert!(handled.outcome.effects.is_empty(), "{}", handled.command);
        assert_eq!(error_of(&handled.outcome), answer);
        assert_eq!(site.refused(), refused);
    }
}

#[test]
fn login_of_the_largest_size_waits_and_a_larger_one_does_not() {
    let site = site("");
    for (load, largest) in [
        (login("ana").set("cmd", "mk_token"), 64 << 10),
        (publish(login("ana"), "test.ping", "db"), 1 << 20),
    ] {
        let (log_in, command) = waiting(&site, padded(&load, largest)).expect("a log-in");
        assert!(!log_in.run().is_refused, "{command}");
        assert!(waiting(&site, padded(&load, largest + 1)).is_none());
    }
}

/// Credentials are small: what else is in a large load is decoded for good ones only. The row in the
/// audit trail shows what was.
#[test]
fn large_load_is_decoded_for_proved_sender_only() {
    let site = site("");
    let token = token_of(&site, login("ana"));
    let rules = site.services.users.rules();
    let key = rules.users.key("root").unwrap().expose().to_owned();
    // The header of the map is one byte, which does not count.
    for (length, is_decoded) in [((64 << 10) + 1, true), ((64 << 10) + 2, false)] {
        let unproved = padded(&publish(Load::new(), "test.ping", "db"), length);
        let handled = site.handle(clear(unproved, 3));
        assert_eq!(error_of(&handled.outcome), "AuthenticationError");
        let row = handled.audit.expect("a row");
        assert_eq!((row.user.as_str(), row.fun.as_str()), ("root", "test.ping"));
        assert_eq!(row.arguments != "null", is_decoded, "{length}");
        for proved in [
            publish(Load::new(), "test.ping", "db").set("key", key.as_str()),
            publish(with_token(&token), "test.ping", "db"),
        ] {
            let outcome = site.ask(clear(padded(&proved, length), 3));
            assert!(started(&outcome).is_some());
        }
    }
}

/// A token counts before a log-in, also one that is too large to be looked at.
#[test]
fn large_load_with_token_and_login_asks_no_backend() {
    let site = site("");
    let both = login("ana").set("token", "t".repeat(17 << 10).as_str());
    for load in [
        publish(both.clone(), "test.ping", "db"),
        both.set("cmd", "runner").set("fun", "jobs.list_jobs"),
    ] {
        let load = padded(&load, 80 << 10);
        assert!(waiting(&site, load.clone()).is_none());
        let outcome = site.ask(clear(load, 3));
        assert!(outcome.effects.is_empty());
        assert!(error_of(&outcome).ends_with("AuthenticationError"));
    }
}
