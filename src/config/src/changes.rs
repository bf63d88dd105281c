//! The difference between two readings of the configuration, and which of it a running master
//! can follow.

use crate::MasterConfig;
use crate::options::{self, Status};

/// What becomes of a changed option when the configuration is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// It holds from now on.
    InEffect,
    /// It holds after a restart.
    NeedsRestart,
    /// It does nothing here, before and after.
    NoEffect,
}

/// The options that a running master follows, all together or none.
const FOLLOWED: &[&str] = &[
    "auth.pam.service",
    "auto_accept",
    "autoreject_file",
    "autosign_file",
    "autosign_grains_dir",
    "client_acl_verify",
    "eauth_acl_module",
    "external_auth",
    "keep_acl_in_token",
    "log_granular_levels",
    "log_level",
    "log_level_logfile",
    "peer",
    "peer_run",
    "permissive_acl",
    "permissive_pki_access",
    "publisher_acl",
    "publisher_acl_blacklist",
    "reactor",
    "saltern_reactor_acl",
    "schedule",
    "sharedsecret",
    "sudo_acl",
    "token_expire",
    "token_expire_user_override",
];

/// What becomes of an option of this name.
pub fn reload_of(name: &str) -> Reload {
    if FOLLOWED.contains(&name) {
        return Reload::InEffect;
    }
    let is_idle = || {
        matches!(
            options::status(name),
            Some(Status::NoEffect(_) | Status::NotBuilt(_))
        )
    };
    match options::ours(name).is_none() && is_idle() {
        true => Reload::NoEffect,
        false => Reload::NeedsRestart,
    }
}

impl MasterConfig {
    /// The names of the options that have another value in `other`, sorted; a value that is written
    /// and the same as the default is no other one.
    pub fn changed(&self, other: &Self) -> Vec<String> {
        let mut names: Vec<&str> = self.names().chain(other.names()).collect();
        names.sort_unstable();
        names.dedup();
        let differs = |name: &&str| self.raw(name) != other.raw(name);
        let mut changed: Vec<String> = names
            .into_iter()
            .filter(differs)
            .map(str::to_owned)
            .collect();
        // These two are kept apart from the others.
        let expose = |secret: &Option<crate::Secret>| {
            let secret = secret.as_ref();
            secret.map(|secret| secret.expose().to_owned())
        };
        for (name, one, another) in [
            ("key_pass", &self.key_pass, &other.key_pass),
            (
                "signing_key_pass",
                &self.signing_key_pass,
                &other.signing_key_pass,
            ),
        ] {
            if expose(one) != expose(another) {
                changed.push(name.to_owned());
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> MasterConfig {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("root_dir: /nowhere\nid: m\n{text}");
        std::fs::write(dir.path().join("master"), text).unwrap();
        let loaded = crate::load_master(dir.path());
        let mut config = loaded.map_err(|errors| errors.to_string()).unwrap().config;
        // The one thing that differs by itself.
        config.conf_file = std::path::PathBuf::new();
        config
    }

    #[test]
    fn reformatted_configuration_is_no_change() {
        let before = config("peer:\n  a: [test.ping]\ntimeout: 5\nkey_pass: one\n");
        let same = config("timeout: 5\npeer: {a: [test.ping]}\nkey_pass: one\nloop_interval: 60\n");
        assert_eq!(before.changed(&same), Vec::<String>::new());
        let after = config("peer:\n  a: [test.echo]\nworker_threads: 3\nkey_pass: two\n");
        assert_eq!(
            before.changed(&after),
            ["peer", "worker_threads", "key_pass"]
        );
    }

    #[test]
    fn every_reloadable_option_exists_and_is_honoured() {
        for name in FOLLOWED {
            assert_eq!(reload_of(name), Reload::InEffect);
            let is_known = options::stock(name).is_some() || options::ours(name).is_some();
            let is_read =
                options::status(name) != Some(Status::NotBuilt(options::NotBuilt::Output));
            assert!(is_known && is_read, "{name}");
        }
        assert_eq!(reload_of("worker_threads"), Reload::NeedsRestart);
        assert_eq!(reload_of("saltern_disk_low"), Reload::NeedsRestart);
        assert_eq!(reload_of("mworker_niceness"), Reload::NoEffect);
        assert_eq!(reload_of("what_nobody_knows"), Reload::NeedsRestart);
    }
}
