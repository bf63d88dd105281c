//! The job of a sender whose rules name minions is sent as the resolved ids, not as the target:
//! minions would evaluate that with Python's `re` and `fnmatch`, and their present grains and
//! pillar.

use saltern_requests::{Effect, StartJob, Topics, publication_again};
use saltern_wire::msgpack::{Dialect, Encoder, Value};

use crate::wire::client::{Load, clear, published_by_root};
use crate::wire::site::{Site, data, decode, list, sent, started};

const RULES: &str = "publisher_acl: {nobody: [{'web*': ['test.*']}], daemon: ['test.*'], \
     bin: ['test.echo', {'web*': ['test.ping']}]}\n";

fn site(options: &str) -> Site {
    let site = Site::new(&format!("{RULES}{options}"));
    for id in ["web1", "web2", "db1"] {
        site.accept(id, "minion");
    }
    site
}

fn by(site: &Site, user: &str, kind: &str, tgt: &str) -> Load {
    let rules = site.services.users.rules();
    let key = rules.users.key(user).unwrap().expose().to_owned();
    published_by_root(site, tgt)
        .set("user", user)
        .set("key", key.as_str())
        .set("tgt_type", kind)
        .set("jid", "")
}

fn target(load: &Value) -> (Value, Value) {
    let part = |name| load.get(name).cloned().unwrap_or(Value::Nil);
    (part("tgt_type"), part("tgt"))
}

fn again(site: &Site, start: &StartJob) -> Value {
    let again = publication_again(&start.job, &site.services).unwrap();
    let mut packed = Vec::new();
    let mut encoder = Encoder::new(&mut packed, Dialect::Raw);
    encoder.map(again.entries).raw(&again.packed);
    decode(&packed)
}

#[test]
fn limited_users_job_is_sent_as_ids_and_announced_as_given() {
    let site = site("nodegroups: {group: 'L@web1,web2'}\n");
    let table = [
        ("glob", "web*"),
        ("pcre", "web.*|db[+--x]1"),
        ("list", "web1,web2"),
        ("compound", "web* or E@db[+--x]1"),
        ("nodegroup", "group"),
    ];
    for (kind, tgt) in table {
        let outcome = site.ask(clear(by(&site, "nobody", kind, tgt), 3));
        let start = started(&outcome);
        let ids = ("list".into(), list(&["web1", "web2"]));
        assert_eq!(target(&sent(start)), ids, "{kind} {tgt}");
        assert_eq!(target(&again(&site, start)), ids, "{kind} {tgt}: again");
        assert!(matches!(&start.publication.topics, Topics::Minions(ids) if ids.len() == 2));
        let asked = (kind.into(), tgt.into());
        assert_eq!(target(&decode(start.job.load.bytes())), asked);
        assert_eq!(
            (start.job.tgt_type.as_str(), start.job.tgt.as_str()),
            (kind, tgt)
        );
        for event in &start.announce {
            let fired = data(event);
            if fired.get("tgt").is_some() {
                assert_eq!(target(&fired), asked, "{}", event.tag);
            }
        }
    }
}

#[test]
fn unlimited_users_target_is_sent_as_given() {
    let site = site("");
    for (user, fun) in [
        ("root", "test.ping"),
        ("daemon", "test.ping"),
        ("bin", "test.echo"),
    ] {
        let load = by(&site, user, "glob", "web*").set("fun", fun);
        let outcome = site.ask(clear(load, 3));
        let start = started(&outcome);
        let asked = ("glob".into(), "web*".into());
        assert_eq!(target(&sent(start)), asked, "{user}");
        assert_eq!(target(&again(&site, start)), asked, "{user}");
    }
    let outcome = site.ask(clear(by(&site, "bin", "glob", "web*"), 3));
    let ids = ("list".into(), list(&["web1", "web2"]));
    assert_eq!(target(&sent(started(&outcome))), ids, "by the other rule");
}

/// A client's own claim of how its job is sent is ignored.
#[test]
fn sent_as_mark_of_client_is_ignored() {
    let site = site("");
    let load = by(&site, "root", "glob", "web*").set("saltern_sent_as", "ids");
    let outcome = site.ask(clear(load, 3));
    let start = started(&outcome);
    let stored = decode(start.job.load.bytes());
    assert_eq!(stored.get("saltern_sent_as"), None);
    let asked = ("glob".into(), "web*".into());
    assert_eq!(target(&again(&site, start)), asked);
}

