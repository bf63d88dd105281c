//! Timing of a job: an interval, or slots of local time.
//!
//! A slot is a local time without a zone. Whether that is one instant, two or none when the clocks
//! change is decided in `local_time.rs`.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::CronParser;
use jiff::SignedDuration;
use jiff::civil::DateTime;

use super::moment::Moment;

/// Timing of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Timing {
    /// `seconds`, `minutes`, … together.
    Every(SignedDuration),
    /// `once`.
    Once(DateTime),
    /// `when`: the next of these.
    When(Vec<Moment>),
    /// `cron`.
    Cron(Box<CronSlots>),
}

impl Timing {
    /// The first slot after a local time, or at it. `None` when there is none, and for an interval.
    pub(super) fn slot_after(&self, at: DateTime, inclusive: bool) -> Option<DateTime> {
        match self {
            Self::Every(_) => None,
            Self::Once(once) => Some(*once).filter(|once| *once > at || (inclusive && *once == at)),
            Self::When(moments) => {
                let next = |moment: &Moment| moment.next(at, inclusive);
                moments.iter().filter_map(next).min()
            }
            Self::Cron(cron) => cron.cron.find_next_occurrence(&at, inclusive).ok(),
        }
    }

    /// The last slot before a local time.
    pub(super) fn slot_before(&self, at: DateTime) -> Option<DateTime> {
        match self {
            Self::Every(_) => None,
            Self::Once(once) => Some(*once).filter(|once| *once < at),
            Self::When(moments) => {
                let before = |moment: &Moment| moment.before(at);
                moments.iter().filter_map(before).max()
            }
            Self::Cron(cron) => cron.cron.find_previous_occurrence(&at, false).ok(),
        }
    }

    /// Whether a past slot is dropped: stock catches up with a cron job, however late, and with no
    /// other slot (`_handle_when`, `_handle_once` in `salt/utils/schedule.py`).
    pub(super) fn can_be_missed(&self) -> bool {
        matches!(self, Self::Once(_) | Self::When(_))
    }
}

/// A cron expression.
#[derive(Clone, Debug)]
pub(super) struct CronSlots {
    text: String,
    cron: Cron,
}

impl PartialEq for CronSlots {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl CronSlots {
    /// Parses an expression of stock's `croniter`: five fields, a sixth for seconds, a seventh for
    /// years, or a name such as `@daily`.
    ///
    /// # Errors
    /// The fault in it.
    pub(super) fn parse(text: &str) -> Result<Self, CronError> {
        let mut fields: Vec<&str> = text.split_whitespace().collect();
        // Seconds stand in front here.
        if matches!(fields.len(), 6 | 7) {
            let seconds = fields.remove(5);
            fields.insert(0, seconds);
        }
        let cron = CronParser::new().parse(&fields.join(" "))?;
        Ok(Self {
            text: text.to_owned(),
            cron,
        })
    }
}
