//! The keys by which users of this machine prove themselves to the master.
//!
//! `cachedir/.<user>_key`, readable by that user only: for the user the master runs as, for the one
//! of the configuration, and for each name in `publisher_acl`. 3006 makes new ones at every start,
//! 3007 and 3008 keep what is there (`salt/daemons/masterapi.py`, `access_keys`, `mk_key`;
//! `salt/auth/__init__.py`, `authenticate_key`). Beside a syndic they are always kept: it reads the
//! key when it starts, and with a new one its jobs are refused until somebody starts it again. What
//! a user may do is decided above this crate.
//!
//! Members of a cluster that relay to the active one have the same keys, which follow from its secret:
//! what a user of one member sends is verified by another.

use std::collections::BTreeMap;
use std::path::Path;

use saltern_config::MasterConfig;
use saltern_crypto::{KeyString, SecretString, StateCipher, ct_eq};
use saltern_model::Compat;
use saltern_python::expression::AnyOf;

use crate::error::{Result, StoreError};
use crate::files::{self, Create, Version};
use crate::options::StoreOptions;
use crate::shared_state::read_cipher;

/// Local accounts; the file that names them all.
const PASSWD: &str = "/etc/passwd";
const PASSWD_BYTES: usize = 16 << 20;
const KEY_BYTES: usize = 4 << 10;

/// The keys of all users that have one.
pub struct UserKeys {
    keys: BTreeMap<String, SecretString>,
    /// The user this process runs as.
    running: String,
    /// The user of the configuration.
    configured: String,
}

/// Identity that a key proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyProof {
    /// Nothing.
    Refused,
    /// The user of the master, who may do everything.
    Trusted,
    /// A user who acts by `sudo`; this is their own name.
    Sudo(String),
    /// A user whose rights `publisher_acl` names.
    User(String),
}

impl UserKeys {
    /// Reads or makes the keys of a configuration.
    pub fn prepare(config: &MasterConfig) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config))
    }

    /// The keys of a configuration that is read while the master runs: those that are there stay,
    /// whatever the version, because clients that are at work have read them.
    pub fn extend(config: &MasterConfig) -> Result<Self> {
        Self::with_options(&StoreOptions {
            has_syndic: true,
            ..StoreOptions::from(config)
        })
    }

    /// The same with this crate's options.
    ///
    /// A configured user that this machine does not have gets no key, as with stock when
    /// `client_acl_verify` is on.
    pub fn with_options(options: &StoreOptions) -> Result<Self> {
        files::ensure_dir(&options.cachedir, 0o755)?;
        let accounts = accounts();
        let running = running_user(&accounts);
        let mut named: Vec<&str> = options.acl_users.iter().map(String::as_str).collect();
        named.extend([options.user.as_str(), running.as_str()]);
        if !options.acl_users.is_empty() || options.external_auth {
            let_through(&options.cachedir)?;
        }
        let cipher = options.shared_users.as_ref();
        let cipher = cipher
            .map(|(path, cluster)| read_cipher(path, cluster))
            .transpose()?;
        let source = (options, cipher.as_ref());
        let mut keys = BTreeMap::new();
        for user in &named {
            if !user.is_empty() && !keys.contains_key(*user) {
                add(&mut keys, source, user, &accounts)?;
            }
        }
        if options.client_acl_verify {
            let patterns = AnyOf::new(named.iter().copied());
            for user in accounts.keys() {
                if !keys.contains_key(user) && patterns.matches(user) {
                    add(&mut keys, source, user, &accounts)?;
                }
            }
        }
        Ok(Self {
            keys,
            running,
            configured: options.user.clone(),
        })
    }

    /// Whether `key` lets `user` in at all.
    pub fn verify(&self, user: &str, key: &str) -> bool {
        self.authenticate(Some(user), key) != KeyProof::Refused
    }

    /// Identity that `key` proves for the `user` of a load.
    ///
    /// For the master's own user, for root, by `sudo` and for nobody in particular it must be a key
    /// of the master's own, which is what stock's clients send. Stock takes anybody's there
    /// (`authenticate_key`), so that each user of `publisher_acl` may do everything.
    pub fn authenticate(&self, user: Option<&str>, key: &str) -> KeyProof {
        let proof = |holds: bool, proof: KeyProof| if holds { proof } else { KeyProof::Refused };
        let Some(user) = user else {
            return proof(self.is_own(key), KeyProof::Trusted);
        };
        if let Some(name) = user.strip_prefix("sudo_") {
            return proof(self.is_own(key), KeyProof::Sudo(name.to_owned()));
        }
        if self.is_own(key) {
            return KeyProof::Trusted;
        }
        proof(self.is_of(user, key), KeyProof::User(user.to_owned()))
    }

    /// Whether `key` is the key of exactly this user: only then stock trusts a syndic's
    /// `auth_list`.
    pub fn is_of(&self, user: &str, key: &str) -> bool {
        self.keys
            .get(user)
            .is_some_and(|known| ct_eq(known.expose().as_bytes(), key.as_bytes()))
    }

    /// The users that have a key, sorted.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// The key of a user, for our own command line.
    pub fn key(&self, user: &str) -> Option<&SecretString> {
        self.keys.get(user)
    }

    /// Whether it is the key of the user of the configuration, of the one this process runs as, or
    /// of root. All are compared, also after a match, so that the time leaks nothing.
    fn is_own(&self, key: &str) -> bool {
        let own = [self.configured.as_str(), self.running.as_str(), "root"];
        own.iter()
            .fold(false, |found, user| found | self.is_of(user, key))
    }
}

