//! Stored events of the bus (`event_return: saltern`).
//!
//! Events whose number the master decides, and events whose number minions and unauthenticated
//! peers decide, lie in tables of their own, so that a flood of the latter evicts no more than its
//! half. In both they are numbered as they come and only the oldest are ever removed, so the
//! numbers also give the count. The content of an event is opaque here.

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

/// Table of events whose number minions and unauthenticated peers decide.
pub(super) const MINION_EVENTS: &str = "
CREATE TABLE minion_events (
    id       INTEGER PRIMARY KEY,
    received INTEGER NOT NULL,
    tag      TEXT NOT NULL,
    data     BLOB NOT NULL
) STRICT;
";

/// An event that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEvent {
    /// When it was kept, in microseconds since 1970. Events are read in the order of these times,
    /// so each has one of its own.
    pub received: i64,
    /// Its tag.
    pub tag: String,
    /// Its data as they stood on the bus, packed.
    pub data: Bytes,
    /// Whether minions or unauthenticated peers decide how many such events there are.
    pub of_minion: bool,
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
                "SELECT * FROM (
                     SELECT received, tag, data, 0 FROM events
                     WHERE (:tag IS NULL OR tag GLOB :tag)
                       AND (:since IS NULL OR received >= :since)
                     ORDER BY id DESC LIMIT :limit)
                 UNION ALL
                 SELECT * FROM (
                     SELECT received, tag, data, 1 FROM minion_events
                     WHERE (:tag IS NULL OR tag GLOB :tag)
                       AND (:since IS NULL OR received >= :since)
                     ORDER BY id DESC LIMIT :limit)
                 ORDER BY 1 DESC LIMIT :limit",
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
                        of_minion: row.get(3)?,
                    })
                },
            )?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        events.reverse();
        Ok(events)
    }
}

/// Table of events: master's own, or those whose number minions decide.
#[derive(Clone, Copy)]
pub(super) enum Table {
    Master,
    Minions,
}

impl Table {
    const ALL: [Self; 2] = [Self::Minions, Self::Master];

    fn name(self) -> &'static str {
        match self {
            Self::Master => "events",
            Self::Minions => "minion_events",
        }
    }

    /// The lowest and the highest number.
    fn numbers(self, transaction: &Transaction<'_>) -> rusqlite::Result<Option<(i64, i64)>> {
        let one = |what: &str| -> rusqlite::Result<Option<i64>> {
            let sql = format!("SELECT {what}(id) FROM {}", self.name());
            let mut statement = transaction.prepare_cached(&sql)?;
            statement.query_row([], |row| row.get(0))
        };
        Ok(one("min")?.zip(one("max")?))
    }

    fn count(self, transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
        let numbers = self.numbers(transaction)?;
        Ok(numbers.map_or(0, |(first, last)| last - first + 1))
    }

    /// How many of `most` events in both tables this one may have: those of minions no more than
    /// half, the master's what the others leave.
    fn share(self, most: i64, transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
        let half = most / 2;
        Ok(match self {
            Self::Minions => half,
            Self::Master => most - Self::Minions.count(transaction)?.min(half),
        })
    }

    /// Removes the oldest events below number `up_to` that were kept before a time.
    fn remove(
        self,
        transaction: &Transaction<'_>,
        up_to: i64,
        before: i64,
    ) -> rusqlite::Result<usize> {
        let sql = format!(
            "DELETE FROM {} WHERE id < ?1 AND received < ?2",
            self.name()
        );
        let mut statement = transaction.prepare_cached(&sql)?;
        statement.execute(params![up_to, before])
    }
}

impl JobDatabase {
    /// Removes events that are too old or too many, about `slice` at most.
    pub(super) fn remove_events(
        &mut self,
        retention: &Retention,
        slice: i64,
    ) -> Result<Option<Removed>> {
        for table in Table::ALL {
            let removed = self.remove_events_of(table, retention, slice)?;
            if removed.is_some() {
                return Ok(removed);
            }
        }
        Ok(None)
    }

    /// Removes the oldest events of a table, `slice` at most, because of their size.
    pub(super) fn remove_oldest_events(
        &mut self,
        table: Table,
        slice: i64,
    ) -> Result<Option<Removed>> {
        let rows = self.remove(|transaction| match table.numbers(transaction)? {
            Some((first, _)) => table.remove(transaction, first + slice, i64::MAX),
            None => Ok(0),
        })?;
        Ok((rows > 0).then_some(Removed {
            reason: Reason::Size,
            rows,
            jobs: Vec::new(),
        }))
    }

    fn remove_events_of(
        &mut self,
        table: Table,
        retention: &Retention,
        slice: i64,
    ) -> Result<Option<Removed>> {
        let mut reason = Reason::Age;
        let rows = self.remove(|transaction| {
            let Some((first, last)) = table.numbers(transaction)? else {
                return Ok(0);
            };
            let most = retention
                .most_events
                .map(|most| i64::try_from(most).unwrap_or(i64::MAX));
            let excess = match most {
                Some(most) => (last - first + 1).saturating_sub(table.share(most, transaction)?),
                None => 0,
            };
            let (up_to, before) = if excess > 0 {
                reason = Reason::Count;
                (first + excess.min(slice), i64::MAX)
            } else {
                (first + slice, retention.before.unwrap_or(i64::MIN))
            };
            table.remove(transaction, up_to, before)
        })?;
        let jobs = Vec::new();
        Ok((rows > 0).then_some(Removed { reason, rows, jobs }))
    }
}

pub(super) fn insert(
    transaction: &Transaction<'_>,
    events: &[KeptEvent],
) -> rusqlite::Result<Written> {
    for event in events {
        let table = if event.of_minion {
            Table::Minions
        } else {
            Table::Master
        };
        let sql = format!(
            "INSERT INTO {} (received, tag, data) VALUES (?1, ?2, ?3)",
            table.name()
        );
        let mut statement = transaction.prepare_cached(&sql)?;
        statement.execute(params![event.received, event.tag, event.data.as_ref()])?;
    }
    Ok(Written::Updated)
}
