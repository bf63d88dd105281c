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

use saltern_config::yaml::Node;
use saltern_python::path::normpath;
use saltern_wire::msgpack::Value;

use super::{Call, Source, yaml};
use crate::files::expand_glob;
use crate::files::path::is_plain_environment;
use crate::render::data::from_yaml;
use crate::render::jinja::{self, Context, Loader};
use crate::render::modules::file::open;
use crate::render::modules::traverse;

/// The largest template.
const MAX_TEMPLATE_BYTES: u64 = 16 << 20;
/// The most templates that one stack reads.
const MAX_TEMPLATES: usize = 10_000;

/// The source.
pub(super) struct Stack {
    /// Files that count for every minion.
    files: Vec<String>,
    /// Files that depend on a value: `grains:os: {Debian: …}`.
    conditions: Vec<Condition>,
}

/// What to look at, where, and the files for each value.
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
    pub(super) fn new(value: &Node) -> Result<Self, String> {
        let mut stack = Self {
            files: Vec::new(),
            conditions: Vec::new(),
        };
        if let Some(map) = value.as_map() {
            for (key, entry) in map.iter() {
                let key = key.as_str().ok_or("keywords must be strings")?;
                stack.conditions.push(Condition::new(key, &entry.value)?);
            }
            return Ok(stack);
        }
        for item in value.as_seq().unwrap_or(std::slice::from_ref(value)) {
            let file = item
                .as_str()
                .ok_or_else(|| format!("{} is no path", item.kind()))?;
            stack.files.push(file.to_owned());
        }
        Ok(stack)
    }

    /// The configuration files for this pillar.
    fn configurations(&self, call: &Call<'_>) -> Result<Vec<String>, String> {
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
                return Err(format!("\"{}\" is no single value", condition.path));
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
                    .ok_or_else(|| format!("a file of \"{}\" is no path", condition.path))?;
                // The name comes from the minion, and the file is rendered.
                if file.contains("__env__") && !is_plain_environment(&environment) {
                    return Err(format!(
                        "{environment:?} cannot be the name of an environment"
                    ));
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
    fn new(key: &str, files: &Node) -> Result<Self, String> {
        let (place, path) = key
            .split_once(':')
            .ok_or_else(|| format!("\"{key}\" is not like \"grains:name\""))?;
        let place = match place {
            "pillar" => DataSource::Pillar,
            "grains" => DataSource::Grains,
            "opts" => DataSource::Opts,
            other => {
                return Err(format!(
                    "Unknown traverse option \"{other}\", should be one of pillar, grains, opts"
                ));
            }
        };
        let Value::Map(files) = from_yaml(files.clone()) else {
            return Err(format!("\"{key}\" is {}, not a mapping", files.kind()));
        };
        Ok(Self {
            place,
            path: path.to_owned(),
            files,
        })
    }
}

impl Source for Stack {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, String> {
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
    fn process(mut self, mut stack: Value, left: &mut usize) -> Result<Value, String> {
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
                *left = left
                    .checked_sub(1)
                    .ok_or_else(|| format!("there are more than {MAX_TEMPLATES} templates"))?;
                stack = self.template(&found, stack)?;
            }
        }
        Ok(stack)
    }

    /// Merges one template over `stack`.
    fn template(&mut self, found: &str, stack: Value) -> Result<Value, String> {
        let below = normpath(&self.directory.to_string_lossy());
        let relative = normpath(found);
        let relative = match below.as_str() {
            "." => Some(relative.as_str()),
            "/" => relative.strip_prefix('/'),
            below => relative
                .strip_prefix(below)
                .and_then(|rest| rest.strip_prefix('/')),
        };
        let failed =
            |error: &str| format!("Stack pillar template render error in {found}:\n\"{error}\"");
        let relative = relative.ok_or_else(|| failed("it lies outside of the directory"))?;
        self.context.set("ymlpath", Value::from(found));
        let text = self
            .render(relative, &stack)
            .map_err(|error| failed(&error))?;
        let data = yaml(&text, found)
            .map_err(|error| format!("Stack pillar yaml parsing error in {found}:\n{error}"))?;
        match data {
            Value::Map(entries) => merge::mapping(stack, entries),
            _ => Ok(stack),
        }
    }

    fn render(&mut self, name: &str, stack: &Value) -> Result<String, String> {
        let source = self.context.loader.load(name)?;
        let source = source.ok_or_else(|| format!("\"{name}\" is no template"))?;
        self.context.set("stack", stack.clone());
        jinja::render_plain(&source, name, &self.context).map_err(|error| error.to_string())
    }
}

/// What a configuration file lists: a YAML list, else its lines.
fn lines(text: &str) -> Result<Vec<String>, String> {
    if let Ok(Value::Array(items)) = yaml(text, "stack") {
        let items = items.into_iter().map(|item| match item {
            Value::Str(text) => Ok(text),
            _ => Err("a stack configuration lists something other than text".to_owned()),
        });
        return items.collect();
    }
    Ok(text.lines().map(str::to_owned).collect())
}

/// Jinja2's loader over a directory of the site.
struct Below(PathBuf);

impl Loader for Below {
    fn load(&self, path: &str) -> Result<Option<String>, String> {
        let place = self.0.join(path);
        let file = match open(&place) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot open \"{}\": {error}", place.display())),
        };
        let mut text = String::new();
        file.take(MAX_TEMPLATE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| format!("cannot read \"{}\": {error}", place.display()))?;
        if text.len() as u64 > MAX_TEMPLATE_BYTES {
            return Err(format!(
                "\"{}\" has more than {MAX_TEMPLATE_BYTES} bytes",
                place.display()
            ));
        }
        Ok(Some(text))
    }
}
