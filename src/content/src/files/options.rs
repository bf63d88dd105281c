//! The options of the file server, out of the configuration as it was written.
//!
//! Defaults are stock's and come with the configuration. What cannot work is an error that names
//! the option, not a surprise at the first request.

use std::path::{Path, PathBuf};
use std::time::Duration;

use saltern_config::yaml::Key;
use saltern_config::{HashType, MasterConfig, OptionValue};
use saltern_python::expression::{AnyOf, Pattern};

use super::error::FilesError;
use super::ignore::{IgnoreRules, texts};
use super::root::Links;

/// The environment of `file_roots` that stands for all that are not there.
pub(crate) const ANY_ENVIRONMENT: &str = "__env__";

/// The largest chunk that may be configured: it is held in memory for each request.
const MAX_CHUNK: i64 = 256 * 1024 * 1024;

/// A file server backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendName {
    Roots,
    MinionFs,
    Git,
}

/// Options of the file server.
pub(crate) struct Options {
    pub(crate) backends: Vec<BackendName>,
    /// The roots of each environment, both in the order they were written.
    pub(crate) file_roots: Vec<(String, Vec<String>)>,
    pub(crate) ignore: IgnoreRules,
    pub(crate) links: Links,
    pub(crate) leaves_out_links: bool,
    pub(crate) hash_type: HashType,
    /// Bytes in one chunk.
    pub(crate) chunk: usize,
    pub(crate) list_cache_time: Duration,
    pub(crate) receives: bool,
    /// Bytes that one received file may have.
    pub(crate) receive_limit: u64,
    pub(crate) cachedir: PathBuf,
    pub(crate) minionfs: MinionFsOptions,
    /// Options without effect, each with the reason.
    pub(crate) problems: Vec<(&'static str, String)>,
}

/// The options of `minionfs`.
pub(crate) struct MinionFsOptions {
    pub(crate) environment: String,
    pub(crate) mountpoint: String,
    /// `None` if there is no list.
    pub(crate) whitelist: Option<AnyOf>,
    pub(crate) blacklist: Option<AnyOf>,
}

impl Options {
    pub(crate) fn new(config: &MasterConfig) -> Result<Self, FilesError> {
        let receives = config.file_recv();
        let megabytes = number(config.file_recv_max_size(), 100)?;
        let mut problems = Vec::new();
        let ignore = IgnoreRules::new(config.file_ignore_regex(), config.file_ignore_glob())?;
        let broken = ignore.broken.iter();
        problems.extend(broken.map(|problem| ("file_ignore_regex", problem.clone())));
        Ok(Self {
            backends: backends(config, receives, &mut problems)?,
            file_roots: environment_roots(config.file_roots(), "/srv/salt")?,
            ignore,
            links: if config.fileserver_followsymlinks() {
                Links::Follow
            } else {
                Links::Inside
            },
            leaves_out_links: config.fileserver_ignoresymlinks(),
            hash_type: config.hash_type,
            chunk: chunk(config)?,
            list_cache_time: Duration::from_secs(
                u64::try_from(number(config.fileserver_list_cache_time(), 20)?).unwrap_or(0),
            ),
            receives,
            receive_limit: u64::try_from(megabytes)
                .unwrap_or(0)
                .saturating_mul(1 << 20),
            cachedir: config.cachedir.clone(),
            minionfs: minionfs(config)?,
            problems,
        })
    }

    /// The roots of a configured environment.
    pub(crate) fn roots(&self, saltenv: &str) -> Option<&[String]> {
        self.file_roots
            .iter()
            .find(|(name, _)| name == saltenv)
            .map(|(_, roots)| roots.as_slice())
    }
}

fn number(option: OptionValue<'_>, default: i64) -> Result<i64, FilesError> {
    match option.node() {
        None => Ok(default),
        Some(node) => node
            .as_i64()
            .ok_or_else(|| wrong(option, format!("{} is no number", node.kind()))),
    }
}

fn wrong(option: OptionValue<'_>, problem: String) -> FilesError {
    FilesError::option(option.name(), problem)
}

fn text(option: OptionValue<'_>, default: &str) -> Result<String, FilesError> {
    match option.node().filter(|node| !node.is_null()) {
        None => Ok(default.to_owned()),
        Some(node) => node
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| wrong(option, format!("{} is no text", node.kind()))),
    }
}

fn chunk(config: &MasterConfig) -> Result<usize, FilesError> {
    let option = config.file_buffer_size();
    let bytes = number(option, 1 << 20)?;
    if !(1..=MAX_CHUNK).contains(&bytes) {
        let problem = format!("{bytes} is not between 1 and {MAX_CHUNK} bytes");
        return Err(wrong(option, problem));
    }
    usize::try_from(bytes).map_err(|error| wrong(option, error.to_string()))
}

