//! Keys with what the master knows of their minions: `salt-key -L --details`, a form of our own.

use std::collections::HashMap;
use std::fmt::Write as _;

use saltern_base::clock::{Clock, unix_micros};
use saltern_config::MasterConfig;
use saltern_model::KeyState;
use saltern_model::control::{InventoryRequest, InventoryRow};
use saltern_output::{Color, KEY_LIST_STYLES, OutputOptions};
use saltern_runners::KeyLists;
use saltern_wire::msgpack::Value;
use serde_json::Value as Json;

use super::error::KeyError;
use super::files::KeyFiles;
use crate::minions::{self, span};
use crate::terminal::plain;

/// The heading of the columns.
const HEADING: [&str; 5] = ["id", "age", "last seen", "version", "address"];

/// The most characters of an id or a version in the table.
const MAX_WIDTH: usize = 100;

/// Keys by list, each with its details.
pub(super) struct Details {
    lists: Vec<(String, Vec<Detail>)>,
    now: i64,
}

/// One key. Times are microseconds since 1970.
struct Detail {
    id: String,
    /// When its file was written.
    written: Option<i64>,
    /// Only of an accepted key.
    minion: Option<InventoryRow<Json>>,
}

impl Details {
    /// Looks at the files of the keys, and asks a running master for the rest.
    pub(super) fn of(
        config: &MasterConfig,
        files: &KeyFiles,
        lists: &KeyLists,
    ) -> Result<Self, KeyError> {
        let request = InventoryRequest {
            last_jobs: false,
            target: "*".to_owned(),
            grains: vec!["saltversion".to_owned()],
        };
        let (inventory, _) = minions::inventory(config, &request)?;
        let rows = inventory.minions.into_iter();
        let mut known: HashMap<String, InventoryRow<Json>> =
            rows.map(|row| (row.minion.id.to_string(), row)).collect();
        let mut detailed = Vec::new();
        for (list, keys) in lists.iter() {
            let is_accepted = list == KeyState::Accepted.directory();
            let details = keys.iter().map(|id| Detail {
                id: id.clone(),
                written: files.written(list, id).map(unix_micros),
                minion: is_accepted.then(|| known.remove(id)).flatten(),
            });
            detailed.push((list.to_owned(), details.collect()));
        }
        Ok(Self {
            lists: detailed,
            now: Clock::system().unix_micros(),
        })
    }

    /// The lists in the order of `salt-key -L`, a table each.
    pub(super) fn table(&self, options: &OutputOptions) -> String {
        let mut text = String::new();
        let end = options.colors.code(Color::End);
        for (name, heading, light, color) in KEY_LIST_STYLES {
            let Some((_, keys)) = self.lists.iter().find(|(list, _)| list == name) else {
                continue;
            };
            let (light, color) = (options.colors.code(light), options.colors.code(color));
            text.extend([light, heading, end, "\n"]);
            if keys.is_empty() {
                continue;
            }
            let rows: Vec<[String; 5]> = keys.iter().map(|key| key.cells(self.now)).collect();
            let mut widths = HEADING.map(str::len);
            for row in &rows {
                for (width, cell) in widths.iter_mut().zip(row) {
                    *width = cell.chars().count().max(*width);
                }
            }
            let heading = HEADING.map(str::to_owned);
            for row in std::iter::once(&heading).chain(&rows) {
                let mut line = String::new();
                for (width, cell) in widths.iter().zip(row) {
                    let _ = write!(line, "{cell:width$}  ");
                }
                text.extend([color, line.trim_end(), end, "\n"]);
            }
        }
        text
    }

    /// The lists as a mapping, for other outputters.
    pub(super) fn into_value(self) -> Value {
        let lists = self.lists.into_iter().map(|(list, keys)| {
            let keys = keys.into_iter();
            let keys = keys.map(|key| (Value::from(key.id.as_str()), key.value()));
            (Value::from(list), Value::Map(keys.collect()))
        });
        Value::Map(lists.collect())
    }
}

impl Detail {
    fn version(&self) -> Option<&str> {
        let grain = self.minion.as_ref()?.grains.first()?.as_ref()?;
        grain.as_str()
    }

    fn address(&self) -> Option<String> {
        let address = self.minion.as_ref()?.minion.address?;
        Some(address.to_string())
    }

    fn last_seen(&self) -> Option<i64> {
        self.minion.as_ref()?.minion.last_heard
    }

    fn cells(&self, now: i64) -> [String; 5] {
        let none = || "-".to_owned();
        let is_present = self
            .minion
            .as_ref()
            .is_some_and(|row| row.minion.is_present);
        let since = |at: i64| span(now.saturating_sub(at));
        let last_seen = self.last_seen().map(|at| format!("{} ago", since(at)));
        [
            plain(&self.id, MAX_WIDTH),
            self.written.map_or_else(none, since),
            match is_present {
                true => "connected".to_owned(),
                false => last_seen.unwrap_or_else(none),
            },
            self.version()
                .map_or_else(none, |text| plain(text, MAX_WIDTH)),
            self.address().unwrap_or_else(none),
        ]
    }

    fn value(&self) -> Value {
        let number = |number: Option<i64>| number.map_or(Value::Nil, Value::from);
        let text = |text: Option<&str>| text.map_or(Value::Nil, Value::from);
        let present = self.minion.as_ref().map(|row| row.minion.is_present);
        Value::map([
            ("written", number(self.written)),
            ("last_seen", number(self.last_seen())),
            ("present", present.map_or(Value::Nil, Value::from)),
            ("version", text(self.version())),
            ("address", text(self.address().as_deref())),
        ])
    }
}
