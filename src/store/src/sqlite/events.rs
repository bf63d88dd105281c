//! Stored events of the bus (`event_return: saltern`).
//!
//! Events whose number the master decides, and events whose number minions and unauthenticated
//! peers decide, lie in tables of their own, so that a flood of the latter evicts no more than its
//! half. In both they are numbered as they come and only the oldest are ever removed, so the
//! numbers also give the count. The content of an event is opaque here.
//!
//! Both tables share one sequence of positions: the order in which events were committed. Each kept
//! event has the next position and none is used twice, so positions also give the exact number of
//! events that were removed between two that are left. An event that a change causes is committed
//! with the change ([`JobDatabase::commit_with_events`]): neither is ever there without the other.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, named_params, params};

use super::JobDatabase;
use super::database::NextIds;
use super::reader::{JobReader, clamp};
use crate::error::Result;
use crate::jobs::{
    EventRange, EventSlice, EventsPage, KeptEvent, NewEvent, Reason, Removed, Retention,
};

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

/// Columns and indexes of the positions. Empty in rows of the layouts before, until
/// [`NUMBER_EVENTS`].
pub(super) const POSITIONS: &str = "
ALTER TABLE events ADD COLUMN position INTEGER;
ALTER TABLE minion_events ADD COLUMN position INTEGER;
CREATE UNIQUE INDEX events_position ON events (position);
CREATE UNIQUE INDEX minion_events_position ON minion_events (position);
";

/// Numbers all events by the time at which they were kept; each had a time of its own before they
/// had positions.
pub(super) const NUMBER_EVENTS: &str = "
CREATE TEMP TABLE ranked AS
    SELECT of_minion, id, row_number() OVER (ORDER BY received, of_minion, id) AS position FROM (
        SELECT 0 AS of_minion, id, received FROM events
        UNION ALL SELECT 1, id, received FROM minion_events);
CREATE UNIQUE INDEX temp.ranked_id ON ranked (of_minion, id);
UPDATE events SET position =
    (SELECT position FROM ranked WHERE of_minion = 0 AND ranked.id = events.id);
UPDATE minion_events SET position =
    (SELECT position FROM ranked WHERE of_minion = 1 AND ranked.id = minion_events.id);
DROP TABLE ranked;
";

impl JobReader {
    pub(super) fn events(&self, page: &EventsPage<'_>) -> Result<Vec<KeptEvent>> {
        let mut events = self.read("read events of", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT * FROM (
                     SELECT position, received, tag, data, 0 FROM events
                     WHERE (:tag IS NULL OR tag GLOB :tag)
                       AND (:since IS NULL OR received >= :since)
                     ORDER BY id DESC LIMIT :limit)
                 UNION ALL
                 SELECT * FROM (
                     SELECT position, received, tag, data, 1 FROM minion_events
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
                kept_event,
            )?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        events.reverse();
        Ok(events)
    }

    pub(super) fn events_between(&self, range: &EventRange) -> Result<EventSlice> {
        let (events, is_whole) = self.events_of(RANGE, range)?;
        let last = events.last().filter(|_| !is_whole);
        let through = last.map_or(range.through, |last| last.position);
        Ok(EventSlice { events, through })
    }

    pub(super) fn events_backwards(&self, range: &EventRange) -> Result<EventSlice> {
        let (events, is_whole) = self.events_of(RANGE_BACKWARDS, range)?;
        let last = events.last().filter(|_| !is_whole);
        let through = last.map_or(range.after, |last| last.position - 1);
        Ok(EventSlice { events, through })
    }

    /// The events of a statement, and whether they are all of the range.
    fn events_of(&self, sql: &str, range: &EventRange) -> Result<(Vec<KeptEvent>, bool)> {
        self.read("read events of", |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(named_params! {
                ":after": range.after,
                ":through": range.through,
                ":limit": clamp(range.max_events),
            })?;
            let (mut events, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let event = kept_event(row)?;
                bytes += event.tag.len() + event.data.len();
                events.push(event);
                if bytes >= range.max_bytes || events.len() >= range.max_events {
                    return Ok((events, false));
                }
            }
            Ok((events, true))
        })
    }
}

