//! Runs a command as another user.
//!
//! This is the one file of the crate with `unsafe` code: between fork and exec the new process
//! has to give up its groups and identity, and what runs there may neither allocate nor take a
//! lock. The closure below makes three system calls on values prepared before the fork, and
//! nothing else. (The standard library can set user and group, but not the other groups.)

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Uid, User, getgrouplist, setgid, setgroups, setuid};

/// Another user, looked up.
pub(super) struct OtherUser {
    pub(super) name: String,
    pub(super) home: String,
    pub(super) shell: String,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl OtherUser {
    /// The user of this name; `None` when there is none.
    pub(super) fn find(name: &str) -> Option<Self> {
        let user = User::from_name(name).ok().flatten()?;
        let c_name = CString::new(name).ok()?;
        let groups = getgrouplist(&c_name, user.gid).unwrap_or_else(|_| vec![user.gid]);
        Some(Self {
            name: user.name,
            home: user.dir.display().to_string(),
            shell: user.shell.display().to_string(),
            uid: user.uid,
            gid: user.gid,
            groups,
        })
    }

    /// Makes `command` run as this user.
    pub(super) fn apply(self, command: &mut tokio::process::Command) {
        let Self {
            uid, gid, groups, ..
        } = self;
        let become_user = move || {
            setgroups(&groups).map_err(io::Error::from)?;
            setgid(gid).map_err(io::Error::from)?;
            setuid(uid).map_err(io::Error::from)
        };
        // SAFETY: the closure makes the system calls setgroups, setgid and setuid on values that
        // it owns; it allocates nothing, takes no lock and touches no state of the parent.
        unsafe {
            command.pre_exec(become_user);
        }
    }
}