fn add(
    keys: &mut BTreeMap<String, SecretString>,
    (options, cipher): (&StoreOptions, Option<&StateCipher>),
    user: &str,
    accounts: &BTreeMap<String, u32>,
) -> Result<()> {
    let owner = accounts.get(user).copied().or_else(|| lookup(user));
    if owner.is_none() && options.client_acl_verify {
        tracing::debug!(user, "no such user on this machine, no key is made");
        return Ok(());
    }
    let path = match files::child(&options.cachedir, &format!(".{user}_key")) {
        Ok(path) => path,
        // A pattern such as "ops/.*" names no user and no file.
        Err(StoreError::UnsafeName { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let shared = cipher.map(|cipher| cipher.user_key(user));
    let kept = match (options.compat, &shared) {
        (_, Some(shared)) => {
            let is_shared =
                |kept: &SecretString| ct_eq(kept.expose().as_bytes(), shared.as_str().as_bytes());
            kept_key(&path)?.filter(is_shared)
        }
        (Compat::V3006, None) if !options.has_syndic => None,
        (Compat::V3006 | Compat::V3007 | Compat::V3008, None) => kept_key(&path)?,
    };
    let key = match kept {
        Some(key) => key,
        None => {
            let key = shared.unwrap_or_else(KeyString::generate);
            let key = SecretString::new(key.as_str().to_owned());
            let create = Create {
                owner,
                ..Create::PRIVATE
            };
            files::write_atomic(&path, key.expose().as_bytes(), create)?;
            key
        }
    };
    keys.insert(user.to_owned(), key);
    Ok(())
}

/// A key from an earlier start. One that others can read, or that is none, is not kept.
fn kept_key(path: &Path) -> Result<Option<SecretString>> {
    let Some(stat) = Version::of(path, false)? else {
        return Ok(None);
    };
    if !stat.is_file() || stat.mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "not private; a new key is made");
        return Ok(None);
    }
    let text = files::read_replaceable(path, KEY_BYTES)?;
    Ok(text.filter(|text| is_key(text)).map(SecretString::new))
}

/// Whether a client could send this as its key: stock's are letters, digits and a few signs,
/// without an end of line.
fn is_key(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// Other users must be able to reach their key file (stock: `o+x`).
fn let_through(cachedir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |source| StoreError::io("let other users pass through", cachedir, source);
    let mode = std::fs::metadata(cachedir)
        .map_err(failed)?
        .permissions()
        .mode();
    if mode & 0o001 != 0 {
        return Ok(());
    }
    let permissions = std::fs::Permissions::from_mode((mode & 0o7777) | 0o001);
    std::fs::set_permissions(cachedir, permissions).map_err(failed)
}

/// The local accounts by name, with their user numbers.
fn accounts() -> BTreeMap<String, u32> {
    let text = match files::read_text(Path::new(PASSWD), PASSWD_BYTES) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(%error, "local users are not known");
            String::new()
        }
    };
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?;
            let uid = fields.nth(1)?.parse().ok()?;
            Some((name.to_owned(), uid))
        })
        .collect()
}

/// A user that only the directory service knows.
fn lookup(user: &str) -> Option<u32> {
    nix::unistd::User::from_name(user)
        .inspect_err(|error| tracing::warn!(user, %error, "cannot look the user up"))
        .ok()
        .flatten()
        .map(|user| user.uid.as_raw())
}

fn running_user(accounts: &BTreeMap<String, u32>) -> String {
    let uid = rustix::process::geteuid().as_raw();
    accounts
        .iter()
        .find(|(_, known)| **known == uid)
        .map(|(name, _)| name.clone())
        .or_else(|| {
            let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
            user.ok().flatten().map(|user| user.name)
        })
        .unwrap_or_default()
}
