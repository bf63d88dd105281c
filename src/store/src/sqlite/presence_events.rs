//! Kept events about the presence of minions, newest first, a bounded part of the history at a time.

use rusqlite::named_params;

use super::events::kept_event;
use super::reader::JobReader;
use crate::error::Result;
use crate::jobs::PresenceEvents;

/// Positions that one read looks at: bounds the time for which the reader is held.
const SPAN: i64 = 5_000;

impl JobReader {
    pub(super) fn presence_events(
        &self,
        minion: &str,
        before: Option<i64>,
    ) -> Result<PresenceEvents> {
        self.read("read events of", |connection| {
            let mut ends = connection.prepare_cached(
                "SELECT (SELECT max(position) FROM events), (SELECT max(position) FROM minion_events),
                        (SELECT min(position) FROM events), (SELECT min(position) FROM minion_events)",
            )?;
            let [newest, newest_of_minions, oldest, oldest_of_minions] =
                ends.query_row([], |row| {
                    let end = |column| row.get::<_, Option<i64>>(column);
                    Ok([end(0)?, end(1)?, end(2)?, end(3)?])
                })?;
            let newest = newest.max(newest_of_minions).unwrap_or(0);
            let oldest = [oldest, oldest_of_minions].into_iter().flatten().min();
            let through = before.map_or(newest, |before| (before - 1).min(newest));
            let after = through.saturating_sub(SPAN);
            let mut statement = connection.prepare_cached(
                "SELECT position, received, tag, data, 0 FROM events
                 WHERE position > :after AND position <= :through
                   AND tag IN ('salt/presence/change', 'salt/key', 'salt/auth', :start)
                 UNION ALL
                 SELECT position, received, tag, data, 1 FROM minion_events
                 WHERE position > :after AND position <= :through
                   AND tag IN ('salt/presence/change', 'salt/key', 'salt/auth', :start)
                 ORDER BY 1 DESC",
            )?;
            let rows = statement.query_map(
                named_params! {
                    ":after": after,
                    ":through": through,
                    ":start": format!("salt/minion/{minion}/start"),
                },
                kept_event,
            )?;
            let events = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let since = connection
                .prepare_cached(
                    "SELECT min(received) FROM (
                         SELECT received FROM (SELECT received FROM events
                             WHERE position > :after ORDER BY position LIMIT 1)
                         UNION ALL SELECT received FROM (SELECT received FROM minion_events
                             WHERE position > :after ORDER BY position LIMIT 1))",
                )?
                .query_row(named_params! {":after": after}, |row| row.get(0))?;
            Ok(PresenceEvents {
                events,
                before: oldest.filter(|oldest| after >= *oldest).map(|_| after + 1),
                since,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DatabaseLimits, JobDatabase};
    use crate::jobs::{NewEvent, Write};

    #[test]
    fn whole_history_is_read_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let mut database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        let event = |number: i64| NewEvent {
            received: number,
            tag: match number % 100 {
                1 => "salt/minion/m1/start".to_owned(),
                2 => "salt/minion/m2/start".to_owned(),
                3 => "salt/presence/change".to_owned(),
                _ => format!("salt/job/{number}/new"),
            },
            data: vec![0x80].into(),
            of_minion: number % 2 == 0,
        };
        let events = (1..=12_000).map(event).collect();
        database
            .commit(&[Write::Events { first: 1, events }])
            .unwrap();
        let reader = database.reader().unwrap();
        let (mut before, mut tags, mut reads) = (None, Vec::new(), 0);
        loop {
            let part = reader.presence_events("m1", before).unwrap();
            tags.extend(
                part.events
                    .iter()
                    .map(|event| (event.received, event.tag.clone())),
            );
            reads += 1;
            before = part.before;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(reads, 3);
        assert_eq!(tags.len(), 240, "two of each hundred");
        assert!(tags.is_sorted_by(|newer, older| newer.0 > older.0));
        assert!(tags.iter().all(|(_, tag)| !tag.contains("m2")));
    }

    #[test]
    fn master_without_events_has_no_history() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        let part = database
            .reader()
            .unwrap()
            .presence_events("m1", None)
            .unwrap();
        assert!(part.events.is_empty() && part.before.is_none() && part.since.is_none());
    }
}
