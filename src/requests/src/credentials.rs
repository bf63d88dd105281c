//! Authentication of clear requests: by the key of a local user, a token, or a name and a password
//! (`_prep_auth_info` in `salt/master.py`, `check_authentication` in `salt/auth/__init__.py`).
//!
//! A proof ([`Sender`], [`LoggedIn`]) is made here and nowhere else. Commands that need one take it
//! as an argument, so none can run without. The proof answers what a sender may do; `policy`
//! interprets the rules.

use std::borrow::Cow;

use saltern_base::chain;
use saltern_policy::acl::{AskedJob, CallArguments, Form, Rules, Verdict, Whom};
use saltern_runners::Arguments;
use saltern_store::KeyProof;
use saltern_wire::msgpack::Value;

use crate::job::UPPER;
use crate::job::jid_owner::{BACKEND, Owner};
use crate::{BatchPlan, Services, Users, targets};

/// Location of tokens, names and passwords in the load of a command. Keys stand in the load itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialLocation {
    /// In the load.
    Load,
    /// In its `kwargs`.
    Kwargs,
}

/// The kind of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Token,
    Eauth,
    User,
}

impl Kind {
    /// Stock's name of it, which appears in its texts.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Eauth => "eauth",
            Self::User => "user",
        }
    }
}

/// Credentials of a load, not yet checked.
pub(crate) enum Presented<'a> {
    /// The name of a token.
    Token(&'a Value),
    /// A backend, a name and a password: the map that holds them.
    Login(&'a Value),
    /// The key of a local user: the load.
    Key(&'a Value),
}

/// Sender whose claimed identity is proved.
pub struct Sender {
    kind: Kind,
    name: String,
    /// The backend that knows the name; `None` for a local user.
    backend: Option<String>,
    /// The rules that hold for the sender; without any the sender may do everything.
    rules: Option<Rules>,
    /// Whether the key is that of the master's own user.
    is_master: bool,
}

/// User who logged in through a backend.
pub(crate) struct LoggedIn {
    pub(crate) eauth: String,
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    /// The rules, where the backend determines them.
    rules: Option<Rules>,
}

impl LoggedIn {
    /// The rules that hold for the user.
    pub(crate) fn rules(&self, users: &Users) -> Rules {
        let site_rules = users.rules();
        let auth = &site_rules.external_auth;
        let own = || auth.rules_of(&self.eauth, &self.name, &self.groups);
        self.rules.clone().unwrap_or_else(own)
    }
}

/// Failure to prove a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotProved {
    pub(crate) kind: Kind,
    /// The reason, for the log; the sender does not receive it.
    pub(crate) why: String,
    /// The master could not check: the credentials may well be good.
    pub(crate) is_local_fault: bool,
}

impl NotProved {
    fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self {
            kind,
            why: why.into(),
            is_local_fault: false,
        }
    }

    fn of_local_fault(kind: Kind, error: &dyn std::error::Error) -> Self {
        Self {
            is_local_fault: true,
            ..Self::new(kind, chain(error))
        }
    }
}

impl<'a> Presented<'a> {
    /// The credentials of a load; a token before a login, and a login before a key, as in stock.
    pub(crate) fn of(load: &'a Value, place: CredentialLocation) -> Self {
        let beside = match place {
            CredentialLocation::Load => Some(load),
            CredentialLocation::Kwargs => load.get("kwargs"),
        };
        let has = |name: &str| beside.and_then(|map| map.get(name));
        match (has("token"), has("eauth"), beside) {
            (Some(token), _, _) => Self::Token(token),
            (None, Some(_), Some(map)) => Self::Login(map),
            _ => Self::Key(load),
        }
    }

    /// Proves the sender.
    ///
    /// # Errors
    /// When the load proves no sender, or one for whom there are no rules at all.
    pub(crate) fn prove(
        &self,
        place: CredentialLocation,
        services: &Services,
    ) -> Result<Sender, NotProved> {
        match self {
            Self::Token(token) => by_token(token, &services.users),
            Self::Login(map) => {
                let known = log_in(map, &services.users)?;
                Ok(Sender {
                    kind: Kind::Eauth,
                    rules: Some(known.rules(&services.users)),
                    name: known.name,
                    backend: Some(known.eauth),
                    is_master: false,
                })
            }
            Self::Key(load) => by_key(load, place, services),
        }
    }
}

