//! Rotation of the master's own RSA key: a new one takes the place of the old one, which is accepted
//! beside it until the rotation is finished or a stated time is over.
//!
//! `master.pem` is the new key from the first step on, under the name that stock reads. Beside it lie
//! `master_previous.pem`, and in `master_previous.sig` the old key's signature over the new public
//! key and over the time until which the old one is accepted. Without that signature the old key does
//! not count: it may belong to another key than the present one, when one of the files comes from a
//! backup. Each step leaves files that a master can start with, and that the next call goes on from.
//! How minions get the new key is not decided here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use saltern_base::log_throttle::LogThrottle;
use saltern_crypto::{HashType, PrivateKey, PublicKey, SecretString, SigAlgo};

use super::{KEY_BYTES, MasterKey, find, key_error, passphrase, public_mode, read};
use crate::error::{Result, StoreError};
use crate::files::{self, Create, Version};
use crate::options::StoreOptions;

/// The key that is to be put in place, until it is.
const NEXT: &str = "master_next.pem";

/// The key that was replaced.
const PREVIOUS: &str = "master_previous.pem";

/// The statements of replaced keys, one a line: until when each is accepted beside its successor.
const STATEMENTS: &str = "master_previous.sig";

/// The algorithm of their signatures; FIPS allows it.
const ALGORITHM: SigAlgo = SigAlgo::Pkcs1v15Sha224;

/// At most one line per interval about a file of statements that cannot be read.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A step of a rotation that puts another key in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacingStep {
    /// To a new key ([`MasterKeyRotation::begin`]).
    Begin,
    /// To the key before ([`MasterKeyRotation::revert`]).
    Revert,
}

impl fmt::Display for ReplacingStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begin => "begin",
            Self::Revert => "revert",
        })
    }
}

/// Why a rotation is not begun or finished.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// One has begun and is not finished.
    #[error("the master's key is being rotated already; finish that rotation first")]
    UnderWay,
    /// A key was made that is not in its place yet.
    #[error("the step \"{0}\" was interrupted; run \"{0}\" again, which completes it")]
    Interrupted(ReplacingStep),
    /// None has begun.
    #[error("the master's key is not being rotated")]
    NotBegun,
    /// The signature of the public key was made beforehand, and would not fit the new one.
    #[error(
        "with \"master_use_pubkey_signature\" minions get a signature that was made for the present \
         key; turn that option off first"
    )]
    SignatureIsMade,
    /// A key cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The text that a replaced key signs: its successor, and until when (seconds since 1970) it is accepted.
fn statement(successor: &str, until: i64) -> String {
    format!("saltern master key rotation\nuntil {until}\n{successor}\n")
}

/// Until when a replaced key is accepted, if a line is its statement over this successor.
fn until_in(line: &str, replaced: &PublicKey, successor: &str) -> Option<i64> {
    let (until, signature) = line.split_once(' ')?;
    let until = until.parse().ok()?;
    let signature = STANDARD.decode(signature).ok()?;
    let message = statement(successor, until);
    let is_signed = replaced.verify(ALGORITHM, message.as_bytes(), &signature);
    is_signed.then_some(until)
}

/// The same in all lines.
fn signed_until(text: &str, replaced: &PublicKey, successor: &str) -> Option<i64> {
    text.lines()
        .find_map(|line| until_in(line, replaced, successor))
}

/// The statements of two keys about each other with a new one among them. The last line stays that of
/// the key with which the rotation began; statements about other keys are left out.
fn with_statement(
    text: &str,
    replaced: &PrivateKey,
    successor: &PublicKey,
    until: i64,
) -> Result<String> {
    let message = statement(successor.pem(), until);
    let signature = replaced
        .sign(ALGORITHM, message.as_bytes())
        .map_err(|source| StoreError::Crypto {
            action: "sign the new key",
            source,
        })?;
    let own = format!("{until} {}", STANDARD.encode(signature));
    let is_own = |line: &str| until_in(line, replaced.public(), successor.pem()).is_some();
    let is_others = |line: &str| until_in(line, successor, replaced.public().pem()).is_some();
    let mut lines: Vec<&str> = match text.lines().any(is_own) {
        true => Vec::new(),
        false => vec![own.as_str()],
    };
    lines.extend(text.lines().filter_map(|line| match is_own(line) {
        true => Some(own.as_str()),
        false => is_others(line).then_some(line),
    }));
    Ok(lines.join("\n") + "\n")
}

