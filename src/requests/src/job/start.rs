//! Makes a job: the record to store, the events that announce it, the publication to the minions.

use std::collections::HashSet;

use saltern_model::{Compat, Event, Jid, JobRecord, MinionId, Packed, Tag, Target};
use saltern_policy::target::Resolved;
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::below::Below;
use super::publication::{SENT_AS, SentAs, publication};
use super::request::Request;
use super::resolve::missing;
use super::{load, relation};
use crate::events::{BareJid, NewJob};
use crate::outcome::{JobRelation, StartJob, Topics};
use crate::{Services, event_data};

/// Recipients of a job.
pub(crate) struct Recipients {
    /// Minions of this master's own.
    own: Resolved,
    /// Minions below syndics.
    below: Below,
    sent_as: SentAs,
}

impl Recipients {
    /// These minions; a name that is missing here may be below a syndic.
    pub(crate) fn new(mut own: Resolved, below: Below, sent_as: SentAs) -> Self {
        if !own.missing.is_empty() && !below.minions.is_empty() {
            let found: HashSet<&str> = below.minions.iter().map(MinionId::as_str).collect();
            own.missing.retain(|name| !found.contains(name.as_str()));
        }
        Self {
            own,
            below,
            sent_as,
        }
    }

    /// Minions of this master's own.
    pub(crate) fn own(own: Resolved, sent_as: SentAs) -> Self {
        Self::new(own, Below::default(), sent_as)
    }

    /// The minions as the wire has them.
    pub(crate) fn names(&self) -> Value {
        let all = self.own.minions.iter().chain(&self.below.minions);
        Value::Array(all.map(|id| id.as_str().into()).collect())
    }

    /// The names in the target that match no minion.
    pub(crate) fn missing(&self) -> Value {
        missing(&self.own)
    }

    fn into_minions(self) -> Vec<MinionId> {
        let mut minions = self.own.minions;
        minions.extend(self.below.minions);
        minions
    }
}

/// The record, events and publication of a job.
pub(crate) fn job(
    load: &Value,
    request: &Request<'_>,
    target: &Target,
    jid: Jid,
    recipients: Recipients,
    services: &Services,
) -> StartJob {
    let (minions, missing) = (recipients.names(), recipients.missing());
    let sent_as = recipients.sent_as;
    let entries = load::entries(load, jid.as_str(), services);
    let announce = announcement(load, &jid, &minions, &missing, &entries, services);
    let (own, below) = (&recipients.own.minions, &recipients.below);
    let mut publication = publication(entries, target, (own, sent_as), services);
    let is_for_somebody = !own.is_empty() || !below.minions.is_empty();
    if below.is_exact
        && is_for_somebody
        && let Topics::Minions(ids) = &mut publication.topics
    {
        let mut ids = std::mem::take(ids);
        // A syndic that is a minion, too, may be there already.
        let is_new =
            |id: &&MinionId| services.minions.syndics.is_only_syndic(id) || !own.contains(id);
        ids.extend(below.syndics.iter().filter(is_new).cloned());
        publication.topics = Topics::Exactly(ids);
    }
    let expects_all = below.are_all && is_for_somebody;
    let about = relation::of_load(load, request, target);
    let minions_of_job = match about {
        Some(JobRelation::Running(_)) if services.site.order_masters => {
            relation::named(target, &services.minions.syndics)
        }
        _ => recipients.into_minions(),
    };
    let job = JobRecord {
        created: services.clock.unix_micros(),
        user: request.user.to_owned(),
        fun: request.functions.join(","),
        tgt: target.to_string(),
        tgt_type: target.kind().to_string(),
        load: stored_load(load, &jid, sent_as),
        minions: minions_of_job,
        nocache: request.nocache,
        jid,
    };
    tracing::info!(
        jid = %job.jid, user = %job.user, fun = %job.fun, minions = job.minions.len(),
        "publishing"
    );
    StartJob {
        about,
        expects_all,
        publisher: None,
        audit: None,
        job,
        announce,
        publication,
    }
}

/// The load as stock keeps it in `.load.p`: without the user's key, with the jid.
fn stored_load(load: &Value, jid: &Jid, sent_as: SentAs) -> Packed {
    let mut entries = without_secrets(load);
    entries.retain(|(name, _)| !matches!(name.as_str(), Some("jid" | SENT_AS)));
    entries.push(("jid".into(), jid.as_str().into()));
    if let Some(mark) = sent_as.mark() {
        entries.push((SENT_AS.into(), mark.into()));
    }
    Packed::new(encode(&Value::Map(entries), Dialect::Bin))
}

fn announcement(
    load: &Value,
    jid: &Jid,
    minions: &Value,
    missing: &Value,
    entries: &[(Value, Value)],
    services: &Services,
) -> Vec<Event> {
    let mut events = beginning(load, jid, minions, missing, services);
    if services.config.salt_compat > Compat::V3006 {
        let whole = entries.to_vec();
        events.push(event_data::event(services, Tag::job_publish(jid), whole));
    }
    events
}

/// The events of a job's start, except the one with its load.
pub(crate) fn beginning(
    load: &Value,
    jid: &Jid,
    minions: &Value,
    missing: &Value,
    services: &Services,
) -> Vec<Event> {
    let part = |name: &str| load.get(name).unwrap_or(&Value::Nil);
    let mut events = Vec::new();
    if services.config.salt_compat < Compat::V3008 {
        let who = BareJid { minions };
        events.push(event_data::master_event(services, Tag::bare_jid(jid), &who));
    }
    let glob = "glob".into();
    let new = NewJob {
        jid,
        tgt_type: load.get("tgt_type").unwrap_or(&glob),
        tgt: part("tgt"),
        user: part("user"),
        fun: part("fun"),
        arg: part("arg"),
        minions,
        missing,
    };
    events.push(event_data::master_event(services, Tag::job_new(jid), &new));
    events
}

/// The entries of a load without its credentials.
pub(crate) fn without_secrets(load: &Value) -> Vec<(Value, Value)> {
    const SECRET: [&str; 4] = ["key", "token", "password", "eauth"];
    let is_open = |(name, _): &&(Value, Value)| !name.as_str().is_some_and(|n| SECRET.contains(&n));
    let entries = load.as_map().unwrap_or_default().iter().filter(is_open);
    entries
        .map(|(name, value)| match (name.as_str(), value) {
            (Some("kwargs"), inner @ Value::Map(_)) => {
                (name.clone(), Value::Map(without_secrets(inner)))
            }
            _ => (name.clone(), value.clone()),
        })
        .collect()
}
