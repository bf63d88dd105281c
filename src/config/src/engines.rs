//! The option `engines`: long-running modules beside the master, entry by entry.
//!
//! An entry is a name, or a name with options; `engine_module` among these names the module when
//! the entry's own name is another (`start_engines` in `salt/engines/__init__.py`). Stock starts
//! every module that loads and ignores the others silently. Here an entry that cannot work is left
//! out with a warning, so that one mistake does not keep the master from starting.

use std::time::Duration;

use crate::finding::Severity;
use crate::reader::{Reader, shown};
use crate::served;
use crate::yaml::{Mapping, Node, NodeValue};

/// The name of the option.
const OPTION: &str = "engines";

/// The engines that are built in. The reactor is none here: it runs without being asked for.
const BUILT_IN: [&str; 4] = ["reactor", "script", "test", "webhook"];

/// The default port of a webhook (`salt/engines/webhook.py`).
const HOOK_PORT: u16 = 5000;

/// One engine. No `Debug`: options of engines hold passwords.
#[derive(Clone)]
pub struct EngineConfig {
    /// The name of the entry.
    pub name: String,
    /// Its kind, with its options.
    pub kind: EngineKind,
}

/// The kind of an engine, with its options.
#[derive(Clone)]
pub enum EngineKind {
    /// Fires the lines that a program prints.
    Script(ScriptEngine),
    /// Writes every event into the log, for debugging.
    Test,
    /// Fires the requests that arrive by HTTP.
    Webhook(WebhookEngine),
    /// A module that Python runs.
    Python {
        /// Its name.
        module: String,
        /// Its options.
        options: Mapping,
    },
}

/// The options of `script`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptEngine {
    /// The command as it was written; it is split by the rules of Python's `shlex`.
    pub cmd: String,
    /// The format of its output.
    pub output: ScriptOutput,
    /// The pause between two runs.
    pub interval: Duration,
    /// Whether data that was fired under its tag the last time is passed over.
    pub onchange: bool,
}

/// The forms of lines that are read without Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptOutput {
    /// `json`.
    Json,
    /// `yaml`.
    Yaml,
    /// `msgpack`.
    Msgpack,
}

/// The options of `webhook`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookEngine {
    /// The address to listen on; `None` for all of the machine.
    pub address: Option<String>,
    /// The port.
    pub port: u16,
    /// The certificate and its key, in PEM files, for TLS.
    pub tls: Option<(String, String)>,
}

/// Why an entry of `engines` is left out.
#[derive(Debug, thiserror::Error)]
enum EngineError {
    /// An entry that is an empty mapping.
    #[error("an engine without a name")]
    Unnamed,
    /// An entry that is neither text nor a mapping.
    #[error("an entry is no name of an engine")]
    Entry,
    /// A name that no module can have.
    #[error("an engine has a name that is none")]
    Name,
    /// Options that are no mapping.
    #[error("the options of \"{0}\" are no mapping")]
    Options(String),
    /// An `engine_module` that is no text.
    #[error("the engine_module of \"{0}\" is no name")]
    Module(String),
    /// An option that a built-in engine cannot use.
    #[error("\"{name}\": {error}")]
    Option {
        /// The name of the entry.
        name: String,
        /// The reason.
        error: OptionError,
    },
}

