//! The remotes of `gitfs`: their parameters, and what an environment means to each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use saltern_config::yaml::Node;
use saltern_config::{MasterConfig, RemoteKind};
use saltern_python::expression::AnyOf;

use crate::files::options::without_scheme;
use crate::git::{
    AUTH_PARAMETERS, Clone, Clones, GitError, Origin, Parameters, Refs, pairs, text_of,
};

/// The parameters that a remote may have beside those for credentials
/// (`salt/fileserver/gitfs.py`).
const PARAMETERS: &[&str] = &[
    "all_saltenvs",
    "base",
    "depth",
    "disable_saltenv_mapping",
    "fallback",
    "mountpoint",
    "name",
    "proxy",
    "ref_types",
    "refspecs",
    "root",
    "saltenv",
    "saltenv_blacklist",
    "saltenv_whitelist",
    "ssl_verify",
    "update_interval",
];

/// Kind of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefType {
    Branch,
    Tag,
    Sha,
}

/// Options of one environment.
#[derive(Clone, Default)]
struct InEnvironment {
    root: Option<String>,
    mountpoint: Option<String>,
    reference: Option<String>,
}

type Environments = BTreeMap<String, InEnvironment>;

/// One remote.
pub(super) struct Remote {
    pub(super) clone: Arc<Clone>,
    base: String,
    pub(super) fallback: String,
    root: String,
    mountpoint: String,
    whitelist: Option<AnyOf>,
    blacklist: Option<AnyOf>,
    is_mapping_off: bool,
    pub(super) ref_types: Vec<RefType>,
    all_saltenvs: Option<String>,
    own: Environments,
    global: Environments,
    /// The environments that a branch or tag stands for by `saltenv`.
    named: BTreeMap<String, Vec<String>>,
}

/// All remotes, in their order.
pub(super) fn remotes(config: &MasterConfig, clones: &mut Clones) -> Result<Vec<Remote>, GitError> {
    let (option, written) = (config.gitfs_saltenv(), config.gitfs_remotes());
    let global = match option.node().filter(|node| node.is_truthy()) {
        Some(node) => environments(node).ok_or_else(|| {
            GitError::option(option.name(), "is no list of environments with parameters")
        })?,
        None => Environments::new(),
    };
    let mut remotes = Vec::new();
    let mut names = BTreeSet::new();
    for node in written.as_seq().unwrap_or_default() {
        let known = &[PARAMETERS, AUTH_PARAMETERS];
        let parameters = Parameters::of(config, RemoteKind::Gitfs, written.name(), node, known)?;
        let name = match parameters.own("name").and_then(text_of) {
            Some(name) => name,
            None => parameters.remote().to_owned(),
        };
        if !names.insert(name) {
            let problem = "the remote is there twice; give one of them a \"name\"";
            return Err(parameters.wrong("remotes", problem));
        }
        remotes.push(Remote::new(&parameters, global.clone(), clones)?);
    }
    Ok(remotes)
}

impl Remote {
    fn new(
        parameters: &Parameters<'_>,
        global: Environments,
        clones: &mut Clones,
    ) -> Result<Self, GitError> {
        let mut own = match parameters.own("saltenv") {
            Some(node) => environments(node).ok_or_else(|| {
                parameters.wrong("saltenv", "is no list of environments with parameters")
            })?,
            None => Environments::new(),
        };
        let mut base = parameters.text("base")?;
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (saltenv, settings) in &mut own {
            let Some(reference) = settings.reference.clone() else {
                continue;
            };
            if saltenv == "base" {
                base.clone_from(&reference);
                settings.reference = None;
            }
            named.entry(reference).or_default().push(saltenv.clone());
        }
        let mapped: BTreeSet<&String> = named.values().flatten().collect();
        let mapped_globally: Vec<(String, String)> = global
            .iter()
            .filter(|(saltenv, _)| !mapped.contains(saltenv))
            .filter_map(|(saltenv, settings)| Some((settings.reference.clone()?, saltenv.clone())))
            .collect();
        for (reference, saltenv) in mapped_globally {
            named.entry(reference).or_default().push(saltenv);
        }
        let interval = parameters.number("update_interval")?.unwrap_or(60);
        let origin = Origin::new(parameters.remote(), parameters)?;
        let list = |name| -> Result<Option<AnyOf>, GitError> {
            let entries = parameters.list(name)?;
            Ok((!entries.is_empty()).then(|| AnyOf::new(entries.iter().map(String::as_str))))
        };
        Ok(Self {
            clone: clones.of(origin, Duration::from_secs(interval)),
            base,
            fallback: parameters.text("fallback")?,
            root: trimmed(&parameters.text("root")?),
            mountpoint: without_scheme(&parameters.text("mountpoint")?)
                .trim_matches('/')
                .to_owned(),
            whitelist: list("saltenv_whitelist")?,
            blacklist: list("saltenv_blacklist")?,
            is_mapping_off: parameters.flag("disable_saltenv_mapping"),
            ref_types: ref_types(parameters)?,
            all_saltenvs: parameters.own("all_saltenvs").and_then(text_of),
            own,
            global,
            named,
        })
    }

