//! The options of pillars, out of the configuration as it was written.
//!
//! Defaults are stock's and come with the configuration. What cannot work is an error that names
//! the option when the master starts, not a surprise in the first pillar.

use std::time::Duration;

use saltern_config::{MasterConfig, OptionValue};
use saltern_model::Compat;
use saltern_policy::matching::Nodegroups;

use super::merge::Strategy;
use super::{Limits, PillarError};
use crate::files::ignore::texts;
use crate::files::options::environment_roots;
use crate::render::{Gpg, Renderers};

/// The roots of an environment that stand for every environment without roots of its own.
pub(super) const ANY_ENVIRONMENT: &str = "__env__";

/// Root that stock reads if `pillar_roots` is no mapping.
const DEFAULT_ROOT: &str = "/srv/pillar";

/// Options of pillars.
pub(super) struct Options {
    pub(super) compat: Compat,
    /// The roots of each environment, both in the order they were written.
    pub(super) roots: Vec<(String, Vec<String>)>,
    pub(super) pillarenv: Option<String>,
    pub(super) pillarenv_from_saltenv: bool,
    pub(super) saltenv: Option<String>,
    pub(super) strategy: Strategy,
    pub(super) merge_lists: bool,
    /// With the strategy `none`, only the top file of one environment is read.
    pub(super) one_environment: bool,
    pub(super) includes_override: bool,
    pub(super) env_order: Vec<String>,
    /// The path of the top file below a root.
    pub(super) state_top: String,
    /// Whether the minion gets the master's options.
    pub(super) shows_opts: bool,
    /// Whether the reason of a failed rendering is kept from the minion.
    pub(super) hides_errors: bool,
    pub(super) ext_first: bool,
    pub(super) on_demand: Vec<String>,
    pub(super) renderers: Renderers,
    pub(super) nodegroups: Nodegroups,
    /// Bounds on a whole pillar.
    pub(super) limits: Limits,
    /// The longest time of one rendering.
    pub(super) render_time: Duration,
}

impl Options {
    pub(super) fn new(config: &MasterConfig) -> Result<Self, PillarError> {
        let option = config.pillar_source_merging_strategy();
        let name = option.name();
        let strategy = text(option)?.unwrap_or_else(|| "smart".to_owned());
        let nodegroups = config.nodegroups().node().map(Nodegroups::from_node);
        Ok(Self {
            compat: config.salt_compat,
            roots: environment_roots(config.pillar_roots(), DEFAULT_ROOT)?,
            pillarenv: text(config.pillarenv())?.filter(|name| !name.is_empty()),
            pillarenv_from_saltenv: config.pillarenv_from_saltenv(),
            saltenv: text(config.saltenv())?,
            one_environment: strategy == "none",
            strategy: Strategy::parse(&strategy).unwrap_or_else(|| {
                tracing::warn!(
                    strategy,
                    "{name} is unknown: pillars are merged by \"recurse\""
                );
                Strategy::None
            }),
            merge_lists: config.pillar_merge_lists(),
            includes_override: config.pillar_includes_override_sls(),
            env_order: list(config.env_order())?,
            state_top: state_top(config)?,
            shows_opts: config.pillar_opts(),
            hides_errors: config.pillar_safe_render_error(),
            ext_first: config.ext_pillar_first(),
            on_demand: list(config.on_demand_ext_pillar())?,
            renderers: renderers(config)?,
            nodegroups: nodegroups.unwrap_or_default(),
            limits: Limits {
                time: config.saltern_pillar_timeout,
                ..Limits::DEFAULT
            },
            render_time: config.saltern_render_timeout,
        })
    }
}

fn text(option: OptionValue<'_>) -> Result<Option<String>, PillarError> {
    match option.node().filter(|node| !node.is_null()) {
        None => Ok(None),
        Some(node) => match node.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(PillarError::Option {
                name: option.name(),
                problem: format!("{} is no text", node.kind()),
            }),
        },
    }
}

fn list(option: OptionValue<'_>) -> Result<Vec<String>, PillarError> {
    let texts = texts(option)?;
    Ok(texts.into_iter().map(str::to_owned).collect())
}

fn state_top(config: &MasterConfig) -> Result<String, PillarError> {
    let top = text(config.state_top())?.unwrap_or_else(|| "top.sls".to_owned());
    let path = top.strip_prefix("salt://").unwrap_or(&top);
    Ok(path.trim_start_matches('/').to_owned())
}

/// How files are rendered, pillars and others.
pub(crate) fn renderers(config: &MasterConfig) -> Result<Renderers, PillarError> {
    let mut gpg = Gpg::default();
    match text(config.gpg_keydir())? {
        Some(directory) => gpg.key_directory = directory.into(),
        None => {
            if let Some(directory) = config.conf_file.parent() {
                gpg.key_directory = directory.join("gpgkeys");
            }
        }
    }
    gpg.must_succeed = config.gpg_decrypt_must_succeed();
    Ok(Renderers {
        default: text(config.renderer())?.unwrap_or_else(|| "jinja|yaml".to_owned()),
        whitelist: list(config.renderer_whitelist())?,
        blacklist: list(config.renderer_blacklist())?,
        gpg,
    })
}