fn read_statements(options: &StoreOptions) -> Result<String> {
    let text = files::read_text(&options.pki_dir.join(STATEMENTS), KEY_BYTES)?;
    Ok(text.unwrap_or_default())
}

fn write_statements(options: &StoreOptions, text: &str) -> Result<()> {
    let path = options.pki_dir.join(STATEMENTS);
    files::write_atomic(&path, text.as_bytes(), Create::PRIVATE)
}

/// The master's key before the present one, while it is accepted.
pub struct PreviousMasterKey {
    /// The key.
    pub private: PrivateKey,
    /// Its public half as it is sent.
    pub public_pem: String,
    /// Whether the rotation began with it. That is not so after a return to the key before.
    pub(super) is_first: bool,
    /// The present key.
    successor: String,
    statements: PathBuf,
    /// The file of statements as it was read last, and the time in it.
    read: Mutex<(Option<Version>, Option<i64>)>,
    /// Throttle of the log of a file that cannot be read.
    failures: LogThrottle,
}

impl PreviousMasterKey {
    pub(super) fn key(&self) -> MasterKey<'_> {
        MasterKey {
            private: &self.private,
            public_pem: &self.public_pem,
        }
    }

    /// Until when it is accepted, in seconds since 1970; `None` once its statement was removed. A
    /// statement that another process writes meanwhile counts at once. While the file cannot be read,
    /// the time that was read last counts: only its removal ends the rotation.
    pub fn until(&self) -> Option<i64> {
        let mut read = self.read.lock();
        match self.read_again(read.0) {
            Ok(None) => {}
            Ok(Some(new)) => *read = new,
            Err(error) => {
                if let Some(failures) = self.failures.record() {
                    tracing::warn!(
                        %error,
                        failures,
                        "the statement about the master's previous key cannot be read; the time in \
                         it that was read last counts"
                    );
                }
            }
        }
        read.1
    }

    /// The file of statements as it is now and the time in it, unless it is this version.
    fn read_again(&self, known: Option<Version>) -> Result<Option<(Option<Version>, Option<i64>)>> {
        let Some(stat) = Version::of(&self.statements, true)? else {
            return Ok(Some((None, None)));
        };
        let version = stat.version;
        if known == Some(version) {
            return Ok(None);
        }
        let text = files::read_text(&self.statements, KEY_BYTES)?.unwrap_or_default();
        let until = signed_until(&text, self.private.public(), &self.successor);
        Ok(Some((version.is_settled().then_some(version), until)))
    }
}

/// The key of a configuration that counts before the present one, if there is one; whether its time
/// is over is the caller's question.
pub(super) fn previous(
    options: &StoreOptions,
    current: &PublicKey,
) -> Result<Option<PreviousMasterKey>> {
    let text = read_statements(options)?;
    let mut is_unsigned = false;
    // Between two steps of a return to the previous key that one is called the next.
    for name in [PREVIOUS, NEXT] {
        let path = options.pki_dir.join(name);
        if Version::of(&path, true)?.is_none() {
            continue;
        }
        let private = read(&path, passphrase("key_pass", options.key_pass.as_deref())?)?;
        if private.public().pem() == current.pem() {
            continue;
        }
        let until = signed_until(&text, private.public(), current.pem());
        if until.is_some() {
            let last = text.lines().last().unwrap_or_default();
            return Ok(Some(PreviousMasterKey {
                public_pem: private.public().pem().to_owned(),
                is_first: until_in(last, private.public(), current.pem()).is_some(),
                private,
                successor: current.pem().to_owned(),
                statements: options.pki_dir.join(STATEMENTS),
                read: Mutex::new((None, until)),
                failures: LogThrottle::new(LOG_INTERVAL),
            }));
        }
        is_unsigned |= name == PREVIOUS;
    }
    // Without any statement the rotation is being finished, or was while its end was interrupted.
    if is_unsigned && !text.is_empty() {
        tracing::warn!(
            path = %options.pki_dir.join(PREVIOUS).display(),
            "this key is not accepted: it did not sign the master's present key"
        );
    }
    Ok(None)
}

