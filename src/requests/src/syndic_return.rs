//! `_syndic_return`: returns of minions below a syndic (`AESFuncs._syndic_return` in
//! `salt/master.py`, `_return_pub_multi` in `salt/minion.py`).
//!
//! One request bears the returns of many minions and jobs. Each is handled like a `_return`: stored
//! before the syndic is answered, once a jid and minion, and fired as if the minion itself had
//! returned. The first return of a job bears the job's load; a job that is known here keeps its
//! own.

use saltern_model::{Jid, JobRecord, MinionId, Packed};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::audit::AuditNote;
use crate::envelope::Sealed;
use crate::job::UPPER;
use crate::outcome::ReceivedReturn;
use crate::return_::Reporter;
use crate::syndics::{MAX_LEAVES, MayReturn, SyndicIdentity};
use crate::{Effect, Outcome, Services, reply, return_, syndics, targets};

/// The most jobs of one request, and the most returns over all of them. Stock's syndics send the
/// returns of half a second (`syndic_event_forward_timeout`).
const MAX_JOBS: usize = 10_000;
const MAX_RETURNS: usize = 50_000;

/// The most bytes of the returns of one request: each gets a copy of the entries that they share.
const MAX_BYTES: usize = 128 << 20;

/// The entries of an aggregate that stand in each return, in stock's order.
const COMMON: [&str; 5] = ["master_id", "fun", "fun_args", "out", "sig"];

/// Answers nil when every usable return is stored.
pub(crate) fn handle(sealed: Sealed, services: &Services) -> Outcome {
    let nil = sealed.answer.seal(&encode(&Value::Nil, Dialect::Raw));
    if !syndics::becomes_known(&sealed.minion, services) {
        services.metrics.refuse("syndic");
        let reason = match services.site.order_masters {
            true => "its key is not accepted any more",
            false => "without order_masters there are no syndics",
        };
        complain!(services, minion = %sealed.minion, reason, "returns of a syndic dropped");
        return Outcome::reply(nil);
    }
    syndics::heard(&sealed.minion, services);
    let taken = match take_all(&sealed.load, &sealed.minion, services) {
        Ok(taken) => taken,
        Err(Undecided::NotNow) => return Outcome::reply(reply::no_answer()),
        Err(Undecided::TooLarge) => {
            // Any answer but nil has a syndic of ours send fewer; stock's are no second way.
            let refused = encode(&Value::Bool(false), Dialect::Raw);
            return Outcome::reply(sealed.answer.seal(&refused));
        }
    };
    Outcome {
        reply: nil,
        reply_if_not_stored: reply::no_answer(),
        later: None,
        audit: AuditNote::default(),
        effects: taken.into_effects(),
    }
}

/// Takes every usable return of a request; refuses, counts and logs the others.
///
/// # Errors
/// Of one of them it cannot be said whether it is usable: none is taken, and the request has to come again.
pub(crate) fn take_all(
    load: &MapView,
    syndic: &MinionId,
    services: &Services,
) -> Result<Taken, Undecided> {
    let voice = SyndicIdentity::of(syndic, services);
    let mut taken = Taken::default();
    let aggregates = aggregates(load);
    let beyond = aggregates.len().saturating_sub(MAX_JOBS);
    for aggregate in aggregates.iter().take(MAX_JOBS) {
        match take(aggregate, &voice, &mut taken, services) {
            Ok(()) => {}
            Err(NotTaken::Undecided(undecided)) => {
                // All of it comes again.
                voice.forget_refused();
                return Err(undecided);
            }
            Err(NotTaken::Refused(reason)) => {
                taken.refused += 1;
                complain!(services, minion = %syndic, reason, "returns of a syndic dropped");
            }
        }
    }
    if beyond > 0 {
        taken.refused += 1;
        let jobs = beyond;
        complain!(services, minion = %syndic, jobs, "more jobs in one request than are taken");
    }
    services.metrics.refuse_many("return", taken.refused);
    Ok(taken)
}

