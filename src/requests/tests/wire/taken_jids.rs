//! Jid ownership: an existing jid belongs to the user of its job.

use saltern_model::{Jid, JobRecord, MinionId, Packed};
use saltern_requests::{Effect, Outcome};
use saltern_store::jobs::Write;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::wire::client::{JID, Load, clear, published_by_root};
use crate::wire::site::{Site, decode, started};

fn site() -> Site {
    let site = Site::new(
        "publisher_acl: {nobody: ['test.*'], daemon: ['test.*', '@jobs']}\nsharedsecret: s3cret\n\
         external_auth: {sharedsecret: {root: ['test.*'], nobody: ['test.*'], \
         daemon: ['test.*', '@jobs']}}\n",
    );
    site.accept("web1", "minion");
    site
}

fn by(site: &Site, user: &str) -> Load {
    let rules = site.services.users.rules();
    let key = rules.users.key(user).unwrap().expose().to_owned();
    published_by_root(site, "web1")
        .set("user", user)
        .set("key", key.as_str())
        .set("jid", JID)
}

/// Publishes by a log-in, or a token of it, of a user with this name.
fn by_backend(site: &Site, name: &str, shows_token: bool) -> Load {
    let login = Load::new()
        .set("eauth", "sharedsecret")
        .set("username", name)
        .set("password", "s3cret");
    let beside = match shows_token {
        false => login,
        true => {
            let made = decode(&site.ask(clear(login.set("cmd", "mk_token"), 3)).reply);
            let token = made.get("token").and_then(Value::as_str).unwrap();
            Load::new().set("token", token)
        }
    };
    published_by_root(site, "web1")
        .without("key")
        .set("user", name)
        .set("kwargs", beside)
        .set("jid", JID)
}

fn store(site: &Site, outcome: &Outcome) {
    let job = started(outcome).job.clone();
    site.database.lock().commit(&[Write::JobPart(job)]).unwrap();
}

fn is_refused(outcome: &Outcome) -> bool {
    let error = decode(&outcome.reply);
    let error = error.get("error").and_then(Value::as_str);
    let is_taken = error.is_some_and(|error| error.contains("belongs to a job of another user"));
    assert_eq!(is_taken, outcome.effects.is_empty());
    is_taken
}

#[test]
fn taken_jid_is_refused_to_other_users() {
    for first in ["root", "nobody"] {
        let site = site();
        store(&site, &site.ask(clear(by(&site, first), 3)));
        let refused = site.refused();
        let others = ["root", "nobody", "daemon"].into_iter();
        for other in others.filter(|user| *user != first) {
            assert!(is_refused(&site.ask(clear(by(&site, other), 3))), "{other}");
        }
        assert_eq!(site.refused(), refused + 2);
        let kept = site
            .services
            .jobs
            .reader
            .load(&Jid::parse(JID).unwrap())
            .unwrap();
        assert_eq!(kept.unwrap().record.user, first);
    }
}

/// 3008 publishes the parts of a batch so, and a syndic publications that come from above once
/// more.
#[test]
fn taken_jid_is_open_to_its_user() {
    let site = site();
    for _ in 0..2 {
        let outcome = site.ask(clear(by(&site, "nobody"), 3));
        assert_eq!(started(&outcome).job.jid.as_str(), JID);
        store(&site, &outcome);
    }
}

/// The first job may not be stored yet.
#[test]
fn taken_jid_is_refused_before_its_job_is_stored() {
    let site = site();
    assert!(!is_refused(&site.ask(clear(by(&site, "root"), 3))));
    assert!(is_refused(&site.ask(clear(by(&site, "nobody"), 3))));
}

