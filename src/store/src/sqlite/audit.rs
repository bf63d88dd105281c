//! The audit trail: a row for each thing that somebody had the master do, in a chain of hashes.
//!
//! The hash of a row covers its content and the hash of the row before. The hash before the first
//! row comes from the identity of the database. Rows are removed from the old end only, and the
//! number and hash of the last one removed (the anchor) are kept, so the rest can still be checked.
//!
//! The chain shows a change of a row, a gap, and a row that was put in between. It does not protect
//! from somebody who rewrites it from some row to its end, or cuts rows off its end while the master
//! is down: that shows only beside a head that was noted elsewhere ([`JobReader::check_audit`]).

use openssl::sha::Sha256;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, named_params, params_from_iter};
use saltern_model::{AuditDoor, AuditProof, AuditRecord, AuditRow, AuditVerdict, Jid};

use super::JobDatabase;
use super::database::NextIds;
use super::reader::{JobReader, clamp};
use crate::error::Result;
use crate::jobs::{
    AuditBreak, AuditCheck, AuditHead, AuditPage, BrokenRow, Reason, Removed, Retention, Written,
};

/// The table.
pub(super) const LAYOUT: &str = "
CREATE TABLE audit (
    number     INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    door       TEXT NOT NULL,
    user       TEXT NOT NULL,
    backend    TEXT,
    proof      TEXT NOT NULL,
    origin     TEXT,
    cmd        TEXT NOT NULL,
    fun        TEXT NOT NULL,
    tgt        TEXT,
    tgt_type   TEXT,
    arguments  TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    reason     TEXT,
    jid        TEXT,
    suppressed INTEGER NOT NULL,
    hash       BLOB NOT NULL
) STRICT;
";

/// Its columns, in the order in which they are hashed; the hash itself is the last.
pub(super) const COLUMNS: &[&str] = &[
    "number",
    "at",
    "door",
    "user",
    "backend",
    "proof",
    "origin",
    "cmd",
    "fun",
    "tgt",
    "tgt_type",
    "arguments",
    "verdict",
    "reason",
    "jid",
    "suppressed",
    "hash",
];

/// The version of the encoding that is hashed.
const ENCODING: u8 = 1;

/// The row of `meta` with the anchor, as `NUMBER:HASH`.
const ANCHOR: &str = "audit_anchor";

/// Rows that are checked within one read transaction: a long one would keep the write-ahead log
/// from being reset.
const SLICE: usize = 2_000;

impl JobReader {
    pub(super) fn audit(&self, page: &AuditPage<'_>) -> Result<Vec<AuditRow>> {
        self.read("read the audit trail of", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {} FROM audit
                 WHERE (:before IS NULL OR number < :before)
                   AND (:user IS NULL OR user = :user)
                   AND (:door IS NULL OR door = :door)
                   AND (:fun IS NULL OR fun GLOB :fun)
                   AND (:verdict IS NULL OR verdict = :verdict)
                   AND (:since IS NULL OR at >= :since)
                   AND (:until IS NULL OR at < :until)
                 ORDER BY number DESC LIMIT :limit",
                COLUMNS.join(", ")
            ))?;
            let rows = statement.query_map(
                named_params! {
                    ":before": page.before,
                    ":user": page.user,
                    ":door": page.door.map(AuditDoor::as_str),
                    ":fun": page.fun,
                    ":verdict": page.verdict.map(AuditVerdict::as_str),
                    ":since": page.since,
                    ":until": page.until,
                    ":limit": clamp(page.limit),
                },
                row_of,
            )?;
            rows.filter_map(rusqlite::Result::transpose).collect()
        })
    }

    pub(super) fn check_audit(&self, noted: Option<AuditHead>) -> Result<AuditCheck> {
        let anchor = self.read("check the audit trail of", anchor)?;
        let mut check = AuditCheck {
            rows: 0,
            anchor,
            head: anchor,
            broken: None,
        };
        check.broken = self.row_below(anchor)?;
        while check.broken.is_none() {
            let after = check.head.number;
            let rows = self.read("check the audit trail of", |connection| {
                let mut statement = connection.prepare_cached(&format!(
                    "SELECT {} FROM audit WHERE number > ?1 ORDER BY number LIMIT {SLICE}",
                    COLUMNS.join(", ")
                ))?;
                let rows = statement.query_map([after], values_of)?;
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                match check.head.followed_by(row) {
                    Ok(head) => {
                        check.head = head;
                        check.rows += 1;
                        check.broken = broken_note(noted, head);
                    }
                    Err(broken) => check.broken = Some(broken),
                }
                if check.broken.is_some() {
                    return Ok(check);
                }
            }
        }
        if let (Some(noted), None) = (noted, check.broken) {
            check.broken = unseen_note(noted, anchor, check.head);
        }
        Ok(check)
    }

    fn row_below(&self, anchor: AuditHead) -> Result<Option<BrokenRow>> {
        let lowest = self.read("check the audit trail of", |connection| {
            let mut statement = connection.prepare_cached("SELECT min(number) FROM audit")?;
            statement.query_row([], |row| row.get::<_, Option<i64>>(0))
        })?;
        let below = lowest.filter(|number| *number <= anchor.number);
        Ok(below.map(|number| BrokenRow {
            number,
            fault: AuditBreak::BelowAnchor,
        }))
    }
}

