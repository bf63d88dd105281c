//! Finds and renders the SLS files of reactions, as stock's reactor does (`render_reaction` in
//! `salt/utils/reactor.py`).
//!
//! Templates see `tag` and `data` and what the master itself is; what the rendered data means is
//! not known here. Rendering blocks its thread, for at most `saltern_render_timeout`.

use std::path::Path;
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_bridge::{Bridge, Subject};
use saltern_config::{MasterConfig, glob};
use saltern_model::MinionId;
use saltern_store::files as disk;
use saltern_wire::msgpack::Value;

use crate::files::{FileServer, FilesError};
use crate::pillar::{self, PillarError};
use crate::render::functions::{Functions, Registry};
use crate::render::jinja::{Context, Limits, LoadError, Loader};
use crate::render::modules::site::{SiteFunctions, add_site};
use crate::render::modules::{Commands, Facts, add_all};
use crate::render::python::WithPython;
use crate::render::{Python, RenderError, Renderers, render, set_sls_context};

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The most bytes that a program of a template may print.
const PROGRAM_OUTPUT: u64 = 16 << 20;

/// Why a file gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReactionFileError {
    /// Nothing has that name, or matches that pattern.
    #[error("there is no file \"{0}\"")]
    Missing(String),
    /// The file server cannot read it.
    #[error("cannot read \"{name}\"")]
    Served {
        /// The file.
        name: String,
        /// Why.
        #[source]
        source: Box<FilesError>,
    },
    /// It cannot be read.
    #[error("cannot read \"{name}\"")]
    Read {
        /// The file.
        name: String,
        /// Why.
        #[source]
        source: Box<saltern_store::StoreError>,
    },
    /// It is no text.
    #[error("\"{0}\" is no UTF-8 text")]
    NoText(String),
    /// Its template or its YAML is wrong.
    #[error("cannot render \"{name}\"")]
    Render {
        /// The file.
        name: String,
        /// Why.
        #[source]
        source: Box<RenderError>,
    },
}

/// Dependencies of rendering.
pub struct ReactionParts {
    /// Wall-clock time.
    pub clock: Clock,
    /// The file server, for `salt://` and imports.
    pub files: Arc<FileServer>,
    /// Functions of the master for templates: mines, caches, runners.
    pub site: Arc<dyn SiteFunctions>,
    /// Bridge that runs modules that are not here; without it they are refused by name.
    pub bridge: Option<Arc<Bridge>>,
}

/// Renderer of reaction SLS files, shared by all threads that render reactions.
pub struct ReactionFiles {
    renderers: Renderers,
    files: Arc<FileServer>,
    context: Context,
}

impl ReactionFiles {
    /// Reads the options.
    ///
    /// # Errors
    /// [`PillarError`] that names the option which cannot work; pillars have the same ones.
    pub fn new(config: &MasterConfig, parts: ReactionParts) -> Result<Self, PillarError> {
        let limits = Limits {
            time: config.saltern_render_timeout,
            ..Limits::DEFAULT
        };
        let nothing = || Arc::new(Value::Map(Vec::new()));
        let opts = Arc::new(pillar::master_options(config));
        let facts = Facts {
            opts: Arc::clone(&opts),
            ..Facts::default()
        };
        let mut registry = Registry::new();
        let programs = Commands {
            time: limits.time,
            deadline: None,
            output: PROGRAM_OUTPUT,
        };
        add_all(&mut registry, &facts, Some(programs));
        if let Ok(id) = MinionId::parse(&config.id) {
            let (files, site) = (Arc::clone(&parts.files), parts.site);
            add_site(&mut registry, &id, ENVIRONMENT, files, site, &facts);
        }
        let python = parts
            .bridge
            .map(|bridge| Python::new(bridge, Subject::new(&config.id, nothing(), nothing())));
        let functions: Arc<dyn Functions> = match &python {
            Some(python) => Arc::new(WithPython::new(registry, python.clone(), limits)),
            None => Arc::new(registry),
        };
        Ok(Self {
            renderers: pillar::renderers(config)?,
            context: Context {
                values: vec![
                    ("grains".to_owned(), nothing()),
                    ("opts".to_owned(), opts),
                    ("pillar".to_owned(), nothing()),
                    ("saltenv".to_owned(), Arc::new(ENVIRONMENT.into())),
                    ("sls".to_owned(), Arc::new("".into())),
                ],
                functions,
                loader: Arc::new(Served(Arc::clone(&parts.files))),
                clock: parts.clock,
                limits,
                python,
            },
            files: parts.files,
        })
    }