/// Why an option of a built-in engine is refused.
#[derive(Debug, thiserror::Error)]
enum OptionError {
    /// It does not exist.
    #[error("there is no option \"{0}\"")]
    Unknown(String),
    /// It is required.
    #[error("the option \"{0}\" is missing")]
    Missing(&'static str),
    /// It has a value of another kind.
    #[error("{name} is {shown}, not {wanted}")]
    Value {
        /// The option.
        name: &'static str,
        /// Its value, without secrets.
        shown: String,
        /// The kind of value that it takes.
        wanted: &'static str,
    },
}

/// Takes the engines out of the settings.
pub(crate) fn read(reader: &mut Reader<'_>) -> Vec<EngineConfig> {
    reader.mark_read(OPTION);
    let Some(node) = reader.applies(OPTION).filter(|node| node.is_truthy()) else {
        return Vec::new();
    };
    let entries: Vec<Result<(String, Option<&Node>), EngineError>> = match &node.value {
        NodeValue::Seq(items) => items.iter().map(entry_of).collect(),
        NodeValue::Map(map) => map
            .iter()
            .map(|(name, entry)| Ok((name.to_string(), Some(&entry.value))))
            .collect(),
        _ => {
            let message = format!("{} is no list of engines", shown(OPTION, node));
            reader.find(Severity::Warning, OPTION, message);
            return Vec::new();
        }
    };
    let mut engines = Vec::new();
    for entry in entries {
        let read = entry.and_then(|(name, options)| engine(name, options));
        match read {
            Ok(Some(engine)) => {
                if let EngineKind::Python { module, .. } = &engine.kind {
                    let without = "it is not started";
                    served::needs_python(reader, OPTION, module, &BUILT_IN, without);
                }
                engines.push(engine);
            }
            Ok(None) => {}
            Err(error) => {
                let message = format!("{error}; it is not started");
                reader.find(Severity::Warning, OPTION, message);
            }
        }
    }
    engines
}

/// An entry of the list: a name, or a mapping of which the first name counts.
fn entry_of(node: &Node) -> Result<(String, Option<&Node>), EngineError> {
    if let Some(map) = node.as_map() {
        let first = map.iter().next().ok_or(EngineError::Unnamed)?;
        return Ok((first.0.to_string(), Some(&first.1.value)));
    }
    let name = node.as_str().ok_or(EngineError::Entry)?;
    Ok((name.to_owned(), None))
}

/// `None` for the reactor, which runs anyway.
fn engine(name: String, options: Option<&Node>) -> Result<Option<EngineConfig>, EngineError> {
    if name.is_empty() || name.contains(['\0', '\n']) {
        return Err(EngineError::Name);
    }
    let mut options = match options.filter(|node| !node.is_null()) {
        None => Mapping::default(),
        Some(node) => node
            .as_map()
            .cloned()
            .ok_or_else(|| EngineError::Options(name.clone()))?,
    };
    let module = match options.remove("engine_module") {
        None => name.clone(),
        Some(entry) => entry
            .value
            .as_str()
            .ok_or_else(|| EngineError::Module(name.clone()))?
            .to_owned(),
    };
    let of_entry = |error| EngineError::Option {
        name: name.clone(),
        error,
    };
    let kind = match module.as_str() {
        "reactor" => return Ok(None),
        "script" => script(options).map_err(of_entry)?,
        "test" => {
            only(&options, &[]).map_err(of_entry)?;
            EngineKind::Test
        }
        "webhook" => EngineKind::Webhook(webhook(&options).map_err(of_entry)?),
        _ => EngineKind::Python { module, options },
    };
    Ok(Some(EngineConfig { name, kind }))
}

/// A script whose lines only Python can read is run by Python altogether.
fn script(options: Mapping) -> Result<EngineKind, OptionError> {
    only(&options, &["cmd", "output", "interval", "onchange"])?;
    let output = match options.get("output").map(|node| (node.as_str(), node)) {
        None | Some((Some("json"), _)) => ScriptOutput::Json,
        Some((Some("yaml"), _)) => ScriptOutput::Yaml,
        Some((Some("msgpack"), _)) => ScriptOutput::Msgpack,
        Some((Some(_), _)) => {
            let module = "script".to_owned();
            return Ok(EngineKind::Python { module, options });
        }
        Some((None, node)) => return Err(wrong("output", node, "the name of a serializer")),
    };
    let cmd = options.get("cmd").ok_or(OptionError::Missing("cmd"))?;
    let interval = match options.get("interval") {
        None => Duration::from_secs(1),
        Some(node) => node
            .as_f64()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(|| wrong("interval", node, "a number of seconds, zero or more"))?,
    };
    Ok(EngineKind::Script(ScriptEngine {
        cmd: cmd
            .as_str()
            .ok_or_else(|| wrong("cmd", cmd, "a command"))?
            .to_owned(),
        output,
        interval,
        onchange: options.get("onchange").is_some_and(Node::is_truthy),
    }))
}

fn webhook(options: &Mapping) -> Result<WebhookEngine, OptionError> {
    only(options, &["address", "port", "ssl_crt", "ssl_key"])?;
    let text = |name: &'static str| match options.get(name).filter(|node| node.is_truthy()) {
        None => Ok(None),
        Some(node) => match node.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(wrong(name, node, "text")),
        },
    };
    let port = match options.get("port") {
        None => HOOK_PORT,
        Some(node) => node
            .as_i64()
            .or_else(|| node.as_str()?.trim().parse().ok())
            .and_then(|port| u16::try_from(port).ok())
            .ok_or_else(|| wrong("port", node, "a port"))?,
    };
    Ok(WebhookEngine {
        address: text("address")?,
        port,
        // Stock speaks TLS only when it has both.
        tls: text("ssl_crt")?.zip(text("ssl_key")?),
    })
}

