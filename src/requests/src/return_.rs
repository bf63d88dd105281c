//! `_return`: a minion's return of a job. The busiest command.
//!
//! The returned value is not decoded here: it goes to the event bus and into the store in the bytes
//! that came.

use saltern_model::{Compat, Jid, JobRecord, MinionId, Packed, ReturnRecord, Tag};
use saltern_store::{USER_OF_MINION, USER_OF_SYNDIC};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::audit::AuditNote;
use crate::envelope::Sealed;
use crate::{
    Effect, Outcome, ReceivedReturn, Services, batch_plan, event_data, probe, reply, signed_load,
    sub_events, syndics,
};

/// The most bytes of a function's name that are stored.
const FUN_BYTES: usize = 4096;

/// The largest arguments and metadata in a job that a peer reports, in bytes; larger ones are in
/// the return alone.
const REPORTED_PART_BYTES: usize = 64 << 10;

/// Answers nil, as stock does even for a dropped return; the return is stored first.
pub(crate) fn handle(mut sealed: Sealed, services: &Services) -> Outcome {
    let nil = sealed.answer.seal(&encode(&Value::Nil, Dialect::Raw));
    if !signed_load::acceptable(&sealed, services) {
        services.metrics.refuse("signature");
        return Outcome::reply(nil);
    }
    let jid = sealed.load.str("jid").unwrap_or_default();
    if services.minions.presence.is_answer(&sealed.minion, jid) {
        return Outcome::reply(nil);
    }
    // A syndic returns for others only, and by another command.
    syndics::is_minion(&sealed.minion, services);
    if probe::is_answer(&sealed.load) {
        let answer = probe::answer(&sealed.load, sealed.minion);
        return Outcome {
            effects: answer.map(Effect::TakeAnswer).into_iter().collect(),
            ..Outcome::reply(nil)
        };
    }
    match stored(&mut sealed, services) {
        Ok(effect) => Outcome {
            reply: nil,
            reply_if_not_stored: reply::no_answer(),
            later: None,
            audit: AuditNote::default(),
            effects: vec![Effect::StoreReturn(Box::new(effect))],
        },
        Err(reason) => {
            services.metrics.refuse("return");
            complain!(services, minion = %sealed.minion, reason, "return dropped");
            Outcome::reply(nil)
        }
    }
}

fn stored(sealed: &mut Sealed, services: &Services) -> Result<ReceivedReturn, &'static str> {
    if !sealed.load.contains("return") {
        return Err("it has no \"return\"");
    }
    let sender = whose(sealed, services)?;
    let jid = sealed.load.str("jid").ok_or("it has no jid")?;
    let standalone = jid == "req";
    let is_nameless = jid == "nocache";
    let no_cache = is_nameless || sealed.load.get("nocache").is_some_and(is_true);
    let jid = match jid {
        "req" => adopt(&mut sealed.load, &sender, services),
        "nocache" => services.minter.mint(),
        given => Jid::parse(given).map_err(|_| "its jid is not a jid")?,
    };
    let event_jid = if is_nameless { "nocache" } else { jid.as_str() };
    let event_jid = event_jid.to_owned();
    let reporter = Reporter::Minion(&sealed.minion);
    let mut kept = kept(
        &mut sealed.load,
        sender,
        (jid, &event_jid),
        reporter,
        services,
    )?;
    kept.standalone = standalone;
    kept.job.nocache = no_cache;
    kept.keep &= !no_cache;
    Ok(kept)
}

/// Peer that reports a job.
#[derive(Clone, Copy)]
pub(crate) enum Reporter<'a> {
    /// A minion that ran it.
    Minion(&'a MinionId),
    /// The syndic of the master that published it.
    Syndic(&'a MinionId),
}

impl Reporter<'_> {
    /// The user of a job that this peer reports: no name that the peer may choose.
    pub(crate) fn user(self) -> String {
        match self {
            Self::Minion(id) => format!("{USER_OF_MINION}{id}"),
            Self::Syndic(id) => format!("{USER_OF_SYNDIC}{id}"),
        }
    }

    pub(crate) fn id(self) -> MinionId {
        match self {
            Self::Minion(id) | Self::Syndic(id) => id.clone(),
        }
    }
}

