//! Calls of returners, packed for the pipe: what the functions are called that stock calls, and
//! with which arguments.
//!
//! Loads and the data of events are spliced in as they are; nothing here looks into them.

use bytes::Bytes;
use saltern_wire::msgpack::Encoder;

/// A call of one function of a returner (`salt/returners`, `salt/utils/job.py`).
pub enum ReturnerCall<'a> {
    /// Events, each with its tag and its packed data.
    EventReturn(&'a [(String, Bytes)]),
    /// A job has this jid.
    PrepJid {
        /// The jid.
        jid: &'a str,
        /// Its returns need not be kept.
        nocache: bool,
    },
    /// A load is kept under a jid: a job's own with the minions that are expected to return, or, as
    /// stock does it with every return, the return.
    SaveLoad {
        /// The jid.
        jid: &'a str,
        /// The packed load.
        load: &'a [u8],
        /// Of a job's own load: those minions.
        minions: Option<Vec<&'a str>>,
    },
    /// A packed return.
    Returner(&'a [u8]),
    /// When the last return of a job came.
    UpdateEndtime {
        /// The jid.
        jid: &'a str,
        /// The time in stock's words.
        endtime: String,
    },
}

/// Calls that belong together, in their order. They have failed if one has that
/// decides; the others are tried whatever becomes of them.
pub type Step<'a> = Vec<ReturnerCall<'a>>;

impl ReturnerCall<'_> {
    /// The name of the function.
    pub fn function(&self) -> &'static str {
        match self {
            Self::EventReturn(_) => "event_return",
            Self::PrepJid { .. } => "prep_jid",
            Self::SaveLoad { .. } => "save_load",
            Self::Returner(_) => "returner",
            Self::UpdateEndtime { .. } => "update_endtime",
        }
    }

    /// Whether without it nothing is stored.
    fn decides(&self) -> bool {
        match self {
            Self::EventReturn(_) | Self::Returner(_) => true,
            Self::SaveLoad { minions, .. } => minions.is_some(),
            Self::PrepJid { .. } | Self::UpdateEndtime { .. } => false,
        }
    }

    pub(crate) fn pack(&self, out: &mut Encoder<'_>) {
        out.map(4).str("fun").str(self.function());
        out.str("decides").bool(self.decides());
        match self {
            Self::EventReturn(events) => {
                out.str("args").array(1).array(events.len());
                for (tag, data) in *events {
                    out.map(2).str("data").raw(data).str("tag").str(tag);
                }
                out.str("kwargs").map(0);
            }
            Self::PrepJid { jid, nocache } => {
                out.str("args").array(0).str("kwargs").map(2);
                out.str("nocache").bool(*nocache);
                out.str("passed_jid").str(jid);
            }
            Self::SaveLoad { jid, load, minions } => {
                let count = 2 + usize::from(minions.is_some());
                out.str("args").array(count).str(jid).raw(load);
                if let Some(minions) = minions {
                    out.array(minions.len());
                    for minion in minions {
                        out.str(minion);
                    }
                }
                out.str("kwargs").map(0);
            }
            Self::Returner(load) => {
                out.str("args").array(1).raw(load);
                out.str("kwargs").map(0);
            }
            Self::UpdateEndtime { jid, endtime } => {
                out.str("args").array(2).str(jid).str(endtime);
                out.str("kwargs").map(0);
            }
        }
    }
}
