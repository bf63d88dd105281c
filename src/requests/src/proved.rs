//! Clear commands that take credentials: proves the sender, here or beside the workers, and then
//! runs the command.

use std::sync::Arc;

use bytes::Bytes;
use saltern_wire::msgpack::{Limits, MapView, RawValue, Value, decode_wire};

use crate::audit::{self, Asked, Asker};
use crate::commands::ProvedHandler;
use crate::credentials::{self, CredentialLocation, NotProved, Presented, Sender};
use crate::envelope::LOAD_LIMITS;
use crate::handle::{Handled, traced};
use crate::master_gate::FunctionKind;
use crate::{
    Effect, LogIn, LoginEnd, Origin, Outcome, Services, master_gate, reply, saltern_query, traces,
};

/// Bounds on the load of a `mk_token`: any peer may send one, and it waits for a backend.
pub(crate) const TOKEN_LIMITS: Limits = Limits {
    depth: 16,
    bytes: 64 << 10,
    items: 1_000,
};

/// Bounds on other loads with a name and a password: they hold the arguments of a job.
const LOGIN_LIMITS: Limits = Limits {
    bytes: 1 << 20,
    items: 100_000,
    ..LOAD_LIMITS
};

/// The largest entry of a large load that is decoded before its sender is proved, in bytes.
const MAX_CREDENTIAL: usize = 16 << 10;

/// The largest load that is decoded whole before its sender is proved, in bytes.
const MAX_UNPROVED: usize = 4 * MAX_CREDENTIAL;

/// Entries that prove a sender without a log-in, and those that a refusal names.
const CREDENTIALS: [&str; 4] = ["key", "token", "user", "username"];
const NAMES: [&str; 9] = [
    "cmd", "fun", "jid", "key", "tgt", "tgt_type", "token", "user", "username",
];

/// Answer when no backend has a free slot.
pub const LOGINS_FULL: &str = "too many users log in at the moment; try again later";

/// Answer when a token or a backend cannot be read, for a reason of the master's own: a refusal
/// would make a client discard good credentials.
const CANNOT_TELL: &str =
    "the master cannot check the credentials at the moment, see its log; try again later";

/// Command that takes credentials.
#[derive(Clone, Copy)]
pub(crate) struct ProvedCommand {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its handler.
    pub(crate) handler: ProvedHandler,
}

impl ProvedCommand {
    /// Location of its credentials; `None` where only a log-in will do.
    fn location(self) -> Option<CredentialLocation> {
        match self.handler {
            ProvedHandler::LogIn(_) => None,
            ProvedHandler::Job(_) => Some(CredentialLocation::Kwargs),
            ProvedHandler::Function(..) | ProvedHandler::Query(_) => Some(CredentialLocation::Load),
        }
    }

    /// The user who logs in by this load, as it claims; `None` if nobody does. A log-in asks a
    /// backend, which may take seconds. Nothing is decoded; a token counts before a log-in, as in
    /// [`Presented::of`].
    fn user_of(self, load: &MapView) -> Option<String> {
        let name = |map: &MapView| map.str("username").unwrap_or_default().to_owned();
        let login = |map: &MapView| {
            let is_login = map.contains("eauth") && !map.contains("token");
            is_login.then(|| name(map))
        };
        match self.location() {
            None => Some(name(load)),
            Some(CredentialLocation::Load) => login(load),
            Some(CredentialLocation::Kwargs) => login(&load.get("kwargs")?.as_map()?),
        }
    }

