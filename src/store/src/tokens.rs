//! The tokens of users who logged in: `salt -T`, salt-api's sessions.
//!
//! One file a token below `token_dir`, named after the token, readable by the master's user only.
//! 3006 and 3007 keep the map of the token itself (`salt/tokens/localfs.py`), 3008 wraps it into
//! `{"data": …, "_expires": …}` and adds `.p` to the name (`salt/cache/__init__.py`, `mk_token` in
//! `salt/auth/__init__.py`). Nothing is kept in memory: a file that is removed is a token that
//! nobody has any more. What a token lets its owner do is decided above this crate.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_config::MasterConfig;
use saltern_crypto::KeyString;
use saltern_model::Compat;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_wire, encode};

use crate::error::{Result, StoreError};
use crate::files::{self, Create};
use crate::shared_state::{SharedState, StateKind};

/// The longest name: a SHA-512 in hexadecimal digits (`hash_type`).
const MAX_NAME_BYTES: usize = 128;

/// The largest file: a token with the rules of its user in it.
const FILE_BYTES: usize = 1 << 20;

/// Tokens that may be kept at a time. Each took a log-in, and they are swept when they expire.
const MAX_TOKENS: usize = 100_000;

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Directory of eauth tokens, one file a token, bounded by `MAX_TOKENS`.
pub struct Tokens {
    dir: PathBuf,
    compat: Compat,
    clock: Clock,
    shared: SharedState,
    /// About how many there are: counted at the start and by each sweep, and up with each new one.
    count: AtomicUsize,
    failures: LogThrottle,
}

/// Owner of a new token.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// The user's name.
    pub name: String,
    /// The backend that knew the user (`eauth`).
    pub eauth: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The rules that hold for the user, with `keep_acl_in_token`.
    pub auth_list: Option<Value>,
    /// For how long the token is good.
    pub lasts: Duration,
}

/// A token that is good at this moment.
#[derive(Clone, PartialEq)]
pub struct Token {
    value: Value,
    ends: f64,
}

impl Token {
    /// The token as stock hands it out: a map with `start`, `expire`, `name`, `eauth`, `token`.
    pub fn to_value(&self) -> &Value {
        &self.value
    }

    /// When it ends, in seconds since 1970.
    pub fn ends(&self) -> f64 {
        self.ends
    }

    /// The user's name.
    pub fn name(&self) -> &str {
        self.text("name")
    }

    /// The backend that knew the user.
    pub fn eauth(&self) -> &str {
        self.text("eauth")
    }

    /// The groups that the user was in.
    pub fn groups(&self) -> Vec<String> {
        let groups = self.value.get("groups").and_then(Value::as_array);
        let groups = groups.unwrap_or_default().iter().filter_map(Value::as_str);
        groups.map(str::to_owned).collect()
    }

    /// The rules that it carries, if it carries any.
    pub fn auth_list(&self) -> Option<&Value> {
        self.value.get("auth_list").filter(|list| !list.is_nil())
    }

