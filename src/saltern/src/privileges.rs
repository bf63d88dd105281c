//! Running as the configured user: the master starts as root where it must and goes on as `user`.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::unistd::{Uid, User, initgroups, setgid, setuid};
use rustix::fs::Access;
use saltern_config::MasterConfig;

/// Why the process cannot run as the configured user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrivilegeError {
    /// There is no such user.
    #[error("the user \"{0}\" of the configuration does not exist on this machine")]
    NoSuchUser(String),
    /// Only root can become somebody else.
    #[error("the configuration asks for user \"{wanted}\", but this is user \"{actual}\"")]
    NotRoot {
        /// The option's value.
        wanted: String,
        /// The user of this process.
        actual: String,
    },
    /// The system refused.
    #[error("cannot become user \"{user}\"")]
    System {
        /// The option's value.
        user: String,
        /// The error of the system call.
        #[source]
        source: nix::Error,
    },
}

/// The user of the configuration.
///
/// # Errors
/// When this machine has no such user.
pub(crate) fn account(user: &str) -> Result<User, PrivilegeError> {
    let system = |source| PrivilegeError::System {
        user: user.to_owned(),
        source,
    };
    User::from_name(user)
        .map_err(system)?
        .ok_or_else(|| PrivilegeError::NoSuchUser(user.to_owned()))
}

/// The directories of the master that are there and that the user of this process cannot use; those
/// that are not are made before a master that root starts becomes another user. Each with its
/// option.
pub(crate) fn unusable_directories(config: &MasterConfig) -> Vec<(&'static str, String)> {
    let directories = [
        ("pki_dir", &config.pki_dir),
        ("cachedir", &config.cachedir),
        ("sock_dir", &config.sock_dir),
    ];
    let there = directories.into_iter().filter(|(_, path)| path.is_dir());
    let problems = there.filter_map(|(option, path)| {
        let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        let problem = rustix::fs::access(path, access).err()?;
        let (path, user) = (path.display(), &config.user);
        Some((
            option,
            format!("\"{path}\" cannot be used by \"{user}\": {problem}"),
        ))
    });
    problems.collect()
}

/// Becomes `user` with the groups of `user`. Must run before any thread is started.
pub(crate) fn become_user(user: &str) -> Result<(), PrivilegeError> {
    let system = |source| PrivilegeError::System {
        user: user.to_owned(),
        source,
    };
    let current = Uid::effective();
    let wanted = account(user)?;
    if wanted.uid == current {
        return Ok(());
    }
    if !current.is_root() {
        let actual = User::from_uid(current).ok().flatten();
        return Err(PrivilegeError::NotRoot {
            wanted: user.to_owned(),
            actual: actual.map_or_else(|| current.to_string(), |user| user.name),
        });
    }
    let name = std::ffi::CString::new(user).map_err(|_| system(nix::Error::EINVAL))?;
    initgroups(&name, wanted.gid).map_err(system)?;
    setgid(wanted.gid).map_err(system)?;
    setuid(wanted.uid).map_err(system)
}

/// Makes directories that are not there yet, as root and before root is given up, and gives those
/// (and only those) to `user`: what is there already keeps its owner. Each comes with its mode.
pub(crate) fn make_directories_for(
    user: &str,
    directories: &[(&Path, u32)],
) -> std::io::Result<()> {
    let account = User::from_name(user).ok().flatten();
    let becomes_another = |account: &User| Uid::effective().is_root() && !account.uid.is_root();
    let Some(account) = account.filter(becomes_another) else {
        return Ok(());
    };
    for (directory, mode) in directories {
        let missing: Vec<&Path> = directory
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
            .collect();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(*mode)
            .create(directory)?;
        for made in missing {
            std::os::unix::fs::chown(made, Some(account.uid.as_raw()), Some(account.gid.as_raw()))?;
        }
    }
    Ok(())
}

/// Keeps other users out of whatever this process makes, and those who may use the master from
/// writing there: they read the files of their jobs. What is stricter already stays.
pub(crate) fn restrict_umask(admits_users: bool) {
    use rustix::fs::Mode;
    use rustix::process::umask;
    let least = match admits_users {
        true => Mode::WGRP | Mode::WOTH,
        false => Mode::WGRP | Mode::RWXO,
    };
    let inherited = umask(Mode::RWXG | Mode::RWXO);
    saltern_base::umask::remember_inherited(inherited.bits());
    umask(inherited | least);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names the user that the child of the test below becomes.
    const BECOMES: &str = "SALTERN_TEST_BECOMES";

    /// The numbers of a line of `/proc/self/status`.
    fn status(name: &str) -> Vec<u32> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let numbers = line.unwrap().split_whitespace();
        numbers.map(|number| number.parse().unwrap()).collect()
    }

    /// Runs in a process of its own: nothing of root's can be taken back.
    #[test]
    fn child_becomes_another_user() {
        let Ok(user) = std::env::var(BECOMES) else {
            return;
        };
        become_user(&user).unwrap();
        let account = User::from_name(&user).unwrap().unwrap();
        assert_eq!(status("Uid:"), [account.uid.as_raw(); 4]);
        assert_eq!(status("Gid:"), [account.gid.as_raw(); 4]);
        assert!(!status("Groups:").contains(&0), "a group of root's is kept");
    }

    /// Groups of root's were kept when the master became another user.
    #[test]
    fn cve_2013_6617_groups_of_root_are_given_up() {
        if !Uid::effective().is_root() {
            return;
        }
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "privileges::tests::child_becomes_another_user"])
            .env(BECOMES, "nobody")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }
}