/// The keys of a rotation, as their files have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterKeyRotation {
    /// The master's present public key, as minions keep it.
    pub current: String,
    /// The one before it, until it is finished with.
    pub previous: Option<String>,
    /// Until when the previous one is accepted, in seconds since 1970; 0 without one.
    pub until: i64,
    /// The step whose key is not in place yet, or whose public half is not.
    pub interrupted: Option<ReplacingStep>,
}

impl MasterKeyRotation {
    /// Looks at the files.
    ///
    /// # Errors
    /// A key that is not there, or cannot be read.
    pub fn of(options: &StoreOptions) -> Result<Self> {
        let (_, current) = present(options)?;
        let previous = previous(options, current.public())?;
        Ok(Self {
            current: current.public().pem().to_owned(),
            until: previous
                .as_ref()
                .and_then(PreviousMasterKey::until)
                .unwrap_or(0),
            previous: previous.map(|key| key.public_pem),
            interrupted: interrupted(options, &current)?.map(|(step, _)| step),
        })
    }

    /// Makes a new key, has the present one sign it, and puts it in its place, for the next start of
    /// the master. Goes on where a call before was interrupted.
    ///
    /// # Errors
    /// [`RotationError`].
    pub fn begin(options: &StoreOptions, until: i64) -> std::result::Result<Self, RotationError> {
        Self::replace(
            options,
            ReplacingStep::Begin,
            until,
            |current| match previous(options, current.public())? {
                Some(_) => Err(RotationError::UnderWay),
                None => Ok(PrivateKey::generate(options.keysize)
                    .map_err(|source| key_error(&options.pki_dir.join(NEXT), source))?),
            },
        )
    }

    /// Puts the previous key in its place again, for the next start of the master; the new one is
    /// the previous one then, and accepted beside it. Goes on where a call before was interrupted.
    ///
    /// # Errors
    /// [`RotationError`].
    pub fn revert(options: &StoreOptions, until: i64) -> std::result::Result<Self, RotationError> {
        Self::replace(options, ReplacingStep::Revert, until, |current| {
            let previous = previous(options, current.public())?;
            let previous = previous.ok_or(RotationError::NotBegun)?;
            Ok(previous.private)
        })
    }

    fn replace(
        options: &StoreOptions,
        step: ReplacingStep,
        until: i64,
        choose: impl FnOnce(&PrivateKey) -> std::result::Result<PrivateKey, RotationError>,
    ) -> std::result::Result<Self, RotationError> {
        if options.master_sign_pubkey && options.master_use_pubkey_signature {
            return Err(RotationError::SignatureIsMade);
        }
        let key_pass = passphrase("key_pass", options.key_pass.as_deref())?;
        let (path, current) = present(options)?;
        let next_path = options.pki_dir.join(NEXT);
        let next = match interrupted(options, &current)? {
            Some((interrupted, next)) if interrupted == step => next,
            Some((other, _)) => return Err(RotationError::Interrupted(other)),
            None => {
                let next = choose(&current)?;
                write_private(&next_path, &next, key_pass)?;
                next
            }
        };
        if next.public().pem() != current.public().pem() {
            put_in_place(options, &path, (&current, &next), until)?;
        }
        let public = format!("{}\n", next.public().pem());
        let create = Create::PRIVATE.mode(public_mode(options.compat));
        files::write_atomic(&path.with_extension("pub"), public.as_bytes(), create)?;
        files::remove(&next_path)?;
        Ok(Self::of(options)?)
    }

    /// Changes the time until which the previous key is accepted; a master that runs follows at once.
    ///
    /// # Errors
    /// [`RotationError`].
    pub fn extend(options: &StoreOptions, until: i64) -> std::result::Result<Self, RotationError> {
        let (_, current) = present(options)?;
        if let Some(step) = Self::of(options)?.interrupted {
            return Err(RotationError::Interrupted(step));
        }
        let previous = previous(options, current.public())?.ok_or(RotationError::NotBegun)?;
        let text = read_statements(options)?;
        let text = with_statement(&text, &previous.private, current.public(), until)?;
        write_statements(options, &text)?;
        Ok(Self::of(options)?)
    }

