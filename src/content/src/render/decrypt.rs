//! `decrypt_pillar`: values of a finished pillar that are decrypted in place
//! (`Pillar.decrypt_pillar` in `salt/pillar/__init__.py`, `salt/utils/crypt.py`).
//!
//! The site chooses the values by their paths. A value that cannot be decrypted stays, and is
//! reported in the pillar's `_errors`.

use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::data::from_yaml;
use super::error::{ErrorClass, RenderError};
use super::gpg;
use super::jinja::Context;
use super::{Flow, Renderers, stage};

/// The options `decrypt_pillar` and `decrypt_pillar_*`.
#[derive(Debug, Clone)]
pub struct DecryptRules {
    /// Paths and, where one is named, the renderer of each.
    rules: Vec<(String, Option<String>)>,
    malformed: bool,
    delimiter: String,
    default: String,
    renderers: Vec<String>,
}

impl DecryptRules {
    /// Reads the options from all options of the master; what is missing has stock's default.
    pub fn from_opts(opts: &Value) -> DecryptRules {
        let text = |name: &str, default: &str| {
            let value = opts.get(name).and_then(Value::as_str);
            value.unwrap_or(default).to_owned()
        };
        let renderers = match opts.get("decrypt_pillar_renderers") {
            Some(Value::Array(names)) => names
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
            _ => vec!["gpg".to_owned()],
        };
        let option = opts.get("decrypt_pillar").unwrap_or(&Value::Nil);
        let rules = rules_of(option);
        let is_set = match option {
            Value::Nil => false,
            Value::Array(items) => !items.is_empty(),
            Value::Map(entries) => !entries.is_empty(),
            Value::Str(text) => !text.is_empty(),
            _ => true,
        };
        DecryptRules {
            malformed: is_set && rules.is_empty(),
            rules,
            delimiter: text("decrypt_pillar_delimiter", ":"),
            default: text("decrypt_pillar_default", "gpg"),
            renderers,
        }
    }

    /// Whether no pillar would be changed.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.malformed
    }
}

