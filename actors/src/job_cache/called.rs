//! What came of a call of a returner, and which of its rows are done with.

use saltern_bridge::BridgeError;

/// What came of a call.
pub(super) struct Called {
    /// What became of the first of its rows: nothing, or a problem.
    pub(super) told: Vec<Option<String>>,
    /// Why no more is known, of a call that did not come back.
    pub(super) end: Option<End>,
}

/// The end of a call that did not come back.
pub(super) struct End {
    pub(super) problem: String,
    pub(super) fault: Fault,
}

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// That of the row behind those that were told: Python did not come back from it.
    Row,
    /// Together they are too large for the pipe; nothing was tried.
    Size,
    /// That of no row.
    Other,
}

impl End {
    /// Why a call ended of whose rows nothing was told, or something.
    pub(super) fn of(error: &BridgeError, is_first_row: bool) -> Self {
        let fault = match error {
            BridgeError::Died { .. } => Fault::Row,
            // Others may have used up the time.
            BridgeError::Timeout { .. } if is_first_row => Fault::Row,
            BridgeError::Unfit { .. } => Fault::Size,
            _ => Fault::Other,
        };
        Self {
            problem: error.to_string(),
            fault,
        }
    }
}

impl Called {
    /// With how many of the first rows the returner is done. What failed behind the last success is
    /// tried again: perhaps nothing works now. On the last try that ends with the row at fault; one
    /// that is too large has no other.
    pub(super) fn done(&self, is_last_try: bool) -> usize {
        let last = self.told.iter().rposition(Option::is_none);
        let is_over = |end: &End| match end.fault {
            Fault::Row => is_last_try,
            Fault::Size => true,
            Fault::Other => false,
        };
        match last {
            Some(last) => last + 1,
            None if self.end.as_ref().is_some_and(is_over) => self.told.len() + 1,
            None => 0,
        }
    }

    /// Whether fewer rows might do.
    pub(super) fn is_too_large(&self) -> bool {
        let end = self.end.as_ref();
        end.is_some_and(|end| end.fault == Fault::Size)
    }

    /// Why the last one failed of those that did.
    pub(super) fn problem(&self) -> Option<&str> {
        let told = || self.told.iter().flatten().last().map(String::as_str);
        let end = self.end.as_ref().map(|end| end.problem.as_str());
        end.or_else(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Option<&str> = None;
    const FAILED: Option<&str> = Some("failed");

    fn called(told: &[Option<&str>], end: Option<BridgeError>) -> Called {
        Called {
            told: told.iter().map(|said| said.map(str::to_owned)).collect(),
            end: end.map(|error| End::of(&error, told.is_empty())),
        }
    }

    fn died() -> Option<BridgeError> {
        let (what, how) = ("it".to_owned(), "ended".to_owned());
        Some(BridgeError::Died { what, how })
    }

    fn late() -> Option<BridgeError> {
        Some(BridgeError::Timeout {
            what: "it".to_owned(),
            milliseconds: 1,
        })
    }

    fn done(called: &Called) -> (usize, usize) {
        (called.done(false), called.done(true))
    }

    #[test]
    fn what_fails_is_tried_again_until_something_behind_it_succeeds() {
        for (told, expected) in [
            (&[KEPT, KEPT][..], 2),
            (&[FAILED, KEPT, FAILED], 2),
            (&[FAILED, FAILED], 0),
            (&[], 0),
        ] {
            assert_eq!(done(&called(told, None)), (expected, expected), "{told:?}");
        }
    }

    #[test]
    fn what_was_stored_before_python_ended_or_was_too_slow_is_done() {
        for end in [died, late] {
            assert_eq!(done(&called(&[KEPT, KEPT], end())), (2, 2));
            assert_eq!(done(&called(&[KEPT, FAILED], end())), (1, 1));
            // The row at fault comes first now, and is passed over if that does not help.
            assert_eq!(done(&called(&[], end())), (0, 1));
        }
        assert_eq!(done(&called(&[FAILED, FAILED], died())), (0, 3));
        // Rows that failed had their share of the time.
        assert_eq!(done(&called(&[FAILED, FAILED], late())), (0, 0));
    }

    #[test]
    fn a_row_that_is_too_large_alone_is_passed_over_at_once() {
        let unfit = BridgeError::Unfit {
            what: "it".to_owned(),
            problem: "its arguments have too many bytes".to_owned(),
        };
        let called = called(&[], Some(unfit));
        assert!(called.is_too_large());
        assert_eq!(done(&called), (1, 1));
        assert!(called.problem().is_some_and(|text| text.contains("bytes")));
    }

    #[test]
    fn without_a_helper_no_row_is_at_fault() {
        let busy = BridgeError::Busy {
            what: "it".to_owned(),
        };
        assert_eq!(done(&called(&[], Some(busy))), (0, 0));
    }
}