    fn text(&self, name: &str) -> &str {
        self.value
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// Content of a file.
enum Found {
    /// A token, and when it ends, in seconds since 1970.
    Token(Value, f64),
    /// Nothing that could ever be a token.
    Damaged,
    /// No file.
    Nothing,
}

/// A token by its name.
enum Looked {
    /// Good at this moment.
    Good(Token),
    /// Without a file, or without one any more.
    Gone,
    /// No token, but its file cannot be removed.
    Stays,
}

impl Tokens {
    /// The tokens of a configuration; makes the directory if there is none.
    pub fn open(config: &MasterConfig, clock: Clock) -> Result<Self> {
        Self::at(&config.token_dir, config.salt_compat, clock)
    }

    /// The tokens below a directory.
    pub fn at(dir: &Path, compat: Compat, clock: Clock) -> Result<Self> {
        files::ensure_dir(dir, 0o700)?;
        let tokens = Self {
            dir: dir.to_path_buf(),
            compat,
            clock,
            shared: SharedState::default(),
            count: AtomicUsize::new(0),
            failures: LogThrottle::new(LOG_INTERVAL),
        };
        let count = tokens.list()?.len();
        tokens.count.store(count, Ordering::Relaxed);
        Ok(tokens)
    }

    /// The same, shared with the other masters of a cluster from here on.
    #[must_use]
    pub fn shared_by(self, shared: &SharedState) -> Self {
        let shared = shared.clone();
        Self { shared, ..self }
    }

    /// Makes a token and keeps it.
    ///
    /// # Errors
    /// When it cannot be written, or too many are kept already.
    pub fn create(&self, claims: Claims) -> Result<Token> {
        if self.count.load(Ordering::Relaxed) >= MAX_TOKENS {
            return Err(StoreError::TooMany {
                path: self.dir.clone(),
                limit: MAX_TOKENS,
            });
        }
        let name = random_name();
        let start = self.now();
        let expire = start + claims.lasts.as_secs_f64();
        let mut entries = vec![
            (Value::from("start"), Value::Float(start)),
            ("expire".into(), Value::Float(expire)),
            ("name".into(), claims.name.into()),
            ("eauth".into(), claims.eauth.into()),
        ];
        if let Some(auth_list) = claims.auth_list {
            entries.push(("auth_list".into(), auth_list));
        }
        if !claims.groups.is_empty() {
            let groups = claims.groups.into_iter().map(Value::from);
            entries.push(("groups".into(), Value::Array(groups.collect())));
        }
        entries.push(("token".into(), name.as_str().into()));
        let token = Value::Map(entries);
        let packed = encode(&self.envelope(token.clone(), expire), Dialect::Bin);
        let path = self.path(&name)?;
        if packed.len() > FILE_BYTES {
            return Err(StoreError::TooLarge {
                path,
                limit: FILE_BYTES,
            });
        }
        files::write_atomic(&path, &packed, Create::PRIVATE.above())?;
        self.count.fetch_add(1, Ordering::Relaxed);
        // Behind the reply: a user whose token is lost on the way logs in again.
        let content = (packed.as_slice(), self.clock.unix_micros());
        self.shared
            .put(StateKind::Token, &self.file_name(&name), content);
        Ok(Token {
            value: token,
            ends: expire,
        })
    }

    /// The token of this name; `None` for what is no token, is not known, is damaged or has
    /// expired. Looks at the file each time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<Token>> {
        Ok(match self.look(name)? {
            Looked::Good(token) => Some(token),
            Looked::Gone | Looked::Stays => None,
        })
    }

    fn look(&self, name: &str) -> Result<Looked> {
        if !is_name(name) {
            return Ok(Looked::Gone);
        }
        let path = self.path(name)?;
        Ok(match self.read(&path)? {
            Found::Nothing => Looked::Gone,
            Found::Token(value, ends) if self.now() < ends => Looked::Good(Token { value, ends }),
            Found::Token(..) => self.discard(name, "expired"),
            Found::Damaged => self.discard(name, "damaged"),
        })
    }

    /// Takes a token away from its owner; `false` when there is none of this name.
    ///
    /// # Errors
    /// When the file cannot be removed, or, in a cluster, the master that takes over might still have it.
    pub fn remove(&self, name: &str) -> Result<bool> {
        if !is_name(name) {
            return Ok(false);
        }
        let removed = files::remove(&self.path(name)?)?;
        self.shared
            .remove_durably(StateKind::Token, &self.file_name(name))?;
        Ok(removed)
    }

    /// The names of all tokens, expired ones included.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        files::each_entry(&self.dir, |name, _| {
            let name = match self.compat {
                Compat::V3006 | Compat::V3007 => Some(name),
                Compat::V3008 => name.strip_suffix(".p"),
            };
            names.extend(name.filter(|name| is_name(name)).map(str::to_owned));
        })?;
        Ok(names)
    }

    /// Removes the tokens that have expired; how many these were. One that cannot be read or removed is
    /// left for the next sweep.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn sweep(&self) -> Result<usize> {
        let names = self.list()?;
        let mut kept = 0;
        for name in &names {
            match self.look(name) {
                Ok(Looked::Gone) => {}
                Ok(Looked::Good(_) | Looked::Stays) => kept += 1,
                Err(error) => {
                    kept += 1;
                    tracing::warn!(%error, "a token cannot be read");
                }
            }
        }
        self.count.store(kept, Ordering::Relaxed);
        Ok(names.len() - kept)
    }

    /// Content of a token's file, as the version in `salt_compat` writes it.
    fn envelope(&self, token: Value, expire: f64) -> Value {
        match self.compat {
            Compat::V3006 | Compat::V3007 => token,
            Compat::V3008 => Value::map([
                ("data", token),
                ("_expires", Value::Int(expire.max(0.0) as i64)),
            ]),
        }
    }

    fn read(&self, path: &Path) -> Result<Found> {
        let packed = match files::read(path, FILE_BYTES) {
            Ok(Some(packed)) => packed,
            Ok(None) => return Ok(Found::Nothing),
            Err(StoreError::TooLarge { .. }) => return Ok(Found::Damaged),
            Err(error) => return Err(error),
        };
        let Ok(content) = decode_wire(&packed, &Limits::WIRE) else {
            return Ok(Found::Damaged);
        };
        let (token, outer) = match (content.get("data"), content.get("_expires")) {
            (Some(token), Some(expires)) => (token.clone(), number(Some(expires))),
            _ => (content, Some(f64::INFINITY)),
        };
        // Stock takes a token without an end for one that has expired.
        let ends = outer.zip(number(token.get("expire")));
        Ok(match ends {
            Some((outer, inner)) => Found::Token(token, outer.min(inner)),
            None => Found::Damaged,
        })
    }

    /// Whether it can be removed or not, it is no token.
    fn discard(&self, name: &str, why: &'static str) -> Looked {
        match self.path(name).and_then(|path| files::remove(&path)) {
            Ok(_) => {
                self.shared.remove(StateKind::Token, &self.file_name(name));
                tracing::info!(why, "a token was removed");
                Looked::Gone
            }
            Err(error) => {
                if let Some(times) = self.failures.record() {
                    let error = chain(&error);
                    tracing::warn!(why, error, times, "a token cannot be removed");
                }
                Looked::Stays
            }
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        files::child(&self.dir, &self.file_name(name))
    }

    fn file_name(&self, name: &str) -> String {
        match self.compat {
            Compat::V3006 | Compat::V3007 => name.to_owned(),
            Compat::V3008 => format!("{name}.p"),
        }
    }

    /// Seconds since 1970, as Python's `time.time()`.
    fn now(&self) -> f64 {
        self.clock.unix_micros() as f64 / 1e6
    }
}

/// Whether this may name a token: hexadecimal digits, so that it names one file and no other place.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// As in stock: the digest of something random.
fn random_name() -> String {
    KeyString::generate().digest_hex()
}

fn number(value: Option<&Value>) -> Option<f64> {
    let value = value?;
    value.as_f64().filter(|number| !number.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names there are numbers, the files no tokens, and nobody may remove them, root neither.
    #[test]
    fn token_that_cannot_be_removed_is_none_and_counts_as_kept() {
        let tokens = Tokens::at(
            Path::new("/proc/self/fdinfo"),
            Compat::V3007,
            Clock::system(),
        );
        let tokens = tokens.expect("a directory");
        assert!(tokens.find("0").expect("it is read").is_none());
        // That of the list itself is closed by then.
        let removed = tokens.sweep().expect("a list");
        assert!(removed <= 1, "{removed} removed");
        assert!(tokens.count.load(Ordering::Relaxed) >= 3, "those that stay");
    }
}