/// The option in its forms: a mapping, or a list of paths and of mappings with one entry. A list
/// with anything else in it is no list of rules at all.
fn rules_of(option: &Value) -> Vec<(String, Option<String>)> {
    let pair = |key: &Value, renderer: &Value| {
        let renderer = renderer.as_str().filter(|name| !name.is_empty());
        Some((path_of(key)?, renderer.map(str::to_owned)))
    };
    match option {
        Value::Map(entries) => entries
            .iter()
            .filter_map(|(key, renderer)| pair(key, renderer))
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Map(entries) => match entries.as_slice() {
                    [(key, renderer)] => pair(key, renderer),
                    _ => None,
                },
                path => pair(path, &Value::Nil),
            })
            .collect::<Option<Vec<_>>>()
            .unwrap_or_default(),
        // Stock reads a text as YAML once more.
        Value::Str(text) => {
            let limits = &saltern_config::yaml::Limits::DEFAULT;
            match saltern_config::yaml::parse(text, "decrypt_pillar", limits).map(from_yaml) {
                Ok(list @ Value::Array(_)) => rules_of(&list),
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn path_of(key: &Value) -> Option<String> {
    match key {
        Value::Str(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Decrypts what the rules name. Failures of single values are added to the pillar's `_errors`,
/// in stock's words; a mapping or list keeps what was decrypted before the failure.
///
/// # Errors
/// [`ErrorClass::Limit`] if all values together take longer than one rendering may.
pub fn decrypt_pillar(
    mut pillar: Value,
    rules: &DecryptRules,
    renderers: &Renderers,
    context: &Context,
) -> Result<Value, RenderError> {
    let deadline = context.limits.end();
    let mut context = context.clone();
    context.limits.deadline = Some(deadline);
    let context = &context;
    let mut errors = Vec::new();
    if rules.malformed {
        errors.push("decrypt_pillar config option is malformed".to_owned());
    }
    for (path, renderer) in &rules.rules {
        if Instant::now() > deadline {
            let message = format!(
                "decrypting the pillar took longer than {} ms",
                context.limits.time.as_millis()
            );
            return Err(RenderError::new(ErrorClass::Limit, "", message));
        }
        let Some(value) = find(&mut pillar, path, &rules.delimiter) else {
            continue;
        };
        if value.is_nil() {
            continue;
        }
        let renderer = renderer.as_deref().unwrap_or(&rules.default);
        if let Err(reason) = decrypt_value(value, renderer, rules, renderers, context) {
            errors.push(format!("Failed to decrypt pillar key '{path}': {reason}"));
        }
    }
    add_errors(&mut pillar, errors);
    Ok(pillar)
}

/// The value at the end of a path through mappings.
fn find<'a>(pillar: &'a mut Value, path: &str, delimiter: &str) -> Option<&'a mut Value> {
    let parts: Vec<&str> = match delimiter {
        "" => vec![path],
        _ => path.split(delimiter).collect(),
    };
    parts.iter().try_fold(pillar, |value, part| match value {
        Value::Map(entries) => entries
            .iter_mut()
            .find(|(key, _)| key.as_str() == Some(part))
            .map(|(_, value)| value),
        _ => None,
    })
}

/// Why a value is not decrypted, in stock's words: they are sent as part of `_errors`.
#[derive(Debug, thiserror::Error)]
enum DecryptError {
    /// The renderer is not among `decrypt_pillar_renderers`.
    #[error(
        "'{renderer}' is not a valid decryption renderer. Valid choices are: {}",
        valid.join(", ")
    )]
    Renderer {
        /// The renderer.
        renderer: String,
        /// Renderers that are allowed.
        valid: Vec<String>,
    },
    /// The renderer failed.
    #[error(transparent)]
    Render(#[from] RenderError),
}

fn decrypt_value(
    value: &mut Value,
    renderer: &str,
    rules: &DecryptRules,
    renderers: &Renderers,
    context: &Context,
) -> Result<(), DecryptError> {
    if !rules.renderers.is_empty() && !rules.renderers.iter().any(|name| name == renderer) {
        return Err(DecryptError::Renderer {
            renderer: renderer.to_owned(),
            valid: rules.renderers.clone(),
        });
    }
    if renderer == "gpg" {
        return Ok(gpg::decrypt(value, &renderers.gpg, "", &context.limits)?);
    }
    let flow = match &*value {
        Value::Str(text) => Flow::Text(text.clone()),
        data => Flow::Data(data.clone()),
    };
    *value = match stage(renderer, "", flow, "", renderers, context)? {
        Flow::Text(text) => Value::Str(text),
        Flow::Data(data) => data,
    };
    Ok(())
}

fn add_errors(pillar: &mut Value, errors: Vec<String>) {
    let Value::Map(entries) = pillar else { return };
    if errors.is_empty() {
        return;
    }
    let errors = errors.into_iter().map(Value::from);
    match entries
        .iter_mut()
        .find(|(key, _)| key.as_str() == Some("_errors"))
    {
        Some((_, Value::Array(known))) => known.extend(errors),
        Some((_, other)) => *other = Value::Array(errors.collect()),
        None => entries.push((Value::from("_errors"), Value::Array(errors.collect()))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use saltern_base::clock::Clock;
    use saltern_wire::msgpack::Value;

    use super::{DecryptRules, decrypt_pillar};
    use crate::render::Renderers;
    use crate::render::functions::Registry;
    use crate::render::jinja::{Context, Limits, NoTemplates};
    use crate::render::json;

    fn decrypted(opts: &str, pillar: &str) -> Value {
        let context = Context {
            values: Vec::new(),
            functions: Arc::new(Registry::new()),
            loader: Arc::new(NoTemplates),
            clock: Clock::system(),
            limits: Limits::DEFAULT,
            python: None,
        };
        let mut renderers = Renderers::default();
        renderers.gpg.program = "/nonexistent/gpg".into();
        let rules = DecryptRules::from_opts(&json::parse(opts).expect("options"));
        let pillar = json::parse(pillar).expect("a pillar");
        decrypt_pillar(pillar, &rules, &renderers, &context).expect("there is time")
    }

    fn errors(pillar: &Value) -> Vec<&str> {
        let errors = pillar.get("_errors").and_then(Value::as_array);
        errors
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    #[test]
    fn rules_name_values_by_path_and_renderer() {
        let opts = r#"{"decrypt_pillar": ["a|b", {"c": "json"}, "gone|x"],
            "decrypt_pillar_delimiter": "|", "decrypt_pillar_default": "yaml",
            "decrypt_pillar_renderers": ["yaml", "json"]}"#;
        let pillar = r#"{"a": {"b": "[1, x]"}, "c": "{\"y\": 2}", "d": "[1]"}"#;
        let wanted = r#"{"a": {"b": [1, "x"]}, "c": {"y": 2}, "d": "[1]"}"#;
        assert_eq!(decrypted(opts, pillar), json::parse(wanted).expect("JSON"));
    }

    #[test]
    fn decryption_failures_are_in_the_pillars_errors() {
        let opts = r#"{"decrypt_pillar": [{"a": "yaml"}, "b"]}"#;
        let secret = "-----BEGIN PGP MESSAGE-----\\nx\\n-----END PGP MESSAGE-----";
        let pillar = format!(r#"{{"a": "1", "b": ["{secret}"], "_errors": ["before"]}}"#);
        let pillar = decrypted(opts, &pillar);
        let [before, renderer, message] = errors(&pillar)[..] else {
            panic!("three errors were expected: {pillar:?}");
        };
        assert_eq!(before, "before");
        assert_eq!(
            renderer,
            "Failed to decrypt pillar key 'a': 'yaml' is not a valid decryption renderer. Valid \
             choices are: gpg"
        );
        assert!(message.starts_with("Failed to decrypt pillar key 'b': Could not decrypt"));
        assert_eq!(pillar.get("a"), Some(&Value::from("1")));
    }

    #[test]
    fn malformed_decrypt_pillar_option_is_an_error() {
        for opts in [
            r#"{"decrypt_pillar": [{"a": 1, "b": 2}]}"#,
            r#"{"decrypt_pillar": "a: b"}"#,
        ] {
            let pillar = decrypted(opts, "{}");
            assert_eq!(
                errors(&pillar),
                ["decrypt_pillar config option is malformed"]
            );
        }
        assert_eq!(
            errors(&decrypted(r#"{"decrypt_pillar": []}"#, "{}")),
            Vec::<&str>::new()
        );
    }
}