    /// Bounds on its load when it logs a user in.
    fn login_limits(self) -> &'static Limits {
        match self.handler {
            ProvedHandler::LogIn(_) => &TOKEN_LIMITS,
            ProvedHandler::Job(_) | ProvedHandler::Function(..) | ProvedHandler::Query(_) => {
                &LOGIN_LIMITS
            }
        }
    }

    fn handled(self, outcome: Outcome) -> Handled {
        Handled::clear(self.name, outcome)
    }

    /// Answers a log-in with a load beyond those bounds: no backend is asked.
    fn too_large(self, services: &Services) -> Handled {
        services.metrics.refuse("login_too_large");
        let reply = self.not_asked("the load of a log-in is too large: log in with mk_token first");
        self.handled(Outcome::reply(reply))
    }

    /// Runs the command, under a span of its own where the sender is proved, and gives the request
    /// its row in the audit trail.
    fn end(
        self,
        load: &Value,
        row: Option<(Asker, Asked)>,
        is_refused: bool,
        services: &Services,
        run: impl FnOnce() -> Outcome,
    ) -> LoginEnd {
        let span = (!is_refused).then(|| traces::begin_proved(load, services));
        let run = || self.handled(run());
        let mut handled = traced(span.flatten(), run);
        if let Some(row) = row {
            audit::attach(row, &mut handled, services);
        }
        LoginEnd {
            handled,
            is_refused,
        }
    }

    /// The row of the request in the audit trail; `None` where it changes nothing.
    fn asked(self, load: &Value, services: &Services) -> Option<Asked> {
        match self.handler {
            ProvedHandler::LogIn(_) => Some(Asked::command(self.name)),
            ProvedHandler::Job(_) => Some(Asked::job(self.name, load, services)),
            ProvedHandler::Query(_) if !saltern_query::changes_something(load) => None,
            ProvedHandler::Query(_) => Some(Asked::function(
                self.name,
                FunctionKind::Runner,
                load,
                services,
            )),
            ProvedHandler::Function(kind, _) => {
                Some(Asked::function(self.name, kind, load, services))
            }
        }
    }

    /// Answers a request whose sender cannot be checked for a reason of the master's own. A log-in
    /// counts as refused all the same, or a failing backend would make guessing free.
    fn cannot_tell(self, refused: Option<&NotProved>) -> Option<LoginEnd> {
        let refused = refused.filter(|refused| refused.is_local_fault)?;
        let (kind, why) = (refused.kind.word(), refused.why.as_str());
        tracing::error!(cmd = self.name, kind, why, "credentials cannot be checked");
        let reply = reply::named_error("SaltClientError", CANNOT_TELL);
        Some(LoginEnd {
            handled: self.handled(Outcome::reply(reply)),
            is_refused: refused.kind == credentials::Kind::Eauth,
        })
    }

    /// The answer where no backend is asked.
    fn not_asked(self, text: &str) -> Bytes {
        match self.handler {
            ProvedHandler::Job(_) => reply::named_error("AuthenticationError", text),
            // A token's absence is a refusal for stock's clients, whatever else is there.
            ProvedHandler::LogIn(_) | ProvedHandler::Function(..) | ProvedHandler::Query(_) => {
                reply::named_error("EauthAuthenticationError", text)
            }
        }
    }
}

/// Handles a request for a command that takes credentials.
pub(crate) fn handle(
    command: ProvedCommand,
    load: &MapView,
    origin: Origin,
    services: &Arc<Services>,
) -> Handled {
    if let Some(user) = command.user_of(load) {
        return log_in_first(command, load.pack(), &user, origin, services);
    }
    if let Some(refused) = refuse_early(command, load, origin, services) {
        return refused;
    }
    match decode_wire(&load.pack(), &LOAD_LIMITS) {
        Ok(load) => prove_and_run(command, &load, origin, services).handled,
        Err(_) => command.handled(Outcome::reply(reply::no_answer())),
    }
}

