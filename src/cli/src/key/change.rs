//! Accepts, rejects and deletes keys in their files, and reports each on the master's event bus.

use std::collections::HashSet;

use saltern_client::EventSender;
use saltern_config::MasterConfig;
use saltern_model::{Compat, KeyState};
use saltern_runners::KeyLists;
use serde::Serialize;

use super::action::Change;
use super::caches;
use super::error::KeyError;
use super::files::KeyFiles;
use crate::console::complain;
use crate::options::{KeyCommand, KeyOptions};

/// The tag of an event about a key.
const TAG: &str = "salt/key";

/// Lists that a change takes keys from, in the order of stock's listing.
pub(super) fn sources(change: Change, options: &KeyOptions) -> Vec<&'static str> {
    let is_set = |option: Option<bool>| option == Some(true);
    let all = is_set(options.include_all);
    let state = |state: KeyState, is_wanted: bool| is_wanted.then(|| state.directory());
    let mut sources = vec![state(KeyState::Pending, true)];
    match change {
        Change::Accept => {
            let rejected = all || is_set(options.include_rejected);
            sources.push(state(KeyState::Rejected, rejected));
        }
        Change::Reject => {
            let accepted = all || is_set(options.include_accepted);
            sources.push(state(KeyState::Accepted, accepted));
        }
        Change::Delete => return KeyState::ALL.map(KeyState::directory).to_vec(),
    }
    sources.push(state(KeyState::Denied, is_set(options.include_denied)));
    sources.into_iter().flatten().collect()
}

/// Changes keys of a master that need not run.
pub(super) struct KeyChanges<'a> {
    pub(super) config: &'a MasterConfig,
    pub(super) files: &'a KeyFiles,
    pub(super) command: &'a KeyCommand,
}

impl KeyChanges<'_> {
    /// Changes the keys of these lists; gives the lists of those that were changed, as stock shows
    /// them afterwards.
    pub(super) fn apply(&self, change: Change, chosen: &KeyLists) -> Result<KeyLists, KeyError> {
        let changed = match change {
            Change::Accept => {
                let moved = self.move_all(chosen, KeyState::Accepted)?;
                self.files.managed()?.of_changed(&moved)
            }
            Change::Reject => {
                let moved = self.move_all(chosen, KeyState::Rejected)?;
                self.after(&[])?;
                self.files.managed()?.of_changed(&moved)
            }
            Change::Delete => {
                self.delete_all(chosen)?;
                let kept = match self.command.preserves_minions() {
                    true => chosen.keys(KeyState::Accepted.directory()),
                    false => &[],
                };
                self.after(kept)?;
                chosen.clone()
            }
        };
        Ok(changed)
    }

    fn after(&self, kept: &[String]) -> Result<(), KeyError> {
        caches::purge(self.config, self.files, kept)?;
        caches::rotate(self.config, self.command.rotates_aes_key())
    }

    /// Moves the keys that a minion could use; gives the lists without the others. 3006 and 3007
    /// look only where they accept.
    fn move_all(&self, chosen: &KeyLists, to: KeyState) -> Result<KeyLists, KeyError> {
        let is_checked = to == KeyState::Accepted || self.files.compat() == Compat::V3008;
        let mut events = self.events();
        let mut moved = chosen.clone();
        for (list, keys) in chosen.iter() {
            let mut unusable = HashSet::new();
            for key in keys {
                if is_checked && !self.files.is_valid(list, key)? {
                    unusable.insert(key.clone());
                    continue;
                }
                // Stock passes over a key that is gone by now.
                if let Ok(text) = self.files.move_key(list, to, key) {
                    fire_key_event(&mut events, key, &self.moved(to), text);
                }
            }
            moved.remove(list, &unusable);
            for key in keys.iter().filter(|key| unusable.contains(*key)) {
                complain(&format!("Unable to accept invalid key for {key}."));
            }
        }
        Ok(moved)
    }

    fn delete_all(&self, chosen: &KeyLists) -> Result<(), KeyError> {
        let mut events = self.events();
        for (list, keys) in chosen.iter() {
            for key in keys {
                if self.files.remove(list, key)? {
                    fire_key_event(&mut events, key, "delete", None);
                }
            }
        }
        Ok(())
    }

    /// The word of an event.
    fn moved(&self, to: KeyState) -> String {
        match (self.files.compat(), to) {
            (Compat::V3006 | Compat::V3007, KeyState::Accepted) => "accept".to_owned(),
            (Compat::V3006 | Compat::V3007, _) => "reject".to_owned(),
            (Compat::V3008, state) => state.to_string(),
        }
    }

    fn events(&self) -> Option<EventSender> {
        EventSender::connect(&self.config.sock_dir, self.files.compat())
    }
}

/// Data of `salt/key`.
#[derive(Serialize)]
struct KeyChanged<'a> {
    result: bool,
    act: &'a str,
    id: &'a str,
    /// The key, where it is accepted or rejected.
    #[serde(rename = "pub", skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// Fires the event of a key; without a master there is nobody to hear it.
fn fire_key_event(events: &mut Option<EventSender>, key: &str, act: &str, text: Option<String>) {
    let data = KeyChanged {
        result: true,
        act,
        id: key,
        text,
    };
    let failed = events
        .as_mut()
        .is_some_and(|events| events.fire(TAG, &data).is_err());
    if failed {
        *events = None;
    }
}
