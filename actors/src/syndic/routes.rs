//! Which master above a job came from, and so whom its returns are for.
//!
//! The uplink marks the load of a job that it has published here; the load is stored with the job,
//! in the transaction after which the job is sent. So the mark is there whenever a return is.

use std::collections::HashMap;

use saltern_model::Jid;
use saltern_requests::job::UPPER;
use saltern_store::StoreError;
use saltern_store::jobs::{JobQueries, StoredJob};
use saltern_wire::msgpack::{Limits, MapView, RawValue, Value, decode};

/// Most jobs that are remembered; beyond it all are forgotten and read again.
const MAX_JOBS: usize = 4096;

/// Origin of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The master above of this name.
    Upper(String),
    /// This master, or a minion that reported it.
    Here,
}

/// Origins of the jobs that were looked at last.
#[derive(Default)]
pub(crate) struct JobOrigins {
    known: HashMap<Jid, Origin>,
}

impl JobOrigins {
    /// Remembers a job.
    pub(crate) fn learn(&mut self, job: &StoredJob) -> Origin {
        let origin = origin(&job.record.load.bytes().clone());
        if self.known.len() >= MAX_JOBS {
            self.known.clear();
        }
        self.known.insert(job.record.jid.clone(), origin.clone());
        origin
    }

    /// The origin of a job; of one that is not there any more, here.
    ///
    /// # Errors
    /// The job database cannot be read.
    pub(crate) fn of(&mut self, jid: &Jid, reader: &dyn JobQueries) -> Result<Origin, StoreError> {
        if let Some(origin) = self.known.get(jid) {
            return Ok(origin.clone());
        }
        let job = reader.load(jid)?;
        Ok(job.map_or(Origin::Here, |job| self.learn(&job)))
    }
}

/// The origin that a stored load names.
pub(crate) fn origin(load: &bytes::Bytes) -> Origin {
    let load = MapView::parse(load.clone(), &Limits::WIRE).ok();
    let kwargs = load.as_ref().and_then(|load| load.get("kwargs"));
    let kwargs = kwargs.and_then(RawValue::as_map);
    let upper = kwargs.as_ref().and_then(|kwargs| kwargs.str(UPPER));
    upper.map_or(Origin::Here, |name| Origin::Upper(name.to_owned()))
}

/// The load of a job as it goes up: as stock's job cache gives it, without the mark.
pub(crate) fn load_upward(job: &StoredJob) -> Value {
    let load = decode(job.record.load.as_ref(), &Limits::WIRE).unwrap_or(Value::Nil);
    let Value::Map(mut entries) = load else {
        return Value::Map(Vec::new());
    };
    for (name, value) in &mut entries {
        if let (Some("kwargs"), Value::Map(kwargs)) = (name.as_str(), value) {
            kwargs.retain(|(name, _)| name.as_str() != Some(UPPER));
        }
    }
    let minions = job.record.minions.iter();
    let minions = minions.map(|minion| Value::from(minion.as_str())).collect();
    entries.push(("Minions".into(), Value::Array(minions)));
    Value::Map(entries)
}
