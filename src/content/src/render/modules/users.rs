//! Names and numbers of the system's users and groups.
//!
//! Only what the system's database says. The passwords in it are never read.

use nix::unistd::{Gid, Group, Uid, User};

/// The home of a user; of this process's user for the empty name.
pub(super) fn home(user: &str) -> Option<String> {
    if user.is_empty() {
        if let Ok(home) = std::env::var("HOME") {
            return Some(home);
        }
        let found = User::from_uid(Uid::effective()).ok()??;
        return Some(found.dir.to_string_lossy().into_owned());
    }
    let found = User::from_name(user).ok()??;
    Some(found.dir.to_string_lossy().into_owned())
}

pub(crate) fn uid(name: &str) -> Option<i64> {
    let found = User::from_name(name).ok()??;
    Some(i64::from(found.uid.as_raw()))
}

pub(super) fn gid(name: &str) -> Option<i64> {
    let found = Group::from_name(name).ok()??;
    Some(i64::from(found.gid.as_raw()))
}

pub(super) fn user_name(uid: i64) -> Option<String> {
    let uid = Uid::from_raw(u32::try_from(uid).ok()?);
    Some(User::from_uid(uid).ok()??.name)
}

pub(super) fn group_name(gid: i64) -> Option<String> {
    let gid = Gid::from_raw(u32::try_from(gid).ok()?);
    Some(Group::from_gid(gid).ok()??.name)
}
