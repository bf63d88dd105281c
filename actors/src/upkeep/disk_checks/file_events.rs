//! Event about changes below `file_roots`, every `roots_update_interval`, whether or not anything
//! has changed (`fileserver_events`; `update` in `salt/fileserver/roots.py`).
//!
//! Git remotes have events of their own, from the fetch; `minionfs` has none, as in stock.

use std::time::Duration;

use saltern_config::MasterConfig;
use saltern_model::{Event, Tag};
use saltern_requests::events::{ChangedFiles, FileUpdate};
use saltern_requests::{Services, master_event};
use tokio::time::Instant;

use crate::upkeep::maintenance_tasks::TaskError;

/// Stock's default (`DEFAULT_INTERVAL` in `salt/config/__init__.py`), also for an interval of zero.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

/// Periodic check for changed files.
pub(super) struct FileEvents {
    interval: Duration,
    /// When the last check began.
    last: Option<Instant>,
}

impl FileEvents {
    /// `None` if the site does not want them, or `roots` is no backend.
    pub(super) fn of_site(services: &Services) -> Option<Self> {
        if !are_wanted(&services.config) || !services.content.files.has_roots() {
            return None;
        }
        let seconds = services.config.roots_update_interval();
        let seconds = seconds.as_i64().unwrap_or(0);
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let interval = match seconds {
            0 => DEFAULT_INTERVAL,
            seconds => Duration::from_secs(seconds),
        };
        Some(Self {
            interval,
            last: None,
        })
    }

    /// Interval of the checks.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Whether the next check is due.
    pub(super) fn is_due(&self) -> bool {
        // Tolerance, so that a caller with exactly this interval does not come a moment too early
        // each time.
        let tolerance = Duration::from_millis(500);
        self.last
            .is_none_or(|at| at.elapsed() + tolerance >= self.interval)
    }

    /// Checks, and gives the event to fire; `None` if `roots` is no backend.
    pub(super) fn look(&mut self, services: &Services) -> Result<Option<Event>, TaskError> {
        self.last = Some(Instant::now());
        let changes = services.content.files.changes();
        let Some(changes) = changes.map_err(TaskError::of)? else {
            return Ok(None);
        };
        let update = FileUpdate {
            changed: !changes.is_empty(),
            files: Some(ChangedFiles {
                changed: &changes.changed,
                removed: &changes.removed,
                added: &changes.added,
            }),
            backend: "roots",
        };
        let tag = Tag::file_update("roots");
        Ok(Some(master_event(services, tag, &update)))
    }
}

/// `fileserver_events`.
pub(crate) fn are_wanted(config: &MasterConfig) -> bool {
    config.fileserver_events()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_is_due_when_the_interval_has_passed() {
        let mut events = FileEvents {
            interval: Duration::from_secs(60),
            last: None,
        };
        assert!(events.is_due(), "there was none yet");
        events.last = Some(Instant::now());
        assert!(!events.is_due());
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(!events.is_due());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(events.is_due());
    }
}
