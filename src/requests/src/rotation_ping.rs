//! Job that makes minions notice a new shared key (`ping_on_rotate`): a `test.ping` like any
//! user's, in the name of the master's user (`ping_all_connected_minions` in
//! `salt/utils/master.py`).
//!
//! Minions learn of the key from the first load that they cannot read; they authenticate and miss
//! that load, so most of them do not answer.

use saltern_model::{AuditDoor, MinionId, Standing};
use saltern_wire::msgpack::Value;

use crate::job::{self, Recipients, Request, SentAs};
use crate::{Services, StartJob, audit};

/// The job; `None` when there is no minion to ping. With `minion_data_cache` stock names the
/// connected minions, without it all. Here minions of unknown presence are named too: after a start
/// those are all minions for a while.
pub fn rotation_ping(services: &Services) -> Option<StartJob> {
    let may_be_there = |minion: &&MinionId| {
        let standing = services.minions.presence.state(minion);
        !matches!(standing, Standing::Away(_))
    };
    let (tgt, tgt_type) = match services.site.minion_data_cache {
        true => {
            let accepted = services.keys.pki.accepted().ok()?;
            let there = accepted.sorted().iter().filter(may_be_there);
            let names = there.map(|minion| minion.as_str().into());
            (Value::Array(names.collect()), "list")
        }
        false => (Value::from("*"), "glob"),
    };
    let load = Value::map([
        ("cmd", Value::from("publish")),
        ("tgt", tgt),
        ("fun", "test.ping".into()),
        ("arg", Value::Array(Vec::new())),
        ("tgt_type", tgt_type.into()),
        ("ret", "".into()),
        ("jid", "".into()),
        ("user", services.config.user.as_str().into()),
    ]);
    let request = Request::read(&load, services.config.salt_compat).ok()?;
    let target = request.target.as_ref()?;
    let resolved = job::resolve(&load, &request.functions, target, services).ok()?;
    let resolved = job::without_syndics(resolved, services);
    if resolved.minions.is_empty() {
        return None;
    }
    let jid = services.minter.mint();
    let row = audit::of_own_job(AuditDoor::Master, &load, Some(jid.clone()), services);
    let mut start = job::job(
        &load,
        &request,
        target,
        jid,
        Recipients::own(resolved, SentAs::Target),
        services,
    );
    start.audit = Some(Box::new(row));
    Some(start)
}
