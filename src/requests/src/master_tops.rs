//! `_master_tops`: states that the master adds to a minion's top file.
//!
//! `content` computes them. A site that uses a `master_tops` module which only Python can run, and
//! has no Python for it, gets stock's answer to a handler that failed: applying only half of a
//! minion's states would be worse than none.

use std::sync::Arc;

use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::envelope::Sealed;
use crate::handle::value_of;
use crate::{Finished, Outcome, Services};

/// Answers with the states, by environment; a classifier runs beside the workers.
pub(crate) fn handle(sealed: Sealed, services: &Arc<Services>) -> Outcome {
    let seal = |sealed: &Sealed, answer: &Value| sealed.answer.seal(&encode(answer, Dialect::Raw));
    let tops = &services.content.tops;
    if tops.is_empty() {
        return Outcome::reply(seal(&sealed, &Value::Map(Vec::new())));
    }
    let services = Arc::clone(services);
    Outcome::later(move || {
        let minion = &sealed.minion;
        if services.content.tops.not_served(&services.bridge).is_some() {
            // Logged once, when the master started.
            services.metrics.refuse("master_tops");
            return Finished {
                reply: seal(&sealed, &Value::from("")),
                events: Vec::new(),
            };
        }
        let opts = value_of(&sealed.load, "opts");
        let states = services
            .content
            .tops
            .states(minion, &opts, &services.bridge);
        let states = states.unwrap_or_else(|error| {
            tracing::error!(%minion, %error, "master_tops gives no states");
            Value::Map(Vec::new())
        });
        Finished {
            reply: seal(&sealed, &states),
            events: Vec::new(),
        }
    })
}
