//! Compilation of a minion's pillar from SLS files.
//!
//! [`Pillars::compile`] does what stock's `Pillar` does (`salt/pillar/__init__.py`): it reads the
//! top files of `pillar_roots`, matches them against the minion, renders the SLS files that are
//! meant for it and merges them. It knows neither the request nor the reply; calls block for as
//! long as rendering takes, at most [`Limits::time`]. `DIFFERENCES.md` lists where pillars differ
//! from stock's; `tests/pillar_stock` compares the rest.

mod cache;
mod compile;
mod error;
mod external;
pub mod merge;
mod options;
mod opts;
mod sls;
mod sources;
mod top;

use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_bridge::Bridge;
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_policy::expression::PatternCache;
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::ext_pillar::ExtPillars;
use crate::files::{FileServer, FilesError};
use crate::git::Fetch;
use crate::render::DecryptRules;
use crate::render::modules::site::SiteFunctions;

pub(crate) use options::renderers;
pub use opts::of_master as master_options;

use cache::PillarCache;
use compile::{Compilation, add_error, override_of, pillarenv};
use merge::merge;
use options::Options;
use sources::Sources;

/// Why pillars cannot be made with this configuration.
#[derive(Debug, thiserror::Error)]
pub enum PillarError {
    /// An option has a value that cannot work.
    #[error("option \"{name}\": {problem}")]
    Option {
        /// The option as it is written in the configuration.
        name: &'static str,
        /// The reason.
        problem: String,
    },
    /// An option that the file server shares.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// Dependencies of pillars.
pub struct Parts {
    /// Wall-clock time.
    pub clock: Clock,
    /// The file server, for `cp.*` in templates.
    pub files: Arc<FileServer>,
    /// The external pillars.
    pub ext: ExtPillars,
    /// Functions of the master for templates: mines, caches, runners.
    pub site: Arc<dyn SiteFunctions>,
    /// Bridge that runs modules that are not here; without it they are refused by name.
    pub bridge: Option<Arc<Bridge>>,
}

/// Request for the pillar of one minion.
#[derive(Clone)]
pub struct PillarRequest {
    /// The minion, whose key is accepted.
    pub minion: MinionId,
    /// Its grains, with its true id as `id`.
    pub grains: Arc<Value>,
    /// The environment of its states.
    pub saltenv: Option<String>,
    /// The environment of its pillar.
    pub pillarenv: Option<String>,
    /// Data that wins over the pillar: `pillar=` of the command line.
    pub pillar_override: Option<Value>,
    /// Parts of the minion's configuration, for external pillars.
    pub extra_minion_data: Option<Value>,
    /// External pillars on demand: names with their arguments.
    pub ext: Option<Value>,
    /// Whether a kept pillar is to be made again.
    pub clean_cache: bool,
}

impl PillarRequest {
    /// A request that names nothing but the minion and what it is.
    pub fn new(minion: MinionId, grains: Arc<Value>) -> Self {
        Self {
            minion,
            grains,
            saltenv: None,
            pillarenv: None,
            pillar_override: None,
            extra_minion_data: None,
            ext: None,
            clean_cache: false,
        }
    }

    /// Whether the minion has a say in what it gets, by data that it brings along or by external
    /// pillars whose arguments it chooses: then it is the answer to this request alone, and nobody
    /// may take it for the pillar that the site keeps for the minion.
    pub fn is_particular(&self) -> bool {
        self.pillar_override.is_some() || self.ext.is_some()
    }
}

/// Bounds on one compilation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest time of all renderings and sources together.
    pub time: Duration,
    /// The most files that are rendered, top files included.
    pub files: usize,
    /// About how many bytes of data may come together.
    pub bytes: usize,
}

impl Limits {
    /// More than any sane pillar needs: a minute, ten thousand files, 64 MiB.
    pub const DEFAULT: Limits = Limits {
        time: Duration::from_secs(60),
        files: 10_000,
        bytes: 64 << 20,
    };
}

/// Makes pillars. Shared by all threads; what it remembers has locks of its own.
pub struct Pillars {
    options: Options,
    /// The master's options as templates see them, less what belongs to one minion.
    opts: Arc<Value>,
    decrypt: DecryptRules,
    clock: Clock,
    files: Arc<FileServer>,
    ext: ExtPillars,
    site: Arc<dyn SiteFunctions>,
    bridge: Option<Arc<Bridge>>,
    sources: Arc<Sources>,
    patterns: PatternCache,
    cache: Option<PillarCache>,
}