/// Asks the backend that the map names whether it knows the user. Blocks for as long as the backend
/// takes.
///
/// # Errors
/// When it does not, or cannot be asked.
pub(crate) fn log_in(map: &Value, users: &Users) -> Result<LoggedIn, NotProved> {
    let text = |name: &'static str| {
        let text = map.get(name).and_then(Value::as_str);
        text.ok_or_else(|| NotProved::new(Kind::Eauth, format!("\"{name}\" is missing")))
    };
    let (eauth, name, password) = (text("eauth")?, text("username")?, text("password")?);
    let rules = users.rules();
    match rules.external_auth.knows(eauth, name, password) {
        Ok(Some(known)) => Ok(LoggedIn {
            eauth: eauth.to_owned(),
            name: name.to_owned(),
            groups: known.groups,
            rules: known.rules,
        }),
        Ok(None) => Err(NotProved::new(
            Kind::Eauth,
            "the backend does not know the user",
        )),
        Err(error) if error.is_local_fault() => Err(NotProved::of_local_fault(Kind::Eauth, &error)),
        Err(error) => Err(NotProved::new(Kind::Eauth, chain(&error))),
    }
}

fn by_token(token: &Value, users: &Users) -> Result<Sender, NotProved> {
    let refused = |why: &str| NotProved::new(Kind::Token, why);
    let name = token.as_str().ok_or_else(|| refused("it is no text"))?;
    let found = users.tokens.find(name);
    let found = found.map_err(|error| NotProved::of_local_fault(Kind::Token, &error))?;
    let token = found.ok_or_else(|| refused("it is unknown or has expired"))?;
    let site_rules = users.rules();
    let auth = &site_rules.external_auth;
    if !auth.is_enabled(token.eauth()) {
        return Err(refused(
            "external_auth does not enable its backend any more",
        ));
    }
    let is_carried = site_rules.keep_acl_in_token || auth.is_in_python(token.eauth());
    let carried = token.auth_list().filter(|_| is_carried);
    let rules = match carried {
        Some(list) => Rules::of(list),
        None => auth.rules_of(token.eauth(), token.name(), &token.groups()),
    };
    Ok(Sender {
        kind: Kind::Token,
        name: token.name().to_owned(),
        backend: Some(token.eauth().to_owned()),
        rules: Some(rules),
        is_master: false,
    })
}

fn by_key(
    load: &Value,
    place: CredentialLocation,
    services: &Services,
) -> Result<Sender, NotProved> {
    let refused = |why: &str| NotProved::new(Kind::User, why);
    let user = load.get("user").and_then(Value::as_str);
    let key = load.get("key").and_then(Value::as_str);
    let key = key.ok_or_else(|| refused("there is no key"))?;
    let site_rules = services.users.rules();
    let limited = |name: &str| {
        let rules = site_rules.publisher_acl.rules_of(name);
        let nothing = || refused("publisher_acl has no rules for the user");
        (!rules.is_empty())
            .then_some(Some(rules))
            .ok_or_else(nothing)
    };
    let rules = match site_rules.users.authenticate(user, key) {
        KeyProof::Trusted => None,
        KeyProof::Sudo(name) if name.is_empty() => return Err(refused("sudo without a user name")),
        KeyProof::Sudo(_) if !site_rules.sudo_is_limited => None,
        KeyProof::Sudo(name) | KeyProof::User(name) => limited(&name)?,
        KeyProof::Refused => return Err(refused("the key does not fit")),
    };
    let own = &services.config.user;
    Ok(Sender {
        kind: Kind::User,
        name: user.unwrap_or(own).to_owned(),
        backend: None,
        rules: match place {
            CredentialLocation::Load => rules,
            CredentialLocation::Kwargs => of_syndic(load, key, services)?.or(rules),
        },
        is_master: site_rules.users.is_of(own, key),
    })
}

