//! Renders the text of an SLS file to data, through the renderers that its first line or the
//! configuration names (`salt/template.py`).

pub mod data;
mod decrypt;
mod error;
pub mod functions;
mod gpg;
pub mod jinja;
pub mod json;
pub mod modules;
pub(crate) mod process;
pub(crate) mod python;
mod sls;
mod twister;

pub use decrypt::{DecryptRules, decrypt_pillar};
pub use error::{ErrorClass, RenderError};
pub use gpg::Gpg;
pub use python::Python;
pub use sls::set_sls_context;

use saltern_config::yaml;
use saltern_wire::msgpack::Value;

use jinja::Context;

/// Choice of renderers.
#[derive(Debug, Clone)]
pub struct Renderers {
    /// The pipeline of files that name none: `renderer`.
    pub default: String,
    /// If not empty, only these run: `renderer_whitelist`.
    pub whitelist: Vec<String>,
    /// Renderers that never run: `renderer_blacklist`.
    pub blacklist: Vec<String>,
    /// How PGP messages are decrypted.
    pub gpg: Gpg,
}

impl Default for Renderers {
    fn default() -> Renderers {
        Renderers {
            default: "jinja|yaml".to_owned(),
            whitelist: Vec::new(),
            blacklist: Vec::new(),
            gpg: Gpg::default(),
        }
    }
}

/// Renderers that stock has and that run Python or a library of it.
const PYTHON_ONLY: [&str; 20] = [
    "py",
    "pydsl",
    "pyobjects",
    "mako",
    "cheetah",
    "genshi",
    "wempy",
    "stateconf",
    "yamlex",
    "json5",
    "hjson",
    "dson",
    "toml",
    "tomlmod",
    "msgpack",
    "nacl",
    "pass",
    "aws_kms",
    "yaml_mako",
    "yaml_wempy",
];

/// Value passed from one renderer to the next.
enum Flow {
    Text(String),
    Data(Value),
}

/// The renderers of a file: from its first line, or the default.
fn pipeline<'a>(source: &'a str, default: &'a str) -> &'a str {
    let line = source.split('\n').next().unwrap_or_default();
    match line.strip_prefix("#!") {
        Some(names) if !names.starts_with('/') => names.trim(),
        _ => default,
    }
}

/// Renders a file to data. `name` is its path, for messages. A file of nothing but white space,
/// and one that renders to nothing, is an empty mapping.
///
/// # Errors
/// [`RenderError`]; also when a renderer is unknown or needs Python, where stock logs an error and
/// goes on with nothing.
pub fn render(
    source: &str,
    name: &str,
    renderers: &Renderers,
    context: &Context,
) -> Result<Value, RenderError> {
    if source.trim().is_empty() {
        return Ok(Value::Map(Vec::new()));
    }
    // All renderers together have the time of one.
    let mut context = context.clone();
    context.limits = context.limits.begun();
    let context = &context;
    let mut flow = Flow::Text(source.to_owned());
    let mut has_run = false;
    for (renderer, argument) in stages(pipeline(source, &renderers.default)) {
        let listed = |names: &[String]| names.contains(&renderer);
        if (!renderers.whitelist.is_empty() && !listed(&renderers.whitelist))
            || listed(&renderers.blacklist)
        {
            tracing::warn!(
                renderer,
                "the renderer is disallowed by configuration and is skipped"
            );
            continue;
        }
        has_run = true;
        flow = stage(&renderer, &argument, flow, name, renderers, context)?;
    }
    Ok(match flow {
        // As in stock, a file whose renderers are all disallowed gives nothing.
        _ if !has_run => Value::Map(Vec::new()),
        Flow::Data(data) => data,
        Flow::Text(text) => Value::Str(text),
    })
}

/// The renderers of a pipeline with their arguments; `yaml_jinja` is the old way to write
/// `jinja|yaml`.
fn stages(pipeline: &str) -> Vec<(String, String)> {
    let pipeline = match pipeline {
        "yaml_jinja" => "jinja|yaml",
        "json_jinja" => "jinja|json",
        other => other,
    };
    pipeline
        .split('|')
        .map(|stage| {
            let stage = stage.trim();
            let (name, argument) = stage.split_once(' ').unwrap_or((stage, ""));
            (name.to_owned(), argument.trim().to_owned())
        })
        .collect()
}