fn backends(
    config: &MasterConfig,
    receives: bool,
    problems: &mut Vec<(&'static str, String)>,
) -> Result<Vec<BackendName>, FilesError> {
    let option = config.fileserver_backend();
    let mut backends = Vec::new();
    for name in texts(option)? {
        let backend = match name {
            "roots" => BackendName::Roots,
            // Stock loads minionfs only where files are received (`minionfs.__virtual__`).
            "minion" | "minionfs" if !receives => {
                let problem = "minionfs serves nothing while file_recv is off".to_owned();
                problems.push((option.name(), problem));
                continue;
            }
            "minion" | "minionfs" => BackendName::MinionFs,
            "git" | "gitfs" => BackendName::Git,
            other => {
                let problem = format!("\"{other}\" is not among roots, gitfs and minionfs");
                return Err(wrong(option, problem));
            }
        };
        if !backends.contains(&backend) {
            backends.push(backend);
        }
    }
    let remotes = config.gitfs_remotes();
    if remotes.is_set() && !backends.contains(&BackendName::Git) {
        let problem = "nothing of them is served: fileserver_backend does not name gitfs";
        problems.push((remotes.name(), problem.to_owned()));
    }
    Ok(backends)
}

/// The option `file_roots` or `pillar_roots`: the roots of each environment, wildcards expanded.
pub(crate) fn environment_roots(
    option: OptionValue<'_>,
    default: &str,
) -> Result<Vec<(String, Vec<String>)>, FilesError> {
    let Some(map) = option.as_map() else {
        let name = option.name();
        tracing::warn!("{name} is no mapping: {default} is served as base");
        return Ok(vec![("base".to_owned(), vec![default.to_owned()])]);
    };
    let mut environments = Vec::new();
    for (key, entry) in map.iter() {
        let mut roots = Vec::new();
        // What is no list counts as an empty one (`_normalize_roots`).
        for item in entry.value.as_seq().unwrap_or_default() {
            let root = item
                .as_str()
                .ok_or_else(|| wrong(option, format!("{} is no path", item.kind())))?;
            if has_magic(root) {
                roots.extend(expand(root));
            } else {
                roots.push(root.to_owned());
            }
        }
        environments.push((environment_name(key), roots));
    }
    Ok(environments)
}

/// `str(key)` of Python.
fn environment_name(key: &Key) -> String {
    match key {
        Key::Str(name) => name.clone(),
        Key::Bool(true) => "True".to_owned(),
        Key::Bool(false) => "False".to_owned(),
        Key::Null => "None".to_owned(),
        other => other.to_string(),
    }
}

fn minionfs(config: &MasterConfig) -> Result<MinionFsOptions, FilesError> {
    let list = |option| -> Result<Option<AnyOf>, FilesError> {
        let entries = texts(option)?;
        Ok((!entries.is_empty()).then(|| AnyOf::new(entries)))
    };
    let mountpoint = text(config.minionfs_mountpoint(), "")?;
    Ok(MinionFsOptions {
        environment: text(config.minionfs_env(), "base")?,
        mountpoint: without_scheme(&mountpoint).to_owned(),
        whitelist: list(config.minionfs_whitelist())?,
        blacklist: list(config.minionfs_blacklist())?,
    })
}

/// `salt.utils.url.strip_proto`.
pub(crate) fn without_scheme(url: &str) -> &str {
    match url.split_once("://") {
        Some((scheme, rest)) if !scheme.is_empty() && !scheme.contains([':', '/']) => rest,
        _ => url,
    }
}

fn has_magic(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Python's `glob.glob`, sorted; Python leaves the order to the directory.
pub(crate) fn expand(pattern: &str) -> Vec<String> {
    let mut found = vec![if pattern.starts_with('/') { "/" } else { "" }.to_owned()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for base in &found {
            if !has_magic(part) {
                let path = saltern_python::path::join(base, part);
                if Path::new(&path).symlink_metadata().is_ok() {
                    next.push(path);
                }
                continue;
            }
            let Ok(glob) = Pattern::glob(part) else {
                continue;
            };
            let directory = if base.is_empty() { "." } else { base };
            let Ok(entries) = std::fs::read_dir(directory) else {
                continue;
            };
            for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
                let hidden = name.starts_with('.') && !part.starts_with('.');
                if !hidden && glob.matches(&name) {
                    next.push(saltern_python::path::join(base, &name));
                }
            }
        }
        found = next;
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_with_wildcards_are_those_that_exist() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_str().unwrap();
        for name in ["one/salt", "two/salt", ".hidden/salt", "three/other"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        assert_eq!(
            expand(&format!("{at}/*/salt")),
            [format!("{at}/one/salt"), format!("{at}/two/salt")]
        );
        assert!(expand(&format!("{at}/none*")).is_empty());
    }

    #[test]
    fn a_scheme_is_taken_from_a_mountpoint() {
        for (url, rest) in [
            ("salt://minions", "minions"),
            ("minions", "minions"),
            ("://x", "://x"),
            ("a/b://x", "a/b://x"),
        ] {
            assert_eq!(without_scheme(url), rest);
        }
    }
}