/// Whether a row that is as it was written is another one than was noted.
fn broken_note(noted: Option<AuditHead>, head: AuditHead) -> Option<BrokenRow> {
    let noted = noted.filter(|noted| noted.number == head.number && noted.hash != head.hash)?;
    Some(BrokenRow {
        number: noted.number,
        fault: AuditBreak::NotAsNoted,
    })
}

/// The fault of a noted row that the walk has not met.
fn unseen_note(noted: AuditHead, anchor: AuditHead, head: AuditHead) -> Option<BrokenRow> {
    let fault = match noted.number {
        number if number > head.number => AuditBreak::Missing,
        number if number < anchor.number => AuditBreak::Removed,
        number if number == anchor.number && noted.hash != anchor.hash => AuditBreak::NotAsNoted,
        _ => return None,
    };
    let number = noted.number;
    Some(BrokenRow { number, fault })
}

impl AuditHead {
    /// The row behind this one, if it is the one that was written there.
    fn followed_by(self, row: &[Value]) -> std::result::Result<Self, BrokenRow> {
        let expected = self.number.saturating_add(1);
        let (Some(Value::Integer(number)), Some((hash, content))) = (row.first(), row.split_last())
        else {
            return Err(BrokenRow {
                number: expected,
                fault: AuditBreak::Content,
            });
        };
        let number = *number;
        if number != expected {
            let fault = AuditBreak::Gap {
                first: expected,
                last: number - 1,
            };
            return Err(BrokenRow { number, fault });
        }
        let computed = chained(&self.hash, content);
        let is_as_written = matches!(hash, Value::Blob(stored) if stored.as_slice() == computed);
        if !is_as_written {
            let fault = AuditBreak::Content;
            return Err(BrokenRow { number, fault });
        }
        let hash = computed;
        Ok(Self { number, hash })
    }
}

/// The hash of a row's content behind another row.
fn chained(previous: &[u8; 32], content: &[Value]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(&[ENCODING]);
    for value in content {
        // Kind, length, bytes: no two contents have the same encoding.
        let (kind, bytes): (u8, &[u8]) = match value {
            Value::Null => (0, &[]),
            Value::Integer(number) => (1, &number.to_be_bytes()),
            Value::Real(number) => (2, &number.to_be_bytes()),
            Value::Text(text) => (3, text.as_bytes()),
            Value::Blob(bytes) => (4, bytes),
        };
        hash.update(&[kind]);
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
    hash.finish()
}

/// The content of a row, in the order of [`COLUMNS`].
fn content_of(number: i64, record: &AuditRecord) -> Vec<Value> {
    let text = |text: &str| Value::Text(text.to_owned());
    let maybe = |part: Option<&str>| part.map_or(Value::Null, text);
    let origin = record.origin.map(|address| address.to_string());
    vec![
        Value::Integer(number),
        Value::Integer(record.at),
        text(record.door.as_str()),
        text(&record.user),
        maybe(record.backend.as_deref()),
        text(record.proof.as_str()),
        maybe(origin.as_deref()),
        text(&record.cmd),
        text(&record.fun),
        maybe(record.tgt.as_deref()),
        maybe(record.tgt_type.as_deref()),
        text(&record.arguments),
        text(record.verdict.as_str()),
        maybe(record.reason.as_deref()),
        maybe(record.jid.as_ref().map(Jid::as_str)),
        Value::Integer(i64::try_from(record.suppressed).unwrap_or(i64::MAX)),
    ]
}

/// A row; `None` when it is not one that this release writes.
fn row_of(row: &Row<'_>) -> rusqlite::Result<Option<AuditRow>> {
    let text = |at: usize| row.get::<_, String>(at);
    let maybe = |at: usize| row.get::<_, Option<String>>(at);
    let (door, proof, verdict) = (text(2)?, text(5)?, text(12)?);
    let known = AuditDoor::parse(&door)
        .zip(AuditProof::parse(&proof))
        .zip(AuditVerdict::parse(&verdict));
    let hash = row.get::<_, Vec<u8>>(16)?.try_into().ok();
    let (Some(((door, proof), verdict)), Some(hash)) = (known, hash) else {
        return Ok(None);
    };
    Ok(Some(AuditRow {
        number: row.get(0)?,
        hash,
        record: AuditRecord {
            at: row.get(1)?,
            door,
            user: text(3)?,
            backend: maybe(4)?,
            proof,
            origin: maybe(6)?.and_then(|origin| origin.parse().ok()),
            cmd: text(7)?,
            fun: text(8)?,
            tgt: maybe(9)?,
            tgt_type: maybe(10)?,
            arguments: text(11)?,
            verdict,
            reason: maybe(13)?,
            jid: maybe(14)?.and_then(|jid| Jid::parse(&jid).ok()),
            suppressed: u64::try_from(row.get::<_, i64>(15)?).unwrap_or(0),
        },
    }))
}

fn values_of(row: &Row<'_>) -> rusqlite::Result<Vec<Value>> {
    (0..COLUMNS.len()).map(|column| row.get(column)).collect()
}

/// Writes a row behind the last one.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    next: &mut NextIds,
    record: &AuditRecord,
) -> rusqlite::Result<Written> {
    let number = next.audit.number + 1;
    let mut row = content_of(number, record);
    let hash = chained(&next.audit.hash, &row);
    row.push(Value::Blob(hash.to_vec()));
    let places = vec!["?"; COLUMNS.len()].join(", ");
    transaction
        .prepare_cached(&format!(
            "INSERT INTO audit ({}) VALUES ({places})",
            COLUMNS.join(", ")
        ))?
        .execute(params_from_iter(row))?;
    next.audit = AuditHead { number, hash };
    Ok(Written::New { id: number })
}

