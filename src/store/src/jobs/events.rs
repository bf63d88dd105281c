//! Events of the bus, where a site wants them kept (`event_return: saltern`).
//!
//! They are numbered as they come and only the oldest are ever removed, so the numbers also say how
//! many there are. What an event says is not known here.

use bytes::Bytes;
use rusqlite::{Transaction, named_params, params};

use super::reader::{JobReader, clamp};
use super::{JobDatabase, Reason, Removed, Retention, Written};
use crate::error::Result;

/// The table, as the job database gets it.
pub(super) const LAYOUT: &str = "
CREATE TABLE events (
    id       INTEGER PRIMARY KEY,
    received INTEGER NOT NULL,
    tag      TEXT NOT NULL,
    data     BLOB NOT NULL
) STRICT;
";

/// An event that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEvent {
    /// When it was kept, in microseconds since 1970.
    pub received: i64,
    /// Its tag.
    pub tag: String,
    /// Its data as they stood on the bus, packed.
    pub data: Bytes,
}

/// Which events to read.
#[derive(Clone, Debug, Default)]
pub struct EventsPage<'a> {
    /// Only events with a tag like this; `*`, `?` and `[…]` as in SQLite's `GLOB`.
    pub tag: Option<&'a str>,
    /// Only events that were kept at this time or later, in microseconds since 1970.
    pub since: Option<i64>,
    /// How many at most, the newest of all.
    pub limit: usize,
}

impl JobReader {
    /// The newest events of a page, in their order.
    pub fn events(&self, page: &EventsPage<'_>) -> Result<Vec<KeptEvent>> {
        let mut events = self.read("read events of", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT received, tag, data FROM events
                 WHERE (:tag IS NULL OR tag GLOB :tag) AND (:since IS NULL OR received >= :since)
                 ORDER BY id DESC LIMIT :limit",
            )?;
            let rows = statement.query_map(
                named_params! {
                    ":tag": page.tag,
                    ":since": page.since,
                    ":limit": clamp(page.limit),
                },
                |row| {
                    Ok(KeptEvent {
                        received: row.get(0)?,
                        tag: row.get(1)?,
                        data: row.get::<_, Vec<u8>>(2)?.into(),
                    })
                },
            )?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        events.reverse();
        Ok(events)
    }
}

impl JobDatabase {
    /// Removes events that need not be kept, about `slice` at most; before any job that is there
    /// for too long only by count or size.
    pub(super) fn remove_events(
        &mut self,
        retention: &Retention,
        slice: i64,
        is_too_large: bool,
    ) -> Result<Option<Removed>> {
        let mut reason = Reason::Age;
        let rows = self.remove(|transaction| {
            let first: Option<i64> = one(transaction, "SELECT min(id) FROM events")?;
            let last: Option<i64> = one(transaction, "SELECT max(id) FROM events")?;
            let (Some(first), Some(last)) = (first, last) else {
                return Ok(0);
            };
            let excess = retention.most_events.map_or(0, |most| {
                (last - first + 1).saturating_sub(i64::try_from(most).unwrap_or(i64::MAX))
            });
            let (up_to, before) = if excess > 0 {
                reason = Reason::Count;
                (first + excess.min(slice), i64::MAX)
            } else if is_too_large {
                reason = Reason::Size;
                (first + slice, i64::MAX)
            } else {
                (first + slice, retention.before.unwrap_or(i64::MIN))
            };
            transaction
                .prepare_cached("DELETE FROM events WHERE id < ?1 AND received < ?2")?
                .execute(params![up_to, before])
        })?;
        let jobs = Vec::new();
        Ok((rows > 0).then_some(Removed { reason, rows, jobs }))
    }
}

fn one(transaction: &Transaction<'_>, sql: &str) -> rusqlite::Result<Option<i64>> {
    transaction
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))
}

pub(super) fn insert(
    transaction: &Transaction<'_>,
    events: &[KeptEvent],
) -> rusqlite::Result<Written> {
    let mut statement = transaction
        .prepare_cached("INSERT INTO events (received, tag, data) VALUES (?1, ?2, ?3)")?;
    for event in events {
        statement.execute(params![event.received, event.tag, event.data.as_ref()])?;
    }
    Ok(Written::Updated)
}
