//! Dispatch of one request: open the envelope, find the command, run it.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use saltern_base::trace::{self, Span};
use saltern_model::{AuditRecord, MinionId};
use saltern_runners::Arguments;
use saltern_wire::msgpack::{Dialect, MapView, Value, decode_wire, encode};

use crate::audit::{Asked, Asker};
use crate::commands::{ClearCommand, ClearHandler, ClearRequest};
use crate::envelope::{self, LOAD_LIMITS, Opened, Sealed};
use crate::origin::Origin;
use crate::proved::{self, ProvedCommand};
use crate::{Outcome, Services, audit, auth, reply, traces};

/// Class of a request: the queue that it waits in. Derived from the outside of the envelope alone,
/// because the router, which asks, does not decrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// `_auth`: the expensive one.
    Auth,
    /// Other clear commands, of users and their tools.
    Clear,
    /// All requests of authenticated minions.
    Minion,
}

impl Class {
    /// Every class, in the order in which they are served.
    pub const ALL: [Self; 3] = [Self::Clear, Self::Minion, Self::Auth];

    /// The label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Clear => "clear",
            Self::Minion => "minion",
        }
    }
}

/// The class of a request. Reads only the first few bytes of the payload. A wrong guess costs a
/// place in another queue; but an `_auth` that is not recognised as one is not handled, or it would
/// bypass the queue of log-ins. Stock's minions put `cmd` first (`minion_sign_in_payload` in
/// `salt/crypt.py`), and their load has no entry `enc`, so theirs are always recognised.
pub fn peek_class(payload: &[u8]) -> Class {
    let head = payload.get(..payload.len().min(160)).unwrap_or_default();
    let has = |needle: &[u8]| head.windows(needle.len()).any(|window| window == needle);
    if has(b"\xa3enc\xa3aes") {
        Class::Minion
    } else if has(b"\xa5_auth") {
        Class::Auth
    } else {
        Class::Clear
    }
}

/// Outcome of a request, with labels for logs and metrics.
pub struct Handled {
    /// The answer and the effects.
    pub outcome: Outcome,
    /// The command, from the closed set of those that are known; for logs and metrics.
    pub command: &'static str,
    /// The minion that is proved to have sent it, if any.
    pub minion: Option<MinionId>,
    /// Its span in a trace, which ends when the request is answered.
    pub span: Option<Span>,
    /// Its row in the audit trail, unless an effect has it.
    pub audit: Option<Box<AuditRecord>>,
}

impl Handled {
    /// A request for a clear command.
    pub(crate) fn clear(command: &'static str, outcome: Outcome) -> Self {
        Self {
            outcome,
            command,
            minion: None,
            span: None,
            audit: None,
        }
    }

    /// Whether the request was refused: it could not be opened, or asks for no known command and
    /// does not come from a minion.
    pub fn is_refused(&self) -> bool {
        self.minion.is_none() && self.command == UNKNOWN_COMMAND
    }
}

/// Label of a request without a known command.
const UNKNOWN_COMMAND: &str = "-";

/// Handles one request that came from `origin`.
pub fn handle(payload: Bytes, origin: impl Into<Origin>, services: &Arc<Services>) -> Handled {
    let origin = origin.into();
    let from = origin.address;
    let class = peek_class(&payload);
    let opened = match envelope::open(payload, services) {
        Ok(opened) => opened,
        Err(refusal) => {
            services.metrics.refuse(refusal.reason);
            tracing::debug!(%from, reason = refusal.reason, "request refused");
            return Handled::clear(UNKNOWN_COMMAND, Outcome::reply(refusal.reply));
        }
    };
    let sealed = match opened {
        Opened::Clear { load, version } => {
            let request = ClearRequest {
                load: &load,
                version,
                class,
                origin,
            };
            return handle_clear(request, services);
        }
        Opened::Minion(sealed) => sealed,
    };
    let span = traces::begin(&sealed.load, &sealed.minion, services);
    traced(span, || handle_minion(sealed, from, services))
}

