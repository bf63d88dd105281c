//! The calling user and its key. The rules are stock's (`salt/utils/user.py`,
//! `LocalClient.__read_master_key`).

use std::fs;
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::{ClientConfig, ClientError};

/// The name a publish is made under: the user's own, or `sudo_NAME` for root behind `sudo`.
#[must_use]
pub fn publishing_user() -> String {
    publishing_name(&current_user(), std::env::var("SUDO_USER").ok().as_deref())
}

fn publishing_name(user: &str, sudo_user: Option<&str>) -> String {
    match sudo_user {
        Some(behind) if user == "root" => format!("sudo_{behind}"),
        _ => user.to_owned(),
    }
}

/// The name of this process's effective user; its number when it has no name.
#[must_use]
pub fn current_user() -> String {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// The file that holds the key of `publishing` (a result of [`publishing_user`]).
fn key_path(config: &ClientConfig, publishing: &str) -> PathBuf {
    let owner = if publishing == "root" || publishing.starts_with("sudo_") {
        config.user.as_str()
    } else {
        publishing
    };
    config.cachedir.join(format!(".{owner}_key"))
}

/// Reads a user's key.
pub(crate) fn read_key(
    config: &ClientConfig,
    publishing: &str,
) -> Result<Zeroizing<String>, ClientError> {
    let path = key_path(config, publishing);
    match fs::read_to_string(&path) {
        Ok(key) => Ok(Zeroizing::new(key)),
        Err(source) => Err(ClientError::NoKey { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_root_is_named_after_its_caller() {
        assert_eq!(publishing_name("root", None), "root");
        assert_eq!(publishing_name("root", Some("ana")), "sudo_ana");
        assert_eq!(publishing_name("ana", Some("eve")), "ana");
    }
}