/// The events and the record of a minion's return; the events carry the jid `event_jid`. The job
/// that comes with it is stored when this master has published none.
///
/// # Errors
/// When no event can bear the names.
pub(crate) fn kept(
    load: &mut MapView,
    sender: MinionId,
    (jid, event_jid): (Jid, &str),
    reporter: Reporter<'_>,
    services: &Services,
) -> Result<ReceivedReturn, &'static str> {
    let fun = fun_text(load);
    let mut events = sub_events::of_return(services, load, event_jid, &sender);
    let tag = Tag::parse(&format!("salt/job/{event_jid}/ret/{sender}"));
    let tag = tag.map_err(|_| "no event can bear its names")?;
    let (event, whole) = event_data::event_and_load(services, tag, load);
    let received = services.clock.unix_micros();
    let record = ReturnRecord {
        jid: jid.clone(),
        minion: sender.clone(),
        received,
        fun: fun.clone(),
        retcode: retcode(load),
        success: load.get("success").is_none_or(is_true),
        load: whole,
    };
    events.insert(0, event);
    let job = reported_job(load, &record, reporter);
    Ok(ReceivedReturn {
        record,
        job,
        reporter: Some(reporter.id()),
        standalone: false,
        forwarded: false,
        confirms_only: false,
        events,
        // Of a syndic they go up from the job database.
        keep: services.config.job_cache || services.config.syndic.is_native(),
    })
}

/// The job of which a peer reports a return. Its user and target come from the master's knowledge,
/// not from the peer; the value is in the return and not kept a second time.
fn reported_job(load: &MapView, record: &ReturnRecord, reporter: Reporter<'_>) -> JobRecord {
    let text = |text: &str| RawValue::pack(text, Dialect::Raw);
    let user = reporter.user();
    let mut job = MapView::default();
    job.insert("jid", text(record.jid.as_str()));
    job.insert("id", text(record.minion.as_str()));
    job.insert("fun", text(&record.fun));
    let arguments = load.get("arg").or_else(|| load.get("fun_args"));
    for (name, value) in [("arg", arguments), ("metadata", load.get("metadata"))] {
        if let Some(value) = value.filter(|value| value.bytes().len() <= REPORTED_PART_BYTES) {
            job.insert(name, value.clone());
        }
    }
    job.insert("tgt", text(record.minion.as_str()));
    job.insert("tgt_type", text("glob"));
    job.insert("user", text(&user));
    JobRecord {
        jid: record.jid.clone(),
        created: record.received,
        user,
        fun: record.fun.clone(),
        tgt: record.minion.as_str().to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(job.pack_bin_dialect()),
        minions: vec![record.minion.clone()],
        nocache: false,
    }
}

/// The owner of the return: the sender itself, or in 3008 a resource which the sender has
/// registered. A resource may not bear the name of another minion.
fn whose(sealed: &mut Sealed, services: &Services) -> Result<MinionId, &'static str> {
    if services.config.salt_compat != Compat::V3008 {
        return Ok(sealed.minion.clone());
    }
    let Some(resource) = sealed.load.remove("resource_id") else {
        return Ok(sealed.minion.clone());
    };
    let name = resource.as_str().ok_or("its resource_id is not text")?;
    let id = MinionId::parse(name).map_err(|_| "its resource_id is not an id")?;
    if id != sealed.minion {
        if services.keys.pki.state(&id).ok().flatten().is_some() {
            return Err("its resource_id is the id of another minion");
        }
        if !services
            .minions
            .resources
            .has(&sealed.minion, &id)
            .unwrap_or(false)
        {
            return Err("its resource_id is no resource that the minion has registered");
        }
    }
    sealed
        .load
        .insert("id", RawValue::pack(&Value::from(name), Dialect::Raw));
    Ok(id)
}

/// `salt-call` leaves it to the master to allot a jid; the return then carries its own job.
fn adopt(load: &mut MapView, sender: &MinionId, services: &Services) -> Jid {
    let jid = services.minter.mint();
    if !load.contains("arg") {
        let arguments = load.get("fun_args").cloned();
        let none = || RawValue::pack(&Value::Array(Vec::new()), Dialect::Raw);
        load.insert("arg", arguments.unwrap_or_else(none));
    }
    let mut set = |name: &str, text: &str| {
        load.insert(name, RawValue::pack(&Value::from(text), Dialect::Raw));
    };
    set("tgt_type", "glob");
    set("tgt", sender.as_str());
    set("jid", jid.as_str());
    jid
}

/// One number; of several functions the highest.
fn retcode(load: &MapView) -> i64 {
    let Some(code) = load.get("retcode") else {
        return 0;
    };
    code.as_i64()
        .unwrap_or_else(|| batch_plan::retcode(Some(&code.decode())))
}

fn is_true(value: &RawValue) -> bool {
    value.as_bool().unwrap_or(false)
}

/// The function, or the functions of a compound command joined by commas; a longer text is cut to
/// [`FUN_BYTES`], because it is in an index.
pub(crate) fn fun_text(load: &MapView) -> String {
    let mut text = whole_fun_text(load);
    if text.len() > FUN_BYTES {
        text.truncate(text.floor_char_boundary(FUN_BYTES));
    }
    text
}

fn whole_fun_text(load: &MapView) -> String {
    let Some(fun) = load.get("fun") else {
        return String::new();
    };
    match fun.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let items = fun.as_array().unwrap_or_default();
            items
                .iter()
                .filter_map(RawValue::as_str)
                .collect::<Vec<_>>()
                .join(",")
        }
    }
}
