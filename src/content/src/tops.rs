//! External node classification: states that `master_tops` adds to a minion's top file, by
//! `ext_nodes` (`salt/tops/ext_nodes.py`).
//!
//! The classifier is a program of the site. It gets the minion's id, as the channel authenticated
//! it, as its last argument and without a shell; stock takes the id out of the minion's own
//! options. It has a bounded time and output, so callers need a thread that may block. Other
//! `master_tops` modules are Python code, which the bridge runs after it. If one fails, a minion
//! gets no states, since half of them would look like all.

use std::process::{Command, Stdio};
use std::time::Duration;

use saltern_bridge::{Bridge, BridgeError, Work};
use saltern_config::MasterConfig;
use saltern_config::yaml::{Limits, parse};
use saltern_model::MinionId;
use saltern_python::shlex;
use saltern_wire::msgpack::Value;

use crate::pillar::merge::{Strategy, merge};
use crate::render::data::from_yaml;
use crate::render::process::{self, ProcessError};

/// The longest time of a classifier.
const TIME: Duration = Duration::from_secs(60);

/// The most bytes that a classifier may print.
const OUTPUT: u64 = 4 << 20;

/// The option `master_tops`, ready for use.
#[derive(Default)]
pub struct MasterTops {
    ext_nodes: Option<Vec<String>>,
    others: Vec<String>,
}

/// Why a minion cannot be classified.
#[derive(Debug, thiserror::Error)]
pub enum TopsError {
    /// The command is empty or a quote in it is not closed.
    #[error("the command of \"ext_nodes\" cannot be split into words")]
    Command,
    /// The id would be an option of the program.
    #[error("the minion id \"{0}\" begins like an option")]
    Option(MinionId),
    /// It cannot be started, takes too long or prints too much.
    #[error("the classifier failed: {0}")]
    Program(ProcessError),
    /// It says so itself.
    #[error("the classifier ended with code {0:?}")]
    Code(Option<i32>),
    /// A module in Python failed, or there is no Python to run it.
    #[error(transparent)]
    Python(#[from] BridgeError),
    /// Its output is no YAML.
    #[error("the classifier's output cannot be read: {0}")]
    Output(String),
}

impl MasterTops {
    /// Reads the option.
    pub fn new(config: &MasterConfig) -> Self {
        let mut tops = Self::default();
        let entries = config.master_tops().as_map();
        for (name, entry) in entries.into_iter().flat_map(|map| map.iter()) {
            match (name.as_str(), entry.value.as_str()) {
                (Some("ext_nodes"), Some("")) => {}
                (Some("ext_nodes"), Some(command)) => {
                    // No words at all are reported when the first minion asks.
                    tops.ext_nodes = Some(shlex::split(command).unwrap_or_default());
                }
                (Some(other), _) => tops.others.push(other.to_owned()),
                (None, _) => {}
            }
        }
        tops
    }

    /// Whether no minion is ever given a state.
    pub fn is_empty(&self) -> bool {
        self.ext_nodes.is_none() && self.others.is_empty()
    }

    /// The modules in the option that only Python can run, and why they cannot be run now, if that
    /// is known.
    pub fn not_served(&self, bridge: &Bridge) -> Option<(&[String], BridgeError)> {
        let name = self.others.first()?;
        let work = Work::Tops {
            name,
            opts: &Value::Nil,
        };
        Some((&self.others, bridge.refusal(&work)?))
    }

    /// The states of a minion with these options, by environment. Blocks for as long as the
    /// classifiers take.
    ///
    /// # Errors
    /// Where stock logs one and goes on with what the other modules give.
    pub fn states(
        &self,
        minion: &MinionId,
        opts: &Value,
        bridge: &Bridge,
    ) -> Result<Value, TopsError> {
        let mut states = self.by_ext_nodes(minion)?;
        for name in &self.others {
            let given = bridge.call(&Work::Tops { name, opts }, TIME)?;
            if given.is_truthy() {
                states = merge(states, given, Strategy::Recurse, true);
            }
        }
        Ok(states)
    }