/// A refusal under another user's jid would end that user's wait: stock's command line takes any
/// event with an error in it for its own.
#[test]
fn refused_publish_under_taken_jid_fires_nothing() {
    let site = site();
    let started = site.ask(clear(by(&site, "root"), 3));
    for is_stored in [false, true] {
        if is_stored {
            store(&site, &started);
        }
        let load = by(&site, "nobody").set("fun", "cmd.run");
        let outcome = site.ask(clear(load, 3));
        assert!(outcome.effects.is_empty(), "stored: {is_stored}");
    }
}

/// A minion that reports an unpublished jid cannot keep users from it. But a call of a function of
/// the master, which is stored with its return, too, belongs to its user.
#[test]
fn jid_of_a_reported_job_is_free() {
    let minion = || MinionId::parse("web1").unwrap();
    for (reporter, is_free) in [(Some(minion()), true), (None, false)] {
        let site = site();
        let load = Value::map([("cmd", "_return"), ("return", "x")]);
        let job = JobRecord {
            jid: Jid::parse(JID).unwrap(),
            created: 1,
            user: "root".to_owned(),
            fun: "test.ping".to_owned(),
            tgt: "web1".to_owned(),
            tgt_type: "glob".to_owned(),
            load: Packed::new(encode(&load, Dialect::Bin)),
            minions: reporter.iter().cloned().collect(),
            nocache: false,
        };
        site.database
            .lock()
            .commit(&[Write::ClosedJob { job, reporter }])
            .unwrap();
        let outcome = site.ask(clear(by(&site, "nobody"), 3));
        assert_eq!(!is_refused(&outcome), is_free);
    }
}

/// A backend's user with the name of a local user is another user; a token counts as its log-in.
#[test]
fn taken_jid_belongs_to_name_and_its_prover() {
    type Publish = fn(&Site, &str) -> Load;
    for name in ["root", "nobody"] {
        for is_stored in [false, true] {
            let ways: [(&str, Publish, &str); 3] = [
                ("local", by, ""),
                ("login", |site, name| by_backend(site, name, false), "x"),
                ("token", |site, name| by_backend(site, name, true), "x"),
            ];
            for (first, publish, prover) in &ways {
                for (second, again, other) in &ways {
                    let mut site = site();
                    let outcome = site.ask(clear(publish(&site, name), 3));
                    if is_stored {
                        // As after a restart, when the last choices of jids are forgotten.
                        site = self::site();
                        store(&site, &outcome);
                    }
                    let refused = is_refused(&site.ask(clear(again(&site, name), 3)));
                    assert_eq!(refused, prover != other, "{name}: {first}, {second}");
                }
            }
        }
    }
}

/// So does a call of a function of the master, which is stored with its return.
#[test]
fn jid_of_runner_call_belongs_to_name_and_its_prover() {
    let ways = ["local", "login"];
    for first in ways {
        let site = site();
        let mut call = Load::new()
            .set("cmd", "runner")
            .set("fun", "jobs.list_jobs")
            .set("kwarg", Value::Map(Vec::new()));
        call = match first {
            "local" => {
                let rules = site.services.users.rules();
                let key = rules.users.key("daemon").unwrap().expose().to_owned();
                call.set("user", "daemon").set("key", key.as_str())
            }
            _ => call
                .set("eauth", "sharedsecret")
                .set("username", "daemon")
                .set("password", "s3cret"),
        };
        let mut outcome = site.ask(clear(call, 3));
        let Some(Effect::Run(run)) = outcome.effects.pop() else {
            panic!("a function runs: {:?}", decode(&outcome.reply))
        };
        let (_, work) = run.into_parts();
        let kept = work(&mut |_| ()).store.unwrap();
        let jid = kept.job.jid.as_str().to_owned();
        let write = Write::ClosedJob {
            job: kept.job,
            reporter: None,
        };
        site.database.lock().commit(&[write]).unwrap();
        for second in ways {
            let load = match second {
                "local" => by(&site, "daemon"),
                _ => by_backend(&site, "daemon", false),
            };
            let outcome = site.ask(clear(load.set("jid", jid.as_str()), 3));
            assert_eq!(is_refused(&outcome), first != second, "{first}, {second}");
        }
    }
}

