//! The external pillars: sources of pillar data beside the SLS files (`ext_pillar`).
//!
//! Each source is a module of stock by the same name (`salt/pillar/*.py`), built in; other modules
//! of stock, and those of a site's own, are run by Python (`python.rs`). A source gives a mapping, which
//! the caller's strategy merges into the pillar; one that fails leaves a text for `_errors` and
//! the others run on, as in stock. Calls block their thread.
//!
//! Nothing here decides which minion may have what, nor compiles SLS files: [`ExtInput`] brings
//! the template context, the node groups and the compiler of directories along.

mod arguments;
mod commands;
mod error;
mod file_tree;
mod git_pillar;
mod http;
mod nodegroups;
mod python;
mod stack;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saltern_config::MasterConfig;
use saltern_config::yaml::{Key, Node, YamlError};
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use crate::git::{Clone, Clones, Fetch, GitError};
use crate::render::Renderers;
use crate::render::jinja::Context;

use arguments::Arguments;
use error::{ArgumentError, SourceError};

/// Compiler of directories as `pillar_roots`, without external pillars: for each environment its
/// directories in order. Gives the pillar and the texts of its failures.
pub type CompileRoots<'a> = dyn Fn(&[(String, Vec<PathBuf>)]) -> (Value, Vec<String>) + 'a;

/// Input of the sources from a compilation.
pub struct ExtInput<'a> {
    /// The minion of the pillar.
    pub minion: &'a MinionId,
    /// Its grains.
    pub grains: &'a Value,
    /// The options that templates see as `opts`.
    pub opts: &'a Value,
    /// `saltenv` of the minion.
    pub saltenv: Option<&'a str>,
    /// `pillarenv` of the minion.
    pub pillarenv: Option<&'a str>,
    /// Context in which templates of the pillar are rendered; sources change copies of it. The
    /// deadline of its limits holds for the sources too.
    pub context: &'a Context,
    /// The renderers of the pillar.
    pub renderers: &'a Renderers,
    /// Whether the minion is in a node group of the configuration: stock's
    /// `CkMinions.check_minions(nodegroups[name], "compound")`, greedy.
    pub in_nodegroup: &'a dyn Fn(&str) -> bool,
    /// For `git`, whose repositories hold SLS files.
    pub compile_roots: &'a CompileRoots<'a>,
}

/// Why external pillars cannot be used as they are configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtPillarError {
    /// A remote of `git` cannot be used, or there is no git.
    #[error("ext_pillar \"git\": {0}")]
    Git(#[from] GitError),
}

/// A call of a source.
struct Call<'a> {
    input: &'a ExtInput<'a>,
    /// The pillar as far as it is known.
    pillar: &'a Value,
    /// The strategy by which sources are merged.
    merge: &'a dyn Fn(Value, Value) -> Value,
    /// Texts for `_errors` beside what the source gives.
    failures: &'a RefCell<Vec<String>>,
}

impl Call<'_> {
    /// A source's own time, cut at the deadline of the whole pillar.
    fn left_of(&self, own: Duration) -> Duration {
        self.input.context.limits.left_of(own)
    }
}

/// One module. What cannot be decided before it is called is an error for `_errors`.
trait Source: Send + Sync {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError>;

    /// The git remotes that it has.
    fn remotes(&self) -> Vec<GitRemote<'_>> {
        Vec::new()
    }
}

/// A git remote of a source.
struct GitRemote<'a> {
    /// The remote as it is written, without its password.
    id: &'a str,
    branch: &'a str,
    /// The URL, without its password.
    url: &'a str,
    clone: &'a Arc<Clone>,
}

/// An entry of the option: names with their sources, mostly one.
type Entry = Vec<(String, Result<Box<dyn Source>, ArgumentError>)>;

/// All external pillars of the configuration. Shared by all threads that compile.
pub struct ExtPillars {
    entries: Vec<Entry>,
    /// `exclude_ext_pillar`.
    excluded: Vec<String>,
    /// The option is malformed; no source after it runs.
    malformed: bool,
    /// Clones of all `git` entries.
    clones: Option<Clones>,
}

