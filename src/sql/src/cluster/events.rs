//! Reads of kept events.

use saltern_store::Result;
use saltern_store::jobs::{EventRange, EventSlice, EventsPage, KeptEvent, PresenceEvents};
use tokio_postgres::Row;

use super::glob::expression_of;
use super::reader::{ClusterReader, clamp, kept};
use super::text::{original, stored};
use crate::error::SqlError;

/// Positions that one read for presence looks at.
const SPAN: i64 = 5_000;

/// Tags about the presence of any minion.
const PRESENCE: [&str; 3] = ["salt/presence/change", "salt/key", "salt/auth"];

impl ClusterReader {
    pub(super) fn events(&self, page: &EventsPage<'_>) -> Result<Vec<KeptEvent>> {
        let sql = "SELECT position, received, tag, data, of_minion FROM events \
                   WHERE ($1::text IS NULL OR tag ~ $1) AND ($2::bigint IS NULL OR received >= $2) \
                   ORDER BY position DESC LIMIT $3";
        let tag = page.tag.map(|tag| expression_of(&stored(tag)));
        let mut events = self.read("read events of", |link| {
            let rows = link.rows(sql, &[&tag, &page.since, &clamp(page.limit)])?;
            kept(&rows, event_of)
        })?;
        events.reverse();
        Ok(events)
    }

    pub(super) fn events_between(&self, range: &EventRange) -> Result<EventSlice> {
        let (events, is_whole) = self.events_of("ASC", range)?;
        let last = events.last().filter(|_| !is_whole);
        Ok(EventSlice {
            through: last.map_or(range.through, |event| event.position),
            events,
        })
    }

    pub(super) fn events_backwards(&self, range: &EventRange) -> Result<EventSlice> {
        let (events, is_whole) = self.events_of("DESC", range)?;
        let last = events.last().filter(|_| !is_whole);
        Ok(EventSlice {
            through: last.map_or(range.after, |event| event.position - 1),
            events,
        })
    }

    /// The events of a range in an order of SQL, and whether they are all of it.
    fn events_of(&self, order: &str, range: &EventRange) -> Result<(Vec<KeptEvent>, bool)> {
        let sql = format!(
            "SELECT position, received, tag, data, of_minion, total::bigint FROM \
             (SELECT *, octet_length(tag) + octet_length(data) AS size, \
              sum(octet_length(tag) + octet_length(data)) OVER (ORDER BY position {order}) AS total \
              FROM (SELECT * FROM events WHERE position > $1 AND position <= $2 \
                    ORDER BY position {order} LIMIT $3) AS e) AS t \
             WHERE total - size < $4 OR total = size ORDER BY position {order}"
        );
        let (most, bytes) = (clamp(range.max_events), clamp(range.max_bytes));
        self.read("read events of", |link| {
            let rows = link.rows(&sql, &[&range.after, &range.through, &most, &bytes])?;
            let events = kept(&rows, event_of)?;
            let total: i64 = rows.last().map_or(Ok(0), |row| row.try_get(5))?;
            Ok((events, total < bytes && rows.len() < range.max_events))
        })
    }

    pub(super) fn presence_events(
        &self,
        minion: &str,
        before: Option<i64>,
    ) -> Result<PresenceEvents> {
        let start = format!("salt/minion/{minion}/start");
        let tags: Vec<&str> = PRESENCE.into_iter().chain([start.as_str()]).collect();
        self.read("read events of", |link| {
            let ends = link.row("SELECT max(position), min(position) FROM events", &[])?;
            let (newest, oldest): (Option<i64>, Option<i64>) = match ends {
                Some(row) => (row.try_get(0)?, row.try_get(1)?),
                None => (None, None),
            };
            let newest = newest.unwrap_or(0);
            let through = before.map_or(newest, |before| (before - 1).min(newest));
            let after = through.saturating_sub(SPAN);
            let sql = "SELECT position, received, tag, data, of_minion FROM events \
                       WHERE position > $1 AND position <= $2 AND tag = ANY($3) \
                       ORDER BY position DESC";
            let events = kept(&link.rows(sql, &[&after, &through, &tags])?, event_of)?;
            let sql = "SELECT received FROM events WHERE position > $1 ORDER BY position LIMIT 1";
            let since = link.row(sql, &[&after])?;
            Ok(PresenceEvents {
                events,
                before: oldest.filter(|oldest| after >= *oldest).map(|_| after + 1),
                since: since.map(|row| row.try_get(0)).transpose()?,
            })
        })
    }
}

fn event_of(row: &Row) -> std::result::Result<Option<KeptEvent>, SqlError> {
    Ok(Some(KeptEvent {
        position: row.try_get(0)?,
        received: row.try_get(1)?,
        tag: original(row.try_get(2)?),
        data: row.try_get::<_, Vec<u8>>(3)?.into(),
        of_minion: row.try_get(4)?,
    }))
}
