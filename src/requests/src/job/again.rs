//! Republishes a stored job after a restart: it may never have left. Fires its start events once
//! more, too: a syndic beside this master may have missed them.
//!
//! Minions that received it ignore the copy: each remembers the last jids that it saw
//! (`minion_jid_queue_hwm` in `salt/minion.py`).

use saltern_model::{Event, JobRecord};
use saltern_wire::msgpack::{Value, decode_exact};

use super::publication::{SentAs, publication};
use super::{beginning, load};
use crate::envelope::LOAD_LIMITS;
use crate::outcome::Publication;
use crate::{Services, targets};

/// The publication of a stored job; `None` when its load is not one of a publication.
pub fn publication_again(job: &JobRecord, services: &Services) -> Option<Publication> {
    let load = decode_exact(job.load.bytes(), &LOAD_LIMITS).ok()?;
    let compat = services.config.salt_compat;
    let target = targets::of_load(load.get("tgt")?, load.get("tgt_type"), compat)?;
    let entries = load::entries(&load, job.jid.as_str(), services);
    let sent_as = SentAs::of_stored(&load);
    Some(publication(
        entries,
        &target,
        (&job.minions, sent_as),
        services,
    ))
}

/// The events of the job's start, with all minions that it expects by now; none when its load is
/// not one of a publication.
pub fn announced_again(job: &JobRecord, services: &Services) -> Vec<Event> {
    let Ok(load) = decode_exact(job.load.bytes(), &LOAD_LIMITS) else {
        return Vec::new();
    };
    let minions = job.minions.iter().map(|id| id.as_str().into());
    let minions = Value::Array(minions.collect());
    let missing = Value::Array(Vec::new());
    beginning(&load, &job.jid, &minions, &missing, services)
}
