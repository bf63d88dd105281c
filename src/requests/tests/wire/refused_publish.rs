//! The answer and the events of a refused publication.

use saltern_wire::msgpack::Value;

use crate::wire::client::{JID, Load, clear, published_by_root};
use crate::wire::site::{Site, data, decode, events, list, names, tags};

const OPTIONS: &str = "publisher_acl: {nobody: ['test.*']}\n";

fn site() -> Site {
    let site = Site::new(OPTIONS);
    site.accept("web1", "minion");
    site
}

fn by_nobody(site: &Site) -> Load {
    let rules = site.services.users.rules();
    let key = rules.users.key("nobody").unwrap().expose().to_owned();
    published_by_root(site, "web1")
        .set("user", "nobody")
        .set("key", key.as_str())
        .set("fun", "cmd.run")
        .set("arg", list(&["secret"]))
        .set("jid", JID)
}

/// With such a jid, a reaction to returns would run on a stranger's data, and stock's command line
/// would print it as a return. Stock fires it.
#[test]
fn refused_publish_of_stranger_fires_nothing() {
    let site = site();
    let forged = format!("{JID}/ret/web1");
    for command in ["publish", "saltern_batch"] {
        for jid in [forged.as_str(), JID, "", "x/ret/web1"] {
            let load = published_by_root(&site, "web1")
                .set("cmd", command)
                .set("key", "x")
                .set("jid", jid)
                .set("batch", Value::map([("size", 1)]))
                .set("return", "forged")
                .set("id", "web1");
            let what = format!("{command} {jid:?}");
            let reply = site.ask_in_vain(&what, clear(load, 3));
            assert!(decode(&reply).get("error").is_some(), "{what}");
        }
    }
}

#[test]
fn refused_publish_of_proved_user_fires_named_fields_only() {
    let site = site();
    let error_tag = format!("salt/job/{JID}/error");
    let table = [
        (JID, Some(error_tag.as_str())),
        ("", Some("salt/job/error")),
        ("20260102030405060708/ret/web1", None),
        ("no jid", None),
    ];
    for command in ["publish", "saltern_batch"] {
        for (jid, tag) in table {
            let load = by_nobody(&site)
                .set("cmd", command)
                .set("batch", Value::map([("size", 1)]))
                .set("jid", jid)
                .set("return", "forged")
                .set("id", "web1");
            let outcome = site.ask(clear(load, 3));
            let error = decode(&outcome.reply);
            let name = error.get("error").and_then(|error| error.get("name"));
            assert_eq!(name, Some(&"AuthorizationError".into()), "{jid}");
            assert_eq!(tags(&outcome), tag.into_iter().collect::<Vec<_>>(), "{jid}");
            for event in events(&outcome) {
                let fired = data(&event);
                let fields = ["jid", "user", "fun", "tgt", "tgt_type", "error"];
                assert_eq!(names(&fired), fields, "{jid}");
                assert_eq!(fired.get("user"), Some(&"nobody".into()));
                assert_eq!(fired.get("error"), error.get("error"));
            }
        }
    }
}

/// For a log-in: the proved name, not the one that the load claims.
#[test]
fn refused_publish_event_bears_the_proved_name() {
    let options = "sharedsecret: s3cret\nexternal_auth: {sharedsecret: {bob: ['test.*']}}\n";
    let site = Site::new(options);
    let beside = Load::new()
        .set("eauth", "sharedsecret")
        .set("username", "bob")
        .set("password", "s3cret");
    let load = published_by_root(&site, "*").without("key");
    let load = load.set("fun", "cmd.run").set("kwargs", beside);
    let outcome = site.ask(clear(load.set("jid", JID), 3));
    let events = events(&outcome);
    let [event] = events.as_slice() else {
        panic!("one event");
    };
    assert_eq!(data(event).get("user"), Some(&"bob".into()));
}

#[test]
fn refused_runner_answer_quotes_the_beginning_of_a_name() {
    let site = site();
    for command in ["runner", "wheel"] {
        let load = Load::new()
            .set("cmd", command)
            .set("fun", "manage.up")
            .set("eauth", "nowhere")
            .set("username", "\u{fc}".repeat(100_000).as_str())
            .set("password", "x");
        let reply = site.ask_in_vain(command, clear(load, 3));
        assert!(reply.len() < 1024, "{command}: {}", reply.len());
    }
}
