//! The answer to a publication, or a batch, that is refused, and the event about it.
//!
//! Nothing from an unproved sender reaches the event bus: any peer that reaches the port could have
//! written it.

use bytes::Bytes;
use saltern_model::{Event, Jid, Tag};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::jid_owner::{self, Owner};
use super::request::given_jid;
use crate::credentials::NotProved;
use crate::events::{NamedError, PublishError};
use crate::refusal_log::excerpt;
use crate::{Outcome, Services, event_data, reply};

/// Reason why a job is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A field that stock needs is missing; stock fails without an answer of its own.
    #[error("\"{0}\" is missing or of a wrong kind")]
    Malformed(&'static str),
    /// The load proves no sender.
    #[error("its sender is not proved")]
    NotProved(NotProved),
    /// `publisher_acl_blacklist` names the user or the function; stock fires no event then.
    #[error("publisher_acl_blacklist forbids it")]
    Barred,
    /// The rules of a proved user do not allow it.
    #[error("no rule allows it")]
    NotAuthorised {
        /// The proved user.
        owner: Owner,
    },
    /// The jid belongs to a job of another user.
    #[error("the jid {0} belongs to a job of another user")]
    JidTaken(Jid),
    /// A sentence for the client.
    #[error("{0}")]
    Because(String),
}

/// The answer when the target matches no minion.
pub(crate) fn no_match(load: &Value) -> Bytes {
    let shown = load.get("tgt").map(saltern_python::str).unwrap_or_default();
    reply::clear_load(&NoMatch {
        jid: (),
        minions: [],
        error: format!("Master could not resolve minions for target {shown}"),
    })
}

/// The load of an answer that names no job.
#[derive(Serialize)]
struct NoMatch {
    jid: (),
    minions: [(); 0],
    error: String,
}

/// The answer to a request that is refused.
pub(crate) fn refusal(
    cmd: &'static str,
    load: &Value,
    refused: Refused,
    services: &Services,
) -> Outcome {
    let named = load.get("user").and_then(Value::as_str).unwrap_or("?");
    let named = excerpt(named);
    let (name, text, why, proved) = match refused {
        refused @ Refused::Malformed(missing) => {
            complain!(services, cmd, missing, "request refused: it is incomplete");
            return Outcome::refused(reply::no_answer(), refused.to_string());
        }
        Refused::Because(text) => {
            complain!(services, cmd, text, "request refused");
            return Outcome::refused(reply::plain_error(&text), text);
        }
        refused @ Refused::JidTaken(_) => {
            services.metrics.refuse("jid_taken");
            let text = refused.to_string();
            complain!(services, cmd, user = named, text, "request refused");
            return Outcome::refused(reply::plain_error(&text), text);
        }
        Refused::NotProved(refused) => {
            let why = format!("{}: {}", refused.kind.word(), refused.why);
            let text = "Authentication error occurred.";
            ("AuthenticationError", text, why, None)
        }
        Refused::NotAuthorised { owner } => (
            "AuthorizationError",
            NOT_AUTHORISED,
            "no rule allows it".to_owned(),
            Some(owner),
        ),
        Refused::Barred => (
            "AuthorizationError",
            NOT_AUTHORISED,
            "publisher_acl_blacklist".to_owned(),
            None,
        ),
    };
    complain!(services, cmd, user = named, why, "request refused: {text}");
    services.metrics.refuse("publish");
    let outcome = Outcome::refused(reply::named_error(name, text), why);
    let event = proved.and_then(|owner| error_event(load, &owner, (name, text), services));
    match event {
        Some(event) => outcome.and_fire(event),
        None => outcome,
    }
}

const NOT_AUTHORISED: &str = "Authorization error occurred.";

/// `salt/job/<jid>/error`: the rules do not allow a proved user's load; without the jid where the
/// client leaves that to the master. Stock puts the whole load into it, and takes any text as jid
/// (`ClearFuncs.publish` in `salt/master.py`). Here a jid is one, of a job of that user or of none,
/// and no argument is repeated. Clients have the error in the answer, too.
fn error_event(
    load: &Value,
    owner: &Owner,
    (name, text): (&str, &str),
    services: &Services,
) -> Option<Event> {
    load.get("jid")?;
    let (tag, jid) = match given_jid(load).ok()? {
        None => (Tag::parse("salt/job/error").ok()?, String::new()),
        Some(jid) => {
            let is_free = jid_owner::is_free(&jid, owner, &services.jobs).unwrap_or(false);
            is_free.then(|| (Tag::job_error(&jid), jid.to_string()))?
        }
    };
    let part = |name: &str| load.get(name).unwrap_or(&Value::Nil);
    let error = PublishError {
        jid: &jid,
        user: &owner.name,
        fun: part("fun"),
        tgt: part("tgt"),
        tgt_type: part("tgt_type"),
        error: NamedError {
            name,
            message: text,
        },
    };
    Some(event_data::master_event(services, tag, &error))
}
