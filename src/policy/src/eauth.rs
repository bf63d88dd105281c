//! External authentication: which backend knows a user, and which rules hold for a known user
//! (`external_auth`; `salt/auth/__init__.py` and the modules beside it).
//!
//! A backend may block for seconds, so callers use a thread that may block. Throttling of failures
//! and bounds on waiting log-ins are not decided here, nor what the rules mean (`acl`).
//!
//! Modules in Python, of the site's own or of stock, are asked through the bridge; they may have
//! rules of their own for known users, which a token carries then, so that requests do not ask them
//! again.
//!
//! # Where this differs from stock, and why
//! - The user's name is text. Stock takes it for a pattern over the names in the configuration, so
//!   that with `auto` or `sharedsecret` a user called `*` is everybody.
//! - `sharedsecret` without a secret in the configuration knows nobody; in stock it knows every
//!   user that sends no password.
//! - The service of `pam` comes from the configuration alone (CVE-2016-3176), and the account phase
//!   counts (CVE-2022-22967).
//! - `file`: an entry of a hash that this program does not compute is an error that names it.

mod crypt_md5;
mod file;
mod pam;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use saltern_bridge::{Bridge, BridgeError, Work};
use saltern_crypto::{SecretString, ct_eq};
use saltern_wire::msgpack::Value;

use crate::acl::Rules;

pub use file::FileError;
pub use pam::{CHECK_COMMAND, PamError, answer_check};

use file::PasswordFile;
use pam::Pam;

/// The longest name or password that is handed to a backend, in bytes.
const MAX_CREDENTIAL_BYTES: usize = 4096;

/// The options that are not part of `external_auth` itself.
pub struct EauthOptions {
    /// `auth.pam.service`.
    pub pam_service: Option<String>,
    /// `sharedsecret`.
    pub shared_secret: Option<SecretString>,
    /// `permissive_acl`.
    pub permissive: bool,
    /// `eauth_acl_module`.
    pub acl_module: Option<String>,
}

/// The enabled backends of `external_auth`, with the rules of the configuration.
pub struct ExternalAuth {
    backends: BTreeMap<String, Enabled>,
    permissive: bool,
    acl_module: Option<String>,
    bridge: Option<Arc<Bridge>>,
}

/// A user that a backend knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The groups; of the built-in backends only `pam` reports any.
    pub groups: Vec<String>,
    /// The rules, where the backend has a say in them; else those of the configuration hold
    /// ([`ExternalAuth::rules_of`]).
    pub rules: Option<Rules>,
}

/// A backend that the configuration names.
struct Enabled {
    backend: Backend,
    /// Rules by names of users, of groups (`ops%`), and of everybody else (`*`).
    rules: Vec<(String, Value)>,
}

enum Backend {
    Pam(Pam),
    File(PasswordFile),
    SharedSecret(Option<SecretString>),
    /// Knows every user; stock has it for tests.
    Auto,
    /// A module in Python.
    Other,
}

