//! Traces of open jobs: a span for each return, from when the job was handed on until the return
//! was stored, in the trace of the client's request.
//!
//! The request by which a minion returns is traced too; but stock's minions begin a new trace for
//! it, because the process that sends it is another than the one that ran the job.

use indexmap::IndexMap;
use saltern_base::trace::{Attribute, Kind, SpanParent};
use saltern_model::Jid;
use tokio::time::Instant;

use crate::messages::MinionReturned;

/// Jobs whose traces are remembered; beyond that the oldest are evicted.
const MAX_JOBS: usize = 4096;

/// Trace positions of open jobs.
#[derive(Default)]
pub(super) struct JobTraces(IndexMap<Jid, (SpanParent, Instant)>);

impl JobTraces {
    /// A job begins, with this parent span if it is traced.
    pub(super) fn begin(&mut self, jid: &Jid, place: Option<&SpanParent>) {
        let Some(place) = place else {
            return;
        };
        if self.0.len() >= MAX_JOBS {
            self.0.shift_remove_index(0);
        }
        self.0.insert(jid.clone(), (place.clone(), Instant::now()));
    }

    /// A minion has returned.
    pub(super) fn returned(&self, returned: &MinionReturned) {
        if let Some((place, began)) = self.0.get(&returned.jid) {
            let attributes = [
                ("salt.jid", returned.jid.as_str().into()),
                ("salt.req.minion_id", returned.minion.as_str().into()),
                ("salt.retcode", Attribute::Number(returned.retcode)),
            ];
            place.record(
                "salt.job.return",
                Kind::Internal,
                began.elapsed(),
                attributes,
            );
        }
    }

    /// The job has ended.
    pub(super) fn end(&mut self, jid: &Jid) {
        if !self.0.is_empty() {
            self.0.shift_remove(jid);
        }
    }
}