impl ExtPillars {
    /// The external pillars that the configuration names, in its order.
    ///
    /// # Errors
    /// [`ExtPillarError`] for remotes of `git` that cannot be used. Wrong arguments of a source are an
    /// error of each pillar, as in stock, and so are sources that this master does not have, which
    /// stock only logs.
    pub fn new(config: &MasterConfig) -> Result<Self, ExtPillarError> {
        let mut entries = Vec::new();
        let mut clones = None;
        let excluded = config.exclude_ext_pillar();
        let excluded: Vec<String> = excluded.texts().map(str::to_owned).collect();
        let Some(option) = config.ext_pillar().node().filter(|node| !node.is_null()) else {
            return Ok(Self {
                entries,
                excluded,
                malformed: false,
                clones,
            });
        };
        let mut malformed = false;
        for item in option.as_seq().unwrap_or_default() {
            let Some(map) = item.as_map().filter(|map| !map.is_empty()) else {
                malformed = true;
                break;
            };
            let mut entry: Entry = Vec::new();
            for (key, value) in map.iter() {
                let name = key.to_string();
                if entry.is_empty() && excluded.contains(&name) {
                    break;
                }
                let source = source(key, &value.value, config, &mut clones)?;
                entry.push((name, source));
            }
            entries.push(entry);
        }
        Ok(Self {
            entries,
            excluded,
            malformed: malformed || option.as_seq().is_none(),
            clones,
        })
    }

    /// The fetches of remotes of `git` whose `git_pillar_update_interval` has passed, to be run on
    /// threads of their own.
    pub fn due(&self) -> Vec<Fetch> {
        self.clones.as_ref().map(Clones::due).unwrap_or_default()
    }

    /// Fetches the remotes of `git` whose `git_pillar_update_interval` has passed, one after the
    /// other; a remote that cannot be fetched is logged. Blocks, so it is for a maintenance thread.
    /// Returns whether anything changed.
    pub fn refresh(&self) -> bool {
        self.clones.as_ref().is_some_and(Clones::refresh)
    }

    /// Fetches the remotes of `git` of this branch and this URL (`None` for all), whether or
    /// not their time has come; gives each as it is written, without its password, and whether
    /// anything is different.
    pub fn fetch(&self, branch: Option<&str>, url: Option<&str>) -> Vec<(String, bool)> {
        let sources = self.entries.iter().flatten();
        let sources = sources.filter_map(|(_, source)| source.as_ref().ok());
        let mut fetched = Vec::new();
        for remote in sources.flat_map(|source| source.remotes()) {
            let is_meant = branch.is_none_or(|branch| branch == remote.branch)
                && url.is_none_or(|url| url == remote.url);
            if is_meant {
                let fetch = Fetch::now(remote.clone);
                let changed = fetch.is_some_and(|fetch| fetch.run(None).is_change());
                fetched.push((remote.id.to_owned(), changed));
            }
        }
        fetched
    }