/// Why a backend could not be asked for a user.
#[derive(Debug, thiserror::Error)]
pub enum EauthError {
    /// The configuration does not name it.
    #[error("external_auth does not enable \"{0}\"")]
    NotEnabled(String),
    /// Rules would come from a module in Python, for users of every backend.
    #[error("\"eauth_acl_module\" names the module \"{0}\", which is not asked for rules")]
    NotServed(String),
    /// Python cannot be asked.
    #[error(transparent)]
    Python(#[from] BridgeError),
    /// Its answer is malformed.
    #[error("the external_auth module \"{0}\" gave an unusable answer")]
    Answer(String),
    /// PAM cannot be asked.
    #[error("pam cannot be asked")]
    Pam(#[from] PamError),
    /// The file of passwords cannot be used.
    #[error("the file of passwords cannot be used")]
    File(#[from] FileError),
}

impl EauthError {
    /// Whether this machine is at fault (no process can be started, a file cannot be read), so that
    /// the user may be known all the same.
    pub fn is_local_fault(&self) -> bool {
        matches!(
            self,
            Self::Pam(PamError::Process(_) | PamError::Late) | Self::File(FileError::Io { .. })
        )
    }
}

impl ExternalAuth {
    /// From the option `external_auth`, a map of backends to maps of names to rules.
    pub fn new(external_auth: &Value, options: EauthOptions) -> Self {
        let mut shared_secret = options.shared_secret;
        let entries = external_auth.as_map().unwrap_or_default();
        let backends = entries.iter().filter_map(|(name, users)| {
            let name = name.as_str()?;
            let backend = match name {
                "pam" => Backend::Pam(Pam::new(options.pam_service.as_deref())),
                "file" => Backend::File(PasswordFile::new(users)),
                "sharedsecret" => Backend::SharedSecret(shared_secret.take()),
                "auto" => Backend::Auto,
                _ => Backend::Other,
            };
            let rules = users.as_map().unwrap_or_default().iter();
            let rules = rules.filter_map(|(user, rules)| {
                // What begins so is an option of the backend.
                let user = user.as_str().filter(|user| !user.starts_with('^'))?;
                Some((user.to_owned(), rules.clone()))
            });
            let rules = rules.collect();
            Some((name.to_owned(), Enabled { backend, rules }))
        });
        Self {
            backends: backends.collect(),
            permissive: options.permissive,
            acl_module: options.acl_module.filter(|module| !module.is_empty()),
            bridge: None,
        }
    }

    /// The same with a way to ask modules in Python; without it, they know nobody.
    #[must_use]
    pub fn with_bridge(mut self, bridge: Arc<Bridge>) -> Self {
        self.bridge = Some(bridge);
        self
    }

    /// Whether the configuration names the backend.
    pub fn is_enabled(&self, eauth: &str) -> bool {
        self.backends.contains_key(eauth)
    }

    /// Whether a backend is a module in Python.
    pub fn is_in_python(&self, eauth: &str) -> bool {
        let enabled = self.backends.get(eauth);
        enabled.is_some_and(|enabled| matches!(enabled.backend, Backend::Other))
    }

    /// The backends that the configuration names and that are modules in Python, each with the reason
    /// if it is known that it cannot be asked; sorted.
    pub fn in_python(&self) -> impl Iterator<Item = (&str, Option<BridgeError>)> {
        let names = self.backends.keys().map(String::as_str);
        let others = names.filter(|name| self.is_in_python(name));
        others.map(|eauth| {
            let work = Work::LogIn {
                eauth,
                username: "",
                password: "",
            };
            let refusal = |bridge: &Arc<Bridge>| bridge.refusal(&work);
            (eauth, self.bridge.as_ref().and_then(refusal))
        })
    }

    /// The user, if the backend knows the user by this password. May block for as long as the
    /// backend takes.
    ///
    /// # Errors
    /// When the backend cannot be asked; then nobody knows.
    pub fn knows(
        &self,
        eauth: &str,
        user: &str,
        password: &str,
    ) -> Result<Option<Known>, EauthError> {
        let enabled = self.backends.get(eauth);
        let enabled = enabled.ok_or_else(|| EauthError::NotEnabled(shown(eauth)))?;
        if let Some(module) = &self.acl_module
            && !matches!(module.as_str(), "pam" | "file" | "sharedsecret" | "auto")
        {
            return Err(EauthError::NotServed(module.clone()));
        }
        if user.is_empty()
            || user.len() > MAX_CREDENTIAL_BYTES
            || password.len() > MAX_CREDENTIAL_BYTES
        {
            return Ok(None);
        }
        let is_known = match &enabled.backend {
            Backend::Pam(pam) => {
                let groups = pam.knows(user, password)?;
                return Ok(groups.map(|groups| Known {
                    groups,
                    rules: None,
                }));
            }
            Backend::File(file) => file.knows(user, password)?,
            Backend::SharedSecret(secret) => secret.as_ref().is_some_and(|secret| {
                !secret.expose().is_empty()
                    && ct_eq(secret.expose().as_bytes(), password.as_bytes())
            }),
            Backend::Auto => true,
            Backend::Other => return self.ask_python(eauth, user, password),
        };
        Ok(is_known.then(|| Known {
            groups: Vec::new(),
            rules: None,
        }))
    }

    fn ask_python(
        &self,
        eauth: &str,
        username: &str,
        password: &str,
    ) -> Result<Option<Known>, EauthError> {
        // What begins so is an option of the backend.
        let bridge = match &self.bridge {
            Some(bridge) if !username.starts_with('^') => bridge,
            _ => return Ok(None),
        };
        let work = Work::LogIn {
            eauth,
            username,
            password,
        };
        let said = bridge.call(&work, Duration::MAX)?;
        match said.get("known").and_then(Value::as_bool) {
            Some(true) => {
                let groups = said.get("groups").and_then(Value::as_array);
                let groups = groups.unwrap_or_default().iter();
                Ok(Some(Known {
                    groups: groups
                        .filter_map(|group| group.as_str().map(str::to_owned))
                        .collect(),
                    rules: said.get("auth_list").map(Rules::of),
                }))
            }
            Some(false) => Ok(None),
            None => Err(EauthError::Answer(shown(eauth))),
        }
    }

    /// The rules that hold for a user whom the backend knows (`fill_auth_list` in
    /// `salt/utils/minions.py`): the user's own and those of the groups, or those of everybody
    /// else. With `permissive_acl`, stock gives nobody the rules of everybody else.
    pub fn rules_of(&self, eauth: &str, user: &str, groups: &[String]) -> Rules {
        let mut rules = Rules::default();
        let Some(enabled) = self.backends.get(eauth) else {
            return rules;
        };
        let mut has_own = false;
        for (name, entry) in &enabled.rules {
            match name.strip_suffix('%') {
                Some(group) => {
                    let group = group.trim_end_matches('%');
                    if groups.iter().any(|known| known == group) {
                        rules.add(entry);
                    }
                }
                None if name != "*" && name == user => {
                    has_own = true;
                    rules.add(entry);
                }
                None => {}
            }
        }
        if !self.permissive && !has_own {
            let others = enabled.rules.iter().filter(|(name, _)| name == "*");
            others.for_each(|(_, entry)| rules.add(entry));
        }
        rules
    }
}

/// The beginning of what a client sent, for the log.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
