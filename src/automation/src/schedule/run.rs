//! Run of a scheduled job: the function's call, and its events (`handle_func` in
//! `salt/utils/schedule.py`).
//!
//! One event, `__schedule_return`, reports the end; there are no `salt/run/…`. On a master that
//! event does not enter the job cache, though its data are those of a `_return`: only runs with the
//! returner `local_cache` are kept. The function's own progress events have stock's tag, a doubled
//! prefix included.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use saltern_model::{Event, Packed, Tag};
use saltern_requests::event_data::{self, Fields, fields};
use saltern_requests::runner::of_the_master;
use saltern_requests::{Ran, ReceivedReturn, Run, Services};
use saltern_runners::{Call, Notice, Notices};
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::Due;
use super::job::Job;

/// The tag of the event at the end.
const ENDED: &str = "__schedule_return";

/// The return code of a run without a value.
const FAILED: i64 = 254;

/// The offset from UTC in metadata: stock asks a function for it that minions have, and masters do
/// not.
const NO_OFFSET: &str = "0000";

impl Due {
    /// The run, to be carried out by the actors; `None` for `dry_run`. `zone` is for the times in
    /// `metadata`.
    pub fn into_run(self, services: &Arc<Services>, zone: &TimeZone) -> Option<Run> {
        let Self {
            job,
            function,
            running,
            ..
        } = self;
        if job.dry_run {
            return None;
        }
        let call = Call {
            jid: services.minter.mint(),
            fun: function,
            arguments: job.arguments.clone(),
            user: services.config.user.clone(),
        };
        let beginning = beginning(&job, &call, services, zone);
        let is_python = services.runners.is_python(&call.fun);
        let lost = format!("{}; the run was lost", unhandled(&call.fun));
        let lost = ended(services, &beginning, failed(lost));
        let services = Arc::clone(services);
        let run = Run::new(lost, move |fire| {
            let ran = carry_out(&job, &call, beginning, &services, fire);
            drop(running);
            ran
        });
        Some(if is_python { run.in_python() } else { run })
    }
}

fn unhandled(fun: &str) -> String {
    format!("Unhandled exception running {fun}")
}

/// Data of a run that is known before its end.
fn beginning(job: &Job, call: &Call, services: &Services, zone: &TimeZone) -> Fields {
    let report = &job.report;
    let jid = match (report.has_returner, report.nocache) {
        (true, _) => call.jid.as_str(),
        (false, true) => "nocache",
        (false, false) => "req",
    };
    let mut data = fields([
        ("cmd", "_return".into()),
        ("id", services.config.id.as_str().into()),
        ("fun", call.fun.as_str().into()),
        ("fun_args", call.arguments.to_value()),
        ("schedule", job.name.as_str().into()),
        ("jid", jid.into()),
    ]);
    if let Some(metadata) = &report.metadata {
        let mut metadata = metadata.clone();
        metadata.extend(times(services, zone));
        data.push(("metadata".into(), Value::Map(metadata)));
    }
    data.push(("pid".into(), i64::from(std::process::id()).into()));
    data
}

/// Times that stock adds to metadata.
fn times(services: &Services, zone: &TimeZone) -> Fields {
    let now = Timestamp::from_microsecond(services.clock.unix_micros()).unwrap_or_default();
    let local = now.to_zoned(zone.clone()).strftime("%a %b %e %H:%M:%S %Y");
    let universal = now.to_zoned(TimeZone::UTC).strftime("%Y %B %d %a %H %m");
    fields([
        ("_TOS", NO_OFFSET.into()),
        ("_TS", local.to_string().into()),
        ("_TT", universal.to_string().into()),
    ])
}

/// Data of a failed end, in stock's order.
fn failed(why: String) -> Fields {
    fields([
        ("return", why.into()),
        ("success", false.into()),
        ("retcode", FAILED.into()),
    ])
}

fn ended(services: &Services, beginning: &Fields, end: Fields) -> Event {
    let data = beginning.iter().cloned().chain(end).collect();
    event_data::event(services, ended_tag(), data)
}

fn ended_tag() -> Tag {
    Tag::parse(ENDED).expect("invariant: the text is a tag")
}

fn carry_out(
    job: &Job,
    call: &Call,
    beginning: Fields,
    services: &Services,
    fire: &mut dyn FnMut(Event),
) -> Ran {
    let progress = Tag::parse(&format!("salt/salt/scheduler//{}/progress", call.jid))
        .expect("invariant: a jid is short and has no line break");
    let mut notify = |notice: Notice| match notice {
        Notice::Progress(Value::Map(message)) => {
            fire(event_data::event(services, progress.clone(), message));
        }
        Notice::Event(tag, Value::Map(data)) => fire(event_data::event(services, tag, data)),
        Notice::KeyGone(minion) => _ = services.minions.forget(&minion),
        // The data of an event is a mapping; and the beginning has no event.
        Notice::Began | Notice::Progress(_) | Notice::Event(..) => {}
    };
    let ran = services.runners.run(call, &mut Notices::new(&mut notify));
    let retcode = ran.retcode.unwrap_or(0);
    let (end, code) = match problem(&ran.value, &call.fun) {
        None => {
            let end = [
                ("return", ran.value),
                ("retcode", retcode.into()),
                ("success", true.into()),
            ];
            (fields(end), (retcode, true))
        }
        Some(problem) => {
            let (fun, name) = (&call.fun, &job.name);
            tracing::error!(job = name, fun, problem, "a scheduled job failed");
            let missing = format!("'{fun}' is not available.");
            let end = failed(match problem.starts_with(&missing) {
                true => missing,
                false => unhandled(fun),
            });
            (end, (FAILED, false))
        }
    };
    let keep = || kept(call, &beginning, &end, code, services);
    let store = job.report.keep.then(keep).flatten();
    Ran {
        store,
        end: (!job.report.silent).then(|| ended(services, &beginning, end)),
    }
}

/// The error of a function that gave no value: callers elsewhere get it in these words, and nothing
/// else marks it.
fn problem<'v>(value: &'v Value, fun: &str) -> Option<&'v str> {
    let text = value.as_str()?;
    text.strip_prefix("\nPassed invalid arguments: ")
        .or_else(|| {
            let rest = text.strip_prefix("Exception occurred in runner ")?;
            rest.strip_prefix(fun)?.strip_prefix(": ")
        })
}

/// The run as a job of the master with one return, its own.
fn kept(
    call: &Call,
    beginning: &Fields,
    end: &Fields,
    ended: (i64, bool),
    services: &Services,
) -> Option<ReceivedReturn> {
    let id = services.config.id.as_str();
    let is_load = |entry: &&(Value, Value)| entry.0.as_str() != Some("cmd");
    let load = beginning.iter().filter(is_load).chain(end).cloned();
    let target = fields([("tgt", id.into()), ("user", call.user.as_str().into())]);
    let load = Value::Map(load.chain(target).collect());
    let load = Packed::new(encode(&load, Dialect::Bin));
    of_the_master(call, call.fun.clone(), load, ended, services)
}
