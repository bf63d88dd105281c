//! The chain of hashes of the audit trail, whatever engine keeps its rows.
//!
//! The hash of a row covers its content and the hash of the row before. The hash before the first
//! row comes from the identity of the database.

use openssl::sha::Sha256;
use saltern_model::{AuditDoor, AuditProof, AuditRecord, AuditRow, AuditVerdict, Jid};

use super::{AuditBreak, AuditCheck, AuditHead, BrokenRow};

/// Columns of a row, in the order in which they are hashed; the hash itself is the last.
pub const AUDIT_COLUMNS: [&str; 17] = [
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

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum AuditValue {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number that no row of ours has.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl AuditValue {
    fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The head of a trail without rows.
pub fn genesis(identity: &str) -> AuditHead {
    let mut hash = Sha256::new();
    hash.update(b"saltern audit trail of ");
    hash.update(identity.as_bytes());
    AuditHead {
        number: 0,
        hash: hash.finish(),
    }
}

/// The row behind a head, in the order of [`AUDIT_COLUMNS`], and the head that it makes.
pub fn next_audit_row(head: AuditHead, record: &AuditRecord) -> (Vec<AuditValue>, AuditHead) {
    let number = head.number + 1;
    let mut row = content_of(number, record);
    let hash = chained(&head.hash, &row);
    row.push(AuditValue::Blob(hash.to_vec()));
    (row, AuditHead { number, hash })
}

/// The content of a row, in the order of [`AUDIT_COLUMNS`].
fn content_of(number: i64, record: &AuditRecord) -> Vec<AuditValue> {
    let text = |text: &str| AuditValue::Text(text.to_owned());
    let maybe = |part: Option<&str>| part.map_or(AuditValue::Null, text);
    let origin = record.origin.map(|address| address.to_string());
    vec![
        AuditValue::Integer(number),
        AuditValue::Integer(record.at),
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
        AuditValue::Integer(i64::try_from(record.suppressed).unwrap_or(i64::MAX)),
    ]
}

/// The row of values in the order of [`AUDIT_COLUMNS`]; `None` when it is not one that this release
/// writes.
pub fn audit_row_of(values: &[AuditValue]) -> Option<AuditRow> {
    let integer = |at: usize| values.get(at)?.integer();
    let text = |at: usize| values.get(at)?.text();
    let owned = |at: usize| text(at).map(str::to_owned);
    let AuditValue::Blob(hash) = values.get(16)? else {
        return None;
    };
    Some(AuditRow {
        number: integer(0)?,
        hash: hash.as_slice().try_into().ok()?,
        record: AuditRecord {
            at: integer(1)?,
            door: AuditDoor::parse(text(2)?)?,
            user: owned(3)?,
            backend: owned(4),
            proof: AuditProof::parse(text(5)?)?,
            origin: text(6).and_then(|origin| origin.parse().ok()),
            cmd: owned(7)?,
            fun: owned(8)?,
            tgt: owned(9),
            tgt_type: owned(10),
            arguments: owned(11)?,
            verdict: AuditVerdict::parse(text(12)?)?,
            reason: owned(13),
            jid: text(14).and_then(|jid| Jid::parse(jid).ok()),
            suppressed: u64::try_from(integer(15)?).unwrap_or(0),
        },
    })
}

/// Walks a chain from its anchor to its end. `lowest` is the lowest number of a row, `next` gives the
/// next rows behind a number, none at the end.
pub fn check_audit_chain<E>(
    (anchor, lowest): (AuditHead, Option<i64>),
    noted: Option<AuditHead>,
    mut next: impl FnMut(i64) -> Result<Vec<Vec<AuditValue>>, E>,
) -> Result<AuditCheck, E> {
    let below = lowest.filter(|number| *number <= anchor.number);
    let mut check = AuditCheck {
        rows: 0,
        anchor,
        head: anchor,
        broken: below.map(|number| BrokenRow {
            number,
            fault: AuditBreak::BelowAnchor,
        }),
    };
    while check.broken.is_none() {
        let rows = next(check.head.number)?;
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
    fn followed_by(self, row: &[AuditValue]) -> std::result::Result<Self, BrokenRow> {
        let expected = self.number.saturating_add(1);
        let (Some(AuditValue::Integer(number)), Some((hash, content))) =
            (row.first(), row.split_last())
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
        let is_as_written =
            matches!(hash, AuditValue::Blob(stored) if stored.as_slice() == computed);
        if !is_as_written {
            let fault = AuditBreak::Content;
            return Err(BrokenRow { number, fault });
        }
        let hash = computed;
        Ok(Self { number, hash })
    }
}

/// The hash of a row's content behind another row.
fn chained(previous: &[u8; 32], content: &[AuditValue]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(&[ENCODING]);
    for value in content {
        // Kind, length, bytes: no two contents have the same encoding.
        let (kind, bytes): (u8, &[u8]) = match value {
            AuditValue::Null => (0, &[]),
            AuditValue::Integer(number) => (1, &number.to_be_bytes()),
            AuditValue::Real(number) => (2, &number.to_be_bytes()),
            AuditValue::Text(text) => (3, text.as_bytes()),
            AuditValue::Blob(bytes) => (4, bytes),
        };
        hash.update(&[kind]);
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
    hash.finish()
}
