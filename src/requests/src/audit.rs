//! The audit trail: makes the row of a request that has something done, whoever sends it.
//!
//! A row is made where a request is decided: for users beside the proof of the sender (`proved`),
//! for minions in the dispatch (`handle`), for the master's own doors by [`of_own`]. It is written
//! in the transaction of the job that it is about; all others are written by the actors
//! ([`crate::Handled::audit`]). What only reads has no row (`saltern_query`, files, pillar), nor has
//! the `saltutil.find_job` with which a client watches its own job.

mod flood;
mod redaction;

use std::net::IpAddr;

use saltern_model::{AuditDoor, AuditProof, AuditRecord, AuditVerdict, Jid, MinionId};
use saltern_runners::Arguments;
use saltern_wire::msgpack::Value;

use crate::credentials::{Kind, LoggedIn, NotProved, Sender};
use crate::master_gate::FunctionKind;
use crate::outcome::JobRelation;
use crate::{Effect, Handled, Origin, Outcome, PeerCallWork, Services};

pub(crate) use flood::RefusalBudget;
pub(crate) use redaction::Redaction;

/// Entries that a handler adds to the row of its request.
#[derive(Debug, Default)]
pub struct AuditNote {
    /// Why it was refused; `None` when it was not.
    pub refusal: Option<String>,
    /// The call that it led to, where no effect names it.
    pub jid: Option<Jid>,
}

/// The most characters of a name, of a function and of a reason.
const MAX_TEXT: usize = 256;

/// The most characters of a target.
const MAX_TARGET: usize = 1_024;

/// The sender of the request.
pub(crate) struct Asker {
    door: AuditDoor,
    user: String,
    backend: Option<String>,
    proof: AuditProof,
    origin: Option<IpAddr>,
}

impl Asker {
    /// A user of whom nothing is proved, as the load claims.
    fn unproved(load: &Value, origin: Origin) -> Self {
        let text = |name| load.get(name).and_then(Value::as_str);
        let of_kwargs = |name| {
            let kwargs = load.get("kwargs")?;
            kwargs.get(name).and_then(Value::as_str)
        };
        let login = text("username").or_else(|| of_kwargs("username"));
        let user = login.or_else(|| text("user")).unwrap_or("?");
        Self {
            door: origin.door,
            user: bounded(user, MAX_TEXT),
            backend: None,
            proof: AuditProof::None,
            origin: Some(origin.address),
        }
    }

    /// The sender of a command with credentials.
    pub(crate) fn of_sender(
        proof: &Result<Sender, NotProved>,
        load: &Value,
        origin: Origin,
    ) -> Self {
        let Ok(sender) = proof else {
            return Self::unproved(load, origin);
        };
        let kind = match sender.kind() {
            Kind::Token => AuditProof::Token,
            Kind::Eauth => AuditProof::Eauth,
            Kind::User => AuditProof::Key,
        };
        // Only a syndic names the rules of a user of the master above.
        let is_syndic = kind == AuditProof::Key
            && load
                .get("kwargs")
                .is_some_and(|kwargs| kwargs.get("auth_list").is_some());
        Self {
            door: if is_syndic {
                AuditDoor::Syndic
            } else {
                origin.door
            },
            user: bounded(sender.name(), MAX_TEXT),
            backend: sender.owner().backend,
            proof: kind,
            origin: Some(origin.address),
        }
    }

    /// A user who logs in.
    pub(crate) fn of_login(
        known: &Result<LoggedIn, NotProved>,
        load: &Value,
        origin: Origin,
    ) -> Self {
        match known {
            Ok(known) => Self {
                door: origin.door,
                user: bounded(&known.name, MAX_TEXT),
                backend: Some(known.eauth.clone()),
                proof: AuditProof::Eauth,
                origin: Some(origin.address),
            },
            Err(_) => Self::unproved(load, origin),
        }
    }

    /// A minion, by its session.
    pub(crate) fn of_minion(minion: &MinionId, from: IpAddr) -> Self {
        Self {
            door: AuditDoor::Minion,
            user: minion.to_string(),
            backend: None,
            proof: AuditProof::Session,
            origin: Some(from),
        }
    }

    /// The master itself.
    fn own(door: AuditDoor, user: &str) -> Self {
        Self {
            door,
            user: bounded(user, MAX_TEXT),
            backend: None,
            proof: AuditProof::Own,
            origin: None,
        }
    }
}

/// Request as far as its row names it.
pub(crate) struct Asked {
    cmd: &'static str,
    fun: String,
    tgt: Option<String>,
    tgt_type: Option<String>,
    arguments: String,
}

