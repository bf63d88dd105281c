//! `audit.page`: rows of the audit trail, the newest first.

use bytes::Bytes;
use saltern_model::query::{AuditLine, AuditPage};
use saltern_model::{AuditDoor, AuditRow, AuditVerdict, Jid};
use saltern_store::{AuditHead, AuditPage as Rows};

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;

/// The parameters.
pub(super) const PAGE: &[&str] = &[
    "user", "door", "function", "verdict", "since", "until", "before", "limit",
];

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
    let rows = services.jobs.reader.audit(&Rows {
        user: arguments.text("user")?,
        door: arguments.one_of("door", &doors)?,
        fun: arguments.text("function")?,
        verdict: arguments.one_of("verdict", &verdicts)?,
        since: arguments.time("since")?,
        until: arguments.time("until")?,
        before: arguments.parsed("before", str::parse)?,
        limit,
    })?;
    let next = rows.last().filter(|_| rows.len() >= limit);
    Ok(answer(&AuditPage {
        next: next.map(|row| row.number.to_string()),
        rows: rows.into_iter().map(line).collect(),
    }))
}

fn line(row: AuditRow) -> AuditLine {
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
