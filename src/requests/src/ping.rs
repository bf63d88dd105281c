//! `ping`, clear: gives the load back. The smallest command, and the one to read first.

use saltern_wire::msgpack::MapView;

use crate::Outcome;

/// Answers with the load as it came (`ClearFuncs.ping` in `salt/master.py`).
pub(crate) fn handle(load: &MapView) -> Outcome {
    Outcome::reply(load.pack())
}