impl Pillars {
    /// Reads the options.
    ///
    /// # Errors
    /// [`PillarError`] that names the option which cannot work.
    pub fn new(config: &MasterConfig, parts: Parts) -> Result<Self, PillarError> {
        let options = Options::new(config)?;
        let opts = opts::of_master(config);
        Ok(Self {
            decrypt: DecryptRules::from_opts(&opts),
            sources: Arc::new(Sources::new(parts.clock.clone())),
            cache: PillarCache::new(config, parts.clock.clone())?,
            options,
            opts: Arc::new(opts),
            clock: parts.clock,
            files: parts.files,
            ext: parts.ext,
            site: parts.site,
            bridge: parts.bridge,
            patterns: PatternCache::default(),
        })
    }

    /// The errors for which [`Pillars::new`] would refuse the configuration; opens nothing.
    pub fn check(config: &MasterConfig, clock: Clock) -> Vec<PillarError> {
        let options = Options::new(config).err();
        options
            .into_iter()
            .chain(PillarCache::new(config, clock).err())
            .collect()
    }

    /// The fetches of git remotes of external pillars whose `git_pillar_update_interval` has
    /// passed, to be run on threads of their own: each waits for its remote.
    pub fn due_remotes(&self) -> Vec<Fetch> {
        self.ext.due()
    }

    /// Fetches git remotes of external pillars now; see [`ExtPillars::fetch`].
    pub fn fetch_remotes(&self, branch: Option<&str>, url: Option<&str>) -> Vec<(String, bool)> {
        self.ext.fetch(branch, url)
    }

    /// The roots of each environment (`pillar_roots`), wildcards expanded.
    pub fn roots(&self) -> &[(String, Vec<String>)] {
        &self.options.roots
    }

    /// Whether a pillar can hold nothing but its override: no external pillar is configured,
    /// and no root is there at this moment.
    pub fn is_empty(&self) -> bool {
        let mut roots = self.options.roots.iter().flat_map(|(_, roots)| roots);
        self.ext.is_empty()
            && !self.options.shows_opts
            && !roots.any(|root| root.contains(options::ANY_ENVIRONMENT) || is_directory(root))
    }

    /// Makes the pillar of a minion, or gives one that was kept (`pillar_cache`); with external
    /// pillars on demand it is always made, and not kept. Blocks, within the [`Limits`] of the
    /// configuration.
    /// Failures are texts in `_errors`, as in stock.
    pub fn compile(&self, request: &PillarRequest) -> Value {
        let Some(cache) = &self.cache else {
            return self.compile_anew(request);
        };
        let (minion, pillarenv) = (&request.minion, pillarenv(&self.options, request));
        if request.clean_cache {
            cache.forget(minion);
        }
        if request.ext.is_some() {
            return self.compile_anew(request);
        }
        let own = PillarRequest {
            pillar_override: None,
            ..request.clone()
        };
        let pillar = cache.get(minion, pillarenv).unwrap_or_else(|| {
            let pillar = Compilation::new(self, &own, &self.options.limits, None).run();
            if pillar.get("_errors").is_none() {
                cache.put(minion, pillarenv, &pillar);
            }
            pillar
        });
        match override_of(request) {
            Ok(update) if update.as_map().is_none_or(<[_]>::is_empty) => pillar,
            Ok(update) => {
                let (strategy, lists) = (self.options.strategy, self.options.merge_lists);
                merge(pillar, update, strategy, lists)
            }
            Err(error) => add_error(pillar, &error.to_string()),
        }
    }

    /// Makes a pillar, whatever is kept, and keeps nothing.
    pub fn compile_anew(&self, request: &PillarRequest) -> Value {
        Compilation::new(self, request, &self.options.limits, None).run()
    }

    /// The merged top files before matching: a mapping from environments to mappings from targets
    /// to SLS names (`Pillar.get_top`).
    ///
    /// # Errors
    /// The texts of what is wrong with them.
    pub fn top(&self, request: &PillarRequest) -> Result<Value, Vec<String>> {
        Compilation::new(self, request, &self.options.limits, None).show_top()
    }

    /// The pillar that is kept of a minion (`pillar_cache`) and is not too old.
    pub fn kept(&self, minion: &MinionId, pillarenv: Option<&str>) -> Option<Value> {
        self.cache.as_ref()?.get(minion, pillarenv)
    }

    /// Forgets the kept pillars of a minion; the next one is made anew.
    pub fn forget(&self, minion: &MinionId) {
        if let Some(cache) = &self.cache {
            cache.forget(minion);
        }
    }

    /// Forgets the kept pillars of all minions but those to keep.
    ///
    /// # Errors
    /// When the directory of kept pillars cannot be listed or changed.
    pub fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<(), StoreError> {
        self.cache
            .as_ref()
            .map_or(Ok(()), |cache| cache.forget_all_but(keep))
    }
}

fn is_directory(path: &str) -> bool {
    std::path::Path::new(path).is_dir()
}
