//! How a job is made, whoever asks for it: users (`publish`, `saltern_batch`), minions
//! (`minion_publish`), the reactor, batches and the master itself.
//!
//! Every path leads through the same steps: `admit` (who asks, and is it barred), `resolve` (which
//! minions are meant, and may the sender have it run there), `jid_owner` (whose is the jid),
//! `publication` (what goes out), `start` (record, events and publication). None of them knows
//! how a request came in or how it is answered, but for `refusal`.

pub(crate) mod again;
pub(crate) mod below;
pub(crate) mod jid_owner;
pub(crate) mod load;
pub(crate) mod publication;
pub(crate) mod refusal;
mod relation;
mod request;
mod resolve;
mod start;

use saltern_model::{Jid, Target};
use saltern_policy::acl::Whom;
use saltern_policy::target::Resolved;
use saltern_wire::msgpack::Value;

use crate::Services;
use crate::credentials::{NotProved, Sender};
use crate::outcome::StartJob;

pub use load::{UPPER, with_job_cache};
pub use refusal::Refused;

pub(crate) use publication::SentAs;
pub(crate) use request::{Request, given_jid};
pub(crate) use resolve::{
    match_options, missing, names, resolve, resolve_allowed, resolve_with, without_syndics,
};
pub(crate) use start::{Recipients, beginning, job, without_secrets};

/// Proof that a request is not barred and that its sender is proved. Only `admit` makes one.
pub(crate) struct Admitted(Sender);

impl Admitted {
    /// The sender.
    pub(crate) fn sender(&self) -> &Sender {
        &self.0
    }
}

/// A job that is to start, with what the answer to its sender names.
pub(crate) struct NewJob {
    /// The job.
    pub(crate) start: StartJob,
    /// The minions of its target.
    pub(crate) minions: Value,
    /// The names in its target that match no minion.
    pub(crate) missing: Value,
}

/// Admits the sender of a request, in stock's order: the blacklist applies to every user.
///
/// # Errors
/// [`Refused`].
pub(crate) fn admit(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Result<Admitted, Refused> {
    if Request::read(load, services.config.salt_compat)?.is_barred(&services.users) {
        return Err(Refused::Barred);
    }
    proof.map(Admitted).map_err(Refused::NotProved)
}

/// The job that the reactor asks for, limited by `saltern_reactor_acl`; `None` where its target
/// matches no minion.
///
/// # Errors
/// [`Refused`].
pub fn of_reactor(load: &Value, services: &Services) -> Result<Option<StartJob>, Refused> {
    let admitted = admit(load, Ok(Sender::of_reactor(services)), services)?;
    Ok(asked_for(load, &admitted, services)?.map(|new| new.start))
}

/// The job that an admitted request asks for; `None` where its target matches no minion.
///
/// # Errors
/// [`Refused`].
pub(crate) fn asked_for(
    load: &Value,
    admitted: &Admitted,
    services: &Services,
) -> Result<Option<NewJob>, Refused> {
    let sender = admitted.sender();
    let load = &*sender.sign(load);
    let load = &*load::with_rights(load, sender.rights(), services);
    let request = Request::read(load, services.config.salt_compat)?;
    let resolved = resolve_allowed(load, &request, sender, services)?;
    let Some(target) = &request.target else {
        return Ok(None);
    };
    let below = below::of_sender(load, &request, target, sender, services);
    // Other minions below syndics are not known here. With syndics stock's command line expects a
    // job, whoever is meant.
    let is_nobody = resolved.minions.is_empty() && below.minions.is_empty();
    if is_nobody && !services.site.order_masters {
        return Ok(None);
    }
    let Some(sent_as) = how_sent(load, &request, target, &resolved, sender, services) else {
        let tgt_type = target.kind();
        complain!(services, %tgt_type, "who is meant is not certain, so rules for some do not hold");
        return Err(Refused::NotAuthorised {
            owner: sender.owner(),
        });
    };
    for name in ["arg", "ret"] {
        if load.get(name).is_none() {
            return Err(Refused::Malformed(name));
        }
    }
    let jid = jid(load, sender, services)?;
    let recipients = Recipients::new(resolved, below, sent_as);
    let (minions, missing) = (recipients.names(), recipients.missing());
    let start = job(load, &request, target, jid, recipients, services);
    Ok(Some(NewJob {
        start,
        minions,
        missing,
    }))
}

/// The jid that the client chose, or a new one when it chose none. An existing jid belongs to its
/// user, who may go on under it: 3008's command line sends the parts of a batch so, and a syndic
/// publications that arrive twice from above.
fn jid(load: &Value, sender: &Sender, services: &Services) -> Result<Jid, Refused> {
    let Some(jid) = given_jid(load)? else {
        return Ok(services.minter.mint());
    };
    match jid_owner::take(&jid, sender, services) {
        Ok(true) => Ok(jid),
        Ok(false) => Err(Refused::JidTaken(jid)),
        Err(error) => {
            tracing::error!(%error, %jid, "the owner of a jid cannot be looked up");
            let text = "the job database cannot be read; see the master's log";
            Err(Refused::Because(text.to_owned()))
        }
    }
}

/// How the target is sent for this sender; `None` where it is not certain which minions match it.
fn how_sent(
    load: &Value,
    request: &Request<'_>,
    target: &Target,
    resolved: &Resolved,
    sender: &Sender,
    services: &Services,
) -> Option<SentAs> {
    let may = |whom: Whom<'_>| sender.may_publish(load, &request.functions, whom, services);
    if may(Whom::Anybody) {
        return Some(SentAs::Target);
    }
    SentAs::of_limited(target, resolved, may, services)
}
