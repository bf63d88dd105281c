//! `cmd.run`, `cmd.shell` and their relatives, for sites whose templates start programs on the
//! master.
//!
//! The text goes to `/bin/sh` as the template wrote it; nothing is added to it from elsewhere.
//! Time and output are bounded, and what the program started ends with it.

use std::process::Command;
use std::time::Duration;

use saltern_wire::msgpack::Value;

use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::process::{self, Finished};

/// Bounds on the programs that templates start.
#[derive(Debug, Clone, Copy)]
pub struct Commands {
    /// The longest time of one program; a template can ask for less.
    pub time: Duration,
    /// The most bytes that it may print.
    pub output: u64,
}

/// Adds `cmd.run`, `cmd.shell`, `cmd.run_stdout` and `cmd.retcode`.
pub fn commands(registry: &mut Registry, bounds: Commands) {
    for name in ["cmd.run", "cmd.shell"] {
        registry.add(name, move |args| {
            started(&args, bounds, true).and_then(|d| text(&d))
        });
    }
    registry.add("cmd.run_stdout", move |args| {
        started(&args, bounds, false).and_then(|done| text(&done))
    });
    registry.add("cmd.retcode", move |args| {
        let done = started(&args, bounds, true)?;
        Ok(Value::from(i64::from(done.code.unwrap_or(-1))))
    });
}

/// The output as text without the white space at its end.
fn text(done: &Finished) -> Result<Value, CallError> {
    let text = String::from_utf8_lossy(&done.output);
    Ok(Value::from(text.trim_end().to_owned()))
}

fn started(args: &CallArgs, bounds: Commands, errors: bool) -> Result<Finished, CallError> {
    let script = args.need_text(0, "cmd")?;
    let named = |name: &str| args.get(usize::MAX, name).filter(|value| !value.is_nil());
    if named("runas").is_some() {
        let message = "\"runas\" is not possible in a template of the master";
        return Err(CallError::Refused(message.to_owned()));
    }
    let mut command = Command::new("/bin/sh");
    // Stock mixes what is printed as an error into the output.
    let head = if errors {
        "exec 2>&1\n"
    } else {
        "exec 2>/dev/null\n"
    };
    command.arg("-c").arg(format!("{head}{script}"));
    command.env("LC_ALL", "C");
    if let Some(directory) = named("cwd").and_then(Value::as_str) {
        command.current_dir(directory);
    }
    let pairs: Vec<(Value, Value)> = match named("env") {
        Some(Value::Map(entries)) => entries.clone(),
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(Value::as_map)
            .flatten()
            .cloned()
            .collect(),
        _ => Vec::new(),
    };
    for (key, value) in &pairs {
        if let (Some(key), Some(value)) = (key.as_str(), value.as_str()) {
            command.env(key, value);
        }
    }
    let asked = named("timeout")
        .and_then(Value::as_i64)
        .and_then(|time| u64::try_from(time).ok());
    let time = asked.map_or(bounds.time, |time| {
        bounds.time.min(Duration::from_secs(time))
    });
    let input = named("stdin").and_then(Value::as_str).unwrap_or_default();
    process::run(command, input.as_bytes().to_vec(), time, bounds.output)
        .map_err(CallError::Refused)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use saltern_wire::msgpack::Value;

    use super::{Commands, commands};
    use crate::render::functions::{CallArgs, Functions as _, Registry};

    #[test]
    fn programs_run_as_the_template_says() {
        let mut registry = Registry::new();
        let bounds = Commands {
            time: Duration::from_secs(30),
            output: 1000,
        };
        commands(&mut registry, bounds);
        let call = |name: &str, script: &str, named: &[(&str, Value)]| {
            let named = named
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()));
            let positional = vec![Value::from(script)];
            registry.call(
                name,
                CallArgs {
                    positional,
                    named: named.collect(),
                },
            )
        };
        assert_eq!(
            call("cmd.run", "echo a; echo b >&2", &[]),
            Ok(Value::from("a\nb"))
        );
        assert_eq!(
            call("cmd.run_stdout", "echo a; echo b >&2", &[]),
            Ok(Value::from("a"))
        );
        assert_eq!(call("cmd.retcode", "exit 7", &[]), Ok(Value::Int(7)));
        assert_eq!(
            call("cmd.shell", "pwd", &[("cwd", Value::from("/"))]),
            Ok(Value::from("/"))
        );
        let variables = Value::map([("X", Value::from("y"))]);
        assert_eq!(
            call("cmd.run", "echo $X", &[("env", variables)]),
            Ok(Value::from("y"))
        );
        assert!(call("cmd.run", "yes", &[]).is_err());
        assert!(call("cmd.run", "id", &[("runas", Value::from("root"))]).is_err());
    }
}
