//! Dispatch of one request: open the envelope, find the command, run it.
//!
//! Longer than 500 lines because it has the tables of all commands, which are read side by side.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use saltern_base::trace::{self, Span};
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Limits, MapView, RawValue, Value, decode_wire, encode};

use crate::credentials::{self, CredentialLocation, NotProved, Presented};
use crate::envelope::{self, LOAD_LIMITS, Opened, Sealed};
use crate::files::{self, FileCommand};
use crate::master_gate::{self, FunctionKind};
use crate::mine::{self, MineCommand};
use crate::origin::Origin;
use crate::peer_publish::{self, PeerPublish};
use crate::{
    Effect, LogIn, LoginEnd, Outcome, Services, auth, get_token, master_opts, master_tops,
    minion_event, minion_runner, mk_token, pillar, ping, pub_ret, publish, register_resources,
    reply, return_, revoke_auth, runner, saltern_batch, syndic_return, traces, wheel,
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

/// Entries that prove a sender, and those that a refusal names.
const CREDENTIALS: [&str; 6] = ["eauth", "key", "password", "token", "user", "username"];
const NAMES: [&str; 11] = [
    "cmd", "eauth", "fun", "jid", "key", "password", "tgt", "tgt_type", "token", "user", "username",
];

/// Answer when no backend has a free slot.
pub(crate) const NO_TIME: &str = "too many users log in at the moment; try again later";

/// Answer when a token or a backend cannot be read, for a reason of the master's own: a refusal
/// would make a client discard good credentials.
const CANNOT_TELL: &str =
    "the master cannot check the credentials at the moment, see its log; try again later";

/// Class of a request: the queue that it waits in. Derived from the outside of the envelope alone,
/// because the router, which asks, does not decrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// `_auth`: the expensive one.
    Auth,
    /// Other clear commands, of users and their tools.
    Clear,
    /// All requests of authenticated minions.
    Minion,
}

impl Class {
    /// Every class, in the order in which they are served.
    pub const ALL: [Self; 3] = [Self::Clear, Self::Minion, Self::Auth];

    /// The label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Clear => "clear",
            Self::Minion => "minion",
        }
    }
}

/// The class of a request. Reads only the first few bytes of the payload. A wrong guess costs a
/// place in another queue; but an `_auth` that is not recognised as one is not handled, or it would
/// bypass the queue of log-ins. Stock's minions put `cmd` first (`minion_sign_in_payload` in
/// `salt/crypt.py`), and their load has no entry `enc`, so theirs are always recognised.
pub fn peek_class(payload: &[u8]) -> Class {
    let head = payload.get(..payload.len().min(160)).unwrap_or_default();
    let has = |needle: &[u8]| head.windows(needle.len()).any(|window| window == needle);
    if has(b"\xa3enc\xa3aes") {
        Class::Minion
    } else if has(b"\xa5_auth") {
        Class::Auth
    } else {
        Class::Clear
    }
}

/// Outcome of a request, with labels for logs and metrics.
pub struct Handled {
    /// The answer and the effects.
    pub outcome: Outcome,
    /// The command, from the closed set of those that are known; for logs and metrics.
    pub command: &'static str,
    /// The minion that is proved to have sent it, if any.
    pub minion: Option<MinionId>,
    /// Its span in a trace, which ends when the request is answered.
    pub span: Option<Span>,
}

impl Handled {
    /// Whether the request was refused: it could not be opened, or asks for no known command and
    /// does not come from a minion.
    pub fn is_refused(&self) -> bool {
        self.minion.is_none() && self.command == UNKNOWN_COMMAND
    }
}

/// Label of a request without a known command.
const UNKNOWN_COMMAND: &str = "-";

/// Handles one request that came from `origin`.
pub fn handle(payload: Bytes, origin: impl Into<Origin>, services: &Arc<Services>) -> Handled {
    let origin = origin.into();
    let from = origin.address;
    let class = peek_class(&payload);
    let opened = match envelope::open(payload, services) {
        Ok(opened) => opened,
        Err(refusal) => {
            services.metrics.refuse(refusal.reason);
            tracing::debug!(%from, reason = refusal.reason, "request refused");
            return Handled {
                outcome: Outcome::reply(refusal.reply),
                command: UNKNOWN_COMMAND,
                minion: None,
                span: None,
            };
        }
    };
    let sealed = match opened {
        Opened::Clear { load, version } => {
            return handle_clear(load, version, class, origin, services);
        }
        Opened::Minion(sealed) => sealed,
    };
    let span = traces::begin(&sealed.load, &sealed.minion, services);
    traced(span, || handle_minion(sealed, from, services))
}