    /// A setting of an environment: the remote's own, else that of all remotes.
    fn setting(
        &self,
        saltenv: &str,
        setting: impl Fn(&InEnvironment) -> Option<&String>,
    ) -> Option<&str> {
        let own = self.own.get(saltenv).and_then(&setting);
        own.or_else(|| self.global.get(saltenv).and_then(&setting))
            .map(String::as_str)
    }

    pub(super) fn root(&self, saltenv: &str) -> &str {
        self.setting(saltenv, |settings| settings.root.as_ref())
            .unwrap_or(&self.root)
    }

    pub(super) fn mountpoint(&self, saltenv: &str) -> &str {
        self.setting(saltenv, |settings| settings.mountpoint.as_ref())
            .unwrap_or(&self.mountpoint)
    }

    /// The branch, tag or commit of an environment; `None` if it has none.
    pub(super) fn reference<'a>(&'a self, saltenv: &'a str) -> Option<&'a str> {
        if let Some(reference) = &self.all_saltenvs {
            return Some(reference);
        }
        if saltenv == "base" {
            return Some(&self.base);
        }
        let mapped = self.setting(saltenv, |settings| settings.reference.as_ref());
        mapped.or((!self.is_mapping_off).then_some(saltenv))
    }

    /// `env_is_exposed` of stock.
    pub(super) fn is_exposed(&self, saltenv: &str) -> bool {
        let is_in = |list: &AnyOf| list.matches(saltenv);
        !self.blacklist.as_ref().is_some_and(is_in) && self.whitelist.as_ref().is_none_or(is_in)
    }

    /// The environments that these refs make, and those that are mapped.
    pub(super) fn environments(&self, refs: &Refs) -> BTreeSet<String> {
        let mut found: BTreeSet<String> = self.named.values().flatten().cloned().collect();
        if super::is_hexadecimal(&self.base) {
            found.insert("base".to_owned());
        }
        let branches = refs.branches.keys().map(|name| (RefType::Branch, name));
        let tags = refs.tags.keys().map(|name| (RefType::Tag, name));
        for (ref_type, name) in branches.chain(tags) {
            if !self.ref_types.contains(&ref_type) {
                continue;
            }
            if let Some(saltenvs) = self.named.get(name) {
                found.extend(saltenvs.iter().cloned());
            } else if *name == self.base {
                found.insert("base".to_owned());
            } else if !self.is_mapping_off {
                found.insert(name.clone());
            }
        }
        found.retain(|saltenv| self.is_exposed(saltenv));
        found
    }
}

fn trimmed(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

fn ref_types(parameters: &Parameters<'_>) -> Result<Vec<RefType>, GitError> {
    let names = parameters.list("ref_types")?;
    let types = names.iter().map(|name| match name.to_lowercase().as_str() {
        "branch" => Ok(RefType::Branch),
        "tag" => Ok(RefType::Tag),
        "sha" => Ok(RefType::Sha),
        other => {
            let problem = format!("\"{other}\" is not among branch, tag and sha");
            Err(parameters.wrong("ref_types", problem))
        }
    });
    types.collect()
}

/// A list of environments, each with a list of parameters.
fn environments(node: &Node) -> Option<Environments> {
    let mut environments = Environments::new();
    for (saltenv, settings) in pairs(node)? {
        let mut found = InEnvironment::default();
        for (name, value) in pairs(settings)? {
            let value = text_of(value)?;
            match name.as_str() {
                "root" => found.root = Some(trimmed(&value)),
                "mountpoint" => found.mountpoint = Some(trimmed(without_scheme(&value))),
                "ref" => found.reference = Some(value),
                _ => return None,
            }
        }
        environments.insert(saltenv, found);
    }
    Some(environments)
}