fn stage(
    renderer: &str,
    argument: &str,
    flow: Flow,
    name: &str,
    renderers: &Renderers,
    context: &Context,
) -> Result<Flow, RenderError> {
    let refuse = |message: String| RenderError::new(ErrorClass::Renderer, name, message);
    match (renderer, flow) {
        ("gpg", flow) => {
            let mut data = match flow {
                Flow::Text(text) => Value::Str(text),
                Flow::Data(data) => data,
            };
            let is_text = matches!(data, Value::Str(_));
            gpg::decrypt(&mut data, &renderers.gpg, name, &context.limits)?;
            Ok(match data {
                Value::Str(text) if is_text => Flow::Text(text),
                data => Flow::Data(data),
            })
        }
        ("jinja", Flow::Text(text)) => {
            if !matches!(argument, "" | "-s") {
                return Err(refuse(format!("Unknown renderer option: {argument}")));
            }
            jinja::render(&text, name, context).map(Flow::Text)
        }
        ("yaml", Flow::Text(text)) => read_yaml(&text, name).map(Flow::Data),
        ("json", Flow::Text(text)) => read_json(&text, name).map(Flow::Data),
        ("jinja" | "yaml" | "json", Flow::Data(_)) => Err(refuse(format!(
            "the renderer \"{renderer}\" needs text, but the one before it gave data"
        ))),
        (other, flow) if let Some(python) = &context.python => {
            python.render(other, argument, flow, name, context)
        }
        (other, _) if PYTHON_ONLY.contains(&other) => Err(refuse(format!(
            "the renderer \"{other}\" can only be run by Python"
        ))),
        (other, _) => Err(refuse(format!(
            "the renderer \"{other}\" is not available; if it is one of the site's own, only \
             Python can run it"
        ))),
    }
}

/// The `yaml` renderer: nothing is an empty mapping, and a mapping as a key is an error.
fn read_yaml(text: &str, name: &str) -> Result<Value, RenderError> {
    let node = yaml::parse(text, name, &yaml::Limits::DEFAULT).map_err(|error| {
        let line = usize::try_from(error.mark.line).unwrap_or(0);
        let message = if error.message.contains("unhashable") {
            "Invalid YAML, possible double curly-brace".to_owned()
        } else {
            error.message
        };
        RenderError::new(ErrorClass::Data, name, message).at(line)
    })?;
    if !node.is_truthy() {
        return Ok(Value::Map(Vec::new()));
    }
    Ok(data::from_yaml(node))
}

/// The `json` renderer: a first line with `#!` is passed over.
fn read_json(text: &str, name: &str) -> Result<Value, RenderError> {
    let text = match text.strip_prefix("#!") {
        Some(rest) => rest.split_once('\n').map_or("", |(_, rest)| rest),
        None => text,
    };
    if text.trim().is_empty() {
        return Ok(Value::Map(Vec::new()));
    }
    json::parse(text).map_err(|error| RenderError::new(ErrorClass::Data, name, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{pipeline, stages};

    #[test]
    fn the_first_line_names_the_renderers() {
        assert_eq!(pipeline("#!yaml|gpg\na: 1", "jinja|yaml"), "yaml|gpg");
        assert_eq!(pipeline("#!/bin/sh\n", "jinja|yaml"), "jinja|yaml");
        assert_eq!(pipeline("a: 1", "jinja|yaml"), "jinja|yaml");
    }

    #[test]
    fn renderers_have_arguments_and_old_names() {
        let stage = |name: &str, argument: &str| (name.to_owned(), argument.to_owned());
        assert_eq!(
            stages("jinja -s | yaml"),
            [stage("jinja", "-s"), stage("yaml", "")]
        );
        assert_eq!(
            stages("yaml_jinja"),
            [stage("jinja", ""), stage("yaml", "")]
        );
    }
}
