//! The one gate before functions that run on the master (`runner`, `wheel`): whoever gets through
//! may run all of them.
//!
//! Local users prove themselves by the key in their key file. Tokens and eauth are refused as wrong
//! ones would be, and so is everybody whom `publisher_acl` would limit: this release evaluates
//! none of them. Stock lets every user with an entry in `publisher_acl` run everything
//! (`_prep_auth_info` in `salt/master.py`, `check_authentication` in `salt/auth/__init__.py`).

use saltern_store::KeyProof;
use saltern_wire::msgpack::Value;

use crate::{Outcome, Services, reply};

/// Which functions of the master somebody wants to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Runner functions.
    Runner,
    /// Wheel functions.
    Wheel,
}

impl Door {
    /// The command that knocks.
    fn command(self) -> &'static str {
        match self {
            Self::Runner => "runner",
            Self::Wheel => "wheel",
        }
    }
}

/// Somebody who may run what the load asks for. Only [`admit`] makes one.
pub(crate) struct Admitted {
    user: String,
}

impl Admitted {
    /// In whose name the function runs.
    pub(crate) fn into_user(self) -> String {
        self.user
    }
}

/// Nobody who may run functions on the master; for the client, in stock's words.
pub(crate) struct Denied {
    door: Door,
    name: &'static str,
    message: String,
}

impl Denied {
    fn new(door: Door, name: &'static str, kind: &str) -> Self {
        Self {
            door,
            name,
            message: format!("Authentication failure of type \"{kind}\" occurred"),
        }
    }

    /// The answer; counts the refusal and complains of it.
    pub(crate) fn outcome(self, load: &Value, services: &Services) -> Outcome {
        let user = load.get("user").and_then(Value::as_str).unwrap_or("?");
        let Self {
            door,
            name,
            message,
        } = self;
        let cmd = door.command();
        complain!(services, cmd, user, "request refused: {message}");
        services.metrics.refuse("master_function");
        Outcome::reply(reply::named_error(name, &message))
    }
}

/// Lets through who may run the function `fun` of the load with the arguments that stand there.
///
/// # Errors
/// When the load proves nobody who may.
pub(crate) fn admit(door: Door, load: &Value, services: &Services) -> Result<Admitted, Denied> {
    if load.get("token").is_some() {
        let mut denied = Denied::new(door, "TokenAuthenticationError", "token");
        denied.message.push('.');
        return Err(denied);
    }
    if load.get("eauth").is_some() {
        let who = load.get("username").and_then(Value::as_str);
        let mut denied = Denied::new(door, "EauthAuthenticationError", "eauth");
        let who = who.unwrap_or("UNKNOWN");
        denied.message.push_str(&format!(" for user {who}."));
        return Err(denied);
    }
    let denied = || Denied::new(door, "UserAuthenticationError", "user");
    let user = load.get("user").and_then(Value::as_str);
    let key = load.get("key").and_then(Value::as_str).ok_or_else(denied)?;
    let own = || services.config.user.clone();
    let user = match services.users.authenticate(user, key) {
        KeyProof::Trusted => Ok(user.map_or_else(own, str::to_owned)),
        KeyProof::Sudo(name) if !name.is_empty() && !services.site.sudo_is_limited => Ok(own()),
        KeyProof::Sudo(_) | KeyProof::User(_) | KeyProof::Refused => Err(denied()),
    };
    user.map(|user| Admitted { user })
}