    /// Removes the previous key: a master that runs does not accept it any more, from this moment on.
    ///
    /// # Errors
    /// [`RotationError`].
    pub fn finish(options: &StoreOptions) -> std::result::Result<(), RotationError> {
        if let Some(step) = Self::of(options)?.interrupted {
            return Err(RotationError::Interrupted(step));
        }
        // First what the key does not count without. It must not come back with a loss of power.
        files::remove(&options.pki_dir.join(STATEMENTS))?;
        files::sync_dir(&options.pki_dir)?;
        match files::remove(&options.pki_dir.join(PREVIOUS))? {
            true => Ok(files::sync_dir(&options.pki_dir)?),
            false => Err(RotationError::NotBegun),
        }
    }
}

/// The fingerprint of a public key, as `key.finger_master` of a minion prints it.
///
/// # Errors
/// The text is no public key.
pub fn fingerprint(public_pem: &str) -> std::result::Result<String, saltern_crypto::HashError> {
    saltern_crypto::pem_finger(public_pem.as_bytes(), HashType::Sha256)
}

/// The key in use, and the file that holds it: 3008 has links to it.
fn present(options: &StoreOptions) -> Result<(PathBuf, PrivateKey)> {
    let path = find(options)?.ok_or_else(|| StoreError::Missing {
        path: options.pki_dir.join("master.pem"),
        reason: "there is no key to rotate; the first start of the master makes one",
    })?;
    let real = std::fs::canonicalize(&path);
    let path = real.map_err(|source| StoreError::io("find", &path, source))?;
    let key_pass = passphrase("key_pass", options.key_pass.as_deref())?;
    let key = read(&path, key_pass)?;
    Ok((path, key))
}

/// The step that was interrupted, and the key that it puts in place. A key that returns has signed the
/// one that replaced it; a new one has signed none.
fn interrupted(
    options: &StoreOptions,
    current: &PrivateKey,
) -> Result<Option<(ReplacingStep, PrivateKey)>> {
    let path = options.pki_dir.join(NEXT);
    if Version::of(&path, true)?.is_none() {
        return Ok(None);
    }
    let key_pass = passphrase("key_pass", options.key_pass.as_deref())?;
    let next = read(&path, key_pass)?;
    // The key that leaves: it is behind the next one already where that one is in its place.
    let leaving = match next.public().pem() == current.public().pem() {
        true => previous(options, current.public())?.map(|key| key.public_pem),
        false => Some(current.public().pem().to_owned()),
    };
    let text = read_statements(options)?;
    let returns = leaving.is_some_and(|it| signed_until(&text, next.public(), &it).is_some());
    let step = match returns {
        true => ReplacingStep::Revert,
        false => ReplacingStep::Begin,
    };
    Ok(Some((step, next)))
}

/// The order counts: the present key is kept, and has signed, before it leaves its place, and a key
/// that returns is accepted at each moment.
fn put_in_place(
    options: &StoreOptions,
    path: &Path,
    (current, next): (&PrivateKey, &PrivateKey),
    until: i64,
) -> Result<()> {
    let key_pass = passphrase("key_pass", options.key_pass.as_deref())?;
    // That of a key that returns is kept: the present key is still the one that follows it.
    let text = with_statement(&read_statements(options)?, current, next.public(), until)?;
    write_statements(options, &text)?;
    write_private(&options.pki_dir.join(PREVIOUS), current, key_pass)?;
    write_private(path, next, key_pass)
}

fn write_private(path: &Path, key: &PrivateKey, key_pass: Option<&SecretString>) -> Result<()> {
    let pem = key
        .to_pem(key_pass.map(SecretString::expose))
        .map_err(|source| key_error(path, source))?;
    let create = Create::PRIVATE.mode(0o400);
    files::write_atomic(path, pem.expose().as_bytes(), create)
}