/// Does the work within the span, which is passed on with the outcome.
fn traced(mut span: Option<Span>, work: impl FnOnce() -> Handled) -> Handled {
    let place = span.as_ref().map(|span| span.place().clone());
    let handled = trace::within(place, work);
    if let Some(span) = &mut span {
        traces::describe(span, &handled);
    }
    Handled { span, ..handled }
}

/// Answers an authentication that exceeds the limit; decides nothing and changes nothing.
pub fn retry_later(payload: Bytes, services: &Services) -> Handled {
    let outcome = match envelope::open(payload, services) {
        Ok(Opened::Clear { load, version }) => auth::retry_later(&load, version, services),
        // The class was a guess.
        Ok(Opened::Minion(_)) => Outcome::reply(reply::no_answer()),
        Err(refusal) => Outcome::reply(refusal.reply),
    };
    Handled {
        outcome,
        command: "_auth",
        minion: None,
        span: None,
    }
}

/// Commands that are sent in the clear.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClearCommand {
    /// Takes no credentials: it is open to all, or its load is its own proof.
    Open(OpenCommand),
    /// Takes credentials. The handlers require the proof as an argument, so none runs before it.
    Proved(ProvedCommand),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenCommand {
    Auth,
    GetToken,
    Ping,
}

/// Commands by the credentials that they take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProvedCommand {
    /// A name and a password that a backend knows.
    MkToken,
    /// The key of a local user in the load; or a token, or a name and a password, in its `kwargs`.
    Job(JobCommand),
    /// The same credentials, all in the load itself.
    Master(FunctionKind),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum JobCommand {
    Publish,
    /// Our own: a batch that the master drives.
    SalternBatch,
}

impl WireNames for ClearCommand {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("_auth", Self::Open(OpenCommand::Auth)),
        ("get_token", Self::Open(OpenCommand::GetToken)),
        ("mk_token", Self::Proved(ProvedCommand::MkToken)),
        ("ping", Self::Open(OpenCommand::Ping)),
        (
            "publish",
            Self::Proved(ProvedCommand::Job(JobCommand::Publish)),
        ),
        (
            "runner",
            Self::Proved(ProvedCommand::Master(FunctionKind::Runner)),
        ),
        (
            saltern_batch::COMMAND,
            Self::Proved(ProvedCommand::Job(JobCommand::SalternBatch)),
        ),
        (
            "wheel",
            Self::Proved(ProvedCommand::Master(FunctionKind::Wheel)),
        ),
    ];
}

impl ClearCommand {
    /// The outcome of a request for this command.
    fn handled(self, outcome: Outcome) -> Handled {
        Handled {
            outcome,
            command: self.name(),
            minion: None,
            span: None,
        }
    }
}

impl ProvedCommand {
    /// Whether proving the sender of this load may take long.
    fn takes_long(self, load: &Value) -> bool {
        match self {
            Self::MkToken => true,
            Self::Job(_) => Presented::of(load, CredentialLocation::Kwargs).takes_long(),
            Self::Master(_) => Presented::of(load, CredentialLocation::Load).takes_long(),
        }
    }

    /// The user who logs in, as the load claims.
    fn user_of(self, load: &Value) -> &str {
        let beside = match self {
            Self::MkToken | Self::Master(_) => Some(load),
            Self::Job(_) => load.get("kwargs"),
        };
        let name = beside.and_then(|map| map.get("username"));
        name.and_then(Value::as_str).unwrap_or_default()
    }

