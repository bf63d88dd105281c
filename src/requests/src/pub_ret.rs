//! `pub_ret`: a minion asks for the returns of a job that it had the master publish
//! (`AESFuncs.pub_ret` in `salt/master.py`). No other minion gets them.

use std::sync::Arc;

use saltern_model::Jid;
use saltern_wire::msgpack::{Dialect, MapView, Value, decode_wire, encode};

use crate::envelope::{LOAD_LIMITS, Sealed};
use crate::handle::value_of;
use crate::{Finished, Outcome, Services, python_text};

/// The most bytes of returns in one answer; larger ones are refused and logged.
const MAX_BYTES: usize = 64 << 20;

/// Form of each return in an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The form of `pub_ret`: the value as `ret`, and the outputter.
    Kept,
    /// The value alone.
    Clean,
    /// The whole return, its value as `ret`; and the job's id.
    Full,
}

/// Answers from the job database, beside the workers: there may be many returns.
pub(crate) fn handle(sealed: Sealed, services: &Arc<Services>) -> Outcome {
    let services = Arc::clone(services);
    Outcome::later(move || {
        let answer = answer(&sealed, &services).unwrap_or_else(|refused| {
            services.metrics.refuse("peer");
            complain!(
                services,
                cmd = "pub_ret", minion = %sealed.minion, reason = refused.reason,
                "request refused"
            );
            refused.answer
        });
        Finished {
            reply: sealed.answer.seal(&encode(&answer, Dialect::Raw)),
            events: Vec::new(),
        }
    })
}

/// Refusal: the reason for the log, and the answer.
struct Refused {
    reason: &'static str,
    answer: Value,
}

impl Refused {
    /// Stock answers so.
    fn nothing(reason: &'static str) -> Self {
        let answer = Value::Map(Vec::new());
        Self { reason, answer }
    }

    /// Stock's handler raises.
    fn failed(reason: &'static str) -> Self {
        let answer = Value::from("");
        Self { reason, answer }
    }
}

fn answer(sealed: &Sealed, services: &Services) -> Result<Value, Refused> {
    if !sealed.load.contains("jid") {
        return Err(Refused::nothing("the request is incomplete"));
    }
    let jid = python_text::str(&value_of(&sealed.load, "jid"));
    let jid = jid.and_then(|jid| Jid::parse(&jid).ok());
    let jid = jid.ok_or(Refused::failed("it names no job"))?;
    let publisher = services
        .jobs
        .reader
        .publisher_of(&jid)
        .unwrap_or_else(|error| {
            tracing::error!(%error, %jid, "the publisher of a job cannot be looked up");
            None
        });
    let publisher = publisher.ok_or(Refused::failed("no minion published the job"))?;
    if publisher != sealed.minion {
        return Err(Refused::nothing("another minion published the job"));
    }
    returned(&jid, Form::Kept, services).ok_or(Refused::failed(
        "the returns cannot be read or are too large",
    ))
}

/// The returns of a job, by minion; nothing when they cannot be read or are too large.
pub(crate) fn returned(jid: &Jid, form: Form, services: &Services) -> Option<Value> {
    let page = services
        .jobs
        .reader
        .returns_page(jid, None, usize::MAX, MAX_BYTES);
    let page = page
        .inspect_err(|error| tracing::error!(%error, %jid, "returns cannot be read"))
        .ok()?;
    if page.is_cut {
        complain!(services, %jid, "the returns of a minion's job are too large for one answer");
        return None;
    }
    let mut returns = Vec::with_capacity(page.returns.len());
    for record in page.returns {
        let Ok(load) = MapView::parse(record.load.bytes().clone(), &LOAD_LIMITS) else {
            continue;
        };
        returns.push((Value::from(record.minion.as_str()), entry(&load, form)));
    }
    if form == Form::Full {
        returns.push(("__jid__".into(), jid.as_str().into()));
    }
    Some(Value::Map(returns))
}

fn entry(load: &MapView, form: Form) -> Value {
    let value = value_of(load, "return");
    match form {
        Form::Clean => value,
        Form::Kept => {
            let mut parts = vec![("ret".into(), value)];
            if load.contains("out") {
                parts.push(("out".into(), value_of(load, "out")));
            }
            Value::Map(parts)
        }
        Form::Full => {
            let whole = decode_wire(&load.pack(), &LOAD_LIMITS).unwrap_or(Value::Nil);
            let mut parts = match whole {
                Value::Map(parts) => parts,
                _ => Vec::new(),
            };
            parts.retain(|(name, _)| name.as_str() != Some("return"));
            parts.push(("ret".into(), value));
            Value::Map(parts)
        }
    }
}
