//! A minion's keys as one record: in each of the four directories one at most.

use saltern_crypto::clean_key;
use saltern_model::KeyState;

use crate::shared_state::digest;
pub(super) use crate::shared_state::digest::Digest;

/// Longest text of a key that is shared: one of 16384 bits has less than 3 KiB.
pub(super) const MAX_KEY_LEN: usize = 16 << 10;

/// The keys of a minion as they are compared, in the order of [`KeyState::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digests(pub(super) [Option<Digest>; 4]);

/// The keys of a minion, in the order of [`KeyState::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyRecord(pub(super) [Option<String>; 4]);

/// The number of a state in rows.
const fn number_of(state: KeyState) -> u8 {
    match state {
        KeyState::Accepted => 1,
        KeyState::Pending => 2,
        KeyState::Rejected => 3,
        KeyState::Denied => 4,
    }
}

/// The place of a state in a record.
pub(super) const fn place_of(state: KeyState) -> usize {
    number_of(state) as usize - 1
}

/// The digest of a key. Line ends and blanks around it do not count.
pub(super) fn digest(pem: &str) -> Digest {
    digest::digest(clean_key(pem).as_bytes())
}

impl Digests {
    pub(super) fn get(&self, state: KeyState) -> Option<Digest> {
        self.0.get(place_of(state)).copied().flatten()
    }

    pub(super) fn set(&mut self, state: KeyState, digest: Option<Digest>) {
        if let Some(slot) = self.0.get_mut(place_of(state)) {
            *slot = digest;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The key by which the minion is let in, if it is.
    pub(super) fn admitted(&self) -> Option<Digest> {
        match self.get(KeyState::Rejected) {
            Some(_) => None,
            None => self.get(KeyState::Accepted),
        }
    }
}

impl KeyRecord {
    pub(super) fn get(&self, state: KeyState) -> Option<&str> {
        self.0.get(place_of(state))?.as_deref()
    }

    pub(super) fn set(&mut self, state: KeyState, pem: Option<String>) {
        if let Some(slot) = self.0.get_mut(place_of(state)) {
            *slot = pem;
        }
    }

    pub(super) fn digests(&self) -> Digests {
        let mut digests = Digests::default();
        for state in KeyState::ALL {
            digests.set(state, self.get(state).map(digest));
        }
        digests
    }

    /// The content of a row.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut content = Vec::new();
        for state in KeyState::ALL {
            if let Some(pem) = self.get(state) {
                content.push(number_of(state));
                let length = u32::try_from(pem.len()).unwrap_or(u32::MAX);
                content.extend_from_slice(&length.to_be_bytes());
                content.extend_from_slice(pem.as_bytes());
            }
        }
        content
    }

    /// Reads the content of a row; `None` for one that this release does not know.
    pub(super) fn decode(mut content: &[u8]) -> Option<Self> {
        let mut record = Self::default();
        while let Some((number, rest)) = content.split_first() {
            let state = KeyState::ALL
                .into_iter()
                .find(|state| number_of(*state) == *number)?;
            let (length, rest) = rest.split_first_chunk()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (pem, rest) = rest.split_at_checked(length)?;
            if length > MAX_KEY_LEN || record.get(state).is_some() {
                return None;
            }
            record.set(state, Some(std::str::from_utf8(pem).ok()?.to_owned()));
            content = rest;
        }
        Some(record)
    }
}

/// Merges two changes of what was there before: the keys that a member has, and those of a newer row. Changes of
/// different directories are both kept. Of the same one the member's comes later in the order of the table, so it
/// counts; but no change undoes that an accepted key was taken away, or that one was rejected. Whether two
/// changes met.
pub(super) fn merge(before: &Digests, own: &Digests, row: &Digests) -> (Digests, bool) {
    let mut merged = *own;
    let mut have_met = false;
    for state in KeyState::ALL {
        let (before, own, row) = (before.get(state), own.get(state), row.get(state));
        let kept = if own == before || own == row {
            row
        } else if row == before {
            own
        } else {
            have_met = true;
            match state {
                KeyState::Accepted if row.is_none() => None,
                KeyState::Rejected if own.is_none() => row,
                _ => own,
            }
        };
        merged.set(state, kept);
    }
    (merged, have_met)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digests() -> impl Strategy<Value = Digests> {
        let key = proptest::option::of((1..4_u8).prop_map(|byte| [byte; 16]));
        proptest::array::uniform4(key).prop_map(Digests)
    }

    proptest! {
        #[test]
        fn merge_keeps_lone_changes_and_every_revocation(
            before in digests(), own in digests(), row in digests()
        ) {
            prop_assert_eq!(merge(&before, &before, &row), (row, false));
            prop_assert_eq!(merge(&before, &own, &before), (own, false));
            prop_assert_eq!(merge(&before, &own, &own), (own, false));
            let (merged, _) = merge(&before, &own, &row);
            for state in KeyState::ALL {
                let from = [own.get(state), row.get(state)];
                prop_assert!(from.contains(&merged.get(state)), "no key is made");
            }
            let accepted = |keys: &Digests| keys.get(KeyState::Accepted);
            if accepted(&before).is_some() && (accepted(&own).is_none() || accepted(&row).is_none()) {
                prop_assert_eq!(accepted(&merged), None);
            }
            let rejected = |keys: &Digests| keys.get(KeyState::Rejected);
            let is_new = |keys: &Digests| rejected(keys).is_some() && rejected(keys) != rejected(&before);
            if is_new(&own) || is_new(&row) {
                prop_assert!(rejected(&merged).is_some());
            }
        }

        #[test]
        fn record_is_read_as_it_was_written(texts in proptest::array::uniform4(proptest::option::of(".{0,40}"))) {
            let record = KeyRecord(texts);
            prop_assert_eq!(KeyRecord::decode(&record.encode()), Some(record));
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(record) = KeyRecord::decode(&bytes) {
                prop_assert!(record.0.iter().flatten().all(|pem| pem.len() <= MAX_KEY_LEN));
            }
        }
    }

    #[test]
    fn record_with_two_keys_of_one_state_or_a_long_one_is_refused() {
        let one = [1, 0, 0, 0, 1, b'k'];
        assert!(KeyRecord::decode(&one).is_some());
        assert_eq!(KeyRecord::decode(&[one, one].concat()), None);
        let mut record = KeyRecord::default();
        record.set(KeyState::Denied, Some("k".repeat(MAX_KEY_LEN)));
        assert!(KeyRecord::decode(&record.encode()).is_some());
        record.set(KeyState::Denied, Some("k".repeat(MAX_KEY_LEN + 1)));
        assert_eq!(KeyRecord::decode(&record.encode()), None);
    }
}
