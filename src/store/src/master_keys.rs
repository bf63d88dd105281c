//! The master's own keys on disk, in every form that stock writes them.
//!
//! 3006 and 3007 keep `master.pem` and `master.pub`. 3008 keeps `<id without _master>.pem` and
//! `.pub` and leaves `master.pem` and `master.pub` as links to them. All forms are read whatever
//! `salt_compat` says; a key that exists is never written, moved or linked, so that a site can go
//! back to what it had (`salt/crypt.py`, `MasterKeys`).

mod rotation;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use saltern_config::MasterConfig;
use saltern_crypto::{KeyError, PrivateKey, PublicKey, SecretString, SigAlgo, clean_key};
use saltern_model::Compat;

use crate::error::{Result, StoreError};
use crate::files::{self, Create, Version};
use crate::options::StoreOptions;
use crate::pki::PkiTree;
pub use rotation::{
    MasterKeyRotation, PreviousMasterKey, ReplacingStep, RotationError, fingerprint,
};

/// An encrypted key of 16384 bits has less than 14 KiB of PEM.
const KEY_BYTES: usize = 64 << 10;

/// The master's keys.
pub struct MasterKeys {
    /// The key that answers minions.
    pub private: Arc<PrivateKey>,
    /// Its public half as it is sent: no white space at the ends.
    pub public_pem: String,
    signing: Signing,
    previous: Option<PreviousMasterKey>,
}

/// One key of the master's own.
#[derive(Clone, Copy)]
pub struct MasterKey<'a> {
    /// The key.
    pub private: &'a PrivateKey,
    /// Its public half as it is sent.
    pub public_pem: &'a str,
}

/// The master's keys during a rotation.
#[derive(Clone, Copy)]
pub struct BothKeys<'a> {
    /// The key that answers whoever knows neither.
    pub current: MasterKey<'a>,
    /// The one before it.
    pub previous: MasterKey<'a>,
    is_previous_first: bool,
}

impl<'a> BothKeys<'a> {
    /// The key with which the rotation began: sessions under it are as they were before.
    #[must_use]
    pub fn first(&self) -> MasterKey<'a> {
        match self.is_previous_first {
            true => self.previous,
            false => self.current,
        }
    }

    /// The key that the rotation made: sessions under it are [`crate::Sessions::under_made_key`].
    #[must_use]
    pub fn made(&self) -> MasterKey<'a> {
        match self.is_previous_first {
            true => self.current,
            false => self.previous,
        }
    }
}

/// How the public key is vouched for (`master_sign_pubkey`).
enum Signing {
    No,
    /// With a second key, whose signatures are made once an algorithm.
    With {
        key: PrivateKey,
        sha1: OnceLock<String>,
        sha224: OnceLock<String>,
    },
    /// With a signature that `salt-key --gen-signature` made.
    Made(String),
}