/// The events of a range, the oldest first.
const RANGE: &str = "
SELECT position, received, tag, data, 0 FROM events
WHERE position > :after AND position <= :through
UNION ALL
SELECT position, received, tag, data, 1 FROM minion_events
WHERE position > :after AND position <= :through
ORDER BY 1 LIMIT :limit";

/// The same, the newest first.
const RANGE_BACKWARDS: &str = "
SELECT position, received, tag, data, 0 FROM events
WHERE position > :after AND position <= :through
UNION ALL
SELECT position, received, tag, data, 1 FROM minion_events
WHERE position > :after AND position <= :through
ORDER BY 1 DESC LIMIT :limit";

pub(super) fn kept_event(row: &Row<'_>) -> rusqlite::Result<KeptEvent> {
    Ok(KeptEvent {
        position: row.get(0)?,
        received: row.get(1)?,
        tag: row.get(2)?,
        data: row.get::<_, Vec<u8>>(3)?.into(),
        of_minion: row.get(4)?,
    })
}

/// Numbers the events of a database that were copied from a layout without positions.
pub(super) fn number_copied(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT 1 FROM events WHERE position IS NULL
               UNION ALL SELECT 1 FROM minion_events WHERE position IS NULL LIMIT 1";
    let missing: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    match missing {
        Some(_) => {
            let transaction = connection.unchecked_transaction()?;
            transaction.execute_batch(NUMBER_EVENTS)?;
            transaction.commit()
        }
        None => Ok(()),
    }
}

/// One more than every position that was ever given.
pub(super) fn next_position(connection: &Connection) -> rusqlite::Result<i64> {
    let one = |sql: &str| -> rusqlite::Result<Option<i64>> {
        let found = connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
        Ok(found.optional()?.flatten())
    };
    let highest = one("SELECT max(position) FROM events")?
        .max(one("SELECT max(position) FROM minion_events")?);
    let remembered = one("SELECT value FROM meta WHERE name = 'events'")?;
    Ok(highest
        .map_or(1, |position| position + 1)
        .max(remembered.unwrap_or(1)))
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
    /// The position of the next event that is kept.
    pub fn next_event_position(&self) -> i64 {
        self.next.event
    }

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

/// Keeps the events of a sender that were not committed before.
pub(super) fn insert_of_sender(
    transaction: &Transaction<'_>,
    next: &mut NextIds,
    (first, events): (u64, &[NewEvent]),
    kept: &mut Vec<KeptEvent>,
) -> rusqlite::Result<()> {
    let known = next.sent_event.saturating_sub(first);
    let known = usize::try_from(known).unwrap_or(usize::MAX);
    let new = events.get(known..).unwrap_or_default();
    insert(transaction, next, new, kept)?;
    let end = first.saturating_add(events.len() as u64);
    next.sent_event = next.sent_event.max(end);
    Ok(())
}

/// Keeps events at the next positions.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    next: &mut NextIds,
    events: &[NewEvent],
    kept: &mut Vec<KeptEvent>,
) -> rusqlite::Result<()> {
    for event in events {
        let sql = match event.of_minion {
            true => {
                "INSERT INTO minion_events (position, received, tag, data) VALUES (?1, ?2, ?3, ?4)"
            }
            false => "INSERT INTO events (position, received, tag, data) VALUES (?1, ?2, ?3, ?4)",
        };
        let (position, data) = (next.event, event.data.as_ref());
        transaction.prepare_cached(sql)?.execute(params![
            position,
            event.received,
            event.tag,
            data
        ])?;
        next.event += 1;
        kept.push(KeptEvent {
            position,
            received: event.received,
            tag: event.tag.clone(),
            data: event.data.clone(),
            of_minion: event.of_minion,
        });
    }
    Ok(())
}
