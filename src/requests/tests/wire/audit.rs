//! Rows of the audit trail: one for each request that has something done or is refused, with the
//! proved user, and without a secret.

use std::net::{IpAddr, Ipv4Addr};

use saltern_model::{AuditDoor, AuditProof, AuditRecord, AuditVerdict};
use saltern_requests::{Effect, Handled, Origin, PeerCallWork, handle};
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion, clear, published_by_root};
use crate::wire::site::{Site, decode};

const OPTIONS: &str = "
client_acl_verify: False
sharedsecret: s3cret
external_auth:
  sharedsecret:
    ana: ['test.*', '@jobs']
peer:
  m1: ['test.ping']
peer_run:
  m1: ['jobs\\..*']
";

const SECRETS: [&str; 3] = ["s3cret", "hunter2", "guessed"];

fn site() -> Site {
    let site = Site::new(OPTIONS);
    for id in ["m1", "m2"] {
        site.accept(id, "minion");
    }
    site
}

/// The row of a request, wherever it is; none of them holds a secret.
fn row(mut handled: Handled) -> Option<AuditRecord> {
    let mut rows: Vec<Box<AuditRecord>> = handled.audit.take().into_iter().collect();
    for effect in handled.outcome.effects {
        rows.extend(match effect {
            Effect::StartJob(start) => start.audit,
            Effect::StartBatch(plan) => plan.audit,
            Effect::RunPeerCall(call) => match call.work {
                PeerCallWork::Job { start, .. } => start.audit,
                PeerCallWork::Run(_) => None,
            },
            _ => None,
        });
    }
    assert!(rows.len() <= 1, "{rows:?}");
    let row = rows.pop()?;
    let text = format!("{row:?}");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{text}");
    }
    Some(*row)
}

fn asked(site: &Site, load: Load) -> Option<AuditRecord> {
    row(site.handle(clear(load, 3)))
}

/// Who, by what proof, what, and the verdict.
fn essence(row: &AuditRecord) -> (&str, AuditProof, &str, &str, AuditVerdict) {
    let (user, cmd, fun) = (row.user.as_str(), row.cmd.as_str(), row.fun.as_str());
    (user, row.proof, cmd, fun, row.verdict)
}

fn login(name: &str, password: &str) -> Load {
    Load::new()
        .set("eauth", "sharedsecret")
        .set("username", name)
        .set("password", password)
}

/// A publish that claims to be root's, with these credentials.
fn publish(kwargs: Load, fun: &str) -> Load {
    Load::new()
        .set("cmd", "publish")
        .set("tgt", "m*")
        .set("fun", fun)
        .set("arg", Value::Array(Vec::new()))
        .set("tgt_type", "glob")
        .set("ret", "")
        .set("jid", "")
        .set("kwargs", kwargs)
        .set("user", "root")
}

fn token(site: &Site) -> Value {
    let load = login("ana", "s3cret").set("cmd", "mk_token");
    let token = decode(&site.ask(clear(load, 3)).reply);
    token.get("token").cloned().expect("a token")
}