/// The last row, or the anchor where there is none.
pub(super) fn head(connection: &Connection) -> rusqlite::Result<AuditHead> {
    let last = connection
        .query_row(
            "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)),
        )
        .optional()?;
    let anchor = anchor(connection)?;
    Ok(match last {
        Some((number, hash)) if number > anchor.number => AuditHead {
            number,
            // A hash that is none was tampered with: the check names that row all the same.
            hash: hash.try_into().unwrap_or_default(),
        },
        _ => anchor,
    })
}

/// The last row that was removed; before that, what the chain of this database begins with.
fn anchor(connection: &Connection) -> rusqlite::Result<AuditHead> {
    let kept: Option<String> = meta(connection, ANCHOR)?;
    match kept.and_then(|text| text.parse().ok()) {
        Some(anchor) => Ok(anchor),
        None => {
            let identity: Option<String> = meta(connection, "identity")?;
            Ok(genesis(&identity.unwrap_or_default()))
        }
    }
}

fn genesis(identity: &str) -> AuditHead {
    let mut hash = Sha256::new();
    hash.update(b"saltern audit trail of ");
    hash.update(identity.as_bytes());
    AuditHead {
        number: 0,
        hash: hash.finish(),
    }
}

fn meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection
        .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| {
            row.get(0)
        })
        .optional()
}

fn set_anchor(connection: &Connection, anchor: AuditHead) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?
        .execute([ANCHOR, &anchor.to_string()])?;
    Ok(())
}

/// Takes over where the chain of a damaged database begins, if that can be read: the new database
/// has another identity.
pub(super) fn copy_anchor(damaged: &Connection, fresh: &Connection) -> rusqlite::Result<()> {
    match anchor(damaged) {
        Ok(anchor) => set_anchor(fresh, anchor),
        Err(error) => {
            tracing::warn!(%error, "the beginning of the audit trail cannot be read");
            Ok(())
        }
    }
}

impl JobDatabase {
    /// The last row of the audit trail.
    pub fn audit_head(&self) -> AuditHead {
        self.next.audit
    }

    /// Removes the oldest rows that are too old or too many, `slice` at most, and keeps the last of
    /// them as anchor.
    pub(super) fn remove_audit(
        &mut self,
        retention: &Retention,
        slice: i64,
    ) -> Result<Option<Removed>> {
        let last = self.next.audit.number;
        let mut reason = Reason::Age;
        let rows = self.remove(|transaction| {
            let first: Option<i64> = transaction
                .prepare_cached("SELECT min(number) FROM audit")?
                .query_row([], |row| row.get(0))?;
            let Some(first) = first else { return Ok(0) };
            let most = retention
                .most_audit
                .map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX));
            let excess = (last - first + 1).saturating_sub(most);
            let end = if excess > 0 {
                reason = Reason::Count;
                first.saturating_add(excess.min(slice))
            } else {
                old_end(transaction, (first, slice), retention.audit_before)?
            };
            remove_below(transaction, end)
        })?;
        let jobs = Vec::new();
        Ok((rows > 0).then_some(Removed { reason, rows, jobs }))
    }
}

/// The lowest number among the first `slice` rows that is not too old, or the one behind them: a
/// clock that was set back must not leave a gap.
fn old_end(
    transaction: &Transaction<'_>,
    (first, slice): (i64, i64),
    before: Option<i64>,
) -> rusqlite::Result<i64> {
    let Some(before) = before else {
        return Ok(first);
    };
    let end = first.saturating_add(slice);
    let young: Option<i64> = transaction
        .prepare_cached("SELECT min(number) FROM audit WHERE number < ?1 AND at >= ?2")?
        .query_row([end, before], |row| row.get(0))?;
    Ok(young.unwrap_or(end))
}

fn remove_below(transaction: &Transaction<'_>, end: i64) -> rusqlite::Result<usize> {
    let last: Option<(i64, Vec<u8>)> = transaction
        .prepare_cached(
            "SELECT number, hash FROM audit WHERE number < ?1 ORDER BY number DESC LIMIT 1",
        )?
        .query_row([end], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((number, hash)) = last else {
        return Ok(0);
    };
    let hash = hash.try_into().unwrap_or_default();
    set_anchor(transaction, AuditHead { number, hash })?;
    transaction
        .prepare_cached("DELETE FROM audit WHERE number <= ?1")?
        .execute([number])
}
