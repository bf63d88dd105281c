//! `stack`: YAML templates that configuration files list, merged one over the other
//! (`salt/pillar/stack.py`).
//!
//! A configuration file is a Jinja template that gives a YAML list or lines: globs of more
//! templates below its directory. Each of those sees as `stack` what the ones before it made.
//! These templates are Jinja2's own, not Salt's: what is undefined is empty, and the names are
//! `__grains__`, `__salt__`, `__opts__`, `__stack__`, `minion_id`, `pillar` and `pillarenv`.

mod merge;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saltern_config::yaml::{Node, YamlError};
use saltern_python::path::normpath;
use saltern_wire::msgpack::Value;

use super::arguments::wrong;
use super::error::{ArgumentError, SourceError};
use super::{Call, Source, yaml};
use crate::files::expand_glob;
use crate::files::path::is_plain_environment;
use crate::render::RenderError;
use crate::render::data::from_yaml;
use crate::render::jinja::{self, Context, LoadError, Loader};
use crate::render::modules::file::open;
use crate::render::modules::traverse;
use merge::MergeError;

/// The largest template.
const MAX_TEMPLATE_BYTES: u64 = 16 << 20;
/// The most templates that one stack reads.
const MAX_TEMPLATES: usize = 10_000;

/// Why a stack is no pillar.
#[derive(Debug, thiserror::Error)]
pub(super) enum StackError {
    /// A condition on a list or a mapping.
    #[error("\"{0}\" is no single value")]
    Value(String),
    /// A file of a condition that is something else.
    #[error("a file of \"{0}\" is no path")]
    File(String),
    /// An environment that may not stand in a path.
    #[error("{0:?} cannot be the name of an environment")]
    Environment(String),
    /// There are too many templates.
    #[error("there are more than {MAX_TEMPLATES} templates")]
    Templates,
    /// A configuration file does not render.
    #[error(transparent)]
    Configuration(#[from] TemplateError),
    /// A configuration file lists something other than text.
    #[error("a stack configuration lists something other than text")]
    Listed,
    /// A template does not render, in stock's words.
    #[error("Stack pillar template render error in {path}:\n\"{error}\"")]
    Template {
        /// The template.
        path: String,
        /// Why.
        error: TemplateError,
    },
    /// A template renders to no YAML, in stock's words.
    #[error("Stack pillar yaml parsing error in {path}:\n{error}")]
    Yaml {
        /// The template.
        path: String,
        /// Why.
        error: YamlError,
    },
    /// The data of a template cannot be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

/// Why one file does not render.
#[derive(Debug, thiserror::Error)]
pub(super) enum TemplateError {
    /// A link leads out of the directory.
    #[error("it lies outside of the directory")]
    Outside,
    /// It cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It does not exist.
    #[error("\"{0}\" is no template")]
    Missing(String),
    /// The template is wrong.
    #[error(transparent)]
    Render(#[from] RenderError),
}

/// Why [`Below`] cannot read a file.
#[derive(Debug, thiserror::Error)]
enum BelowError {
    #[error("cannot open \"{}\": {error}", path.display())]
    Open { path: PathBuf, error: io::Error },
    #[error("cannot read \"{}\": {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("\"{}\" has more than {MAX_TEMPLATE_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
}

/// The source.
pub(super) struct Stack {
    /// Files that count for every minion.
    files: Vec<String>,
    /// Files that depend on a value: `grains:os: {Debian: …}`.
    conditions: Vec<Condition>,
}

/// A value of the pillar, grains or options, and the files for each value it may have.
struct Condition {
    place: DataSource,
    path: String,
    files: Vec<(Value, Value)>,
}

#[derive(Clone, Copy)]
enum DataSource {
    Pillar,
    Grains,
    Opts,
}

impl Stack {
    pub(super) fn new(value: &Node) -> Result<Self, ArgumentError> {
        let mut stack = Self {
            files: Vec::new(),
            conditions: Vec::new(),
        };
        if let Some(map) = value.as_map() {
            for (key, entry) in map.iter() {
                let key = key.as_str().ok_or(ArgumentError::KeywordType)?;
                stack.conditions.push(Condition::new(key, &entry.value)?);
            }
            return Ok(stack);
        }
        for item in value.as_seq().unwrap_or(std::slice::from_ref(value)) {
            let file = item.as_str().ok_or(ArgumentError::Path(item.kind()))?;
            stack.files.push(file.to_owned());
        }
        Ok(stack)
    }

    /// The configuration files for this pillar.
    fn configurations(&self, call: &Call<'_>) -> Result<Vec<String>, StackError> {
        let input = call.input;
        let given = |name: Option<&'_ str>| name.filter(|name| !name.is_empty()).map(str::to_owned);
        let environment = given(input.pillarenv)
            .or_else(|| given(input.saltenv))
            .unwrap_or_else(|| "base".to_owned());
        let mut files = self.files.clone();
        for condition in &self.conditions {
            let data = match condition.place {
                DataSource::Pillar => call.pillar,
                DataSource::Grains => input.grains,
                DataSource::Opts => input.opts,
            };
            let Some(wanted) = traverse(data, &condition.path, ":") else {
                continue;
            };
            if matches!(wanted, Value::Array(_) | Value::Map(_)) {
                return Err(StackError::Value(condition.path.clone()));
            }
            // Of equal keys the last counts, and `__env__` may have become equal to one.
            let found = condition
                .files
                .iter()
                .rev()
                .find(|(key, _)| match key.as_str() {
                    Some("__env__") => wanted.as_str() == Some(&environment),
                    _ => key == wanted,
                });
            for file in found.map(|(_, file)| file).into_iter().flat_map(items) {
                let file = file
                    .as_str()
                    .ok_or_else(|| StackError::File(condition.path.clone()))?;
                // The name comes from the minion, and the file is rendered.
                if file.contains("__env__") && !is_plain_environment(&environment) {
                    return Err(StackError::Environment(environment));
                }
                files.push(file.replace("__env__", &environment));
            }
        }
        Ok(files)
    }
}

/// A list's items, or the value alone.
fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap_or(std::slice::from_ref(value))
}

impl Condition {
    fn new(key: &str, files: &Node) -> Result<Self, ArgumentError> {
        let (place, path) = key
            .split_once(':')
            .ok_or_else(|| ArgumentError::Condition(key.to_owned()))?;
        let place = match place {
            "pillar" => DataSource::Pillar,
            "grains" => DataSource::Grains,
            "opts" => DataSource::Opts,
            other => return Err(ArgumentError::Traverse(other.to_owned())),
        };
        let Value::Map(files) = from_yaml(files.clone()) else {
            return Err(wrong(key, files, "a mapping"));
        };
        Ok(Self {
            place,
            path: path.to_owned(),
            files,
        })
    }
}

impl Source for Stack {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError> {
        let mut stack = Value::Map(Vec::new());
        let mut left = MAX_TEMPLATES;
        for file in self.configurations(call)? {
            if !Path::new(&file).is_file() {
                tracing::info!(file, "stack: the configuration file does not exist");
                continue;
            }
            stack = Templates::new(&file, call).process(stack, &mut left)?;
        }
        Ok(stack)
    }
}

/// The templates below the directory of one configuration file.
struct Templates {
    file: String,
    directory: PathBuf,
    context: Context,
}

impl Templates {
    fn new(file: &str, call: &Call<'_>) -> Self {
        let input = call.input;
        let (directory, _) = file.rsplit_once('/').unwrap_or(("", file));
        let directory = match (directory, file.starts_with('/')) {
            ("", true) => PathBuf::from("/"),
            ("", false) => PathBuf::from("."),
            (directory, _) => PathBuf::from(directory),
        };
        let mut context = input.context.clone();
        let value = |name: &str| {
            let found = input.context.values.iter().find(|(found, _)| found == name);
            found.map(|(_, value)| Arc::clone(value))
        };
        // What the context shares already is not copied for the other name.
        let grains = value("grains").unwrap_or_else(|| Arc::new(input.grains.clone()));
        let opts = value("opts").unwrap_or_else(|| Arc::new(input.opts.clone()));
        context.values = vec![
            ("__grains__".to_owned(), grains),
            ("__opts__".to_owned(), opts),
        ];
        context.set("__stack__", Value::map([("cfg_path", file)]));
        context.set("minion_id", Value::from(input.minion.as_str()));
        context.set("pillar", call.pillar.clone());
        context.set("pillarenv", input.pillarenv.map_or(Value::Nil, Value::from));
        context.loader = Arc::new(Below(directory.clone()));
        Self {
            file: file.to_owned(),
            directory,
            context,
        }
    }

    /// Merges what the configuration file lists over `stack`.
    fn process(mut self, mut stack: Value, left: &mut usize) -> Result<Value, StackError> {
        let name = self
            .file
            .rsplit('/')
            .next()
            .unwrap_or(&self.file)
            .to_owned();
        let listed = self.render(&name, &stack)?;
        for item in lines(&listed)? {
            if item.trim().is_empty() {
                continue;
            }
            let pattern = self.directory.join(&item);
            let paths = expand_glob(&pattern.to_string_lossy());
            if paths.is_empty() {
                tracing::info!(item, "stack: nothing matches");
            }
            for found in paths {
                *left = left.checked_sub(1).ok_or(StackError::Templates)?;
                stack = self.template(&found, stack)?;
            }
        }
        Ok(stack)
    }

    /// Merges one template over `stack`.
    fn template(&mut self, found: &str, stack: Value) -> Result<Value, StackError> {
        let below = normpath(&self.directory.to_string_lossy());
        let relative = normpath(found);
        let relative = match below.as_str() {
            "." => Some(relative.as_str()),
            "/" => relative.strip_prefix('/'),
            below => relative
                .strip_prefix(below)
                .and_then(|rest| rest.strip_prefix('/')),
        };
        let failed = |error| StackError::Template {
            path: found.to_owned(),
            error,
        };
        let relative = relative.ok_or_else(|| failed(TemplateError::Outside))?;
        self.context.set("ymlpath", Value::from(found));
        let text = self.render(relative, &stack).map_err(failed)?;
        let data = yaml(&text, found).map_err(|error| StackError::Yaml {
            path: found.to_owned(),
            error,
        })?;
        match data {
            Value::Map(entries) => Ok(merge::mapping(stack, entries)?),
            _ => Ok(stack),
        }
    }

    fn render(&mut self, name: &str, stack: &Value) -> Result<String, TemplateError> {
        let source = self.context.loader.load(name)?;
        let source = source.ok_or_else(|| TemplateError::Missing(name.to_owned()))?;
        self.context.set("stack", stack.clone());
        Ok(jinja::render_plain(&source, name, &self.context)?)
    }
}

/// Entries of a configuration file: a YAML list, else its lines.
fn lines(text: &str) -> Result<Vec<String>, StackError> {
    if let Ok(Value::Array(items)) = yaml(text, "stack") {
        let items = items.into_iter().map(|item| match item {
            Value::Str(text) => Ok(text),
            _ => Err(StackError::Listed),
        });
        return items.collect();
    }
    Ok(text.lines().map(str::to_owned).collect())
}

/// Jinja2's loader over a directory of the site.
struct Below(PathBuf);

impl Loader for Below {
    fn load(&self, path: &str) -> Result<Option<String>, LoadError> {
        self.read(path).map_err(LoadError::new)
    }
}

impl Below {
    fn read(&self, path: &str) -> Result<Option<String>, BelowError> {
        let path = self.0.join(path);
        let file = match open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BelowError::Open { path, error }),
        };
        let mut text = String::new();
        let read = file.take(MAX_TEMPLATE_BYTES + 1).read_to_string(&mut text);
        match read {
            Err(error) => Err(BelowError::Read { path, error }),
            Ok(_) if text.len() as u64 > MAX_TEMPLATE_BYTES => Err(BelowError::TooLarge(path)),
            Ok(_) => Ok(Some(text)),
        }
    }
}
