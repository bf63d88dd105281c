//! `publish`: permission, recipients, events, stored job and publication.

use bytes::Bytes;
use saltern_model::{Jid, Packed};
use saltern_requests::{JobRelation, NO_ANSWER, SignalTargets, Topics, publication_again};
use saltern_wire::msgpack::Value;

use crate::wire::client::{JID, Load, clear, published_by_root};
use crate::wire::site::{Site, data, decode, events, list, names, sent, started, tags};

const NOT_AUTHENTICATED: (&str, &str) = ("AuthenticationError", "Authentication error occurred.");
const NOT_AUTHORISED: (&str, &str) = ("AuthorizationError", "Authorization error occurred.");

fn site(options: &str) -> Site {
    let site = Site::new(options);
    for id in ["m1", "m2", "db"] {
        site.accept(id, "minion");
    }
    site
}

/// The load of stock's `LocalClient`.
fn load(site: &Site) -> Load {
    published_by_root(site, "m*").set("kwargs", Value::map([("delimiter", ":")]))
}

fn named(error: (&str, &str)) -> Value {
    let inner = Value::map([("name", error.0), ("message", error.1)]);
    Value::map([("error", inner)])
}

fn no_match(target: &str) -> Value {
    let error = format!("Master could not resolve minions for target {target}");
    let inner = Load::new()
        .set("jid", Value::Nil)
        .set("minions", Value::Array(Vec::new()))
        .set("error", error.as_str());
    Value::map([("enc", Value::from("clear")), ("load", inner.value())])
}

#[test]
fn publish_stores_announces_and_sends_job() {
    let site = site("");
    let outcome = site.ask(clear(load(&site), 3));
    let answer = Load::new()
        .set("jid", JID)
        .set("minions", list(&["m1", "m2"]))
        .set("missing", list(&[]));
    let answer = Load::new().set("enc", "clear").set("load", answer);
    assert_eq!(outcome.reply, answer.packed());
    let not_stored = decode(&outcome.reply_if_not_stored);
    assert!(not_stored.get("error").and_then(Value::as_str).is_some());

    let start = started(&outcome);
    assert_eq!(start.job.jid.as_str(), JID);
    assert_eq!(
        (start.job.user.as_str(), start.job.fun.as_str()),
        ("root", "test.ping")
    );
    assert_eq!(
        (start.job.tgt.as_str(), start.job.tgt_type.as_str()),
        ("m*", "glob")
    );
    assert!(!start.job.nocache);
    let stored = decode(start.job.load.bytes());
    assert!(stored.get("key").is_none(), "the user's key is not stored");
    assert_eq!(stored.get("jid"), Some(&JID.into()));

    let sent = sent(start);
    assert_eq!(
        names(&sent),
        ["fun", "arg", "tgt", "jid", "ret", "tgt_type", "user"]
    );
    assert!(matches!(&start.publication.topics, Topics::Minions(ids) if ids.len() == 2));
}

#[test]
fn publish_events_follow_the_release() {
    let new = format!("salt/job/{JID}/new");
    let publish = format!("salt/job/{JID}/publish");
    let table = [
        ("3006", vec![JID.to_owned(), new.clone()]),
        ("3007", vec![JID.to_owned(), new.clone(), publish.clone()]),
        ("3008", vec![new.clone(), publish]),
    ];
    for (compat, expected) in table {
        let site = site(&format!("salt_compat: {compat}\n"));
        let outcome = site.ask(clear(
            load(&site).set("tgt_type", "list").set("tgt", "m1,ghost"),
            3,
        ));
        assert_eq!(tags(&outcome), expected, "{compat}");
        let events = events(&outcome);
        let fired = events
            .iter()
            .find(|event| event.tag.as_str() == new)
            .unwrap();
        let fired = data(fired);
        let expected = [
            "jid", "tgt_type", "tgt", "user", "fun", "arg", "minions", "missing",
        ];
        assert_eq!(names(&fired), expected, "{compat}");
        assert_eq!(fired.get("missing"), Some(&list(&["ghost"])));
    }
}

