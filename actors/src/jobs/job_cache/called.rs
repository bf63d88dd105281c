//! Result of a returner call, and how many of its rows are done.

use saltern_bridge::BridgeError;

/// Result of a call.
pub(super) struct Called {
    /// Results of the first rows: success, or a problem.
    pub(super) results: Vec<Option<String>>,
    /// Why the call did not finish.
    pub(super) end: Option<End>,
}

/// Failure of a call that did not finish.
pub(super) struct End {
    pub(super) problem: String,
    pub(super) fault: Fault,
}

/// Cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The row behind those with a result: it killed Python.
    Row,
    /// The call is too large for the pipe; nothing was tried.
    Size,
    /// No row.
    Other,
}

impl End {
    /// Classifies the error of a call; `is_first_row` when no row has a result.
    pub(super) fn of(error: &BridgeError, is_first_row: bool) -> Self {
        let fault = match error {
            BridgeError::Died { .. } => Fault::Row,
            // Earlier rows may have used up the time.
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
    /// Number of leading rows that are done. Failures behind the last success are retried: perhaps
    /// nothing works now. The last try includes the row at fault; for one that is too large every
    /// try is the last.
    pub(super) fn done(&self, is_last_try: bool) -> usize {
        let last = self.results.iter().rposition(Option::is_none);
        let is_over = |end: &End| match end.fault {
            Fault::Row => is_last_try,
            Fault::Size => true,
            Fault::Other => false,
        };
        match last {
            Some(last) => last + 1,
            None if self.end.as_ref().is_some_and(is_over) => self.results.len() + 1,
            None => 0,
        }
    }

    /// Whether a smaller call may work.
    pub(super) fn is_too_large(&self) -> bool {
        let end = self.end.as_ref();
        end.is_some_and(|end| end.fault == Fault::Size)
    }

    /// The last failure.
    pub(super) fn problem(&self) -> Option<&str> {
        let last = || self.results.iter().flatten().last().map(String::as_str);
        let end = self.end.as_ref().map(|end| end.problem.as_str());
        end.or_else(last)
    }
}

#[cfg(test)]
mod tests {
    use saltern_bridge::FrameTooLong;

    use super::*;

    const KEPT: Option<&str> = None;
    const FAILED: Option<&str> = Some("failed");

    fn called(results: &[Option<&str>], end: Option<BridgeError>) -> Called {
        Called {
            results: results.iter().map(|said| said.map(str::to_owned)).collect(),
            end: end.map(|error| End::of(&error, results.is_empty())),
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
    fn failure_is_retried_until_a_later_row_succeeds() {
        for (results, expected) in [
            (&[KEPT, KEPT][..], 2),
            (&[FAILED, KEPT, FAILED], 2),
            (&[FAILED, FAILED], 0),
            (&[], 0),
        ] {
            assert_eq!(
                done(&called(results, None)),
                (expected, expected),
                "{results:?}"
            );
        }
    }

    #[test]
    fn rows_stored_before_a_crash_or_timeout_are_done() {
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
    fn oversized_row_is_skipped_at_once() {
        let unfit = BridgeError::Unfit {
            what: "it".to_owned(),
            problem: FrameTooLong { bytes: 64 << 20 },
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
