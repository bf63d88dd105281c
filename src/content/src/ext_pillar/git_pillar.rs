//! `git`: SLS files and top files in git repositories (`salt/pillar/git_pillar.py`, and `GitPillar`
//! of `salt/utils/gitfs.py`).
//!
//! Each remote is `<branch> <url>`, or a URL with the branch of `git_pillar_branch`; the branch
//! `__env__` is that of the minion's environment. What is compiled was fetched by
//! the fetches of [`super::ExtPillars::due`]; a branch that is not there is left out with an error in the log,
//! where stock would fetch once more while the minion waits. A remote of which nothing has been
//! fetched yet is an error of the pillar: a minion must not take it for one without data.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use saltern_config::yaml::Node;
use saltern_config::{MasterConfig, RemoteKind};
use saltern_python::path::normpath;
use saltern_wire::msgpack::Value;

use super::error::SourceError;
use super::{Call, GitRemote, Source};
use crate::files::{path, without_scheme};
use crate::git::{
    AUTH_PARAMETERS, Checkout, Clone, Clones, GitError, Oid, Origin, Parameters, Refs, text_of,
};

/// The branch that stands for the minion's environment.
const BY_ENVIRONMENT: &str = "__env__";

/// The parameters that a remote may have beside those for credentials.
const PARAMETERS: &[&str] = &[
    "all_saltenvs",
    "base",
    "depth",
    "disable_saltenv_mapping",
    "env",
    "fallback",
    "mountpoint",
    "name",
    "proxy",
    "ref_types",
    "refspecs",
    "root",
    "ssl_verify",
];

/// The source.
pub(super) struct GitPillar {
    remotes: Vec<Remote>,
    /// `git_pillar_includes`: whether the other remotes of an environment can be included from.
    includes: bool,
    /// `git_pillar_base`.
    base: String,
}

struct Remote {
    clone: Arc<Clone>,
    /// The remote as it is written, without its password, for messages.
    id: String,
    branch: String,
    base: String,
    /// The environment that it is for, where that is not its branch.
    env: String,
    fallback: String,
    root: String,
    mountpoint: String,
    all_saltenvs: Option<String>,
}

/// The directory of a remote for one pillar.
struct Prepared {
    directory: PathBuf,
    env: String,
    /// It stands at a mountpoint: its own top file does not count.
    is_mounted: bool,
    /// Keeps the directory.
    _checkout: Arc<Checkout>,
}

impl GitPillar {
    /// The remotes of one entry. `clones` are made with the first entry and shared by all.
    ///
    /// # Errors
    /// [`GitError`] for a remote that cannot be used, and if there is no git.
    pub(super) fn new(
        value: &Node,
        config: &MasterConfig,
        clones: &mut Option<Clones>,
    ) -> Result<Self, GitError> {
        let clones = match clones {
            Some(clones) => clones,
            none => none.insert(Clones::new(config.cachedir.join("saltern/git/pillar"))?),
        };
        let mut remotes = Vec::new();
        for node in value.as_seq().unwrap_or(std::slice::from_ref(value)) {
            remotes.push(Remote::new(config, node, clones)?);
        }
        Ok(Self {
            remotes,
            includes: config.git_pillar_includes(),
            base: config
                .of_all_remotes(RemoteKind::GitPillar, "base")
                .and_then(|option| option.node())
                .and_then(text_of)
                .unwrap_or_default(),
        })
    }
}

impl Remote {
    fn new(config: &MasterConfig, node: &Node, clones: &mut Clones) -> Result<Self, GitError> {
        let known = &[PARAMETERS, AUTH_PARAMETERS];
        let parameters = Parameters::of(config, RemoteKind::GitPillar, "ext_pillar", node, known)?;
        let written = parameters.remote();
        let (branch, url) = match written.trim_start().split_once(char::is_whitespace) {
            Some((branch, url)) => (branch.to_owned(), url.trim().to_owned()),
            None => (parameters.text("branch")?, written.to_owned()),
        };
        if branch != BY_ENVIRONMENT && parameters.own("base").is_some() {
            let problem = "is only for remotes with the branch __env__";
            return Err(parameters.wrong("base", problem));
        }
        let mountpoint = without_scheme(&parameters.text("mountpoint")?)
            .trim_matches('/')
            .to_owned();
        let root = parameters.text("root")?.trim_end_matches('/').to_owned();
        for (name, below) in [("mountpoint", &mountpoint), ("root", &root)] {
            let below = below.trim_start_matches('/');
            if !below.is_empty() && normpath(below) != "." {
                path::Relative::parse(below)
                    .map_err(|_| parameters.wrong(name, format_args!("\"{below}\" leads out")))?;
            }
        }
        let interval = parameters.number("update_interval")?.unwrap_or(60);
        Ok(Self {
            clone: clones.of(
                Origin::new(&url, &parameters)?,
                Duration::from_secs(interval),
            ),
            branch,
            base: parameters.text("base")?,
            env: parameters.text("env")?,
            fallback: parameters.text("fallback")?,
            root: normpath(root.trim_start_matches('/')),
            mountpoint,
            all_saltenvs: parameters.own("all_saltenvs").and_then(text_of),
            id: parameters.shown.clone(),
        })
    }