/// Why nothing of a request is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// The state that decides on a return cannot be read now.
    NotNow,
    /// Too many of its returns need a search: it has to come in parts.
    TooLarge,
}

/// Why a return is not taken.
enum NotTaken {
    /// It is not usable.
    Refused(&'static str),
    /// Nor is any other of the request.
    Undecided(Undecided),
}

impl From<&'static str> for NotTaken {
    fn from(reason: &'static str) -> Self {
        Self::Refused(reason)
    }
}

/// The number of returns of a request, usable or not.
pub(crate) fn returns_in(load: &MapView) -> usize {
    let aggregates = aggregates(load);
    let returns = aggregates.iter().filter_map(|job| job.get("return"));
    let returns = returns.filter_map(RawValue::as_map);
    returns.map(|returns| returns.len()).sum()
}

/// The jobs of a request: a list, or from old syndics the request itself.
fn aggregates(load: &MapView) -> Vec<MapView> {
    match load.get("load").and_then(RawValue::as_array) {
        Some(items) => items.iter().filter_map(RawValue::as_map).collect(),
        None => vec![load.clone()],
    }
}

/// Returns taken from one request.
#[derive(Default)]
pub(crate) struct Taken {
    returns: Vec<ReceivedReturn>,
    bytes: usize,
    /// Those that are not taken, and jobs with them.
    refused: u64,
}

impl Taken {
    /// Their number.
    pub(crate) fn len(&self) -> usize {
        self.returns.len()
    }

    /// Stores them, in their order.
    pub(crate) fn into_effects(self) -> Vec<Effect> {
        let returns = self.returns.into_iter().map(Box::new);
        returns.map(Effect::StoreReturn).collect()
    }
}

/// Takes the returns out of one aggregate.
fn take(
    aggregate: &MapView,
    voice: &SyndicIdentity<'_>,
    taken: &mut Taken,
    services: &Services,
) -> Result<(), NotTaken> {
    let jid = aggregate.str("jid").ok_or("there is no jid")?;
    let jid = Jid::parse(jid).map_err(|_| "the jid is not a jid")?;
    let returns = aggregate.get("return").and_then(RawValue::as_map);
    let returns = returns.ok_or("there is no map of returns")?;
    let mut brought = aggregate
        .get("load")
        .and_then(RawValue::as_map)
        .filter(|load| !load.is_empty())
        .map(|load| job_of(load, &jid, voice, services));
    for (name, item) in returns.iter() {
        if taken.returns.len() >= MAX_RETURNS || taken.bytes > MAX_BYTES {
            return Err("there are more in one request than are taken".into());
        }
        let one = of_minion(aggregate, (name, item), &jid, voice, services);
        match one {
            Ok(mut one) => {
                // The store takes the first one.
                if let Some(job) = brought.take() {
                    one.job = job;
                }
                taken.bytes += one.record.load.bytes().len();
                taken.returns.push(one);
            }
            Err(undecided @ NotTaken::Undecided(_)) => return Err(undecided),
            Err(NotTaken::Refused(reason)) => {
                taken.refused += 1;
                complain!(services, minion = %voice.syndic(), %jid, reason, "return of a syndic dropped");
            }
        }
    }
    Ok(())
}

fn of_minion(
    aggregate: &MapView,
    (name, item): (&RawValue, &RawValue),
    jid: &Jid,
    voice: &SyndicIdentity<'_>,
    services: &Services,
) -> Result<ReceivedReturn, NotTaken> {
    let minion = name.as_str().and_then(|name| MinionId::parse(name).ok());
    let minion = minion.ok_or("it names no minion")?;
    let may_return = voice.may_return(&minion, (jid, aggregate.str("fun")));
    match may_return {
        MayReturn::Yes | MayReturn::ConfirmsOnly => {}
        MayReturn::No => {
            let reason =
                "it is in the name of a minion of this master's own, or of another syndic's";
            return Err(reason.into());
        }
        MayReturn::CannotSay => return Err(NotTaken::Undecided(Undecided::NotNow)),
        MayReturn::TooMany => return Err(NotTaken::Undecided(Undecided::TooLarge)),
    }
    if voice.lacks(&minion) {
        // Refused, the first return of a minion that was accepted this moment would be lost.
        services.metrics.unannounced.inc();
        complain!(
            services, minion = %voice.syndic(), below = %minion, %jid,
            "a syndic returns for a minion that its inventory does not have"
        );
    }
    let item = item.as_map().ok_or("it is no map")?;
    let mut load = load_of(aggregate, &item, &minion, jid)?;
    is_acceptable(&load, services)?;
    let reporter = Reporter::Syndic(voice.syndic());
    let names = (jid.clone(), jid.as_str());
    let mut kept = return_::kept(&mut load, minion, names, reporter, services)?;
    kept.forwarded = true;
    kept.confirms_only = may_return == MayReturn::ConfirmsOnly;
    Ok(kept)
}

