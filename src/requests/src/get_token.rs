//! `get_token`, clear: the token's record of its owner (`ClearFuncs.get_token` in
//! `salt/master.py`). The token is its own proof.

use saltern_wire::msgpack::{MapView, Value, lenient};
use serde::Deserialize;

use crate::{Context, Outcome, Users, reply};

#[derive(Deserialize)]
struct Load<'a> {
    /// The token; anything but a text is an unknown one.
    #[serde(borrow, deserialize_with = "lenient")]
    token: Option<&'a str>,
}

/// Answers with the token's map; with an empty one for an unknown or expired token, and with
/// `False` for a load without one. A token that cannot be read gets neither: its owner would take
/// it for expired.
pub(crate) fn handle(load: &MapView, context: &Context, users: &Users) -> Outcome {
    let Ok(Load { token }) = load.read() else {
        return Outcome::reply(reply::clear(&false));
    };
    let found = match token.map(|name| users.tokens.find(name)) {
        Some(Ok(found)) => found,
        Some(Err(error)) => {
            tracing::error!(%error, "a token cannot be read");
            return Outcome::reply(reply::no_answer());
        }
        None => None,
    };
    match found {
        Some(token) => Outcome::reply(reply::clear(token.to_value())),
        None => {
            complain!(context, cmd = "get_token", "request refused: no such token");
            context.metrics.refuse("get_token");
            Outcome::reply(reply::clear(&Value::Map(Vec::new())))
        }
    }
}