    /// The branch or tag for the minion's environment.
    fn target<'a>(&'a self, environment: &'a str) -> &'a str {
        if self.branch != BY_ENVIRONMENT {
            return &self.branch;
        }
        match &self.all_saltenvs {
            Some(reference) => reference,
            None if environment == "base" => &self.base,
            None => environment,
        }
    }

    /// The environment that its files are part of.
    fn environment(&self, environment: &str) -> String {
        if self.branch == BY_ENVIRONMENT && self.all_saltenvs.is_some() {
            return environment.to_owned();
        }
        let target = self.target(environment);
        match self.env.as_str() {
            "" if self.branch == self.base || target == self.base => "base".to_owned(),
            "" => target.to_owned(),
            env => env.to_owned(),
        }
    }

    fn commit(&self, environment: &str) -> Option<Oid> {
        fn named(refs: &Refs, name: &str) -> Option<Oid> {
            refs.branches
                .get(name)
                .or_else(|| refs.tags.get(name))
                .cloned()
        }
        let refs = self.clone.refs();
        named(&refs, self.target(environment)).or_else(|| {
            let fallback = (!self.fallback.is_empty()).then_some(self.fallback.as_str());
            fallback.and_then(|fallback| named(&refs, fallback))
        })
    }

    /// Its directory for the minion's environment; nothing if there is none.
    fn prepare(&self, environment: &str, call: &Call<'_>) -> Option<Prepared> {
        if !self.clone.is_fetched() {
            let problem = format!("\"{}\" has not been fetched yet", self.clone.shown());
            call.failures.borrow_mut().push(problem);
            return None;
        }
        let Some(commit) = self.commit(environment) else {
            let target = self.target(environment);
            tracing::error!(
                remote = self.id,
                target,
                "git_pillar: there is no such branch or tag"
            );
            return None;
        };
        let failed = |error: &GitError| {
            tracing::error!(remote = self.id, %error, "git_pillar: the remote cannot be used");
        };
        let checkout = self.clone.checkout(&commit).inspect_err(failed).ok()?;
        let root = self.root_in(checkout.path());
        if !root.is_dir() {
            tracing::error!(
                remote = self.id,
                root = self.root,
                "git_pillar: there is no such root"
            );
            return None;
        }
        let directory = match self.mountpoint.as_str() {
            "" => root,
            mountpoint => checkout
                .mounted(&root, mountpoint)
                .inspect_err(failed)
                .ok()?,
        };
        Some(Prepared {
            directory,
            env: self.environment(environment),
            is_mounted: !self.mountpoint.is_empty(),
            _checkout: checkout,
        })
    }

    fn root_in(&self, checkout: &Path) -> PathBuf {
        match self.root.as_str() {
            "" | "." => checkout.to_owned(),
            root => checkout.join(root),
        }
    }
}

impl Source for GitPillar {
    fn remotes(&self) -> Vec<GitRemote<'_>> {
        let remotes = self.remotes.iter().map(|remote| {
            let parts = remote.id.trim_start().split_once(char::is_whitespace);
            GitRemote {
                id: &remote.id,
                branch: &remote.branch,
                url: parts.map_or(remote.id.as_str(), |(_, url)| url.trim()),
                clone: &remote.clone,
            }
        });
        remotes.collect()
    }

    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError> {
        let given = |name: Option<&'_ str>| name.filter(|name| !name.is_empty()).map(str::to_owned);
        let pillarenv = given(call.input.pillarenv);
        let environment = pillarenv.clone().or_else(|| given(call.input.saltenv));
        let asked = environment.as_deref().unwrap_or("base");
        let prepared: Vec<Prepared> = self
            .remotes
            .iter()
            .filter_map(|remote| remote.prepare(asked, call))
            .collect();
        let mut pillar = Value::Map(Vec::new());
        for (index, here) in prepared.iter().enumerate() {
            let env = match here.env.as_str() {
                BY_ENVIRONMENT => environment.clone().unwrap_or_else(|| self.base.clone()),
                env => env.to_owned(),
            };
            if here.is_mounted || pillarenv.as_ref().is_some_and(|wanted| *wanted != env) {
                continue;
            }
            let mut directories = vec![here.directory.clone()];
            if self.includes {
                let others = prepared.iter().enumerate();
                let others = others.filter(|(other, there)| *other != index && there.env == env);
                directories.extend(others.map(|(_, there)| there.directory.clone()));
            }
            let (mut compiled, errors) = (call.input.compile_roots)(&[(env, directories)]);
            if let Value::Map(entries) = &mut compiled
                && !errors.is_empty()
            {
                let errors = errors.into_iter().map(Value::from).collect();
                entries.push((Value::from("_errors"), Value::Array(errors)));
            }
            pillar = (call.merge)(pillar, compiled);
        }
        Ok(pillar)
    }
}