    fn by_ext_nodes(&self, minion: &MinionId) -> Result<Value, TopsError> {
        let Some(words) = &self.ext_nodes else {
            return Ok(Value::Map(Vec::new()));
        };
        let (program, arguments) = words.split_first().ok_or(TopsError::Command)?;
        if minion.as_str().starts_with('-') {
            return Err(TopsError::Option(minion.clone()));
        }
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(minion.as_str())
            .stderr(Stdio::null());
        let done = process::run(command, Vec::new(), TIME, OUTPUT).map_err(TopsError::Program)?;
        if done.code != Some(0) {
            return Err(TopsError::Code(done.code));
        }
        let text = String::from_utf8(done.output)
            .map_err(|_| TopsError::Output("it is not UTF-8".to_owned()))?;
        let node = parse(&text, "ext_nodes", &Limits::DEFAULT)
            .map_err(|error| TopsError::Output(error.to_string()))?;
        Ok(classes(from_yaml(node)))
    }
}

/// `{environment: [class, …]}` of what a classifier says.
fn classes(said: Value) -> Value {
    let environment = said.get("environment").cloned();
    let classes = match said.get("classes") {
        Some(Value::Map(entries)) => entries.iter().map(|(name, _)| name.clone()).collect(),
        Some(Value::Array(names)) => names.clone(),
        _ => return Value::Map(Vec::new()),
    };
    let environment = environment.unwrap_or_else(|| "base".into());
    Value::Map(vec![(environment, Value::Array(classes))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tops(command: &[&str]) -> MasterTops {
        MasterTops {
            ext_nodes: Some(command.iter().map(ToString::to_string).collect()),
            others: Vec::new(),
        }
    }

    fn states(script: &str, id: &str) -> Result<Value, TopsError> {
        tops(&["/bin/sh", "-c", script, "sh"]).by_ext_nodes(&MinionId::parse(id).expect("an id"))
    }

    fn given(environment: &str, classes: &[&str]) -> Value {
        let classes = classes.iter().map(|class| Value::from(*class)).collect();
        Value::Map(vec![(environment.into(), Value::Array(classes))])
    }

    #[test]
    fn classifier_output_becomes_states() {
        let table = [
            ("echo 'classes: [a, b]'", given("base", &["a", "b"])),
            (
                "echo '{classes: {a: {x: 1}, b: }, environment: dev}'",
                given("dev", &["a", "b"]),
            ),
            ("echo \"classes: [web-$1]\"", given("base", &["web-m1"])),
            ("echo 'classes: text'", Value::Map(Vec::new())),
            ("echo 'other: 1'", Value::Map(Vec::new())),
            ("true", Value::Map(Vec::new())),
        ];
        for (script, expected) in table {
            assert_eq!(states(script, "m1").expect("it runs"), expected, "{script}");
        }
    }

    #[test]
    fn minion_id_is_one_argument_of_the_classifier() {
        let id = "m1;touch x $(id) `id` 'q";
        let said = states("printf '{classes: [\"%s\"]}' \"$1\"", id).expect("it runs");
        assert_eq!(said, given("base", &[id]));
        assert!(matches!(states("true", "-rf"), Err(TopsError::Option(_))));
    }

    #[test]
    fn classifier_failures_are_different_errors() {
        assert!(matches!(
            states("exit 3", "m1"),
            Err(TopsError::Code(Some(3)))
        ));
        assert!(matches!(
            states("echo '{a'", "m1"),
            Err(TopsError::Output(_))
        ));
        assert!(matches!(states("yes", "m1"), Err(TopsError::Program(_))));
        let m1 = MinionId::parse("m1").expect("an id");
        assert!(matches!(
            tops(&[]).by_ext_nodes(&m1),
            Err(TopsError::Command)
        ));
        let missing = tops(&["/no/such/program"]).by_ext_nodes(&m1);
        assert!(matches!(missing, Err(TopsError::Program(_))));
    }
}
