//! The decision about a minion's public key when the minion authenticates.
//!
//! A pure function of what is on disk and what the site's rules say, in the order of stock's
//! `_auth` (`salt/channel/server.py` of 3006 and 3007, `salt/master.py` of 3008). What it decides
//! is carried out by the request handler.

use saltern_model::KeyState;

/// The facts that the decision needs.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// `open_mode`: take every key.
    pub open_mode: bool,
    /// An autoreject rule matches this minion.
    pub auto_reject: bool,
    /// An autosign rule matches this minion, or `auto_accept` is on.
    pub auto_sign: bool,
    /// The state and the text of the key on disk. A denied key does not count here.
    pub known: Option<(KeyState, &'a str)>,
    /// The key that the minion presents.
    pub presented: &'a str,
}

/// Verdict on the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on with the key that is on disk.
    Proceed,
    /// Put the key among the accepted ones (and out of the pending ones), then go on.
    Accept,
    /// Put a new key among the pending ones; the minion retries later.
    Pend,
    /// The key is pending already; the minion retries later.
    StillPending,
    /// Refuse, because the key lies among the rejected ones.
    Rejected,
    /// Put the key among the rejected ones and refuse.
    Reject,
    /// Put the key among the denied ones and refuse: another key is known under this id.
    Deny,
    /// Refuse: there is no key to accept.
    NoKey,
}

/// Decides.
pub fn decide(situation: &Situation<'_>) -> Decision {
    let same = |on_disk: &str| same_key(on_disk, situation.presented);
    if situation.open_mode {
        return match situation.known {
            _ if situation.presented.trim().is_empty() => Decision::NoKey,
            Some((KeyState::Accepted, key)) if same(key) => Decision::Proceed,
            _ => Decision::Accept,
        };
    }
    match situation.known {
        Some((KeyState::Rejected, _)) => Decision::Rejected,
        Some((KeyState::Accepted, key)) if same(key) => Decision::Proceed,
        Some((KeyState::Accepted, _)) => Decision::Deny,
        Some((KeyState::Pending, _)) if situation.auto_reject => Decision::Reject,
        Some((KeyState::Pending, key)) if !same(key) => Decision::Deny,
        Some((KeyState::Pending, _)) if situation.auto_sign => Decision::Accept,
        Some((KeyState::Pending, _)) => Decision::StillPending,
        Some((KeyState::Denied, _)) | None if situation.auto_reject => Decision::Reject,
        Some((KeyState::Denied, _)) | None if situation.auto_sign => Decision::Accept,
        Some((KeyState::Denied, _)) | None => Decision::Pend,
    }
}

/// Whether two PEM texts are the same key but for white space at the ends and the kind of line
/// break (stock's `compare_keys`).
fn same_key(a: &str, b: &str) -> bool {
    a.trim()
        .lines()
        .map(str::trim_end)
        .eq(b.trim().lines().map(str::trim_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_decisions_follow_stock_for_every_combination() {
        use Decision::*;
        use KeyState::{Accepted, Pending, Rejected};
        // open_mode, auto_reject, auto_sign, known, presented
        let table = [
            (false, false, false, None, "A", Pend),
            (false, false, true, None, "A", Accept),
            (false, true, false, None, "A", Reject),
            (false, true, true, None, "A", Reject),
            (false, false, false, Some((Pending, "A")), "A", StillPending),
            (false, false, false, Some((Pending, "A")), "B", Deny),
            (false, false, true, Some((Pending, "A")), "A", Accept),
            (false, false, true, Some((Pending, "A")), "B", Deny),
            (false, true, true, Some((Pending, "A")), "B", Reject),
            (false, false, false, Some((Accepted, "A")), "A", Proceed),
            (false, false, false, Some((Accepted, "A\n")), "A", Proceed),
            (false, false, true, Some((Accepted, "A")), "B", Deny),
            (false, true, false, Some((Accepted, "A")), "A", Proceed),
            (
                false,
                false,
                true,
                Some((Rejected, "A")),
                "A",
                super::Decision::Rejected,
            ),
            (true, true, false, None, "A", Accept),
            (true, false, false, Some((Rejected, "A")), "A", Accept),
            (true, false, false, Some((Accepted, "A")), "B", Accept),
            (true, false, false, Some((Accepted, "A")), "A", Proceed),
            (true, false, false, Some((Accepted, "A")), " \n", NoKey),
        ];
        for (open_mode, auto_reject, auto_sign, known, presented, expected) in table {
            let situation = Situation {
                open_mode,
                auto_reject,
                auto_sign,
                known,
                presented,
            };
            assert_eq!(decide(&situation), expected, "{situation:?}");
        }
    }

    #[test]
    fn keys_differ_by_more_than_line_ends() {
        assert!(same_key(
            "-----BEGIN\r\nabc\r\n-----END\n",
            "-----BEGIN\nabc\n-----END"
        ));
        assert!(!same_key(
            "-----BEGIN\nabc\n-----END",
            "-----BEGIN\nabd\n-----END"
        ));
        assert!(!same_key("a", "a\nb"));
    }
}
