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
use saltern_model::{AuditDoor, Event, Packed, Tag};
use saltern_requests::audit;
use saltern_requests::event_data;
use saltern_requests::runner::of_the_master;
use saltern_requests::{Ran, ReceivedReturn, Run, Services};
use saltern_runners::{Call, Notice, Notices};
use saltern_wire::msgpack::{Dialect, Value, as_map, pack};
use serde::Serialize;

use super::Due;
use super::History;
use super::history::RecordedRun;
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
    pub fn into_run(
        self,
        services: &Arc<Services>,
        zone: &TimeZone,
        history: &Arc<History>,
    ) -> Option<Run> {
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
        let lost = ended(services, &beginning, &End::failed(lost));
        let row = audit::of_own(
            AuditDoor::Schedule,
            ("runner", &call.fun, &call.arguments),
            (&call.user, Some(call.jid.clone())),
            services,
        );
        let (services, history) = (Arc::clone(services), Arc::clone(history));
        let run = Run::new(lost, move |fire| {
            let recorded = history.begin(&job, &call, &services.clock);
            let ran = carry_out((&job, &call, recorded), beginning, &services, fire);
            drop(running);
            ran
        });
        let run = run.audited(row);
        Some(if is_python { run.in_python() } else { run })
    }
}

fn unhandled(fun: &str) -> String {
    format!("Unhandled exception running {fun}")
}

/// Data of a run that is known before its end.
fn beginning(job: &Job, call: &Call, services: &Services, zone: &TimeZone) -> Beginning {
    let report = &job.report;
    let jid = match (report.has_returner, report.nocache) {
        (true, _) => call.jid.as_str(),
        (false, true) => "nocache",
        (false, false) => "req",
    };
    Beginning {
        cmd: Some("_return"),
        id: services.config.id.clone(),
        fun: call.fun.clone(),
        fun_args: call.arguments.to_value(),
        schedule: job.name.clone(),
        jid: jid.to_owned(),
        metadata: report.metadata.as_ref().map(|metadata| Metadata {
            own: metadata.clone(),
            times: Times::now(services, zone),
        }),
        pid: std::process::id(),
    }
}

/// Data of a run that are known at its start.
#[derive(Clone, Serialize)]
struct Beginning {
    /// In the event, not in a kept return.
    #[serde(skip_serializing_if = "Option::is_none")]
    cmd: Option<&'static str>,
    id: String,
    fun: String,
    fun_args: Value,
    schedule: String,
    jid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
    pid: u32,
}

/// Metadata of a job, with the times of a run.
#[derive(Clone, Serialize)]
struct Metadata {
    #[serde(flatten, serialize_with = "as_map::serialize")]
    own: Vec<(Value, Value)>,
    #[serde(flatten)]
    times: Times,
}

/// Times that stock adds to metadata.
#[derive(Clone, Serialize)]
struct Times {
    #[serde(rename = "_TOS")]
    offset: &'static str,
    #[serde(rename = "_TS")]
    local: String,
    #[serde(rename = "_TT")]
    universal: String,
}

impl Times {
    fn now(services: &Services, zone: &TimeZone) -> Self {
        let now = Timestamp::from_microsecond(services.clock.unix_micros()).unwrap_or_default();
        let local = now.to_zoned(zone.clone()).strftime("%a %b %e %H:%M:%S %Y");
        let universal = now.to_zoned(TimeZone::UTC).strftime("%Y %B %d %a %H %m");
        Self {
            offset: NO_OFFSET,
            local: local.to_string(),
            universal: universal.to_string(),
        }
    }
}

/// How a run ended, in stock's order of the fields, which is another for each.
#[derive(Serialize)]
#[serde(untagged)]
enum End {
    Returned {
        #[serde(rename = "return")]
        value: Value,
        retcode: i64,
        success: bool,
    },
    Failed {
        #[serde(rename = "return")]
        why: String,
        success: bool,
        retcode: i64,
    },
}

impl End {
    fn failed(why: String) -> Self {
        Self::Failed {
            why,
            success: false,
            retcode: FAILED,
        }
    }
}

/// A run that is over, with what else a kept return has.
#[derive(Serialize)]
struct Ended<'a> {
    #[serde(flatten)]
    beginning: &'a Beginning,
    #[serde(flatten)]
    end: &'a End,
    #[serde(skip_serializing_if = "Option::is_none")]
    tgt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

fn ended(services: &Services, beginning: &Beginning, end: &End) -> Event {
    let data = Ended {
        beginning,
        end,
        tgt: None,
        user: None,
    };
    event_data::master_event(services, ended_tag(), &data)
}

fn ended_tag() -> Tag {
    Tag::parse(ENDED).expect("invariant: the text is a tag")
}

fn carry_out(
    (job, call, recorded): (&Job, &Call, RecordedRun),
    beginning: Beginning,
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
    recorded.end(match problem(&ran.value, &call.fun) {
        Some(problem) => Some(problem),
        None if retcode != 0 || !ran.success => Some("the function returned a failure"),
        None => None,
    });
    let (end, code) = match problem(&ran.value, &call.fun) {
        None => {
            let end = End::Returned {
                value: ran.value,
                retcode,
                success: true,
            };
            (end, (retcode, true))
        }
        Some(problem) => {
            let (fun, name) = (&call.fun, &job.name);
            tracing::error!(job = name, fun, problem, "a scheduled job failed");
            let missing = format!("'{fun}' is not available.");
            let end = End::failed(match problem.starts_with(&missing) {
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
        end: (!job.report.silent).then(|| ended(services, &beginning, &end)),
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
    beginning: &Beginning,
    end: &End,
    ended: (i64, bool),
    services: &Services,
) -> Option<ReceivedReturn> {
    let load = Ended {
        beginning: &Beginning {
            cmd: None,
            ..beginning.clone()
        },
        end,
        tgt: Some(&services.config.id),
        user: Some(&call.user),
    };
    let load = Packed::new(pack(&load, Dialect::Bin));
    of_the_master(call, call.fun.clone(), load, ended, services)
}