    /// Whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && !self.malformed
    }

    /// Runs all sources in order, at last those that the minion asks for and may; what each gives is
    /// merged into `pillar` by `merge`. The texts of failures come beside it.
    pub fn apply(
        &self,
        mut pillar: Value,
        on_demand: &[(String, Value)],
        input: &ExtInput<'_>,
        merge: &dyn Fn(Value, Value) -> Value,
    ) -> (Value, Vec<String>) {
        let mut errors = Vec::new();
        let asked = self.asked_for(on_demand);
        for entry in self.entries.iter().chain([&asked]) {
            // Of several names in one entry, stock merges only what the last one gave.
            let mut given = None;
            for (name, source) in entry {
                let failures = RefCell::default();
                let call = Call {
                    input,
                    pillar: &pillar,
                    merge,
                    failures: &failures,
                };
                let result = match source {
                    Ok(_) if call.left_of(Duration::MAX).is_zero() => {
                        Err(SourceError::Time.to_string())
                    }
                    Ok(source) => source.pillar(&call).map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                let mut failures = failures.into_inner();
                match result {
                    Ok(value) => given = Some((name, value)),
                    Err(problem) => failures.push(problem),
                }
                for problem in failures {
                    tracing::error!(minion = %input.minion, name, problem, "ext_pillar failed");
                    errors.push(format!("Failed to load ext_pillar {name}: {problem}"));
                }
            }
            match given {
                Some((_, value)) if !value.is_truthy() => {}
                Some((_, value @ Value::Map(_))) => pillar = merge(pillar, value),
                // Stock fails the whole pillar here, and says nothing that names the source.
                Some((name, _)) => {
                    errors.push(format!(
                        "Failed to load ext_pillar {name}: it gave no mapping"
                    ));
                }
                None => {}
            }
        }
        if self.malformed {
            errors.push("The \"ext_pillar\" option is malformed".to_owned());
            if !self.entries.is_empty() {
                pillar = Value::Map(Vec::new());
            }
        }
        (pillar, errors)
    }
}

impl ExtPillars {
    /// One more entry, as stock makes it of what a minion asks for; nothing after a malformed one.
    fn asked_for(&self, on_demand: &[(String, Value)]) -> Entry {
        let is_excluded = |(name, _): &(String, Value)| self.excluded.contains(name);
        if self.malformed || on_demand.first().is_some_and(is_excluded) {
            return Entry::new();
        }
        let sources = on_demand.iter().map(|(name, arguments)| {
            let source: Result<Box<dyn Source>, ArgumentError> = match name.as_str() {
                // Its repositories would have to be cloned first.
                "git" => Err(ArgumentError::OnDemand),
                _ => Ok(Box::new(python::Other::asked_for(name, arguments))),
            };
            (name.clone(), source)
        });
        sources.collect()
    }
}

/// The source of a name; an inner error is one of its arguments.
fn source(
    name: &Key,
    value: &Node,
    config: &MasterConfig,
    clones: &mut Option<Clones>,
) -> Result<Result<Box<dyn Source>, ArgumentError>, ExtPillarError> {
    fn boxed<S: Source + 'static>(
        source: Result<S, ArgumentError>,
    ) -> Result<Box<dyn Source>, ArgumentError> {
        source.map(|source| Box::new(source) as Box<dyn Source>)
    }
    let named = |names: &'static [&'static str]| Arguments::of(value, names);
    Ok(match name.to_string().as_str() {
        "cmd_yaml" => boxed(named(commands::PARAMETERS).and_then(commands::CmdYaml::new)),
        "cmd_json" => boxed(named(commands::PARAMETERS).and_then(commands::CmdJson::new)),
        "file_tree" => boxed(named(file_tree::PARAMETERS).and_then(file_tree::FileTree::new)),
        // Stock's function takes no arguments by name.
        "git" if value.as_map().is_some() => Err(ArgumentError::Keywords),
        "git" => Ok(Box::new(git_pillar::GitPillar::new(value, config, clones)?)),
        "stack" => boxed(stack::Stack::new(value)),
        "nodegroups" => boxed(
            named(nodegroups::PARAMETERS)
                .map(|arguments| nodegroups::Nodegroups::new(&arguments, config)),
        ),
        "http_json" => boxed(
            named(http::JSON_PARAMETERS)
                .and_then(|arguments| http::Http::new(&arguments, http::Form::Json, config)),
        ),
        "http_yaml" => boxed(
            named(http::YAML_PARAMETERS)
                .and_then(|arguments| http::Http::new(&arguments, http::Form::Yaml, config)),
        ),
        other => Ok(Box::new(python::Other::new(other, value))),
    })
}

/// Reads a YAML document as `salt.utils.yaml.safe_load` does.
fn yaml(text: &str, name: &str) -> Result<Value, YamlError> {
    use saltern_config::yaml::{Limits, parse};
    parse(text, name, &Limits::DEFAULT).map(crate::render::data::from_yaml)
}