impl MasterKeys {
    /// Reads the keys of a configuration; makes those that are not there as the version in
    /// `salt_compat` would.
    ///
    /// # Errors
    /// A key that cannot be read, is none, or has another passphrase, each with its path.
    pub fn load_or_create(config: &MasterConfig) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config))
    }

    /// [`MasterKeys::load_or_create`] with this crate's options.
    pub fn with_options(options: &StoreOptions) -> Result<Self> {
        files::ensure_dir(&options.pki_dir, 0o700)?;
        let key_pass = passphrase("key_pass", options.key_pass.as_deref())?;
        let private = match find(options)? {
            Some(path) => {
                let private = read(&path, key_pass)?;
                complete_public(&path, &private, options)?;
                private
            }
            None => create_master(options, key_pass)?,
        };
        Ok(Self {
            public_pem: private.public().pem().to_owned(),
            previous: rotation::previous(options, private.public())?,
            signing: signing(options, Some(private.public()))?,
            private: Arc::new(private),
        })
    }

    /// Looks at the keys that are there as [`MasterKeys::load_or_create`] does; makes and changes
    /// nothing.
    ///
    /// # Errors
    /// Those of [`MasterKeys::load_or_create`], but for what only making a key can find.
    pub fn check(config: &MasterConfig) -> Result<()> {
        let options = StoreOptions::from(config);
        let key_pass = passphrase("key_pass", options.key_pass.as_deref())?;
        let key = find(&options)?
            .map(|path| read(&path, key_pass))
            .transpose()?;
        let public = key.as_ref().map(PrivateKey::public);
        if let Some(public) = public {
            rotation::previous(&options, public)?;
        }
        if !options.master_sign_pubkey || options.master_use_pubkey_signature {
            return signing(&options, public).map(|_| ());
        }
        let key_pass = passphrase("signing_key_pass", options.signing_key_pass.as_deref())?;
        let path = signing_key(&options)?;
        match Version::of(&path, true)? {
            Some(_) => read(&path, key_pass).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether the key on the disk is still the one in use. It may have been replaced, by a
    /// restored backup for instance: the new one holds from the next start, and minions that know
    /// the key in use do not trust it.
    ///
    /// # Errors
    /// The key on the disk is another one, is gone, or cannot be read.
    pub fn compare_with_disk(&self, config: &MasterConfig) -> Result<()> {
        self.compare_with(&StoreOptions::from(config))
    }

    /// The same with this crate's options.
    pub fn compare_with(&self, options: &StoreOptions) -> Result<()> {
        let path = find(options)?.ok_or_else(|| StoreError::Missing {
            path: options.pki_dir.join("master.pem"),
            reason: "the next start would make a new key, which no minion trusts",
        })?;
        let key = read(&path, passphrase("key_pass", options.key_pass.as_deref())?)?;
        match key.public().pem() == self.public_pem {
            true => Ok(()),
            false => Err(StoreError::Replaced { path }),
        }
    }

    /// Whether `pki_dir` still is the directory of a master: one that is lost or not mounted has no key of one, and
    /// that it has none of a minion says nothing about that minion.
    ///
    /// # Errors
    /// It has no key of a master, or none that can be read.
    pub fn require_directory(&self, tree: &PkiTree, config: &MasterConfig) -> Result<()> {
        if tree.is_of_master(&self.public_pem).unwrap_or_default() {
            return Ok(());
        }
        match self.compare_with_disk(config) {
            // Keys of minions stay when that of the master is replaced, or its public half is another one's.
            Ok(()) | Err(StoreError::Replaced { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The key that answers minions.
    #[must_use]
    pub fn current(&self) -> MasterKey<'_> {
        MasterKey {
            private: &self.private,
            public_pem: &self.public_pem,
        }
    }

    /// The key before this one, while it is accepted at this time (seconds since 1970).
    #[must_use]
    pub fn previous(&self, now: i64) -> Option<&PreviousMasterKey> {
        let previous = self.previous.as_ref();
        previous.filter(|previous| previous.until().is_some_and(|until| now < until))
    }

    /// Both keys, while two are accepted at this time (seconds since 1970).
    #[must_use]
    pub fn both(&self, now: i64) -> Option<BothKeys<'_>> {
        let previous = self.previous(now)?;
        Some(BothKeys {
            current: self.current(),
            previous: previous.key(),
            is_previous_first: previous.is_first,
        })
    }

    /// The `pub_sig` of an `_auth` reply under one of the master's keys: base64 with a line feed at its
    /// end, or what the file with the ready signature holds; `None` unless `master_sign_pubkey` is on.
    pub fn public_signature(&self, algo: SigAlgo, public_pem: &str) -> Result<Option<String>> {
        let (key, known) = match &self.signing {
            Signing::No => return Ok(None),
            Signing::Made(signature) => return Ok(Some(signature.clone())),
            Signing::With { key, sha1, sha224 } => match algo {
                SigAlgo::Pkcs1v15Sha1 => (key, sha1),
                SigAlgo::Pkcs1v15Sha224 => (key, sha224),
            },
        };
        // During a rotation that of the other key is made each time.
        let is_current = public_pem == self.public_pem;
        if let Some(known) = known.get().filter(|_| is_current) {
            return Ok(Some(known.clone()));
        }
        let signature =
            key.sign(algo, public_pem.as_bytes())
                .map_err(|source| StoreError::Crypto {
                    action: "sign the public key",
                    source,
                })?;
        let mut text = base64::engine::general_purpose::STANDARD.encode(signature);
        text.push('\n');
        match is_current {
            true => Ok(Some(known.get_or_init(|| text).clone())),
            false => Ok(Some(text)),
        }
    }
}

/// `opts["id"]` without its suffix `_master`: the stem of 3008's file names.
pub(crate) fn stem(options: &StoreOptions) -> &str {
    options.id.strip_suffix("_master").unwrap_or(&options.id)
}

/// The private key that counts: what 3008 looks for first is looked for first only there.
fn find(options: &StoreOptions) -> Result<Option<PathBuf>> {
    let old = options.pki_dir.join("master.pem");
    let new = files::child(&options.pki_dir, &format!("{}.pem", stem(options)))?;
    let order = match options.compat {
        Compat::V3006 | Compat::V3007 => [old, new],
        Compat::V3008 => [new, old],
    };
    for path in order {
        if Version::of(&path, true)?.is_some() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn read(path: &Path, key_pass: Option<&SecretString>) -> Result<PrivateKey> {
    let text = files::read_text(path, KEY_BYTES)?
        .map(SecretString::new)
        .ok_or_else(|| StoreError::Missing {
            path: path.to_path_buf(),
            reason: "it was there a moment ago",
        })?;
    PrivateKey::from_pem(text.expose(), key_pass.map(SecretString::expose))
        .map_err(|source| key_error(path, source))
}

fn create_master(options: &StoreOptions, key_pass: Option<&SecretString>) -> Result<PrivateKey> {
    match options.compat {
        Compat::V3006 | Compat::V3007 => create(options, "master", key_pass),
        Compat::V3008 => {
            let stem = stem(options);
            let private = create(options, stem, key_pass)?;
            // For stock's older tools, as stock leaves them.
            for suffix in ["pem", "pub"] {
                let link = options.pki_dir.join(format!("master.{suffix}"));
                let target = options.pki_dir.join(format!("{stem}.{suffix}"));
                if link == target {
                    continue;
                }
                match std::os::unix::fs::symlink(&target, &link) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(StoreError::io("create the link", link, error)),
                }
            }
            Ok(private)
        }
    }
}

/// Makes a pair of files `<stem>.pem` and `<stem>.pub`.
fn create(
    options: &StoreOptions,
    stem: &str,
    key_pass: Option<&SecretString>,
) -> Result<PrivateKey> {
    let path = files::child(&options.pki_dir, &format!("{stem}.pem"))?;
    tracing::info!(path = %path.display(), bits = options.keysize, "a new rsa key is made");
    let private =
        PrivateKey::generate(options.keysize).map_err(|source| key_error(&path, source))?;
    let pem = private
        .to_pem(key_pass.map(SecretString::expose))
        .map_err(|source| key_error(&path, source))?;
    let created = files::create_new(&path, pem.expose().as_bytes(), Create::PRIVATE.mode(0o400))?;
    // Another process was quicker: its key holds.
    let private = if created {
        private
    } else {
        read(&path, key_pass)?
    };
    complete_public(&path, &private, options)?;
    Ok(private)
}

/// Writes the public half beside a private key unless there is one, and says so if that one belongs
/// to another key: stock would send it to minions.
fn complete_public(path: &Path, private: &PrivateKey, options: &StoreOptions) -> Result<()> {
    let path = path.with_extension("pub");
    if let Some(text) = files::read_text(&path, KEY_BYTES)? {
        if clean_key(&text) != private.public().pem() {
            tracing::warn!(
                path = %path.display(),
                "not the public half of the master's key; minions get the right one"
            );
        }
        return Ok(());
    }
    let text = format!("{}\n", private.public().pem());
    let create = Create::PRIVATE.mode(public_mode(options.compat));
    files::create_new(&path, text.as_bytes(), create).map(|_| ())
}

/// Permission bits of a public key.
const fn public_mode(compat: Compat) -> u32 {
    match compat {
        Compat::V3006 | Compat::V3007 => 0o644,
        Compat::V3008 => 0o400,
    }
}

/// `public` is the master's own key, which is vouched for; `None` where it is not made yet.
fn signing(options: &StoreOptions, public: Option<&PublicKey>) -> Result<Signing> {
    if !options.master_sign_pubkey {
        return Ok(Signing::No);
    }
    if options.master_use_pubkey_signature {
        let path = files::child(&options.pki_dir, &options.master_pubkey_signature)?;
        let text = files::read_text(&path, KEY_BYTES)?.ok_or(StoreError::Missing {
            path,
            reason: "\"master_use_pubkey_signature\" needs it; \
                     \"salt-key --gen-signature\" makes it",
        })?;
        let made = clean_key(&text);
        if options.fips_mode && lacks_sha224(&made, public, options)? {
            return Err(StoreError::Option {
                option: "master_pubkey_signature",
                reason: format!(
                    "the signature in this file is none with SHA-224 by \"{}.pub\" over the master's key, \
                     and fips_mode does not allow SHA-1: remove the file, and make it anew with \
                     \"salt-key --gen-signature\"",
                    options.master_sign_key_name
                ),
            });
        }
        return Ok(Signing::Made(made));
    }
    let key_pass = passphrase("signing_key_pass", options.signing_key_pass.as_deref())?;
    let path = signing_key(options)?;
    let key = if Version::of(&path, true)?.is_some() {
        let key = read(&path, key_pass)?;
        complete_public(&path, &key, options)?;
        key
    } else {
        create(options, &options.master_sign_key_name, key_pass)?
    };
    Ok(Signing::With {
        key,
        sha1: OnceLock::new(),
        sha224: OnceLock::new(),
    })
}

/// Whether a ready signature of the public key is certainly not one with SHA-224. Where the public half of
/// the signing key is not beside it, nobody can tell.
fn lacks_sha224(
    signature: &str,
    public: Option<&PublicKey>,
    options: &StoreOptions,
) -> Result<bool> {
    let path = signing_key(options)?.with_extension("pub");
    let (Some(public), Some(text)) = (public, files::read_text(&path, KEY_BYTES)?) else {
        return Ok(false);
    };
    let signer = PublicKey::from_pem(&text).map_err(|source| key_error(&path, source))?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(signature);
    let has_sha224 = |bytes: Vec<u8>| {
        let signed = public.pem().as_bytes();
        signer.verify(SigAlgo::Pkcs1v15Sha224, signed, &bytes)
    };
    Ok(!bytes.is_ok_and(has_sha224))
}

fn signing_key(options: &StoreOptions) -> Result<PathBuf> {
    let name = &options.master_sign_key_name;
    files::child(&options.pki_dir, &format!("{name}.pem"))
}

/// Stock looks a passphrase up elsewhere when it is an `sdb://` address.
fn passphrase<'a>(
    option: &'static str,
    value: Option<&'a SecretString>,
) -> Result<Option<&'a SecretString>> {
    match value {
        Some(value) if value.expose().starts_with("sdb://") => Err(StoreError::Option {
            option,
            reason: "addresses that begin with \"sdb://\" are not looked up".to_owned(),
        }),
        value => Ok(value),
    }
}

fn key_error(path: &Path, source: KeyError) -> StoreError {
    StoreError::Key {
        path: path.to_path_buf(),
        source,
    }
}
