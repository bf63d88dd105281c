//! `_return`: what a minion has to say of a job. The busiest command.
//!
//! The value that the minion returns is not decoded here: it goes to the event bus and into the
//! store in the bytes that came.

use saltern_model::{Compat, Jid, JobRecord, MinionId, ReturnRecord, Tag};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::{
    Effect, Outcome, Services, StoreReturn, batch_plan, event_data, probe, reply, signed_load,
    sub_events, syndics,
};

/// Answers nil, as stock does whatever it made of the return; the return is stored first.
pub(crate) fn handle(mut sealed: Sealed, services: &Services) -> Outcome {
    let nil = sealed.answer.seal(&encode(&Value::Nil, Dialect::Raw));
    if !signed_load::acceptable(&sealed, services) {
        services.metrics.refuse("signature");
        return Outcome::reply(nil);
    }
    let jid = sealed.load.str("jid").unwrap_or_default();
    if services.surroundings.is_answer(&sealed.minion, jid) {
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
            effects: vec![Effect::StoreReturn(Box::new(effect))],
        },
        Err(reason) => {
            services.metrics.refuse("return");
            complain!(services, minion = %sealed.minion, reason, "return dropped");
            Outcome::reply(nil)
        }
    }
}

fn stored(sealed: &mut Sealed, services: &Services) -> Result<StoreReturn, &'static str> {
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
    let told_as = if is_nameless { "nocache" } else { jid.as_str() };
    let told_as = told_as.to_owned();
    let mut kept = kept(&mut sealed.load, sender, jid, &told_as, services)?;
    kept.standalone = standalone;
    kept.job.nocache = no_cache;
    kept.keep &= !no_cache;
    Ok(kept)
}

/// What is told and kept of a minion's return of a job; it is told under the jid `told_as`.
///
/// # Errors
/// When no event can bear the names.
pub(crate) fn kept(
    load: &mut MapView,
    sender: MinionId,
    jid: Jid,
    told_as: &str,
    services: &Services,
) -> Result<StoreReturn, &'static str> {
    let fun = fun_text(load);
    let mut events = sub_events::of_return(services, load, told_as, &sender);
    let tag = Tag::parse(&format!("salt/job/{told_as}/ret/{sender}"));
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
    let job = JobRecord {
        jid,
        created: received,
        user: load.str("user").unwrap_or_default().to_owned(),
        fun,
        tgt: load.str("tgt").unwrap_or(sender.as_str()).to_owned(),
        tgt_type: load.str("tgt_type").unwrap_or("glob").to_owned(),
        load: record.load.clone(),
        minions: vec![sender],
        nocache: false,
    };
    Ok(StoreReturn {
        record,
        job,
        standalone: false,
        forwarded: false,
        events,
        keep: services.config.job_cache,
    })
}

/// Whose return it is: the sender's own, or in 3008 that of a resource which the sender has
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
        if services.pki.state(&id).ok().flatten().is_some() {
            return Err("its resource_id is the id of another minion");
        }
        if !services.resources.has(&sealed.minion, &id).unwrap_or(false) {
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

/// The function, or the functions of a compound command joined by commas.
pub(crate) fn fun_text(load: &MapView) -> String {
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