impl Asked {
    /// A job, as in the load of a publish; `kwargs` of the load hold credentials and are left out.
    pub(crate) fn job(cmd: &'static str, load: &Value, services: &Services) -> Self {
        let fun = functions(load);
        let redaction = &services.users.rules().audit;
        let arguments = load.get("arg").unwrap_or(&Value::Nil);
        let tgt = load.get("tgt").map(|tgt| match tgt {
            Value::Array(names) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                bounded(&names.join(","), MAX_TARGET)
            }
            other => bounded(other.as_str().unwrap_or_default(), MAX_TARGET),
        });
        let tgt_type = load.get("tgt_type").and_then(Value::as_str);
        Self {
            cmd,
            arguments: redaction.json(&fun, arguments),
            fun: bounded(&fun, MAX_TEXT),
            tgt,
            tgt_type: Some(bounded(tgt_type.unwrap_or("glob"), MAX_TEXT)),
        }
    }

    /// A call of a function of the master.
    pub(crate) fn call(
        cmd: &'static str,
        fun: &str,
        arguments: &Arguments,
        services: &Services,
    ) -> Self {
        let redaction = &services.users.rules().audit;
        Self {
            cmd,
            arguments: redaction.json(fun, &arguments.to_value()),
            fun: bounded(fun, MAX_TEXT),
            tgt: None,
            tgt_type: None,
        }
    }

    /// A call as its load asks for it.
    pub(crate) fn function(
        cmd: &'static str,
        kind: FunctionKind,
        load: &Value,
        services: &Services,
    ) -> Self {
        let fun = load.get("fun").and_then(Value::as_str).unwrap_or_default();
        Self::call(cmd, fun, &kind.arguments(load), services)
    }

    /// A command without a function, such as a log-in: of its load nothing is kept.
    pub(crate) fn command(cmd: &'static str) -> Self {
        Self {
            cmd,
            fun: String::new(),
            tgt: None,
            tgt_type: None,
            arguments: "[]".to_owned(),
        }
    }
}

fn functions(load: &Value) -> String {
    match load.get("fun") {
        Some(Value::Array(several)) => {
            let names: Vec<&str> = several.iter().filter_map(Value::as_str).collect();
            names.join(",")
        }
        Some(one) => one.as_str().unwrap_or_default().to_owned(),
        None => String::new(),
    }
}

fn bounded(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn record(asker: Asker, asked: Asked, services: &Services) -> AuditRecord {
    AuditRecord {
        at: services.clock.unix_micros(),
        door: asker.door,
        user: asker.user,
        backend: asker.backend,
        proof: asker.proof,
        origin: asker.origin,
        cmd: asked.cmd.to_owned(),
        fun: asked.fun,
        tgt: asked.tgt,
        tgt_type: asked.tgt_type,
        arguments: asked.arguments,
        verdict: AuditVerdict::Allowed,
        reason: None,
        jid: None,
        suppressed: 0,
    }
}

/// Gives the request its row: that of a job or a batch goes with it into one transaction.
pub(crate) fn attach((asker, asked): (Asker, Asked), handled: &mut Handled, services: &Services) {
    let mut row = record(asker, asked, services);
    let Outcome { effects, audit, .. } = &mut handled.outcome;
    row.jid = audit.jid.take();
    if let Some(reason) = audit.refusal.take() {
        row.verdict = AuditVerdict::Refused;
        row.reason = Some(bounded(&reason, MAX_TEXT));
    }
    if row.proof == AuditProof::None && !services.refusals.take() {
        return;
    }
    row.suppressed = services.refusals.suppressed();
    for effect in effects {
        let slot = match effect {
            Effect::StartJob(start) if matches!(start.about, Some(JobRelation::Running(_))) => {
                return services.refusals.put_back(row.suppressed);
            }
            Effect::StartJob(start) => {
                row.jid = Some(start.job.jid.clone());
                &mut start.audit
            }
            Effect::StartBatch(plan) => {
                row.jid = Some(plan.jid.clone());
                &mut plan.audit
            }
            Effect::RunPeerCall(call) => match &mut call.work {
                PeerCallWork::Job { start, .. } => {
                    row.jid = Some(start.job.jid.clone());
                    &mut start.audit
                }
                PeerCallWork::Run(_) => continue,
            },
            _ => continue,
        };
        *slot = Some(Box::new(row));
        return;
    }
    handled.audit = Some(Box::new(row));
}

/// The row of a job of the master's own; `jid` is `None` of one that is not begun.
pub fn of_own_job(
    door: AuditDoor,
    load: &Value,
    jid: Option<Jid>,
    services: &Services,
) -> AuditRecord {
    let asker = Asker::own(door, &services.config.user);
    let asked = Asked::job("publish", load, services);
    AuditRecord {
        jid,
        ..record(asker, asked, services)
    }
}

/// The row of a call of the master's own.
pub fn of_own(
    door: AuditDoor,
    (cmd, fun, arguments): (&'static str, &str, &Arguments),
    (user, jid): (&str, Option<Jid>),
    services: &Services,
) -> AuditRecord {
    let asker = Asker::own(door, user);
    let asked = Asked::call(cmd, fun, arguments, services);
    AuditRecord {
        jid,
        ..record(asker, asked, services)
    }
}

/// The same row of what was refused.
pub fn refused(row: AuditRecord, reason: &str) -> AuditRecord {
    AuditRecord {
        verdict: AuditVerdict::Refused,
        reason: Some(bounded(reason, MAX_TEXT)),
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_with_a_mark() {
        assert_eq!(bounded("größe", 5), "größe");
        assert_eq!(bounded("größer", 5), "größe…");
    }

    #[test]
    fn functions_of_a_compound_command_are_joined() {
        let load = |fun: Value| Value::map([("fun", fun)]);
        assert_eq!(functions(&load("test.ping".into())), "test.ping");
        let several = Value::Array(vec!["a.b".into(), "c.d".into()]);
        assert_eq!(functions(&load(several)), "a.b,c.d");
        assert_eq!(functions(&Value::Nil), "");
    }
}