/// The prover of a name is recorded by the master, not taken from the client.
#[test]
fn jid_backend_of_client_is_ignored() {
    let site = site();
    let load = by(&site, "nobody").set("saltern_backend", "sharedsecret");
    let outcome = site.ask(clear(load, 3));
    let stored = started(&outcome).job.load.clone();
    let stored =
        saltern_wire::msgpack::decode(stored.as_ref(), &saltern_wire::msgpack::Limits::WIRE);
    assert_eq!(stored.unwrap().get("saltern_backend"), None);
}

/// Stores a job that web1 reported.
fn report(site: &Site, fun: &str, minions: &[&str]) {
    keep(site, ("minion:web1", Some("web1")), fun, minions);
}

/// Stores a job of a user, which this minion reported.
fn keep(site: &Site, (user, reporter): (&str, Option<&str>), fun: &str, minions: &[&str]) {
    let id = |text: &str| MinionId::parse(text).unwrap();
    let load = Value::map([("jid", JID), ("fun", fun)]);
    let job = JobRecord {
        jid: Jid::parse(JID).unwrap(),
        created: 1,
        user: user.to_owned(),
        fun: fun.to_owned(),
        tgt: "web1".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(encode(&load, Dialect::Bin)),
        minions: minions.iter().map(|text| id(text)).collect(),
        nocache: false,
    };
    let write = Write::ClosedJob {
        job,
        reporter: reporter.map(id),
    };
    site.database.lock().commit(&[write]).unwrap();
}

/// So it is after a restart, when the last choices of jids are forgotten. A job that is only
/// reported is nobody's, whatever name the report has.
#[test]
fn refused_publish_fires_under_jid_of_own_job_only() {
    let table = [
        (Some(("nobody", None)), true),
        (Some(("root", None)), false),
        (Some(("nobody", Some("web1"))), false),
        (None, true),
    ];
    for (job, fires) in table {
        let site = site();
        if let Some(job) = job {
            keep(&site, job, "test.ping", &["web1"]);
        }
        let load = by(&site, "nobody").set("fun", "cmd.run");
        let outcome = site.ask(clear(load, 3));
        assert_eq!(!outcome.effects.is_empty(), fires, "{job:?}");
    }
}

/// A user without rights to a reported job cannot take it out of the history, and the refusal is
/// not fired under its jid.
#[test]
fn reported_job_is_replaced_by_permitted_user_only() {
    let table = [
        ("root", "cmd.run", true),
        ("root", "test.ping", true),
        ("nobody", "test.ping", true),
        ("nobody", "cmd.run", false),
        ("nobody", "test.ping,cmd.run", false),
    ];
    for (user, fun, may) in table {
        let site = site();
        report(&site, fun, &["web1"]);
        let outcome = site.ask(clear(by(&site, user), 3));
        assert_eq!(!is_refused(&outcome), may, "{user}, {fun}");
        let forbidden = by(&site, "nobody").set("fun", "cmd.run");
        assert!(site.ask(clear(forbidden, 3)).effects.is_empty());
    }
}

/// A syndic's report may name no minion: then only a rule for all minions is one for the job's.
#[test]
fn reported_job_without_minions_is_replaced_by_rules_for_all_only() {
    let table: [(&str, &[&str], bool); 5] = [
        ("nobody", &["web1"], true),
        ("nobody", &["db1"], false),
        ("nobody", &[], false),
        ("daemon", &[], true),
        ("root", &[], true),
    ];
    for (user, minions, may) in table {
        let site =
            Site::new("publisher_acl: {nobody: [{'web*': ['test.*']}], daemon: ['test.*']}\n");
        site.accept("web1", "minion");
        report(&site, "test.ping", minions);
        let outcome = site.ask(clear(by(&site, user), 3));
        assert_eq!(!is_refused(&outcome), may, "{user}, {minions:?}");
    }
}
