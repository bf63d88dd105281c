//! The four states of a minion's key.

use std::fmt;

use crate::Compat;

/// In which directory of the PKI tree a minion's key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyState {
    /// `minions/`
    Accepted,
    /// `minions_pre/`
    Pending,
    /// `minions_rejected/`
    Rejected,
    /// `minions_denied/`
    Denied,
}

impl KeyState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Pending, Self::Rejected, Self::Denied];

    /// Every state, in the order in which a release lists them (`Key.list_keys`).
    pub fn in_listings(compat: Compat) -> [Self; 4] {
        match compat {
            Compat::V3006 | Compat::V3007 => Self::ALL,
            Compat::V3008 => [Self::Pending, Self::Rejected, Self::Accepted, Self::Denied],
        }
    }

    /// The name of its directory under `pki_dir`.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Accepted => "minions",
            Self::Pending => "minions_pre",
            Self::Rejected => "minions_rejected",
            Self::Denied => "minions_denied",
        }
    }
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Pending => "pending",
            Self::Rejected => "rejected",
            Self::Denied => "denied",
        })
    }
}

/// Names of keys in the order of a listing (`sorted_ignorecase` of `salt/utils/data.py`).
#[must_use]
pub fn sorted_ignoring_case(mut names: Vec<String>) -> Vec<String> {
    let is_lower = |name: &String| {
        name.bytes()
            .all(|b| b.is_ascii() && !b.is_ascii_uppercase())
    };
    if names.iter().all(is_lower) {
        names.sort_unstable();
    } else {
        names.sort_by_cached_key(|name| name.to_lowercase());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_as_stock_sorts_them() {
        let names = ["b", "A", "a", "C"].map(str::to_owned).to_vec();
        assert_eq!(sorted_ignoring_case(names), ["A", "a", "b", "C"]);
    }
}
