//! The name of this host and of the user, for options that default to them.
//!
//! Stock asks the resolver for the full name of the host; this looks into `/etc/hosts` only, so
//! that starting never waits for a name server. A master whose id matters sets it.

use std::fs;

/// The id of a master that has none configured, before `_master` is added, and of a minion: the id
/// that a minion on this host has stored, else the name of the host.
pub fn host_id(root_dir: &str) -> String {
    let stored = fs::read_to_string(format!(
        "{}/etc/salt/minion_id",
        root_dir.trim_end_matches('/')
    ));
    if let Ok(stored) = stored {
        let name = stored.lines().next().unwrap_or_default();
        let name = name.trim().trim_start_matches('\u{feff}');
        if !name.is_empty() && name != "localhost" {
            return name.to_owned();
        }
    }
    host_name()
}

/// The full name of this host; `localhost` where it has none.
pub(crate) fn host_name() -> String {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy().into_owned();
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let full = full_name(&host, &hosts);
    if full.is_empty() || full.starts_with("localhost") {
        "localhost".to_owned()
    } else {
        full
    }
}

/// A host name as the files backend of the resolver expands it: the first name with a dot of the
/// line that has it.
fn full_name(host: &str, hosts: &str) -> String {
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let names: Vec<&str> = line.split_whitespace().skip(1).collect();
        if names.contains(&host) {
            let dotted = names.iter().find(|name| name.contains('.'));
            return dotted.unwrap_or(&host).to_string();
        }
    }
    host.to_owned()
}

/// The name of the user that runs this process, from `/etc/passwd`; the number if it has none.
pub(crate) fn current_user() -> String {
    let uid = rustix::process::geteuid().as_raw();
    user_name(uid, &fs::read_to_string("/etc/passwd").unwrap_or_default())
}

fn user_name(uid: u32, passwd: &str) -> String {
    let wanted = uid.to_string();
    passwd
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == wanted).then(|| name.to_owned())
        })
        .unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_user_names_come_from_the_system_files() {
        let hosts = "127.0.0.1 localhost\n10.0.0.1 box box.example.com # here\n";
        assert_eq!(full_name("box", hosts), "box.example.com");
        assert_eq!(full_name("other", hosts), "other");
        let passwd = "root:x:0:0:root:/root:/bin/sh\nsalt:x:450:450::/opt:/bin/false\n";
        assert_eq!(user_name(450, passwd), "salt");
        assert_eq!(user_name(7, passwd), "7");
    }
}