    /// Bounds on its load when it logs a user in.
    fn login_limits(self) -> &'static Limits {
        match self {
            Self::MkToken => &TOKEN_LIMITS,
            Self::Job(_) | Self::Master(_) => &LOGIN_LIMITS,
        }
    }

    /// Answers a log-in with a load beyond those bounds: no backend is asked.
    fn too_large(self, services: &Services) -> Handled {
        services.metrics.refuse("login_too_large");
        let reply = self.not_asked("the load of a log-in is too large: log in with mk_token first");
        ClearCommand::Proved(self).handled(Outcome::reply(reply))
    }

    /// Runs the command, under a span of its own where the sender is proved.
    fn end(
        self,
        load: &Value,
        is_refused: bool,
        services: &Services,
        run: impl FnOnce() -> Outcome,
    ) -> LoginEnd {
        let span = (!is_refused).then(|| traces::begin_proved(load, services));
        let run = || ClearCommand::Proved(self).handled(run());
        LoginEnd {
            handled: traced(span.flatten(), run),
            is_refused,
        }
    }

    /// Answers a request whose sender cannot be checked for a reason of the master's own. A log-in
    /// counts as refused all the same, or a failing backend would make guessing free.
    fn cannot_tell(self, refused: Option<&NotProved>) -> Option<LoginEnd> {
        let refused = refused.filter(|refused| refused.is_local_fault)?;
        let (kind, why) = (refused.kind.word(), refused.why.as_str());
        tracing::error!(
            cmd = ClearCommand::Proved(self).name(),
            kind,
            why,
            "credentials cannot be checked"
        );
        let reply = reply::named_error("SaltClientError", CANNOT_TELL);
        Some(LoginEnd {
            handled: ClearCommand::Proved(self).handled(Outcome::reply(reply)),
            is_refused: refused.kind == credentials::Kind::Eauth,
        })
    }

    /// The answer where no backend is asked.
    fn not_asked(self, text: &str) -> Bytes {
        match self {
            Self::MkToken => mk_token::nothing().reply,
            Self::Job(_) => reply::named_error("AuthenticationError", text),
            Self::Master(_) => reply::named_error("EauthAuthenticationError", text),
        }
    }
}

fn handle_clear(
    load: MapView,
    version: i64,
    class: Class,
    origin: Origin,
    services: &Arc<Services>,
) -> Handled {
    let Some(command) = load.str("cmd").and_then(ClearCommand::from_wire) else {
        let nothing = Value::Map(Vec::new());
        return Handled {
            outcome: Outcome::reply(reply::clear(&nothing)),
            command: UNKNOWN_COMMAND,
            minion: None,
            span: None,
        };
    };
    let outcome = match command {
        ClearCommand::Open(command) => {
            handle_open(command, (&load, version), class, origin, services)
        }
        ClearCommand::Proved(command) => {
            if let Some(refused) = refuse_early(command, &load, origin.address, services) {
                return refused;
            }
            return handle_proved(command, load.pack(), origin.address, services);
        }
    };
    command.handled(outcome)
}

fn handle_open(
    command: OpenCommand,
    (load, version): (&MapView, i64),
    class: Class,
    origin: Origin,
    services: &Services,
) -> Outcome {
    match command {
        OpenCommand::Auth if class != Class::Auth => {
            services.metrics.refuse("not_admitted");
            Outcome::reply(reply::no_answer())
        }
        OpenCommand::Auth => auth::handle(load, version, &origin, services),
        OpenCommand::GetToken => get_token::handle(load, services),
        OpenCommand::Ping => ping::handle(load),
    }
}

/// Refuses a large load without credentials before most of it is decoded: credentials are small. A
/// sender proved here is proved once more by the whole load.
fn refuse_early(
    command: ProvedCommand,
    load: &MapView,
    from: IpAddr,
    services: &Arc<Services>,
) -> Option<Handled> {
    let place = match command {
        ProvedCommand::MkToken => return None,
        ProvedCommand::Job(_) => CredentialLocation::Kwargs,
        ProvedCommand::Master(_) => CredentialLocation::Load,
    };
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
    let presented = Presented::of(&small, place);
    if presented.takes_long() {
        return (bytes > command.login_limits().bytes).then(|| command.too_large(services));
    }
    if presented.prove(place, services).is_ok() {
        return None;
    }
    Some(prove_and_run(command, &small, from, services).handled)
}

