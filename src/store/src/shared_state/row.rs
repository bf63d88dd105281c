//! A row of a table: kind, name, time and content, sealed.

use saltern_crypto::{ROW_ID_LEN, SealError, StateCipher};
use zeroize::Zeroizing;

use super::kind::StateKind;

/// The id of a row: an HMAC of the kind and name.
pub type RowId = [u8; ROW_ID_LEN];

/// Bytes before the name: the kind, the time, and how long the name is.
const HEAD: usize = 1 + 8 + 2;

/// A row as the table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRow {
    /// Its id.
    pub id: RowId,
    /// Higher than that of every row written before.
    pub version: i64,
    /// The sealed content.
    pub sealed: Vec<u8>,
}

/// A file of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StateName {
    pub(super) kind: StateKind,
    pub(super) name: String,
}

/// Content of a row.
pub(super) struct StateFile {
    pub(super) name: StateName,
    /// When the file was written, in microseconds since 1970.
    pub(super) modified: i64,
    pub(super) content: Zeroizing<Vec<u8>>,
}

impl StateName {
    pub(super) fn row_id(&self, cipher: &StateCipher) -> RowId {
        row_id(cipher, self.kind as u8, &self.name)
    }
}

/// Content of a row of any kind.
pub(super) struct RowContent {
    pub(super) kind: u8,
    pub(super) name: String,
    /// In microseconds since 1970.
    pub(super) modified: i64,
    pub(super) content: Zeroizing<Vec<u8>>,
}

/// The id of the row of a kind and name.
pub(super) fn row_id(cipher: &StateCipher, kind: u8, name: &str) -> RowId {
    cipher.row_id(&[&[kind], name.as_bytes()].concat())
}

/// Reason for which a row is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error(transparent)]
    Sealed(#[from] SealError),
    #[error("a row has the content of another one")]
    OtherRow,
    #[error("a row is of a kind that this release does not know, or malformed")]
    Unknown,
}

/// Seals a file as the row of its name.
pub(super) fn seal(
    cipher: &StateCipher,
    (name, modified, content): (&StateName, i64, &[u8]),
    version: i64,
) -> Result<SealedRow, SealError> {
    seal_kind(
        cipher,
        (name.kind as u8, &name.name),
        (modified, content),
        version,
    )
}

/// Seals a content as the row of its kind and name.
pub(super) fn seal_kind(
    cipher: &StateCipher,
    (kind, name): (u8, &str),
    (modified, content): (i64, &[u8]),
    version: i64,
) -> Result<SealedRow, SealError> {
    let id = row_id(cipher, kind, name);
    // Names of files have 255 bytes at most.
    let length = u16::try_from(name.len()).map_err(|_| SealError::Cipher)?;
    let mut plain = Zeroizing::new(Vec::with_capacity(HEAD + name.len() + content.len()));
    plain.push(kind);
    plain.extend_from_slice(&modified.to_be_bytes());
    plain.extend_from_slice(&length.to_be_bytes());
    plain.extend_from_slice(name.as_bytes());
    plain.extend_from_slice(content);
    let sealed = cipher.seal(&id, version, &plain)?;
    Ok(SealedRow {
        id,
        version,
        sealed,
    })
}

/// Opens the row of a file.
pub(super) fn open(cipher: &StateCipher, row: &SealedRow) -> Result<StateFile, RowError> {
    let RowContent {
        kind,
        name,
        modified,
        content,
    } = open_kind(cipher, row)?;
    let kind = StateKind::of_number(kind).ok_or(RowError::Unknown)?;
    Ok(StateFile {
        name: StateName { kind, name },
        modified,
        content,
    })
}

/// Opens a row of any kind.
pub(super) fn open_kind(cipher: &StateCipher, row: &SealedRow) -> Result<RowContent, RowError> {
    let plain = cipher.open(&row.id, row.version, &row.sealed)?;
    let content = parse(&plain).ok_or(RowError::Unknown)?;
    match row_id(cipher, content.kind, &content.name) == row.id {
        true => Ok(content),
        false => Err(RowError::OtherRow),
    }
}

fn parse(plain: &[u8]) -> Option<RowContent> {
    let (kind, rest) = plain.split_first()?;
    let (modified, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (name, content) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some(RowContent {
        kind: *kind,
        name: std::str::from_utf8(name).ok()?.to_owned(),
        modified: i64::from_be_bytes(*modified),
        content: Zeroizing::new(content.to_vec()),
    })
}
