//! Options of the store, taken out of the configuration once.
//!
//! Everything else in this crate reads these and not the configuration, so a test can say what it
//! needs in a line and the meaning of an option stands in one place.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use saltern_config::{LocalCacheMirror, MasterConfig, OptionValue};
use saltern_crypto::SecretString;
use saltern_model::Compat;

/// How much of the job cache is written as files for stock's tools (option `local_cache_mirror`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorMode {
    /// Loads and returns.
    Full,
    /// Only what stock's command line needs to wait for a job: `jid`, `.load.p`, `.minions.p`.
    Loads,
    /// Nothing.
    Off,
}

/// Options of this crate.
#[derive(Clone)]
pub struct StoreOptions {
    /// Version of Salt whose file layouts are written (`salt_compat`).
    pub compat: Compat,
    /// The master's id (`id`), as a rule `<host>_master`.
    pub id: String,
    /// The user the master runs as (`user`).
    pub user: String,
    /// Directory of the keys (`pki_dir`).
    pub pki_dir: PathBuf,
    /// Directory of all other files (`cachedir`).
    pub cachedir: PathBuf,
    /// The job database (`saltern_job_database`).
    pub job_database: PathBuf,
    /// Bits of a newly made RSA key (`keysize`).
    pub keysize: u32,
    /// Passphrase of the master key (`key_pass`).
    pub key_pass: Option<Arc<SecretString>>,
    /// Whether the public key is signed for minions (`master_sign_pubkey`).
    pub master_sign_pubkey: bool,
    /// File name without suffix of the signing key (`master_sign_key_name`).
    pub master_sign_key_name: String,
    /// Whether a signature made beforehand is sent (`master_use_pubkey_signature`).
    pub master_use_pubkey_signature: bool,
    /// File name of that signature (`master_pubkey_signature`).
    pub master_pubkey_signature: String,
    /// Passphrase of the signing key (`signing_key_pass`).
    pub signing_key_pass: Option<Arc<SecretString>>,
    /// Whether algorithms with SHA-1 are refused (`fips_mode`).
    pub fips_mode: bool,
    /// How long a session key lasts (`publish_session`); zero for ever.
    pub publish_session: Duration,
    /// How long the previous shared key is accepted (`saltern_key_overlap`); zero not at all.
    pub key_overlap: Duration,
    /// For how long requests of a session are remembered (`saltern_replay_window`); zero not at
    /// all.
    pub replay_window: Duration,
    /// Users with a key of their own (the names of `publisher_acl`).
    pub acl_users: Vec<String>,
    /// Whether users must exist on this machine (`client_acl_verify`).
    pub client_acl_verify: bool,
    /// Whether users other than the master's own may use it (`external_auth` is not empty).
    pub external_auth: bool,
    /// File of the secret, and name, of a cluster whose members take each other's users (`member_port` of
    /// `saltern_cluster`).
    pub shared_users: Option<(PathBuf, String)>,
    /// Whether a syndic is beside the master (`syndic_master`).
    pub has_syndic: bool,
    /// The hash that spreads job directories (`hash_type`).
    pub hash_type: String,
    /// Whether `endtime` is written (`job_cache_store_endtime`).
    pub store_endtime: bool,
    /// Jobs that the mirror writes (`local_cache_mirror`).
    pub mirror: MirrorMode,
}

impl StoreOptions {
    /// Stock's defaults with everything below one directory: for tests and tools that have no
    /// configuration file.
    pub fn below(root: &Path, compat: Compat) -> Self {
        let cachedir = root.join("cache");
        Self {
            compat,
            id: "host_master".to_owned(),
            user: "root".to_owned(),
            pki_dir: root.join("pki"),
            job_database: cachedir.join("saltern/jobs.sqlite"),
            cachedir,
            keysize: 2048,
            key_pass: None,
            master_sign_pubkey: false,
            master_sign_key_name: "master_sign".to_owned(),
            master_use_pubkey_signature: false,
            master_pubkey_signature: "master_pubkey_signature".to_owned(),
            signing_key_pass: None,
            fips_mode: false,
            publish_session: Duration::from_secs(86_400),
            key_overlap: Duration::from_secs(300),
            replay_window: Duration::from_secs(600),
            acl_users: Vec::new(),
            client_acl_verify: true,
            external_auth: false,
            shared_users: None,
            has_syndic: false,
            hash_type: "sha256".to_owned(),
            store_endtime: false,
            mirror: MirrorMode::Full,
        }
    }

    /// `<cachedir>/saltern`: what only this master knows of.
    pub fn private_dir(&self) -> PathBuf {
        self.cachedir.join("saltern")
    }

    /// `<cachedir>/publish_auth`: for which minion a job was published.
    pub fn publish_auth(&self) -> PathBuf {
        self.cachedir.join("publish_auth")
    }

    /// `<cachedir>/jobs`: the files that stock's `local_cache` reads.
    pub fn job_files(&self) -> PathBuf {
        self.cachedir.join("jobs")
    }
}

impl From<&MasterConfig> for StoreOptions {
    fn from(config: &MasterConfig) -> Self {
        let secret = |value: &Option<saltern_config::Secret>| {
            value
                .as_ref()
                .map(|text| Arc::new(SecretString::new(text.expose().to_owned())))
        };
        let followed = config.followed();
        let names = |option: OptionValue<'_>| -> Vec<String> {
            let keys = option.as_map().into_iter().flat_map(|map| map.iter());
            keys.filter_map(|(key, _)| key.as_str().map(str::to_owned))
                .collect()
        };
        Self {
            compat: config.salt_compat,
            id: config.id.clone(),
            user: config.user.clone(),
            pki_dir: config.pki_dir.clone(),
            cachedir: config.cachedir.clone(),
            job_database: config.saltern_job_database.clone(),
            keysize: config.keysize,
            key_pass: secret(&config.key_pass),
            master_sign_pubkey: config.master_sign_pubkey,
            master_sign_key_name: config.master_sign_key_name.clone(),
            master_use_pubkey_signature: config.master_use_pubkey_signature,
            master_pubkey_signature: config.master_pubkey_signature.clone(),
            signing_key_pass: secret(&config.signing_key_pass),
            fips_mode: config.fips_mode,
            publish_session: config.publish_session,
            key_overlap: config.saltern_key_overlap,
            replay_window: config.saltern_replay_window,
            acl_users: names(followed.publisher_acl()),
            client_acl_verify: followed.client_acl_verify().as_bool().unwrap_or(true),
            external_auth: !names(followed.external_auth()).is_empty(),
            shared_users: shared_users(config),
            has_syndic: config.syndic_master().is_set(),
            hash_type: config.hash_type.name().to_owned(),
            store_endtime: config.job_cache_store_endtime,
            mirror: config.local_cache_mirror.into(),
        }
    }
}

fn shared_users(config: &MasterConfig) -> Option<(PathBuf, String)> {
    let cluster = config.saltern_cluster.as_ref()?;
    cluster.member_port?;
    Some((cluster.secret_file.clone()?, cluster.name.clone()))
}

impl From<LocalCacheMirror> for MirrorMode {
    fn from(mode: LocalCacheMirror) -> Self {
        match mode {
            LocalCacheMirror::Full => Self::Full,
            LocalCacheMirror::Loads => Self::Loads,
            LocalCacheMirror::Off => Self::Off,
        }
    }
}
