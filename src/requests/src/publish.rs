//! `publish`, clear: a user starts a job (`ClearFuncs.publish` in `salt/master.py`).
//!
//! Stored first, then announced, then published, then answered: a jid that a client holds is in
//! the store. The steps that make the job stand in `job`.

use saltern_model::Jid;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use crate::audit::AuditNote;
use crate::credentials::{NotProved, Sender};
use crate::job::{self, NewJob, Refused, refusal};
use crate::{Effect, Outcome, Services, reply};

/// Starts the job, or answers with a refusal.
pub(crate) fn handle(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Outcome {
    begin(load, proof, services)
        .unwrap_or_else(|refused| refusal::refusal("publish", load, refused, services))
}

fn begin(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Result<Outcome, Refused> {
    let admitted = job::admit(load, proof, services)?;
    let Some(new) = job::asked_for(load, &admitted, services)? else {
        return Ok(Outcome::reply(refusal::no_match(load)));
    };
    Ok(begun(new))
}

/// The load of the answer.
#[derive(Serialize)]
struct Begun<'a> {
    jid: &'a Jid,
    minions: &'a Value,
    missing: &'a Value,
    /// No syndic names further minions. Only our client reads it, and does then not wait out
    /// `syndic_wait`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    saltern_expects_all: bool,
}

fn begun(new: NewJob) -> Outcome {
    let answer = Begun {
        jid: &new.start.job.jid,
        minions: &new.minions,
        missing: &new.missing,
        saltern_expects_all: new.start.expects_all,
    };
    Outcome {
        reply: reply::clear_load(&answer),
        reply_if_not_stored: reply::plain_error(
            "the master could not store the job, so it was not published; see the master's log",
        ),
        later: None,
        audit: AuditNote::default(),
        effects: vec![Effect::StartJob(Box::new(new.start))],
    }
}
