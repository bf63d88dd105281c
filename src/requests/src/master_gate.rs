//! Authorisation of functions that run on the master (`runner`, `wheel`).
//!
//! A user who may do everything passes; any other needs a rule that names the function (`@runner`,
//! `@wheel`, `@jobs`). Stock applies the rules only to tokens and logins, so that every user with
//! an entry in `publisher_acl` may run everything (`ClearFuncs.runner` in `salt/master.py`); here
//! they hold for keys too.

use saltern_policy::acl::{Form, Verdict};
use saltern_runners::{Arguments, Call};
use saltern_wire::msgpack::Value;

use crate::credentials::{Kind, NotProved, Sender};
use crate::refusal_log::excerpt;
use crate::{Outcome, Services, reply};

/// The kinds of functions of the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionKind {
    /// Runner functions.
    Runner,
    /// Wheel functions.
    Wheel,
}

impl FunctionKind {
    /// The command that runs them.
    pub(crate) fn command(self) -> &'static str {
        self.form().name()
    }

    /// The rules that are asked.
    pub(crate) fn form(self) -> Form {
        match self {
            Self::Runner => Form::Runner,
            Self::Wheel => Form::Wheel,
        }
    }

    /// The arguments as the function will receive them: the checked ones are the ones that run.
    pub(crate) fn arguments(self, load: &Value) -> Arguments {
        match self {
            Self::Runner => Arguments::of_load(load.get("kwarg").unwrap_or(&Value::Nil)),
            Self::Wheel => Arguments::of_wheel(load),
        }
    }
}

/// Proof that the user may run the load's function. Only [`admit`] makes one.
pub(crate) struct Admitted {
    /// The user in whose name the function runs.
    pub(crate) user: String,
    /// The backend that knows the user; `None` for a local one.
    pub(crate) backend: Option<String>,
    /// The arguments that were checked.
    pub(crate) arguments: Arguments,
}

impl Admitted {
    /// The admitted call, under a new jid; `None` when the load names no function.
    pub(crate) fn call(self, load: &Value, services: &Services) -> Option<Call> {
        Some(Call {
            jid: services.minter.mint(),
            fun: load.get("fun").and_then(Value::as_str)?.to_owned(),
            arguments: self.arguments,
            user: self.user,
        })
    }
}

/// Refusal to run a function on the master, for the client in stock's words.
pub(crate) struct Denied {
    door: FunctionKind,
    name: &'static str,
    message: String,
    why: String,
}

impl Denied {
    /// The answer; counts and logs the refusal.
    pub(crate) fn outcome(self, load: &Value, services: &Services) -> Outcome {
        let user = load.get("user").and_then(Value::as_str).unwrap_or("?");
        let Self {
            door,
            name,
            message,
            why,
        } = self;
        let cmd = door.command();
        complain!(
            services,
            cmd,
            user = excerpt(user),
            why,
            message,
            "request refused"
        );
        services.metrics.refuse("master_function");
        Outcome::refused(reply::named_error(name, &message), why)
    }
}

/// Admits a user who may run the function `fun` of the load with the arguments that stand there.
///
/// # Errors
/// When the load proves no user, or one without permission.
pub(crate) fn admit(
    door: FunctionKind,
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Result<Admitted, Denied> {
    let function = load.get("fun").and_then(Value::as_str).unwrap_or_default();
    let arguments = door.arguments(load);
    admit_call(
        (door, function, arguments),
        load,
        proof,
        |_| false,
        services,
    )
}

/// Admits a user who may run this function with these arguments, for a request that stands for it;
/// also one whose own thing it is about, which is asked only where no rule allows the call.
///
/// # Errors
/// As [`admit`].
pub(crate) fn admit_call(
    (door, function, arguments): (FunctionKind, &str, Arguments),
    load: &Value,
    proof: Result<Sender, NotProved>,
    is_own: impl FnOnce(&Sender) -> bool,
    services: &Services,
) -> Result<Admitted, Denied> {
    let sender = proved(door, load, proof)?;
    let denied = |name, message, why: &str| Denied {
        door,
        name,
        message,
        why: why.to_owned(),
    };
    let (kind, name) = (sender.kind(), sender.name());
    let verdict = match sender.may_call(door.form(), function, &arguments, services) {
        Verdict::Refused if is_own(&sender) => Verdict::Allowed,
        verdict => verdict,
    };
    match verdict {
        Verdict::Allowed => Ok(Admitted {
            user: match kind {
                Kind::User if name.starts_with("sudo_") => services.config.user.clone(),
                _ => name.to_owned(),
            },
            backend: sender.owner().backend,
            arguments,
        }),
        Verdict::Refused => Err(denied(
            error_name(kind),
            format!(
                "Authentication failure of type \"{}\" occurred for user {}.",
                kind.word(),
                excerpt(name)
            ),
            "no rule allows it",
        )),
        Verdict::NoFunction => Err(denied(
            "SaltInvocationError",
            "A command invocation error occurred: Check syntax.".to_owned(),
            "it is no name of a function",
        )),
    }
}

/// The sender of a load, whatever it may do.
///
/// # Errors
/// When the load proves none.
pub(crate) fn proved(
    door: FunctionKind,
    load: &Value,
    proof: Result<Sender, NotProved>,
) -> Result<Sender, Denied> {
    proof.map_err(|refused| not_proved(door, load, refused))
}

fn error_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Token => "TokenAuthenticationError",
        Kind::Eauth => "EauthAuthenticationError",
        Kind::User => "UserAuthenticationError",
    }
}

fn not_proved(door: FunctionKind, load: &Value, refused: NotProved) -> Denied {
    let NotProved { kind, why, .. } = refused;
    let mut message = format!(
        "Authentication failure of type \"{}\" occurred",
        kind.word()
    );
    match kind {
        Kind::Token => message.push('.'),
        Kind::Eauth => {
            let who = load.get("username").and_then(Value::as_str);
            message.push_str(&format!(" for user {}.", excerpt(who.unwrap_or("UNKNOWN"))));
        }
        Kind::User => {}
    }
    Denied {
        door,
        name: error_name(kind),
        message,
        why,
    }
}
