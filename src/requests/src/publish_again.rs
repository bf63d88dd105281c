//! Sending a stored job out once more, after a restart: it may never have left.
//!
//! Minions that had it ignore it: each remembers the last jids that it saw
//! (`minion_jid_queue_hwm` in `salt/minion.py`).

use saltern_model::JobRecord;
use saltern_wire::msgpack::decode_exact;

use crate::envelope::LOAD_LIMITS;
use crate::outcome::Publication;
use crate::{Services, publish, publish_load, targets};

/// The load of a job as it went out, or was about to; `None` when what is stored is no load that
/// could have.
pub fn publication_again(job: &JobRecord, services: &Services) -> Option<Publication> {
    let load = decode_exact(job.load.bytes(), &LOAD_LIMITS).ok()?;
    let compat = services.config.salt_compat;
    let target = targets::of_load(load.get("tgt")?, load.get("tgt_type"), compat)?;
    let entries = publish_load::entries(&load, job.jid.as_str(), services);
    Some(publish::publication(
        &entries,
        &target,
        &job.minions,
        services,
    ))
}