/// Does the work within the span, which is passed on with the outcome.
pub(crate) fn traced(mut span: Option<Span>, work: impl FnOnce() -> Handled) -> Handled {
    let place = span.as_ref().map(|span| span.place().clone());
    let handled = trace::within(place, work);
    if let Some(span) = &mut span {
        traces::describe(span, &handled);
    }
    Handled { span, ..handled }
}

/// Answers an authentication that exceeds the limit; decides nothing and changes nothing.
pub fn retry_later(payload: Bytes, services: &Services) -> Handled {
    let outcome = match envelope::open(payload, services) {
        Ok(Opened::Clear { load, version }) => auth::retry_later(&load, version, services),
        // The class was a guess.
        Ok(Opened::Minion(_)) => Outcome::reply(reply::no_answer()),
        Err(refusal) => Outcome::reply(refusal.reply),
    };
    Handled::clear("_auth", outcome)
}

fn handle_clear(request: ClearRequest<'_>, services: &Arc<Services>) -> Handled {
    let named = request.load.str("cmd").and_then(ClearCommand::named);
    let Some(ClearCommand { name, handler }) = named else {
        let nothing = Value::Map(Vec::new());
        return Handled::clear(UNKNOWN_COMMAND, Outcome::reply(reply::clear(&nothing)));
    };
    match *handler {
        ClearHandler::Open(run) => Handled::clear(name, run(request, services)),
        ClearHandler::Proved(handler) => {
            let command = ProvedCommand { name, handler };
            proved::handle(command, request.load, request.origin, services)
        }
    }
}

fn handle_minion(sealed: Sealed, from: IpAddr, services: &Arc<Services>) -> Handled {
    let minion = sealed.minion.clone();
    let row = minion_row(&sealed, from, services);
    services.minions.presence.heard(&minion, from);
    let (command, outcome) = match sealed.command {
        Some(command) => (command.name, (command.run)(sealed, services)),
        None if sealed.load.contains("cmd") => {
            let nothing = encode(&Value::Map(Vec::new()), Dialect::Raw);
            let reply = sealed.answer.seal(&nothing);
            (UNKNOWN_COMMAND, Outcome::reply(reply))
        }
        None => (UNKNOWN_COMMAND, Outcome::reply(reply::no_answer())),
    };
    let mut handled = Handled {
        outcome,
        command,
        minion: Some(minion),
        span: None,
        audit: None,
    };
    if let Some(row) = row {
        audit::attach(row, &mut handled, services);
    }
    handled
}

/// The row of a request by which a minion has something done; `None` of any other.
fn minion_row(sealed: &Sealed, from: IpAddr, services: &Services) -> Option<(Asker, Asked)> {
    let name = sealed.command?.name;
    let is_job = matches!(name, "minion_pub" | "minion_publish");
    if !is_job && name != "minion_runner" {
        return None;
    }
    let load = decode_wire(&sealed.load.pack(), &LOAD_LIMITS).unwrap_or(Value::Nil);
    let asked = match is_job {
        true => Asked::job(name, &load, services),
        false => {
            let fun = load.get("fun").and_then(Value::as_str).unwrap_or_default();
            let positional = load.get("arg").and_then(Value::as_array);
            let arguments = Arguments {
                positional: positional.unwrap_or_default().to_vec(),
                named: Vec::new(),
            };
            Asked::call(name, fun, &arguments, services)
        }
    };
    Some((Asker::of_minion(&sealed.minion, from), asked))
}

/// Decodes one entry of a load, or nil.
pub(crate) fn value_of(load: &MapView, name: &str) -> Value {
    load.get(name).map_or(Value::Nil, |value| {
        decode_wire(value.bytes(), &LOAD_LIMITS).unwrap_or(Value::Nil)
    })
}