/// Refuses options that there are not, as Python would.
fn only(options: &Mapping, known: &[&str]) -> Result<(), OptionError> {
    let others = options.iter().map(|(key, _)| key.to_string());
    match others
        .into_iter()
        .find(|name| !known.contains(&name.as_str()))
    {
        Some(name) => Err(OptionError::Unknown(name)),
        None => Ok(()),
    }
}

fn wrong(name: &'static str, node: &Node, wanted: &'static str) -> OptionError {
    OptionError::Value {
        name,
        shown: shown(name, node),
        wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::defaults;
    use crate::yaml::{Limits, parse};
    use saltern_model::Compat;

    /// The engines of a configuration in short, and its findings.
    fn read_from(text: &str) -> (Vec<String>, Vec<String>) {
        let node = parse(text, "master", &Limits::DEFAULT).expect("it is YAML");
        let settings = node.as_map().expect("a mapping").clone();
        let defaults = defaults(Compat::V3008);
        let mut reader = Reader::new(&settings, &defaults, Vec::new());
        let engines = read(&mut reader);
        let messages = reader
            .findings
            .iter()
            .map(|finding| finding.message.clone());
        (
            engines.iter().map(shown_engine).collect(),
            messages.collect(),
        )
    }

    fn shown_engine(engine: &EngineConfig) -> String {
        let name = &engine.name;
        match &engine.kind {
            EngineKind::Script(script) => format!("{name}: {script:?}"),
            EngineKind::Test => format!("{name}: test"),
            EngineKind::Webhook(hook) => format!("{name}: {hook:?}"),
            EngineKind::Python { module, options } => format!("{name}: {module} {options:?}"),
        }
    }

    #[test]
    fn engines_are_read_from_lists_and_mappings() {
        let script = "ScriptEngine { cmd: \"/bin/x -a\", output: Json, interval: 1s, \
                      onchange: false }";
        let table = [
            ("engines: [test]", vec!["test: test".to_owned()]),
            ("engines: {test: }", vec!["test: test".to_owned()]),
            (
                "engines: [{test: {}}, {reactor: {}}, reactor]",
                vec!["test: test".to_owned()],
            ),
            ("engines: []", vec![]),
            (
                "engines: [{mine: {engine_module: script, cmd: /bin/x -a}}]",
                vec![format!("mine: {script}")],
            ),
            (
                "engines: {script: {cmd: x, output: msgpack, interval: 0.5, onchange: yes}}",
                vec![
                    "script: ScriptEngine { cmd: \"x\", output: Msgpack, interval: 500ms, \
                     onchange: true }"
                        .to_owned(),
                ],
            ),
            (
                "engines: [webhook: {port: '8000', ssl_crt: /c}]",
                vec!["webhook: WebhookEngine { address: None, port: 8000, tls: None }".to_owned()],
            ),
        ];
        for (text, expected) in table {
            assert_eq!(read_from(text), (expected, vec![]), "{text}");
        }
    }

    #[test]
    fn engines_that_need_python_are_reported() {
        let (engines, said) = read_from("engines: [slack: {token: a}, script: {output: toml}]");
        assert_eq!(engines.len(), 2);
        assert!(
            engines.iter().all(|engine| engine.contains(": s")),
            "{engines:?}"
        );
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said.iter().all(|line| line.contains("needs Python")),
            "{said:?}"
        );
    }

    #[test]
    fn invalid_engine_is_skipped_and_named() {
        let table = [
            ("engines: 3", "is no list"),
            ("engines: [3]", "no name of an engine"),
            ("engines: [{}]", "without a name"),
            ("engines: [test: [a]]", "the options of \"test\""),
            ("engines: [test: {a: 1}]", "no option \"a\""),
            ("engines: [script]", "\"cmd\" is missing"),
            (
                "engines: [script: {cmd: a, interval: -1}]",
                "interval is -1",
            ),
            ("engines: [script: {cmd: a, output: 1}]", "output is 1"),
            ("engines: [webhook: {port: 70000}]", "port is 70000"),
            ("engines: [webhook: {address: 1}]", "address is 1"),
            ("engines: [x: {engine_module: 1}]", "engine_module of \"x\""),
        ];
        for (text, expected) in table {
            let (engines, said) = read_from(text);
            assert!(engines.is_empty(), "{text}");
            assert_eq!(said.len(), 1, "{text}: {said:?}");
            assert!(said[0].contains(expected), "{text}: {said:?}");
        }
    }
}