    /// The files that a reference of the option `reactor` means, in order: one of the file server
    /// (`salt://…`), or a path or pattern on this machine.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, reference: &str) -> Result<Vec<String>, ReactionFileError> {
        find(reference)
    }

    /// The data of a file for an event. An empty file gives an empty mapping.
    ///
    /// # Errors
    /// When it cannot be read or rendered.
    pub fn render(
        &self,
        name: &str,
        tag: &str,
        data: &Arc<Value>,
    ) -> Result<Value, ReactionFileError> {
        let source = self.read(name)?;
        let mut context = self.context.clone();
        context.set("tag", tag.into());
        context.values.push(("data".to_owned(), Arc::clone(data)));
        set_sls_context(&mut context, name, "");
        render(&source, name, &self.renderers, &context).map_err(|source| {
            ReactionFileError::Render {
                name: name.to_owned(),
                source: Box::new(source),
            }
        })
    }

    fn read(&self, name: &str) -> Result<String, ReactionFileError> {
        let missing = || ReactionFileError::Missing(name.to_owned());
        let content = match name.strip_prefix(SCHEME) {
            Some(served) => {
                let (path, environment) = place_of(served);
                let content = self.files.read(path, environment, MAX_FILE_BYTES);
                let content = content.map_err(|source| ReactionFileError::Served {
                    name: name.to_owned(),
                    source: Box::new(source),
                })?;
                content.ok_or_else(missing)?.to_vec()
            }
            None => {
                let content = disk::read(Path::new(name), MAX_FILE_BYTES);
                let content = content.map_err(|source| ReactionFileError::Read {
                    name: name.to_owned(),
                    source: Box::new(source),
                })?;
                content.ok_or_else(missing)?
            }
        };
        String::from_utf8(content).map_err(|_| ReactionFileError::NoText(name.to_owned()))
    }
}

/// Whether the file server has the file that a reference such as `salt://x.sls` names; `true` for
/// every other reference.
pub fn is_served(reference: &str, files: &FileServer) -> bool {
    let Some(served) = reference.strip_prefix(SCHEME) else {
        return true;
    };
    let (path, environment) = place_of(served);
    // A file that cannot be read exists.
    files
        .read(path, environment, MAX_FILE_BYTES)
        .map_or(true, |content| content.is_some())
}

fn place_of(served: &str) -> (&str, &str) {
    served.split_once(QUERY).unwrap_or((served, ENVIRONMENT))
}

/// The files that a reference of the option `reactor` means; see [`ReactionFiles::find`].
///
/// # Errors
/// When there is none.
pub fn find(reference: &str) -> Result<Vec<String>, ReactionFileError> {
    if reference.starts_with(SCHEME) {
        return Ok(vec![reference.to_owned()]);
    }
    let found = glob::glob(reference).into_iter();
    let found: Vec<String> = found
        .filter_map(|path| path.into_os_string().into_string().ok())
        .collect();
    match found.is_empty() {
        true => Err(ReactionFileError::Missing(reference.to_owned())),
        false => Ok(found),
    }
}

/// Prefix of files of the file server.
const SCHEME: &str = "salt://";

/// Separator before the environment in such a name.
const QUERY: &str = "?saltenv=";

/// The environment of reactions (`saltenv` of stock's `MasterMinion`).
const ENVIRONMENT: &str = "base";

/// Imports of templates, from the file server as stock's cache of it.
struct Served(Arc<FileServer>);

impl Loader for Served {
    fn load(&self, path: &str) -> Result<Option<String>, LoadError> {
        let content = self.0.read(path, ENVIRONMENT, MAX_FILE_BYTES);
        let Some(content) = content.map_err(LoadError::new)? else {
            return Ok(None);
        };
        String::from_utf8(content.to_vec())
            .map(Some)
            .map_err(|_| LoadError::new(ReactionFileError::NoText(path.to_owned())))
    }
}