/// The load that the minion itself would have sent, as stock puts it together. The minion's own
/// claims of job and id do not count: it made them to another master.
fn load_of(
    aggregate: &MapView,
    item: &MapView,
    minion: &MinionId,
    jid: &Jid,
) -> Result<MapView, &'static str> {
    if !item.contains("return") {
        return Err("it has no \"return\"");
    }
    let text = |text: &str| RawValue::pack(text, Dialect::Raw);
    let mut load = MapView::default();
    load.insert("jid", text(jid.as_str()));
    load.insert("id", text(minion.as_str()));
    for (name, value) in item.iter() {
        if let Some(name) = name.as_str().filter(|name| !["jid", "id"].contains(name)) {
            load.insert(name, value.clone());
        }
    }
    for name in COMMON {
        if let Some(value) = aggregate.get(name) {
            load.insert(name, value.clone());
        }
    }
    Ok(load)
}

/// Stock looks for the minion's key among its own, where it is not, so no signature fits.
fn is_acceptable(load: &MapView, services: &Services) -> Result<(), &'static str> {
    let config = &services.config;
    match load.contains("sig") {
        false if config.require_minion_sign_messages => {
            Err("it is not signed, and require_minion_sign_messages is on")
        }
        true if config.drop_messages_signature_fail => Err("its signature cannot be checked here"),
        _ => Ok(()),
    }
}

/// The job that a syndic brings along, for when it is not known here: one of the master below. Its
/// user is none of this master's, so the syndic takes that place. Only this master marks a job as one of a
/// master above, to which its returns go then: a mark of the syndic's is taken off.
fn job_of(
    mut load: MapView,
    jid: &Jid,
    voice: &SyndicIdentity<'_>,
    services: &Services,
) -> JobRecord {
    let minions = load.remove("Minions");
    let minions = minions.as_ref().and_then(RawValue::as_array);
    let minions = minions.iter().flatten().take(MAX_LEAVES);
    let minions = minions.filter_map(RawValue::as_str);
    let minions = minions.filter_map(|name| MinionId::parse(name).ok());
    let minions = minions.filter(|minion| voice.may_name(minion));
    let tgt = load.get("tgt").map(RawValue::decode).unwrap_or(Value::Nil);
    let tgt_type = load.get("tgt_type").map(RawValue::decode);
    let kwargs = load.get("kwargs").and_then(RawValue::as_map);
    if let Some(mut kwargs) = kwargs
        && kwargs.remove(UPPER).is_some()
    {
        load.insert("kwargs", RawValue::pack(&kwargs, Dialect::Raw));
    }
    let user = Reporter::Syndic(voice.syndic()).user();
    load.insert("user", RawValue::pack(user.as_str(), Dialect::Raw));
    let target = targets::of_load(&tgt, tgt_type.as_ref(), services.config.salt_compat);
    JobRecord {
        jid: jid.clone(),
        created: services.clock.unix_micros(),
        user,
        fun: return_::fun_text(&load),
        tgt: target.map(|target| target.to_string()).unwrap_or_default(),
        tgt_type: load.str("tgt_type").unwrap_or("glob").to_owned(),
        minions: minions.collect(),
        nocache: false,
        load: Packed::new(load.pack_bin_dialect()),
    }
}
