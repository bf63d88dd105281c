//! `_register_resources`, from 3008 minions at start-up and after a pillar refresh.
//!
//! This release keeps no resources. A minion without any (the usual case) is told that all is
//! well; one that registers some gets stock's answer to a handler that failed.

use bytes::Bytes;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::envelope::Sealed;
use crate::{Outcome, Services};

/// Answers `True` when there is nothing to keep.
pub(crate) fn handle(sealed: &Sealed, services: &Services) -> Outcome {
    let empty = |name: &str| {
        sealed
            .load
            .get(name)
            .is_none_or(|value| value.as_map().is_some_and(|map| map.is_empty()))
    };
    if empty("resources") && empty("resource_grains") {
        let answer: Bytes = encode(&Value::Bool(true), Dialect::Raw).into();
        return Outcome::reply(sealed.answer.seal(&answer));
    }
    services.metrics.refuse("resources");
    complain!(
        services,
        minion = %sealed.minion,
        "resources are not kept by this release: the registration is refused"
    );
    Outcome::reply(sealed.answer.seal(&encode(&Value::from(""), Dialect::Raw)))
}
