//! The master's id, user and paths, which depend on one another.
//!
//! The rules are those of `apply_master_config` in `salt/config/__init__.py`. Whether a path can be
//! used is checked in `check.rs`.

use std::net::Ipv4Addr;

use saltern_python::path::normpath;

use crate::identity;
use crate::paths::{absolute, below_root, is_uri};
use crate::reader::Reader;

/// The paths, which depend on each other.
pub(crate) struct SitePaths {
    pub(crate) root_dir: String,
    pub(crate) pki_dir: String,
    pub(crate) cachedir: String,
    pub(crate) sock_dir: String,
    pub(crate) pidfile: String,
    pub(crate) token_dir: String,
    pub(crate) syndic_dir: String,
    pub(crate) syndic_pidfile: String,
    pub(crate) sqlite_queue_dir: String,
    pub(crate) log_file: String,
    /// `root_dir` as paths are joined to it.
    pub(crate) root: String,
}

impl SitePaths {
    pub(crate) fn take(reader: &mut Reader<'_>) -> SitePaths {
        let root_dir = absolute(&reader.text("root_dir"));
        let cachedir = reader.text("cachedir");
        let mut sock_dir = reader.text("sock_dir");
        // Stock's rule for paths that a socket address cannot hold, before root_dir is applied.
        if sock_dir.chars().count() > cachedir.chars().count() + 10 {
            sock_dir = format!("{cachedir}/.salt-unix");
        }
        let log_file = Self::log_file(reader);
        let below = |path: &str| below_root(&root_dir, path);
        SitePaths {
            pki_dir: below(&reader.text("pki_dir")),
            sock_dir: below(&sock_dir),
            pidfile: below(&reader.text("pidfile")),
            token_dir: below(&format!("{cachedir}/tokens")),
            syndic_pidfile: below(&reader.text("syndic_pidfile")),
            syndic_dir: below(&format!("{cachedir}/syndics")),
            sqlite_queue_dir: below(&reader.text("sqlite_queue_dir")),
            cachedir: below(&cachedir),
            log_file: if is_uri(&log_file) {
                log_file
            } else {
                below(&log_file)
            },
            root_dir: normpath(&root_dir),
            root: root_dir,
        }
    }

    /// `log_dir` moves the log file (`_adjust_log_file_override`).
    fn log_file(reader: &mut Reader<'_>) -> String {
        let file = reader.text("log_file");
        match (reader.optional_text("log_dir"), reader.written("log_file")) {
            (Some(dir), Some(_)) if !file.starts_with('/') => format!("{dir}/{file}"),
            (Some(dir), None) => format!("{dir}/master"),
            _ => file,
        }
    }
}

/// The user to run as; stock's default is the user that starts it.
pub(crate) fn take_user(reader: &mut Reader<'_>) -> String {
    match reader.written("user") {
        Some(_) => reader.text("user"),
        None => identity::current_user(),
    }
}

/// The id, with the domain and the `_master` that stock appends.
pub(crate) fn take_id(reader: &mut Reader<'_>, root_dir: &str) -> String {
    let written = reader.optional_text("id");
    let mut id = written
        .clone()
        .unwrap_or_else(|| identity::host_id(root_dir));
    let is_ipv4 = written.is_none() && id.parse::<Ipv4Addr>().is_ok();
    if let Some(domain) = reader.optional_text("append_domain").filter(|_| !is_ipv4)
        && !id.ends_with(&domain)
        && !id.ends_with('.')
    {
        id = format!("{id}.{domain}");
    }
    if written.is_none() {
        id.push_str("_master");
    }
    id
}
