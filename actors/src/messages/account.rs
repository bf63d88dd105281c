//! Account of an open job, as the tracker gives it.
//!
//! Sent over the control socket as lines, with tabs between their fields.

use std::fmt::Write as _;
use std::time::Duration;

use saltern_model::MinionId;

/// A minion that has not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub minion: MinionId,
    /// Its state in one word, as on the bus: `expected`, `delivered`, `running`, `unreachable` or
    /// `unknown`.
    pub state: String,
    /// The evidence for it, for people.
    pub why: String,
}

/// Account of an open job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Rounds of probes so far.
    pub rounds: u32,
    /// Time until the next look at the job, if one is scheduled.
    pub next_look: Option<Duration>,
    /// Minions that have not returned.
    pub missing: Vec<Missing>,
}

impl Account {
    /// For the control socket.
    pub(crate) fn to_text(&self) -> String {
        let next = self.next_look.map_or(-1, |time| time.as_millis() as i64);
        let mut text = format!("open\t{}\t{next}\n", self.rounds);
        for one in &self.missing {
            let why = one.why.replace(['\t', '\n'], " ");
            let _ = writeln!(text, "{}\t{}\t{why}", one.minion, one.state);
        }
        text
    }

    /// What [`Account::to_text`] wrote; `None` of anything else.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut head = lines.next()?.strip_prefix("open\t")?.split('\t');
        let rounds = head.next()?.parse().ok()?;
        let next: i64 = head.next()?.parse().ok()?;
        let missing = lines.map(|line| {
            let mut fields = line.splitn(3, '\t');
            Some(Missing {
                minion: MinionId::parse(fields.next()?).ok()?,
                state: fields.next()?.to_owned(),
                why: fields.next()?.to_owned(),
            })
        });
        Some(Self {
            rounds,
            next_look: u64::try_from(next).ok().map(Duration::from_millis),
            missing: missing.collect::<Option<_>>()?,
        })
    }
}