/// Small entries of a map by name, decoded.
fn small_entries(map: &MapView, names: &[&str]) -> Vec<(Value, Value)> {
    let entry = |name: &&str| {
        let value = map.get(name)?;
        (value.bytes().len() <= MAX_CREDENTIAL).then(|| ((*name).into(), value.decode()))
    };
    names.iter().filter_map(entry).collect()
}

/// Proves the sender, here or beside the workers, and then runs the command. Loads that wait for a
/// backend wait packed: decoded, one may be forty times as large.
fn handle_proved(
    command: ProvedCommand,
    packed: Bytes,
    from: IpAddr,
    services: &Arc<Services>,
) -> Handled {
    let limits = command.login_limits();
    if command == ProvedCommand::MkToken && packed.len() > limits.bytes {
        return command.too_large(services);
    }
    let Ok(load) = decode_wire(&packed, &LOAD_LIMITS) else {
        return ClearCommand::Proved(command).handled(Outcome::reply(reply::no_answer()));
    };
    if !command.takes_long(&load) {
        return prove_and_run(command, &load, from, services).handled;
    }
    if packed.len() > limits.bytes {
        return command.too_large(services);
    }
    let user = command.user_of(&load).to_owned();
    let their_services = Arc::clone(services);
    let log_in = LogIn::new(from, &user, move || match decode_wire(&packed, limits) {
        Ok(load) => prove_and_run(command, &load, from, &their_services),
        Err(_) => LoginEnd {
            handled: command.too_large(&their_services),
            is_refused: true,
        },
    });
    let no_time = command.not_asked(NO_TIME);
    ClearCommand::Proved(command).handled(Outcome {
        effects: vec![Effect::LogIn(log_in)],
        ..Outcome::reply(no_time)
    })
}

fn prove_and_run(
    command: ProvedCommand,
    load: &Value,
    from: IpAddr,
    services: &Arc<Services>,
) -> LoginEnd {
    let prove = |place: CredentialLocation| Presented::of(load, place).prove(place, services);
    match command {
        ProvedCommand::MkToken => {
            let known = credentials::log_in(load, services);
            command.end(load, known.is_err(), services, || {
                mk_token::handle(load, known, services)
            })
        }
        ProvedCommand::Job(job) => {
            let proof = prove(CredentialLocation::Kwargs);
            if let Some(end) = command.cannot_tell(proof.as_ref().err()) {
                return end;
            }
            let run = match job {
                JobCommand::Publish => publish::handle,
                JobCommand::SalternBatch => saltern_batch::handle,
            };
            command.end(load, proof.is_err(), services, || {
                run(load, proof, services)
            })
        }
        ProvedCommand::Master(door) => {
            let proof = prove(CredentialLocation::Load);
            if let Some(end) = command.cannot_tell(proof.as_ref().err()) {
                return end;
            }
            command.end(load, proof.is_err(), services, || match master_gate::admit(
                door, load, proof, services,
            ) {
                Ok(admitted) => match door {
                    FunctionKind::Runner => runner::handle(load, admitted, from, services),
                    FunctionKind::Wheel => wheel::handle(load, admitted, services),
                },
                Err(denied) => denied.outcome(load, services),
            })
        }
    }
}

/// A group of commands that share a file, named as on the wire.
pub(crate) trait WireNames: Copy + PartialEq + 'static {
    /// Every command and its name.
    const NAMES: &'static [(&'static str, Self)];

    /// The command of this name.
    fn from_wire(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, command)| *command)
    }

    /// Its name.
    fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, command)| *command == self);
        found.map_or("-", |(name, _)| name)
    }
}

/// Commands that only an authenticated minion can send: their handlers take [`Sealed`], which only
/// [`envelope::open`] makes, out of a load sealed with the session of the minion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MinionCommand {
    File(FileCommand),
    Mine(MineCommand),
    MasterOpts,
    MasterTops,
    MinionEvent,
    PeerPublish(PeerPublish),
    PeerRun,
    Pillar,
    PubRet,
    RegisterResources,
    Return,
    RevokeAuth,
    SyndicReturn,
    VerifyMinion,
}