/// The rules of the user of a higher master for whom a syndic publishes; believed only with the key
/// of the master's own user. An empty list means a user who may do everything.
fn of_syndic(load: &Value, key: &str, services: &Services) -> Result<Option<Rules>, NotProved> {
    let list = load
        .get("kwargs")
        .and_then(|kwargs| kwargs.get("auth_list"));
    let Some(list) = list.filter(|_| {
        services
            .users
            .rules()
            .users
            .is_of(&services.config.user, key)
    }) else {
        return Ok(None);
    };
    match list {
        Value::Nil => Ok(None),
        Value::Array(_) => Ok(Some(Rules::of(list)).filter(|rules| !rules.is_empty())),
        _ => Err(NotProved::new(Kind::User, "\"auth_list\" is no list")),
    }
}

impl Sender {
    /// The reactor of this master, limited by `saltern_reactor_acl`.
    pub fn of_reactor(services: &Services) -> Self {
        Self {
            kind: Kind::User,
            name: services.config.user.clone(),
            backend: None,
            rules: services.users.rules().reactor_acl.clone(),
            is_master: false,
        }
    }

    /// How the sender was proved.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The sender's name: for a key the one in the load, else that of the token or backend.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The owner of the sender's jobs.
    pub(crate) fn owner(&self) -> Owner {
        Owner {
            backend: self.backend.clone(),
            name: self.name.clone(),
        }
    }

    /// Whether the sender began this batch.
    pub(crate) fn began(&self, plan: &BatchPlan) -> bool {
        self.name == plan.user && self.backend == plan.backend
    }

    /// The load in the proved name, with the backend that knows it: the load of a token or login
    /// may claim any other name. Only the syndic, which has the master's own key, says from which
    /// master above a job came.
    pub(crate) fn sign<'a>(&self, load: &'a Value) -> Cow<'a, Value> {
        let Value::Map(entries) = load else {
            return Cow::Borrowed(load);
        };
        let kwargs = load.get("kwargs");
        let is_marked = kwargs.is_some_and(|kwargs| kwargs.get(UPPER).is_some());
        let is_forged = is_marked && !self.is_master;
        if self.kind == Kind::User && load.get(BACKEND).is_none() && !is_forged {
            return Cow::Borrowed(load);
        }
        let mut entries = entries.clone();
        for (name, value) in &mut entries {
            if let (true, Some("kwargs"), Value::Map(kwargs)) = (is_forged, name.as_str(), value) {
                kwargs.retain(|(name, _)| name.as_str() != Some(UPPER));
            }
        }
        entries.retain(|(name, _)| name.as_str() != Some(BACKEND));
        for (name, value) in &mut entries {
            if name.as_str() == Some("user") && self.kind != Kind::User {
                *value = self.name.as_str().into();
            }
        }
        if let Some(backend) = &self.backend {
            entries.push((BACKEND.into(), backend.as_str().into()));
        }
        Cow::Owned(Value::Map(entries))
    }

    /// The rules that hold for the sender, for the masters below; nil for a sender who may do
    /// everything.
    pub(crate) fn rights(&self) -> Value {
        let rules = self.rules.as_ref();
        rules.map_or_else(|| Value::Array(Vec::new()), Rules::to_value)
    }

    /// Whether the sender may run these functions, which are those of the load, on these minions
    /// with the arguments of the load.
    pub fn may_publish(
        &self,
        load: &Value,
        functions: &[String],
        minions: Whom<'_>,
        services: &Services,
    ) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        let job = AskedJob {
            functions,
            in_list: matches!(load.get("fun"), Some(Value::Array(_))),
            arguments: load.get("arg").unwrap_or(&Value::Nil),
            minions,
        };
        let minions_of = |target: &str| targets::of_rule(services, target);
        services.users.acl.allows_job(rules, &job, minions_of)
    }

    /// Whether the sender may call this function of the master.
    pub fn may_call(
        &self,
        form: Form,
        function: &str,
        arguments: &Arguments,
        services: &Services,
    ) -> Verdict {
        let Some(rules) = &self.rules else {
            return Verdict::Allowed;
        };
        let arguments = CallArguments {
            positional: arguments.positional.clone(),
            named: arguments.named.clone(),
        };
        services
            .users
            .acl
            .allows_call(rules, form, function, &arguments)
    }
}