/// Refuses a large load without credentials before most of it is decoded: credentials are small. A
/// sender proved here is proved once more by the whole load.
fn refuse_early(
    command: ProvedCommand,
    load: &MapView,
    origin: Origin,
    services: &Arc<Services>,
) -> Option<Handled> {
    let place = command.location()?;
    let size = |(name, value): (&RawValue, &RawValue)| name.bytes().len() + value.bytes().len();
    let bytes: usize = load.iter().map(size).sum();
    if bytes <= MAX_UNPROVED {
        return None;
    }
    let mut entries = small_entries(load, &NAMES);
    if let Some(kwargs) = load.get("kwargs").and_then(RawValue::as_map) {
        let kwargs = Value::Map(small_entries(&kwargs, &CREDENTIALS));
        entries.push(("kwargs".into(), kwargs));
    }
    let small = Value::Map(entries);
    if Presented::of(&small, place).prove(place, services).is_ok() {
        return None;
    }
    Some(prove_and_run(command, &small, origin, services).handled)
}

/// Small entries of a map by name, decoded.
fn small_entries(map: &MapView, names: &[&str]) -> Vec<(Value, Value)> {
    let entry = |name: &&str| {
        let value = map.get(name)?;
        (value.bytes().len() <= MAX_CREDENTIAL).then(|| ((*name).into(), value.decode()))
    };
    names.iter().filter_map(entry).collect()
}

/// Asks the backend beside the workers, and then runs the command. The load waits packed: decoded,
/// it may be forty times as large.
fn log_in_first(
    command: ProvedCommand,
    packed: Bytes,
    user: &str,
    origin: Origin,
    services: &Arc<Services>,
) -> Handled {
    let limits = command.login_limits();
    if packed.len() > limits.bytes {
        return command.too_large(services);
    }
    let their_services = Arc::clone(services);
    let log_in = LogIn::new(origin.address, user, move || {
        match decode_wire(&packed, limits) {
            Ok(load) => prove_and_run(command, &load, origin, &their_services),
            Err(_) => LoginEnd {
                handled: command.too_large(&their_services),
                is_refused: true,
            },
        }
    });
    command.handled(Outcome {
        effects: vec![Effect::LogIn(log_in)],
        ..Outcome::reply(command.not_asked(LOGINS_FULL))
    })
}

fn prove_and_run(
    command: ProvedCommand,
    load: &Value,
    origin: Origin,
    services: &Arc<Services>,
) -> LoginEnd {
    let prove = |place: CredentialLocation| Presented::of(load, place).prove(place, services);
    let row = |proof: &Result<Sender, NotProved>| {
        let asked = command.asked(load, services)?;
        Some((Asker::of_sender(proof, load, origin), asked))
    };
    match command.handler {
        ProvedHandler::LogIn(run) => {
            let known = credentials::log_in(load, &services.users);
            let asker = Asker::of_login(&known, load, origin);
            let row = command.asked(load, services).map(|asked| (asker, asked));
            command.end(load, row, known.is_err(), services, || {
                run(load, known, services)
            })
        }
        ProvedHandler::Job(run) => {
            let proof = prove(CredentialLocation::Kwargs);
            if let Some(end) = command.cannot_tell(proof.as_ref().err()) {
                return end;
            }
            let row = row(&proof);
            command.end(load, row, proof.is_err(), services, || {
                run(load, proof, services)
            })
        }
        ProvedHandler::Query(run) => {
            let proof = prove(CredentialLocation::Load);
            if let Some(end) = command.cannot_tell(proof.as_ref().err()) {
                return end;
            }
            let row = row(&proof);
            command.end(load, row, proof.is_err(), services, || {
                run(load, proof, services)
            })
        }
        ProvedHandler::Function(kind, run) => {
            let proof = prove(CredentialLocation::Load);
            if let Some(end) = command.cannot_tell(proof.as_ref().err()) {
                return end;
            }
            let row = row(&proof);
            command.end(
                load,
                row,
                proof.is_err(),
                services,
                || match master_gate::admit(kind, load, proof, services) {
                    Ok(admitted) => run(load, admitted, origin.address, services),
                    Err(denied) => denied.outcome(load, services),
                },
            )
        }
    }
}