/// Request, and the error that answers it.
type Refusal = (&'static str, Load, (&'static str, &'static str));

#[test]
fn publish_without_permission_is_refused() {
    let site = site("publisher_acl_blacklist: {users: [barred], modules: ['bad.*']}\n");
    let load = || load(&site);
    let kwargs = |name: &str| load().set("kwargs", Value::map([(name, "x")]));
    let table: Vec<Refusal> = vec![
        ("bad key", load().set("key", "x"), NOT_AUTHENTICATED),
        ("empty key", load().set("key", ""), NOT_AUTHENTICATED),
        ("no key", load().without("key"), NOT_AUTHENTICATED),
        ("nil key", load().set("key", Value::Nil), NOT_AUTHENTICATED),
        ("number as key", load().set("key", 5_i64), NOT_AUTHENTICATED),
        (
            "no jid",
            load().set("key", "x").without("jid"),
            NOT_AUTHENTICATED,
        ),
        (
            "empty jid",
            load().set("key", "x").set("jid", ""),
            NOT_AUTHENTICATED,
        ),
        (
            "a jid that is no tag",
            load().set("key", "x").set("jid", "a\nb"),
            NOT_AUTHENTICATED,
        ),
        (
            "sudo, bad key",
            load().set("user", "sudo_ann").set("key", "x"),
            NOT_AUTHENTICATED,
        ),
        (
            "sudo, no name",
            load().set("user", "sudo_"),
            NOT_AUTHENTICATED,
        ),
        (
            "other user, bad key",
            load().set("user", "ann").set("key", "x"),
            NOT_AUTHENTICATED,
        ),
        ("token", kwargs("token"), NOT_AUTHENTICATED),
        ("eauth", kwargs("eauth"), NOT_AUTHENTICATED),
        (
            "no arg, bad key",
            load().without("arg").set("key", "x"),
            NOT_AUTHENTICATED,
        ),
        ("user barred", load().set("user", "barred"), NOT_AUTHORISED),
        (
            "function barred",
            load().set("fun", "bad.idea"),
            NOT_AUTHORISED,
        ),
        (
            "one barred",
            load().set("fun", list(&["test.ping", "bad.x"])),
            NOT_AUTHORISED,
        ),
    ];
    for (what, load, error) in table {
        // Nothing of an unproved or barred sender reaches the bus.
        let reply = site.ask_in_vain(what, clear(load, 3));
        assert_eq!(decode(&reply), named(error), "{what}");
    }
    let incomplete = [
        load().without("user"),
        load().set("user", 5_i64),
        load().without("fun"),
        load().set("fun", 5_i64),
        load().without("tgt"),
        load().without("arg"),
        load().without("ret"),
        load().set("kwargs", Value::Nil),
        load().set("kwargs", list(&[])),
    ];
    for load in incomplete {
        let reply = site.ask_in_vain("incomplete", clear(load.clone(), 3));
        assert_eq!(decode(&reply), NO_ANSWER.into(), "{:?}", load.value());
    }
}

#[test]
fn publish_accepts_keys_of_permitted_users() {
    let site = site("");
    for user in ["root", "sudo_ann", "ann", "salt"] {
        let load = load(&site).set("user", user).set("jid", "");
        let outcome = site.ask(clear(load, 3));
        assert_eq!(started(&outcome).job.user, user);
        assert_eq!(sent(started(&outcome)).get("user"), Some(&user.into()));
    }
    let limited = self::site("sudo_acl: True\npublisher_acl: {root: ['test.*']}\n");
    let load = load(&limited).set("user", "sudo_root");
    let allowed = limited.ask(clear(load.clone(), 3));
    assert_eq!(started(&allowed).job.user, "sudo_root");
    let reply = limited.ask(clear(load.set("fun", "cmd.run"), 3)).reply;
    assert_eq!(decode(&reply), named(NOT_AUTHORISED));
}

#[test]
fn publish_targets_expected_minions() {
    let site = site("");
    let target = |kind: &str, target: Value| load(&site).set("tgt_type", kind).set("tgt", target);
    let hits: Vec<(Load, &[&str], &[&str])> = vec![
        (target("glob", "*".into()), &["db", "m1", "m2"], &[]),
        (target("glob", "m1".into()), &["m1"], &[]),
        (target("pcre", "m[0-9]".into()), &["m1", "m2"], &[]),
        (
            target("list", "m2,ghost,m1".into()),
            &["m2", "m1"],
            &["ghost"],
        ),
        (target("list", list(&["m1", "ghost"])), &["m1"], &["ghost"]),
        (target("x", "m1".into()).without("tgt_type"), &["m1"], &[]),
    ];
    for (load, minions, missing) in hits {
        let outcome = site.ask(clear(load, 3));
        let answer = decode(&outcome.reply);
        let answer = answer.get("load").unwrap();
        assert_eq!(answer.get("minions"), Some(&list(minions)));
        assert_eq!(answer.get("missing"), Some(&list(missing)));
        let stored: Vec<&str> = started(&outcome)
            .job
            .minions
            .iter()
            .map(|id| id.as_str())
            .collect();
        assert_eq!(stored, minions);
    }
    let misses = [
        (target("glob", "ghost".into()), "ghost"),
        (target("list", "ghost,other".into()), "ghost,other"),
        (
            target("list", list(&["ghöst", "it's", "a\"b\n"])),
            r#"['ghöst', "it's", 'a"b\n']"#,
        ),
        (target("pcre", "(".into()), "("),
        (target("nonsense", "m1".into()), "m1"),
        // No minion can resolve ranges, so none would answer.
        (target("range", "m[1-2]".into()), "m[1-2]"),
        (target("compound", "R@m[1-2]".into()), "R@m[1-2]"),
        (target("compound", "m2 or R@m1".into()), "m2 or R@m1"),
        (load(&site).set("tgt_type", Value::Nil), "m*"),
        (target("glob", 5_i64.into()), "5"),
        (
            target("glob", "ghost".into()).without("arg").without("ret"),
            "ghost",
        ),
    ];
    for (load, shown) in misses {
        let reply = site.ask_in_vain(shown, clear(load, 3));
        assert_eq!(decode(&reply), no_match(shown));
    }
}

#[test]
fn publish_uses_given_or_new_jid() {
    let site = site("");
    for load in [
        load(&site).without("jid"),
        load(&site).set("jid", ""),
        load(&site).set("jid", Value::Nil),
    ] {
        let outcome = site.ask(clear(load, 3));
        let jid = started(&outcome).job.jid.clone();
        assert_eq!(jid.as_str().len(), 20);
        let answer = decode(&outcome.reply);
        assert_eq!(
            answer.get("load").unwrap().get("jid"),
            Some(&jid.as_str().into())
        );
        assert_eq!(
            sent(started(&outcome)).get("jid"),
            Some(&jid.as_str().into())
        );
    }
    for jid in [
        Value::from("word"),
        "../../x".into(),
        5_i64.into(),
        list(&["x"]),
    ] {
        let reply = site.ask_in_vain("bad jid", clear(load(&site).set("jid", jid), 3));
        let reply = decode(&reply);
        assert!(
            reply == NO_ANSWER.into() || reply.get("error").is_some_and(|e| e.as_str().is_some())
        );
    }
}

#[test]
fn publish_passes_options_of_client() {
    let site = site("master_id: upper\n");
    let kwargs = Load::new()
        .set("delimiter", "/")
        .set("ret_config", "r")
        .set("metadata", Value::map([("a", "b")]))
        .set("module_executors", list(&["x"]))
        .set("executor_opts", "o")
        .set("ret_kwargs", "k")
        .set("id", "asker")
        .set("start_event", true)
        .set("nocache", true)
        .set("password", "hidden");
    let outcome = site.ask(clear(
        load(&site).set("to", 10_i64).set("kwargs", kwargs),
        3,
    ));
    let start = started(&outcome);
    let order = [
        "fun",
        "arg",
        "tgt",
        "jid",
        "ret",
        "master_id",
        "delimiter",
        "id",
        "tgt_type",
        "to",
        "ret_config",
        "metadata",
        "module_executors",
        "executor_opts",
        "ret_kwargs",
        "start_event",
        "user",
    ];
    assert_eq!(names(&sent(start)), order);
    assert!(start.job.nocache);
    let leaked = |packed: &Packed| contains(packed.bytes(), b"hidden");
    assert!(!leaked(&start.job.load));
    assert!(!start.announce.iter().any(|event| leaked(&event.data)));
    assert!(!contains(&start.publication.packed, b"hidden"));
}

fn contains(bytes: &Bytes, part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn several_functions_make_one_job() {
    let site = site("");
    let arguments = Value::Array(vec![list(&[]), list(&["a"])]);
    let load = load(&site)
        .set("fun", list(&["test.ping", "test.echo"]))
        .set("arg", arguments);
    let outcome = site.ask(clear(load, 3));
    assert_eq!(started(&outcome).job.fun, "test.ping,test.echo");
    assert_eq!(
        sent(started(&outcome)).get("fun"),
        Some(&list(&["test.ping", "test.echo"]))
    );
}

#[test]
fn relation_to_another_job_is_recognised() {
    let site = site("");
    let about = |fun: &str, target: Load, kwargs: Value| {
        let (fun, signal) = fun.split_once(' ').unwrap_or((fun, ""));
        let mut arguments = vec![Value::from(JID)];
        arguments.extend(signal.parse::<i64>().map(Value::from));
        let load = target.set("fun", fun).set("arg", Value::Array(arguments));
        let outcome = site.ask(clear(load.set("kwargs", kwargs), 3));
        started(&outcome).about.clone()
    };
    let jid = Jid::parse(JID).unwrap();
    let of_client = || Value::map([("delimiter", ":")]);
    let of_user = || Value::map([("show_jid", false)]);
    let listed = || {
        load(&site)
            .set("tgt", list(&["m1"]))
            .set("tgt_type", "list")
    };
    let running = Some(JobRelation::Running(jid.clone()));
    assert_eq!(about("saltutil.find_job", listed(), of_client()), running);
    // A user's own call needs a job that stock's command line finds in the job cache.
    assert_eq!(about("saltutil.find_job", listed(), of_user()), None);
    assert_eq!(about("saltutil.find_job", load(&site), of_client()), None);
    for fun in ["kill_job", "term_job", "signal_job 9", "signal_job 15"] {
        let fun = format!("saltutil.{fun}");
        let signal = Some(JobRelation::Signal(SignalTargets::Job(jid.clone())));
        assert_eq!(about(&fun, load(&site), of_user()), signal);
    }
    for fun in ["kill_all_jobs", "term_all_jobs"] {
        let fun = format!("saltutil.{fun}");
        let signal = Some(JobRelation::Signal(SignalTargets::All));
        assert_eq!(about(&fun, load(&site), of_user()), signal);
    }
    // These do not end a process.
    for fun in ["saltutil.signal_job 10", "saltutil.signal_job"] {
        assert_eq!(about(fun, load(&site), of_user()), None);
    }
    assert_eq!(about("test.echo", load(&site), of_user()), None);
}

#[test]
fn stored_job_is_republished_as_sent() {
    let site = site("zmq_filtering: True\n");
    let listed = load(&site)
        .set("tgt", list(&["m1", "m2"]))
        .set("tgt_type", "list");
    for load in [load(&site), listed, load(&site).set("tgt_type", "compound")] {
        let outcome = site.ask(clear(load, 3));
        let start = started(&outcome);
        let again = publication_again(&start.job, &site.services).unwrap();
        assert_eq!(again.packed, start.publication.packed);
        assert_eq!(again.entries, start.publication.entries);
        assert_eq!(again.topics, start.publication.topics);
    }
}
