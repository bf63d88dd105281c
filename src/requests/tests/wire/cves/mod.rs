//! Published faults of stock's master, each as one test that names its CVE and shows how this master
//! stands. The table is `docs/cve.md`; `tests/cves.rs` compares it with the tests. Those of the HTTP
//! API are in `actors/tests/assembled/cves.rs`.
//!
//! Many lessons are kept by larger tables too (`attacks.rs`, `credentials.rs`): here is the one
//! attack that was published.

mod access;
mod content;
mod identity;
mod paths;
mod robustness;

use bytes::Bytes;
use saltern_requests::{Effect, Outcome};
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, clear};
use crate::wire::site::{Site, decode};

/// Users with few rights.
const LOGIN: &str = "
client_acl_verify: False
sharedsecret: s3cret
token_expire: 60
external_auth:
  sharedsecret:
    ana: ['test.*', 'web*': [state.apply]]
";

fn login(name: &str) -> Load {
    Load::new()
        .set("eauth", "sharedsecret")
        .set("username", name)
        .set("password", "s3cret")
}

fn publish(beside: Load, fun: impl Into<Value>, tgt: &str) -> Load {
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

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

fn starts_a_job(outcome: &Outcome) -> bool {
    let mut effects = outcome.effects.iter();
    effects.any(|effect| matches!(effect, Effect::StartJob(_)))
}

fn holds(bytes: &[u8], secret: &str) -> bool {
    let secret = secret.as_bytes();
    bytes.windows(secret.len()).any(|part| part == secret)
}

/// The answer to a user's request that must change nothing.
fn refused(site: &Site, what: &str, load: Load) -> Value {
    decode(&refused_bytes(site, what, load))
}

fn refused_bytes(site: &Site, what: &str, load: Load) -> Bytes {
    site.ask_in_vain(what, clear(load, 3))
}

/// The name of the error of an answer.
fn error_of(reply: &Value) -> &str {
    let error = reply.get("error").unwrap_or(reply);
    text(error, "name").unwrap_or("no error")
}