/// The minions below a syndic are not known here; there the rules are applied once more.
#[test]
fn unambiguous_target_above_syndics_is_sent_with_rules() {
    let site = site("order_masters: True\n");
    let table = [
        ("glob", "web*", ("compound", Value::from("web*"))),
        ("compound", "web*", ("compound", "web*".into())),
        ("glob", "webs-below-?", ("compound", "webs-below-?".into())),
        ("glob", "web1", ("list", list(&["web1"]))),
        ("glob", "below1", ("list", list(&["below1"]))),
        ("list", "web1,below1", ("list", "web1,below1".into())),
    ];
    for (kind, tgt, (sent_kind, sent_tgt)) in table {
        let outcome = site.ask(clear(by(&site, "nobody", kind, tgt), 3));
        let start = started(&outcome);
        let load = sent(start);
        let expected = (Value::from(sent_kind), sent_tgt);
        assert_eq!(target(&load), expected, "{kind} {tgt}");
        assert_eq!(
            target(&again(&site, start)),
            expected,
            "{kind} {tgt}: again"
        );
        let rules = load.get("auth_list");
        assert!(rules.is_some_and(|rules| *rules != list(&[])), "{tgt}");
    }
}

/// Minions match all their resources by any `pcre` or `glob` with a wildcard (3008), or ignore case
/// (Windows), so such a target would reach minions that the rules do not name.
#[test]
fn ambiguous_target_above_syndics_is_refused() {
    let (plain, mixed) = (site("order_masters: True\n"), site("order_masters: True\n"));
    mixed.accept("WEB-DC1", "minion");
    let table = [
        (&plain, "glob", "zzz*"),
        (&plain, "glob", "DB*"),
        (&plain, "glob", "web[12]"),
        (&plain, "glob", "*"),
        (&plain, "pcre", "web1"),
        (&plain, "pcre", "zzz.*"),
        (&plain, "compound", "L@web1"),
        (&mixed, "glob", "web*"),
    ];
    for (site, kind, tgt) in table {
        let outcome = site.ask(clear(by(site, "nobody", kind, tgt), 3));
        let only_fires = |effect: &Effect| matches!(effect, Effect::Fire(_));
        assert!(outcome.effects.iter().all(only_fires), "{kind} {tgt}");
        let error = decode(&outcome.reply);
        let name = error.get("error").and_then(|error| error.get("name"));
        assert_eq!(name, Some(&"AuthorizationError".into()), "{kind} {tgt}");
    }
}

/// A site of 500 minions whose ids begin with `web`, a list of 6 KiB, and some others.
fn large_site(others: &[&str]) -> Site {
    let site = Site::new(
        "publisher_acl: {nobody: [{'web*': ['test.*']}], \
         daemon: [{'web* and not L@db1': ['test.*']}]}\n",
    );
    let key = crate::wire::site::key_pair("minion").public;
    for number in 0..500 {
        site.write(&format!("pki/minions/web{number:03}.example"), &key);
    }
    for id in others {
        site.accept(id, "minion");
    }
    site
}

/// Target and size of the publication of a job for `tgt`.
fn publication(site: &Site, user: &str, kind: &str, tgt: &str) -> (Value, usize) {
    let outcome = site.ask(clear(by(site, user, kind, tgt), 3));
    let start = started(&outcome);
    let (kind, target) = target(&sent(start));
    assert_eq!(
        again(site, start),
        sent(start),
        "the same again after a restart"
    );
    assert!(matches!(&start.publication.topics, Topics::Minions(ids) if ids.len() >= 400));
    let shown = match target {
        Value::Array(ids) => Value::from(format!("{} ids", ids.len()).as_str()),
        text => text,
    };
    (
        Value::Array(vec![kind, shown]),
        start.publication.packed.len(),
    )
}

/// Sent in place of a list that grows by an id for each minion: for 40,000 with ids of 15 bytes it
/// is 640 KB, sent to each of them.
#[test]
fn long_id_list_is_sent_as_equivalent_wildcard() {
    let site = large_site(&["db1"]);
    let (word, short) = publication(&site, "nobody", "glob", "web*");
    assert_eq!(word, list(&["compound", "web*"]));
    let (narrower, _) = publication(&site, "nobody", "glob", "web???.exam*");
    assert_eq!(narrower, list(&["compound", "web???.exam*"]));
    let (ids, long) = publication(&site, "nobody", "pcre", "web");
    assert_eq!(ids, list(&["list", "500 ids"]));
    assert!(short < 300 && long > 500 * 15, "{short} and {long} bytes");
}

#[test]
fn wildcard_wider_than_rules_is_sent_as_ids() {
    let site = large_site(&[]);
    for (user, tgt) in [
        // All present matches are in the rule; later minions need not be.
        ("nobody", "we*"),
        ("nobody", "*"),
        ("nobody", "web[0-9]*"),
        ("nobody", "web*,x"),
        ("daemon", "web*"),
    ] {
        let outcome = site.ask(clear(by(&site, user, "glob", tgt), 3));
        let (kind, _) = target(&sent(started(&outcome)));
        assert_eq!(kind, "list".into(), "{user} {tgt}");
    }
}

/// `fnmatch` ignores case on Windows, so minions there would run a job that this master resolved
/// not to be theirs.
#[test]
fn ambiguous_wildcard_is_sent_as_ids() {
    for other in ["WEB-DC1", "größe"] {
        let site = large_site(&[other]);
        let (sent, _) = publication(&site, "nobody", "glob", "web*");
        assert_eq!(sent, list(&["list", "500 ids"]), "{other}");
    }
}
