//! The one gate before functions that run on the master (`runner`): whoever gets through may run
//! all of them.
//!
//! Local users prove themselves by the key in their key file. Tokens and eauth are refused as wrong
//! ones would be, and so is everybody whom `publisher_acl` would limit: this release evaluates
//! none of them. Stock lets every user with an entry in `publisher_acl` run everything
//! (`_prep_auth_info` in `salt/master.py`, `check_authentication` in `salt/auth/__init__.py`).

use saltern_store::KeyProof;
use saltern_wire::msgpack::Value;

use crate::{Outcome, Services, reply};

/// Nobody who may run functions on the master; for the client, in stock's words.
pub(crate) struct Denied {
    name: &'static str,
    message: String,
}

impl Denied {
    fn new(name: &'static str, kind: &str) -> Self {
        Self {
            name,
            message: format!("Authentication failure of type \"{kind}\" occurred"),
        }
    }

    /// The answer; counts the refusal and complains of it.
    pub(crate) fn outcome(self, cmd: &'static str, load: &Value, services: &Services) -> Outcome {
        let user = load.get("user").and_then(Value::as_str).unwrap_or("?");
        let Self { name, message } = self;
        complain!(services, cmd, user, "request refused: {message}");
        services.metrics.refuse("master_function");
        Outcome::reply(reply::named_error(name, &message))
    }
}

/// The user in whose name a function runs.
///
/// # Errors
/// When the load proves nobody who may.
pub(crate) fn admit(load: &Value, services: &Services) -> Result<String, Denied> {
    if load.get("token").is_some() {
        let mut denied = Denied::new("TokenAuthenticationError", "token");
        denied.message.push('.');
        return Err(denied);
    }
    if load.get("eauth").is_some() {
        let who = load.get("username").and_then(Value::as_str);
        let mut denied = Denied::new("EauthAuthenticationError", "eauth");
        let who = who.unwrap_or("UNKNOWN");
        denied.message.push_str(&format!(" for user {who}."));
        return Err(denied);
    }
    let denied = || Denied::new("UserAuthenticationError", "user");
    let user = load.get("user").and_then(Value::as_str);
    let key = load.get("key").and_then(Value::as_str).ok_or_else(denied)?;
    let own = || services.config.user.clone();
    match services.users.authenticate(user, key) {
        KeyProof::Trusted => Ok(user.map_or_else(own, str::to_owned)),
        KeyProof::Sudo(name) if !name.is_empty() && !services.site.sudo_is_limited => Ok(own()),
        KeyProof::Sudo(_) | KeyProof::User(_) | KeyProof::Refused => Err(denied()),
    }
}