#[test]
fn job_of_the_key_has_its_row() {
    use {AuditProof::Key, AuditVerdict::Allowed};
    let site = site();
    let arguments = Value::Array(vec![
        "x".into(),
        Value::map([
            ("__kwarg__", Value::from(true)),
            ("password", "hunter2".into()),
        ]),
    ]);
    let load = published_by_root(&site, "m*").set("arg", arguments);
    let row = asked(&site, load).expect("a row");
    assert_eq!(
        essence(&row),
        ("root", Key, "publish", "test.ping", Allowed)
    );
    assert_eq!(row.origin, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_eq!((row.door, row.backend), (AuditDoor::Port, None));
    assert_eq!(row.tgt.as_deref(), Some("m*"));
    assert_eq!(
        row.arguments,
        r#"["x",{"__kwarg__":true,"password":"<hidden>"}]"#
    );
    assert!(row.jid.is_some());
}

#[test]
fn token_and_login_give_the_proved_user() {
    use AuditVerdict::{Allowed, Refused};
    let site = site();
    let made = asked(&site, login("ana", "s3cret").set("cmd", "mk_token")).expect("a row");
    let eauth = AuditProof::Eauth;
    assert_eq!(essence(&made), ("ana", eauth, "mk_token", "", Allowed));
    assert_eq!(made.backend.as_deref(), Some("sharedsecret"));
    for (kwargs, proof) in [
        (Load::new().set("token", token(&site)), AuditProof::Token),
        (login("ana", "s3cret"), eauth),
    ] {
        let row = asked(&site, publish(kwargs.clone(), "test.ping")).expect("a row");
        assert_eq!(
            essence(&row),
            ("ana", proof, "publish", "test.ping", Allowed)
        );
        let row = asked(&site, publish(kwargs, "cmd.run")).expect("a row");
        assert_eq!(essence(&row), ("ana", proof, "publish", "cmd.run", Refused));
        assert_eq!(row.reason.as_deref(), Some("no rule allows it"));
        assert_eq!((row.jid, row.tgt.as_deref()), (None, Some("m*")));
    }
    let load = login("ana", "guessed").set("cmd", "mk_token");
    let row = asked(&site, load).expect("a row");
    assert_eq!(
        essence(&row),
        ("ana", AuditProof::None, "mk_token", "", Refused)
    );
    let row = asked(&site, publish(login("ana", "guessed"), "test.ping")).expect("a row");
    assert_eq!(row.proof, AuditProof::None);
    assert_eq!(row.verdict, Refused);
}

#[test]
fn functions_of_the_master_have_rows_with_their_jids() {
    use AuditVerdict::{Allowed, Refused};
    let site = site();
    let call = |cmd: &str, fun: &str| {
        Load::new()
            .set("cmd", cmd)
            .set("fun", fun)
            .set("token", token(&site))
            .set("kwarg", Load::new().set("db_password", "hunter2"))
    };
    let row = asked(&site, call("runner", "jobs.list_jobs")).expect("a row");
    let proof = AuditProof::Token;
    assert_eq!(
        essence(&row),
        ("ana", proof, "runner", "jobs.list_jobs", Allowed)
    );
    assert!(
        row.jid.is_some() && row.arguments.contains("db_password"),
        "{row:?}"
    );
    let row = asked(&site, call("wheel", "key.delete")).expect("a row");
    assert_eq!(
        essence(&row),
        ("ana", proof, "wheel", "key.delete", Refused)
    );
    // A query changes nothing, whoever asks; but for those that end a batch and replay a dead letter.
    for fun in ["jobs.page", "keys.page", "reactor.letters"] {
        assert_eq!(asked(&site, call("saltern_query", fun)), None, "{fun}");
    }
    for fun in ["batches.stop", "reactor.replay"] {
        assert!(asked(&site, call("saltern_query", fun)).is_some(), "{fun}");
    }
}

#[test]
fn question_about_ones_own_job_has_no_row() {
    let site = site();
    let load = published_by_root(&site, "m*")
        .set("fun", "saltutil.find_job")
        .set("arg", Value::Array(vec!["20260101000000000000".into()]))
        .set("tgt", Value::Array(vec!["m1".into()]))
        .set("tgt_type", "list")
        .set("jid", "");
    assert_eq!(asked(&site, load), None);
}

#[test]
fn batch_has_one_row() {
    let site = site();
    let load = published_by_root(&site, "m*")
        .set("cmd", "saltern_batch")
        .set("batch", Load::new().set("size", 1));
    let row = asked(&site, load).expect("a row");
    assert_eq!(
        (row.cmd.as_str(), row.fun.as_str()),
        ("saltern_batch", "test.ping")
    );
    assert!(row.jid.is_some());
}

#[test]
fn minion_has_a_row_for_what_it_starts_and_none_for_what_it_reads() {
    use AuditVerdict::{Allowed, Refused};
    let site = site();
    let minion = Minion::signed_in(&site, "m1");
    let ask = |cmd: &str, fun: &str| {
        let load = minion
            .load(cmd)
            .set("fun", fun)
            .set("arg", Value::Array(Vec::new()))
            .set("tgt", "m2")
            .set("ret", "");
        row(site.handle(minion.sealed(load, 3)))
    };
    for (cmd, fun, verdict) in [
        ("minion_pub", "test.ping", Allowed),
        ("minion_pub", "cmd.run", Refused),
        ("minion_publish", "test.ping", Allowed),
        ("minion_runner", "jobs.list_jobs", Allowed),
        ("minion_runner", "key.list", Refused),
    ] {
        let row = ask(cmd, fun).expect("a row");
        let proof = AuditProof::Session;
        assert_eq!(essence(&row), ("m1", proof, cmd, fun, verdict));
        assert_eq!(row.door, AuditDoor::Minion);
        assert_eq!(row.jid.is_some(), verdict == Allowed, "{row:?}");
    }
    for cmd in ["_master_opts", "pub_ret", "_mine_get"] {
        assert_eq!(ask(cmd, ""), None, "{cmd}");
    }
}

#[test]
fn door_is_that_of_the_request() {
    let site = site();
    let origin = Origin {
        door: AuditDoor::Api,
        ..Origin::from(IpAddr::from([192, 0, 2, 9]))
    };
    let load = published_by_root(&site, "m*");
    let row = row(handle(clear(load, 3), origin, &site.services)).expect("a row");
    assert_eq!(
        (row.door, row.origin),
        (AuditDoor::Api, Some(origin.address))
    );
    let from_above = published_by_root(&site, "m*").set(
        "kwargs",
        Load::new().set("auth_list", Value::Array(Vec::new())),
    );
    let row = asked(&site, from_above).expect("a row");
    assert_eq!(row.door, AuditDoor::Syndic);
}

/// Any peer can cause these: they must not fill the disk.
#[test]
fn flood_of_unproved_requests_leaves_few_rows_that_count_the_rest() {
    let site = site();
    let guess = || publish(Load::new().set("token", "guessed"), "test.ping");
    let rows = (0..500).filter_map(|_| asked(&site, guess())).count();
    assert!((1..=20).contains(&rows), "{rows}");
    let row = asked(&site, published_by_root(&site, "m*")).expect("a row");
    assert_eq!(row.suppressed, 500 - rows as u64);
    let next = asked(&site, published_by_root(&site, "m*").set("jid", "")).expect("a row");
    assert_eq!(next.suppressed, 0);
}
