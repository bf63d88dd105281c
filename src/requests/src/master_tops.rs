//! `_master_tops`: states that the master adds to a minion's top file.
//!
//! This release asks no `master_tops` module. A site without any (the usual case) gives every
//! minion nothing, as stock does; with some, the minion gets stock's answer to a handler that
//! failed, because applying only half of its states would be worse.

use saltern_config::yaml::Node;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::envelope::Sealed;
use crate::{Outcome, Services};

/// Answers with nothing to add.
pub(crate) fn handle(sealed: &Sealed, services: &Services) -> Outcome {
    let configured = services.config.raw("master_tops");
    let answer = if configured.is_some_and(Node::is_truthy) {
        tracing::warn!(minion = %sealed.minion, "master_tops refused: this release asks no module");
        Value::from("")
    } else {
        Value::Map(Vec::new())
    };
    Outcome::reply(sealed.answer.seal(&encode(&answer, Dialect::Raw)))
}
