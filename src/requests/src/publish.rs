//! `publish`, clear: a user starts a job (`ClearFuncs.publish` in `salt/master.py`).
//!
//! Stored first, then announced, then published, then answered: a jid that a client holds is in
//! the store.

use saltern_model::{Compat, Event, Jid, JobRecord, Packed, Tag, Target};
use saltern_policy::acl::Whom;
use saltern_policy::matching::MatchOptions;
use saltern_policy::target::Resolved;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::credentials::{NotProved, Sender};
use crate::event_data::fields;
use crate::outcome::{JobRelation, StartJob};
use crate::publication::{SENT_AS, SentAs, publication};
use crate::publish_load::DEFAULT_DELIMITER;
use crate::publish_refusal::{Refused, refusal};
use crate::{
    Effect, Outcome, Services, about, event_data, jid_owner, publish_load, python_text, reply,
    targets,
};

/// Starts the job, or answers with a refusal.
pub(crate) fn handle(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Outcome {
    start(load, proof, services)
        .unwrap_or_else(|refused| refusal("publish", load, refused, services))
}

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

/// The sender of a request, in stock's order: the blacklist applies to every user.
pub(crate) fn admit(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Result<Sender, Refused> {
    if Request::read(load, services.config.salt_compat)?.is_barred(services) {
        return Err(Refused::Barred);
    }
    proof.map_err(Refused::NotProved)
}

/// The minions that the target of a request matches, when its sender may run the functions on them.
/// An unusable target matches none.
pub(crate) fn resolve_allowed(
    load: &Value,
    request: &Request<'_>,
    sender: &Sender,
    services: &Services,
) -> Result<Resolved, Refused> {
    let resolved = match &request.target {
        Some(target) => resolve(load, &request.functions, target, services)?,
        None => Resolved::default(),
    };
    // Syndics count here: their machines may have a minion of the same name.
    let whom = Whom::These(&resolved.minions);
    match sender.may_publish(load, &request.functions, whom, services) {
        true => Ok(without_syndics(resolved, services)),
        false => Err(Refused::NotAuthorised {
            owner: sender.owner(),
        }),
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

/// The job that a request starts.
pub fn start(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Result<Outcome, Refused> {
    let sender = admit(load, proof, services)?;
    let load = &*sender.sign(load);
    let load = &*publish_load::with_rights(load, sender.rights(), services);
    let request = Request::read(load, services.config.salt_compat)?;
    let resolved = resolve_allowed(load, &request, &sender, services)?;
    let Some(target) = &request.target else {
        return Ok(Outcome::reply(no_match(load)));
    };
    // Minions below syndics are not known here.
    if resolved.minions.is_empty() && !services.site.order_masters {
        return Ok(Outcome::reply(no_match(load)));
    }
    let Some(sent_as) = how_sent(load, &request, target, &resolved, &sender, services) else {
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
    let jid = jid(load, &sender, services)?;
    let resolved = (resolved, sent_as);
    Ok(begin(load, &request, target, jid, resolved, services))
}

/// The jid of a load; `None` where the client leaves it to the master.
pub(crate) fn given_jid(load: &Value) -> Result<Option<Jid>, Refused> {
    let given = match load.get("jid") {
        None | Some(Value::Nil) => return Ok(None),
        Some(given) => python_text::str(given).ok_or(Refused::Malformed("jid"))?,
    };
    if given.is_empty() {
        return Ok(None);
    }
    let jid = Jid::parse(&given).map_err(|error| Refused::Because(error.to_string()))?;
    Ok(Some(jid))
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
            tracing::error!(%error, %jid, "it is not known whose a jid is");
            let text = "the job database cannot be read; see the master's log";
            Err(Refused::Because(text.to_owned()))
        }
    }
}

/// The entries of the load that the master itself reads.
pub(crate) struct Request<'a> {
    pub(crate) user: &'a str,
    pub(crate) functions: Vec<String>,
    /// `None` when the load names no target that stock could resolve.
    pub(crate) target: Option<Target>,
    nocache: bool,
}

impl<'a> Request<'a> {
    /// The request of a load.
    pub(crate) fn read(load: &'a Value, compat: Compat) -> Result<Self, Refused> {
        let user = load.get("user").and_then(Value::as_str);
        let kwargs = load.get("kwargs");
        if kwargs.is_some_and(|kwargs| kwargs.as_map().is_none()) {
            return Err(Refused::Malformed("kwargs"));
        }
        Ok(Self {
            user: user.ok_or(Refused::Malformed("user"))?,
            functions: functions(load.get("fun").unwrap_or(&Value::Nil))?,
            target: targets::of_load(
                load.get("tgt").ok_or(Refused::Malformed("tgt"))?,
                load.get("tgt_type"),
                compat,
            ),
            nocache: kwargs
                .and_then(|kwargs| kwargs.get("nocache"))
                .and_then(Value::as_bool)
                .unwrap_or(false),
        })
    }

    /// Whether `publisher_acl_blacklist` names the user or a function.
    pub(crate) fn is_barred(&self, services: &Services) -> bool {
        let rules = services.rules();
        let blacklist = &rules.blacklist;
        blacklist.bars_user(self.user)
            || blacklist.bars_any_function(self.functions.iter().map(String::as_str))
    }
}

fn functions(fun: &Value) -> Result<Vec<String>, Refused> {
    match fun {
        Value::Str(name) => Ok(vec![name.clone()]),
        Value::Array(names) => names
            .iter()
            .map(|name| {
                name.as_str()
                    .map(str::to_owned)
                    .ok_or(Refused::Malformed("fun"))
            })
            .collect(),
        _ => Err(Refused::Malformed("fun")),
    }
}

/// Functions whose return a minion merges with those of its resources (3008).
const MERGING: [&str; 5] = [
    "state.apply",
    "state.highstate",
    "state.sls",
    "state.sls_id",
    "state.single",
];

/// The minions that the target of a load matches, syndics among them. Minions decide for themselves
/// once more. A range matches none without a range server, as with stock.
pub(crate) fn resolve(
    load: &Value,
    functions: &[String],
    target: &Target,
    services: &Services,
) -> Result<Resolved, Refused> {
    let options = MatchOptions {
        expands_ranges: false,
        ..match_options(load, functions)
    };
    resolve_with(target, &options, services)
}

/// Options for matching the target of a load.
pub(crate) fn match_options<'a>(load: &'a Value, functions: &[String]) -> MatchOptions<'a> {
    MatchOptions {
        delimiter: match load
            .get("kwargs")
            .and_then(|kwargs| kwargs.get("delimiter"))
        {
            None => DEFAULT_DELIMITER,
            // A delimiter that is no text separates nothing, like the empty one: an error, so no
            // match.
            Some(delimiter) => delimiter.as_str().unwrap_or_default(),
        },
        merges_resources: matches!(functions, [one] if MERGING.contains(&one.as_str())),
        ..MatchOptions::default()
    }
}

/// The minions that a target matches, syndics among them.
pub(crate) fn resolve_with(
    target: &Target,
    options: &MatchOptions<'_>,
    services: &Services,
) -> Result<Resolved, Refused> {
    targets::resolve(services, target, options).map_err(|error| {
        tracing::error!(%error, "accepted keys cannot be listed");
        Refused::Because("the accepted keys cannot be listed; see the master's log".to_owned())
    })
}

/// The minions whose returns are expected. A syndic is no minion: it announces the minions below it
/// that have the job.
pub(crate) fn without_syndics(mut resolved: Resolved, services: &Services) -> Resolved {
    if services.site.order_masters {
        resolved.minions.retain(|id| !services.syndics.has(id));
    }
    resolved
}

/// The answer when the target matches no minion.
pub(crate) fn no_match(load: &Value) -> bytes::Bytes {
    let shown = load.get("tgt").map(saltern_python::str).unwrap_or_default();
    let inner = Value::map([
        ("jid", Value::Nil),
        ("minions", Value::Array(Vec::new())),
        (
            "error",
            format!("Master could not resolve minions for target {shown}")
                .as_str()
                .into(),
        ),
    ]);
    reply::clear(&Value::map([
        ("enc", Value::from("clear")),
        ("load", inner),
    ]))
}

fn begin(
    load: &Value,
    request: &Request<'_>,
    target: &Target,
    jid: Jid,
    (resolved, sent_as): (Resolved, SentAs),
    services: &Services,
) -> Outcome {
    let answer = Value::map([
        ("jid", Value::from(jid.as_str())),
        ("minions", names(&resolved)),
        ("missing", missing(&resolved)),
    ]);
    let answer = Value::map([("enc", Value::from("clear")), ("load", answer)]);
    Outcome {
        reply: reply::clear(&answer),
        reply_if_not_stored: reply::plain_error(
            "the master could not store the job, so it was not published; see the master's log",
        ),
        later: None,
        effects: vec![Effect::StartJob(Box::new(job(
            load,
            request,
            target,
            jid,
            (resolved, sent_as),
            services,
        )))],
    }
}

/// The minions of a target as the wire has them.
pub(crate) fn names(resolved: &Resolved) -> Value {
    let names = resolved.minions.iter().map(|id| id.as_str().into());
    Value::Array(names.collect())
}

/// The names in a target that match no minion.
pub(crate) fn missing(resolved: &Resolved) -> Value {
    let names = resolved.missing.iter().map(|id| id.as_str().into());
    Value::Array(names.collect())
}

/// The record, events and publication of a job.
pub(crate) fn job(
    load: &Value,
    request: &Request<'_>,
    target: &Target,
    jid: Jid,
    (resolved, sent_as): (Resolved, SentAs),
    services: &Services,
) -> StartJob {
    let (minions, missing) = (names(&resolved), missing(&resolved));
    let entries = publish_load::entries(load, jid.as_str(), services);
    let announce = announcement(load, &jid, &minions, &missing, &entries, services);
    let publication = publication(entries, target, (&resolved.minions, sent_as), services);
    let about = about::of_load(load, request, target);
    let minions_of_job = match about {
        Some(JobRelation::Running(_)) if services.site.order_masters => {
            about::named(target, services)
        }
        _ => resolved.minions,
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
        publisher: None,
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
    let part = |name: &str| load.get(name).cloned().unwrap_or(Value::Nil);
    let mut events = Vec::new();
    if services.config.salt_compat < Compat::V3008 {
        let who = fields([("minions", minions.clone())]);
        events.push(event_data::event(services, Tag::bare_jid(jid), who));
    }
    let tgt_type = load
        .get("tgt_type")
        .cloned()
        .unwrap_or_else(|| "glob".into());
    let new = fields([
        ("jid", Value::from(jid.as_str())),
        ("tgt_type", tgt_type),
        ("tgt", part("tgt")),
        ("user", part("user")),
        ("fun", part("fun")),
        ("arg", part("arg")),
        ("minions", minions.clone()),
        ("missing", missing.clone()),
    ]);
    events.push(event_data::event(services, Tag::job_new(jid), new));
    events
}
