//! `_auth`: every decision about a key that stock distinguishes, with the files before and after,
//! and the event. The replies and forms are in `auth.rs`.

use saltern_crypto::SigAlgo;
use saltern_requests::Outcome;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Minion, clear};
use crate::wire::site::{Site, data, events, key_pair};

const ACCEPTED: &str = "pki/minions/m1";
const PENDING: &str = "pki/minions_pre/m1";
const REJECTED: &str = "pki/minions_rejected/m1";
const DENIED: &str = "pki/minions_denied/m1";

/// Row: the options, the files before and the presented key, with the expected result.
struct Row {
    what: &'static str,
    options: &'static str,
    before: &'static [(&'static str, &'static str)],
    key: &'static str,
    /// `ret`, or nothing when the keys are handed out.
    ret: Option<Value>,
    act: &'static str,
    /// The files that must lie there afterwards, each with whose key.
    after: &'static [(&'static str, &'static str)],
}

fn rows() -> Vec<Row> {
    let row = |what, options, before, key, ret: &str, act, after| Row {
        what,
        options,
        before,
        key,
        ret: match ret {
            "keys" => None,
            "True" => Some(true.into()),
            _ => Some(false.into()),
        },
        act,
        after,
    };
    const SIGN: &str = "autosign_file: ROOT/rules/sign\n";
    const REJECT: &str = "autoreject_file: ROOT/rules/reject\n";
    const OPEN: &str = "open_mode: True\n";
    vec![
        row(
            "new",
            "",
            &[],
            "minion",
            "True",
            "pend",
            &[(PENDING, "minion")],
        ),
        row(
            "again",
            "",
            &[(PENDING, "minion")],
            "minion",
            "True",
            "pend",
            &[(PENDING, "minion")],
        ),
        row(
            "pending, other key",
            "",
            &[(PENDING, "minion")],
            "large",
            "False",
            "denied",
            &[(PENDING, "minion"), (DENIED, "large")],
        ),
        row(
            "accepted",
            "",
            &[(ACCEPTED, "minion")],
            "minion",
            "keys",
            "accept",
            &[(ACCEPTED, "minion")],
        ),
        row(
            "accepted, other key",
            "",
            &[(ACCEPTED, "minion")],
            "large",
            "False",
            "denied",
            &[(ACCEPTED, "minion"), (DENIED, "large")],
        ),
        row(
            "rejected",
            "",
            &[(REJECTED, "minion")],
            "minion",
            "False",
            "reject",
            &[(REJECTED, "minion")],
        ),
        row(
            "denied before",
            "",
            &[(DENIED, "large")],
            "minion",
            "True",
            "pend",
            &[(PENDING, "minion"), (DENIED, "large")],
        ),
        row(
            "auto_accept",
            "auto_accept: True\n",
            &[],
            "minion",
            "keys",
            "accept",
            &[(ACCEPTED, "minion")],
        ),
        row(
            "autosign",
            SIGN,
            &[],
            "minion",
            "keys",
            "accept",
            &[(ACCEPTED, "minion")],
        ),
        row(
            "autosign, pending",
            SIGN,
            &[(PENDING, "minion")],
            "minion",
            "keys",
            "accept",
            &[(ACCEPTED, "minion")],
        ),
        row(
            "autosign, pending, other key",
            SIGN,
            &[(PENDING, "minion")],
            "large",
            "False",
            "denied",
            &[(PENDING, "minion"), (DENIED, "large")],
        ),
        row(
            "autosign, rejected",
            SIGN,
            &[(REJECTED, "minion")],
            "minion",
            "False",
            "reject",
            &[(REJECTED, "minion")],
        ),
        row(
            "autoreject",
            REJECT,
            &[],
            "minion",
            "False",
            "reject",
            &[(REJECTED, "minion")],
        ),
        row(
            "autoreject, pending",
            REJECT,
            &[(PENDING, "minion")],
            "minion",
            "False",
            "reject",
            &[(REJECTED, "minion")],
        ),
        row(
            "autoreject, accepted",
            REJECT,
            &[(ACCEPTED, "minion")],
            "minion",
            "keys",
            "accept",
            &[(ACCEPTED, "minion")],
        ),
        row(
            "open, new",
            OPEN,
            &[],
            "minion",
            "keys",
            "accept",
            &[(ACCEPTED, "minion")],
        ),
        row(
            "open, other key",
            OPEN,
            &[(ACCEPTED, "large")],
            "minion",
            "keys",
            "accept",
            &[(ACCEPTED, "minion")],
        ),
        row(
            "open, rejected",
            OPEN,
            &[(REJECTED, "minion")],
            "minion",
            "keys",
            "accept",
            &[(ACCEPTED, "minion")],
        ),
    ]
}

#[test]
fn auth_decides_as_stock_in_every_state_of_a_key() {
    for row in rows() {
        let site = Site::new(row.options);
        site.write("rules/sign", "m*\n");
        site.write("rules/reject", "m1\n");
        for (file, key) in row.before {
            site.write(file, key_pair(key).public.trim());
        }
        let minion = Minion::new("m1", row.key);
        let outcome = site.ask(clear(minion.auth(), 3));
        let inner = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
        assert_eq!(inner.get("ret"), row.ret.as_ref(), "{}", row.what);
        assert_event(
            &outcome,
            row.act,
            row.ret != Some(false.into()),
            &minion,
            row.what,
        );
        for file in [ACCEPTED, PENDING, REJECTED, DENIED] {
            let expected = row.after.iter().find(|(name, _)| *name == file);
            let expected = expected.map(|(_, key)| key_pair(key).public.trim().to_owned());
            assert_eq!(site.read(file), expected, "{}: {file}", row.what);
        }
        let session = site.path("cache/sessions/m1").exists();
        assert_eq!(
            session,
            row.ret.is_none(),
            "{}: only a minion let in has one",
            row.what
        );
    }
}

pub(crate) fn assert_event(
    outcome: &Outcome,
    act: &str,
    result: bool,
    minion: &Minion,
    what: &str,
) {
    let events = events(outcome);
    assert_eq!(events.len(), 1, "{what}");
    assert_eq!(events[0].tag.as_str(), "salt/auth", "{what}");
    let data = data(&events[0]);
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::to_owned);
    assert_eq!(text("act").as_deref(), Some(act), "{what}");
    assert_eq!(text("id").as_deref(), Some(minion.id.as_str()), "{what}");
    assert_eq!(text("pub"), Some(minion.public.clone()), "{what}");
    assert_eq!(data.get("result"), Some(&Value::Bool(result)), "{what}");
}
