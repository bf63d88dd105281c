//! The options of the Python bridge (`python_bridge…`).

use std::path::PathBuf;
use std::time::Duration;

use crate::reader::Reader;
use crate::yaml::{Node, NodeValue};

/// `python_bridge`: the Python that runs modules without a native counterpart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonBridge {
    /// No bridge.
    Off,
    /// The Python of a Salt installation in the usual places.
    Auto,
    /// The Python at this path, or of the installation there.
    At(PathBuf),
}

/// Options of the Python bridge.
#[derive(Clone, Debug)]
pub struct BridgeOptions {
    /// The Python to use.
    pub python: PythonBridge,
    /// Most helper processes for pillars.
    pub processes: usize,
    /// The longest time of one call for a pillar, waiting included.
    pub timeout: Duration,
    /// Most functions of the master that run in Python at a time.
    pub runners: usize,
    /// The longest time of one of them, waiting included.
    pub runner_timeout: Duration,
    /// The most address space of a helper in bytes; 0 for no bound.
    pub memory: usize,
}

impl BridgeOptions {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let mut time = |name| {
            let time = reader.seconds(name);
            if time.is_zero() {
                reader.error(name, "must be more than zero seconds");
            }
            time
        };
        let timeout = time("python_bridge_timeout");
        let runner_timeout = time("python_bridge_runner_timeout");
        let wanted = "a path, \"auto\" or false";
        let python = reader.read("python_bridge", wanted, python);
        let memory = reader.bytes("python_bridge_memory", 0);
        if memory != 0 && memory < MIN_MEMORY {
            let message = "is too little to load Salt in; 256 MiB is the least, 0 is no bound";
            reader.error("python_bridge_memory", message);
        }
        Self {
            python: python.unwrap_or(PythonBridge::Auto),
            processes: reader.usize("python_bridge_processes", 1, 256),
            timeout,
            runners: reader.usize("python_bridge_runners", 1, 256),
            runner_timeout,
            memory,
        }
    }
}

/// Salt itself takes half of it.
const MIN_MEMORY: usize = 256 << 20;

fn python(node: &Node) -> Option<PythonBridge> {
    match &node.value {
        NodeValue::Bool(false) => Some(PythonBridge::Off),
        NodeValue::Str(text) if text.eq_ignore_ascii_case("auto") => Some(PythonBridge::Auto),
        NodeValue::Str(text) if text.eq_ignore_ascii_case("off") => Some(PythonBridge::Off),
        NodeValue::Str(text) if text.starts_with('/') => Some(PythonBridge::At(text.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{Limits, parse};

    #[test]
    fn python_bridge_is_a_path_auto_or_false() {
        let table = [
            ("false", Some(PythonBridge::Off)),
            ("off", Some(PythonBridge::Off)),
            ("auto", Some(PythonBridge::Auto)),
            ("/opt/salt", Some(PythonBridge::At("/opt/salt".into()))),
            ("bin/python", None),
            ("true", None),
            ("3", None),
        ];
        for (text, expected) in table {
            let node = parse(text, "test", &Limits::DEFAULT).expect("it is YAML");
            assert_eq!(python(&node), expected, "{text}");
        }
    }
}
