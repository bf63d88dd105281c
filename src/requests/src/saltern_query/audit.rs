//! `audit.page`: rows of the audit trail, the newest first. `audit.state`, `audit.verify`: its chain of
//! hashes.

use bytes::Bytes;
use saltern_model::query::{AuditLine, AuditPage, AuditState};
use saltern_model::{AuditDoor, AuditRow, AuditVerdict, Jid};
use saltern_store::{AuditHead, AuditPage as Rows};

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;

/// The parameters.
pub(super) const PAGE: &[&str] = &[
    "user", "door", "function", "verdict", "since", "until", "before", "limit",
];

/// Rows that one query looks at: a filter that matches few would hold up other readers otherwise.
const MAX_SCANNED: i64 = 20_000;

pub(super) fn page(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let doors: Vec<(&str, AuditDoor)> = AuditDoor::ALL
        .iter()
        .map(|door| (door.as_str(), *door))
        .collect();
    let verdicts: Vec<(&str, AuditVerdict)> = AuditVerdict::ALL
        .iter()
        .map(|verdict| (verdict.as_str(), *verdict))
        .collect();
    let limit = arguments.rows()?;
    let before = arguments.parsed("before", str::parse)?;
    let reader = &services.jobs.reader;
    let (removed, head) = reader.audit_ends()?;
    let from = before.map_or(head.number, |before: i64| (before - 1).min(head.number));
    let after = from.saturating_sub(MAX_SCANNED).max(removed.number);
    let rows = reader.audit(&Rows {
        user: arguments.text("user")?,
        door: arguments.one_of("door", &doors)?,
        fun: arguments.text("function")?,
        verdict: arguments.one_of("verdict", &verdicts)?,
        since: arguments.time("since")?,
        until: arguments.time("until")?,
        before,
        after: Some(after),
        limit,
    })?;
    let next = match rows.last() {
        Some(last) if rows.len() >= limit => Some(last.number),
        _ => Some(after + 1).filter(|_| after > removed.number),
    };
    Ok(answer(&AuditPage {
        next: next.map(|number| number.to_string()),
        rows: rows.into_iter().map(line).collect(),
    }))
}

/// State of the chain, by the last check.
pub(super) fn state(_: &QueryArguments<'_>, services: &Services) -> Result<Bytes, QueryError> {
    let (removed, head) = services.jobs.reader.audit_ends()?;
    Ok(answer(&AuditState {
        head: (head.number > removed.number).then(|| head.to_string()),
        removed: removed.number,
        check: services.jobs.audit_check.last(),
    }))
}

/// Recomputes the chain.
pub(super) fn verify(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let now = || services.clock.unix_micros();
    let jobs = &services.jobs;
    let check = jobs.audit_check.run(&*jobs.reader, arguments.user(), now)?;
    let busy = || QueryError::NotYet("the chain is being verified at this moment".to_owned());
    Ok(answer(&check.ok_or_else(busy)?))
}

/// The form in which a row is read elsewhere.
pub fn line(row: AuditRow) -> AuditLine {
    let AuditRow {
        number,
        record,
        hash,
    } = row;
    AuditLine {
        number,
        at: record.at,
        door: record.door.as_str().to_owned(),
        user: record.user,
        backend: record.backend,
        proof: record.proof.as_str().to_owned(),
        origin: record.origin.map(|origin| origin.to_string()),
        command: record.cmd,
        function: record.fun,
        target: record.tgt,
        target_type: record.tgt_type,
        arguments: record.arguments,
        verdict: record.verdict.as_str().to_owned(),
        reason: record.reason,
        jid: record.jid.as_ref().map(Jid::to_string),
        suppressed: record.suppressed,
        head: AuditHead { number, hash }.to_string(),
    }
}