impl WireNames for MinionCommand {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("_master_opts", Self::MasterOpts),
        ("_master_tops", Self::MasterTops),
        ("_minion_event", Self::MinionEvent),
        ("_pillar", Self::Pillar),
        ("_register_resources", Self::RegisterResources),
        ("_return", Self::Return),
        ("_syndic_return", Self::SyndicReturn),
        ("minion_pub", Self::PeerPublish(PeerPublish::Begin)),
        ("minion_publish", Self::PeerPublish(PeerPublish::Wait)),
        ("minion_runner", Self::PeerRun),
        ("pub_ret", Self::PubRet),
        ("revoke_auth", Self::RevokeAuth),
        ("verify_minion", Self::VerifyMinion),
    ];

    fn from_wire(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, command)| *command)
            .or_else(|| FileCommand::from_wire(name).map(Self::File))
            .or_else(|| MineCommand::from_wire(name).map(Self::Mine))
    }

    fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, command)| *command == self);
        match self {
            Self::File(command) => command.name(),
            Self::Mine(command) => command.name(),
            _ => found.map_or(UNKNOWN_COMMAND, |(name, _)| name),
        }
    }
}

/// Every command that a minion can send encrypted, for tables that have to be complete.
pub fn minion_commands() -> impl Iterator<Item = &'static str> {
    fn names<C: WireNames>() -> impl Iterator<Item = &'static str> {
        C::NAMES.iter().map(|(name, _)| *name)
    }
    names::<MinionCommand>()
        .chain(names::<FileCommand>())
        .chain(names::<MineCommand>())
}

/// Every command that is sent in the clear, likewise.
pub fn clear_commands() -> impl Iterator<Item = &'static str> {
    ClearCommand::NAMES.iter().map(|(name, _)| *name)
}

fn handle_minion(sealed: Sealed, from: IpAddr, services: &Arc<Services>) -> Handled {
    let minion = sealed.minion.clone();
    services.presence.heard(&minion, from);
    if !sealed.load.contains("cmd") {
        return Handled {
            outcome: Outcome::reply(reply::no_answer()),
            command: UNKNOWN_COMMAND,
            minion: Some(minion),
            span: None,
        };
    }
    let name = sealed.load.str("cmd");
    let Some(command) = name.and_then(MinionCommand::from_wire) else {
        let nothing = encode(&Value::Map(Vec::new()), Dialect::Raw);
        return Handled {
            outcome: Outcome::reply(sealed.answer.seal(&nothing)),
            command: UNKNOWN_COMMAND,
            minion: Some(minion),
            span: None,
        };
    };
    let outcome = match command {
        MinionCommand::Return => return_::handle(sealed, services),
        MinionCommand::SyndicReturn => syndic_return::handle(sealed, services),
        MinionCommand::MinionEvent => minion_event::handle(sealed, services),
        MinionCommand::PeerPublish(command) => peer_publish::handle(command, sealed, services),
        MinionCommand::PeerRun => minion_runner::handle(sealed, services),
        MinionCommand::PubRet => pub_ret::handle(sealed, services),
        MinionCommand::Pillar => pillar::handle(sealed, services),
        MinionCommand::File(command) => files::handle(command, sealed, services),
        MinionCommand::Mine(command) => mine::handle(command, sealed, services),
        MinionCommand::RevokeAuth => revoke_auth::handle(&sealed, services),
        // Stock's handler wants two arguments and always gets one, so it always fails.
        MinionCommand::VerifyMinion => {
            Outcome::reply(sealed.answer.seal(&encode(&Value::from(""), Dialect::Raw)))
        }
        MinionCommand::MasterOpts => master_opts::handle(&sealed, services),
        MinionCommand::MasterTops => master_tops::handle(sealed, services),
        MinionCommand::RegisterResources => register_resources::handle(sealed, services),
    };
    Handled {
        outcome,
        command: command.name(),
        minion: Some(minion),
        span: None,
    }
}

/// Decodes one entry of a load, or nil.
pub(crate) fn value_of(load: &MapView, name: &str) -> Value {
    load.get(name).map_or(Value::Nil, |value| {
        decode_wire(value.bytes(), &LOAD_LIMITS).unwrap_or(Value::Nil)
    })
}
