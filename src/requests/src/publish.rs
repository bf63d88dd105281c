//! `publish`, clear: a user starts a job (`ClearFuncs.publish` in `salt/master.py`).
//!
//! Stored first, then announced, then published, then answered: a jid that a client holds is in
//! the store. The steps that make the job stand in `job`.

use saltern_wire::msgpack::Value;

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

fn begun(new: NewJob) -> Outcome {
    let answer = Value::map([
        ("jid", Value::from(new.start.job.jid.as_str())),
        ("minions", new.minions),
        ("missing", new.missing),
    ]);
    let answer = Value::map([("enc", Value::from("clear")), ("load", answer)]);
    Outcome {
        reply: reply::clear(&answer),
        reply_if_not_stored: reply::plain_error(
            "the master could not store the job, so it was not published; see the master's log",
        ),
        later: None,
        effects: vec![Effect::StartJob(Box::new(new.start))],
    }
}
