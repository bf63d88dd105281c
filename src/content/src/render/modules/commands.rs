//! `cmd.run`, `cmd.shell` and their relatives, for sites whose templates start programs on the
//! master (`salt/modules/cmdmod.py`).
//!
//! As in stock a template's `cmd.run` starts the program itself and no shell: without
//! `python_shell` a pipe or a variable in the text is an argument like any other. `cmd.shell` and
//! `python_shell=True` give the text to a shell as it stands; nothing is added to it. Time and
//! output are bounded, and what the program started ends with it. Another user (`runas`), a
//! template in the text and a terminal are refused by name.

use std::process::Command;
use std::time::Duration;

use saltern_base::locale;
use saltern_python::shlex;
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::process::{self, Errors, Finished};

use super::users;

/// Stock's default shell.
const SHELL: &str = "/bin/sh";

/// Bounds on the programs that templates start.
#[derive(Debug, Clone, Copy)]
pub struct Commands {
    /// The longest time of one program; a template can ask for less.
    pub time: Duration,
    /// When all of them end at the latest.
    pub deadline: Option<Instant>,
    /// The most bytes that it may print.
    pub output: u64,
}

/// Adds `cmd.run`, `cmd.shell`, `cmd.run_stdout`, `cmd.run_stderr`, `cmd.run_all`, `cmd.retcode`,
/// `cmd.which`, `cmd.which_bin` and `cmd.has_exec`.
pub(super) fn commands(registry: &mut Registry, bounds: Commands) {
    for (name, by_shell) in [("cmd.run", false), ("cmd.shell", true)] {
        registry.add(name, move |args| {
            let done = started(&args, bounds, Errors::Mixed, by_shell)?;
            if done.code != Some(0) && flag(&args, "raise_err", false) {
                return Err(CallError::Refused(text(&done.output, &args)));
            }
            let hidden = flag(&args, "hide_output", false);
            Ok(Value::from(if hidden {
                String::new()
            } else {
                text(&done.output, &args)
            }))
        });
    }
    registry.add("cmd.run_stdout", move |args| {
        let done = started(&args, bounds, Errors::Apart, false)?;
        Ok(Value::from(text(&done.output, &args)))
    });
    registry.add("cmd.run_stderr", move |args| {
        let done = started(&args, bounds, Errors::Apart, false)?;
        Ok(Value::from(text(&done.errors, &args)))
    });
    registry.add("cmd.run_all", move |args| {
        let errors = if flag(&args, "redirect_stderr", false) {
            Errors::Mixed
        } else {
            Errors::Apart
        };
        Ok(all_of(&started(&args, bounds, errors, false)?))
    });
    registry.add("cmd.retcode", move |args| {
        let done = started(&args, bounds, Errors::Mixed, false)?;
        Ok(Value::from(i64::from(done.code.unwrap_or(-1))))
    });
    registry.add("cmd.which", |args| {
        let found = which(&args.need_text(0, "cmd")?);
        Ok(found.map_or(Value::Nil, Value::from))
    });
    registry.add("cmd.has_exec", |args| {
        Ok(Value::Bool(which(&args.need_text(0, "cmd")?).is_some()))
    });
    registry.add("cmd.which_bin", |args| {
        let names = args.need(0, "cmds")?.as_array().unwrap_or_default();
        let found = names.iter().filter_map(Value::as_str).find_map(which);
        Ok(found.map_or(Value::Nil, Value::from))
    });
}

/// The result of `cmd.run_all` for a program.
pub(super) fn all_of(done: &Finished) -> Value {
    let text = |bytes| String::from_utf8_lossy(bytes).trim_end().to_owned();
    Value::map([
        ("pid", Value::Int(i64::from(done.pid))),
        ("retcode", Value::Int(i64::from(done.code.unwrap_or(-1)))),
        ("stdout", Value::from(text(&done.output))),
        ("stderr", Value::from(text(&done.errors))),
    ])
}

fn flag(args: &CallArgs, name: &str, default: bool) -> bool {
    args.flag(usize::MAX, name, default)
}

fn named<'a>(args: &'a CallArgs, name: &str) -> Option<&'a Value> {
    args.get(usize::MAX, name).filter(|value| !value.is_nil())
}

/// The output as text, without the white space at its end unless that is wanted.
fn text(bytes: &[u8], args: &CallArgs) -> String {
    let text = String::from_utf8_lossy(bytes);
    if flag(args, "rstrip", true) {
        text.trim_end().to_owned()
    } else {
        text.into_owned()
    }
}

fn started(
    args: &CallArgs,
    bounds: Commands,
    errors: Errors,
    by_shell: bool,
) -> Result<Finished, CallError> {
    for name in ["runas", "group", "template", "use_vt", "bg"] {
        let is_asked = named(args, name).is_some_and(|value| *value != Value::Bool(false));
        if is_asked {
            return Err(CallError::Refused(format!(
                "\"{name}\" is not possible in a template of the master"
            )));
        }
    }
    let shell = args.text(usize::MAX, "shell");
    let by_shell = flag(args, "python_shell", by_shell);
    let (mut command, program) = command(args, by_shell, shell.as_deref().unwrap_or(SHELL))?;
    environment(&mut command, args);
    let home = || users::home("").filter(|home| std::path::Path::new(home).is_dir());
    command.current_dir(match args.text(1, "cwd").filter(|cwd| !cwd.is_empty()) {
        Some(directory) => directory,
        None => home().unwrap_or_else(|| "/".to_owned()),
    });
    let asked = named(args, "timeout").and_then(seconds);
    let time = asked.map_or(bounds.time, |asked| bounds.time.min(asked));
    let left = |end: Instant| end.saturating_duration_since(Instant::now());
    let time = bounds.deadline.map_or(time, |end| time.min(left(end)));
    let input = args.text(2, "stdin").unwrap_or_default().into_bytes();
    process::run_with(command, input, time, bounds.output, errors).map_err(|reason| {
        CallError::Refused(format!("Unable to run command '{program}': {reason}"))
    })
}

/// A time that a template gives in seconds; one that is no time is none.
fn seconds(value: &Value) -> Option<Duration> {
    match value {
        Value::Int(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
        Value::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
        _ => None,
    }
}

/// The program of a call, and its text for messages.
fn command(args: &CallArgs, by_shell: bool, shell: &str) -> Result<(Command, String), CallError> {
    let (parts, shown) = match args.need(0, "cmd")? {
        Value::Array(parts) => {
            let parts: Vec<String> = parts.iter().map(super::lookup::plain_text).collect();
            let shown = parts.join(" ");
            (parts, shown)
        }
        _ => {
            let text = args.need_text(0, "cmd")?;
            if by_shell {
                let mut command = Command::new(shell);
                command.arg("-c").arg(&text);
                return Ok((command, text));
            }
            (
                shlex::split(&text).map_err(|error| CallError::Failed(error.to_string()))?,
                text,
            )
        }
    };
    let Some((program, rest)) = parts.split_first() else {
        return Err(CallError::Refused("there is no command".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(rest);
    Ok((command, shown))
}

fn environment(command: &mut Command, args: &CallArgs) {
    if flag(args, "clean_env", false) {
        command.env_clear();
    }
    if flag(args, "reset_system_locale", true) {
        for name in locale::VARIABLES {
            command.env(name, "C");
        }
    }
    let pairs: Vec<(Value, Value)> = match named(args, "env") {
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
        let value = match value {
            Value::Nil => String::new(),
            value => super::lookup::plain_text(value),
        };
        command.env(super::lookup::plain_text(key), value);
    }
    if let Some(path) = args.text(usize::MAX, "prepend_path") {
        let old = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:{old}"));
    }
}

/// The path of a program, as a shell would find it.
pub(crate) fn which(name: &str) -> Option<String> {
    let is_program = |path: &str| {
        std::path::Path::new(path).is_file()
            && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    if name.contains('/') {
        return is_program(name).then(|| name.to_owned());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let rest = ["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"];
    path.split(':')
        .chain(rest)
        .filter(|directory| !directory.is_empty())
        .map(|directory| format!("{}/{name}", directory.trim_end_matches('/')))
        .find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use saltern_wire::msgpack::Value;

    use super::{Commands, commands};
    use crate::render::functions::{CallArgs, CallError, Functions as _, Registry};

    fn call(name: &str, script: Value, named: &[(&str, Value)]) -> Result<Value, CallError> {
        let mut registry = Registry::new();
        let bounds = Commands {
            time: Duration::from_secs(30),
            deadline: None,
            output: 1000,
        };
        commands(&mut registry, bounds);
        let named = named
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        registry.call(
            name,
            CallArgs {
                positional: vec![script],
                named: named.collect(),
            },
        )
    }

    #[test]
    fn programs_run_without_a_shell_unless_one_is_asked_for() {
        let shell = [("python_shell", Value::Bool(true))];
        type Case<'a> = (&'a str, &'a str, &'a [(&'a str, Value)], &'a str);
        let table: [Case<'_>; 6] = [
            ("cmd.run", "echo a | tr a b", &[], "a | tr a b"),
            ("cmd.run", "echo 'a  b' \"$HOME\"", &[], "a  b $HOME"),
            ("cmd.run", "echo a | tr a b", &shell, "b"),
            ("cmd.shell", "echo a; echo b >&2", &[], "a\nb"),
            ("cmd.run_stdout", "echo a; echo b >&2", &shell, "a"),
            ("cmd.run_stderr", "echo a; echo b >&2", &shell, "b"),
        ];
        for (name, script, named, wanted) in table {
            let done = call(name, Value::from(script), named);
            assert_eq!(done, Ok(Value::from(wanted)), "{name} {script}");
        }
        let list = Value::Array(vec![Value::from("echo"), Value::from("a  b")]);
        assert_eq!(call("cmd.run", list, &[]), Ok(Value::from("a  b")));
    }

    #[test]
    fn command_gets_the_directory_and_environment_of_the_call() {
        assert_eq!(
            call("cmd.shell", "pwd".into(), &[("cwd", Value::from("/"))]),
            Ok(Value::from("/"))
        );
        let variables = Value::map([("X", Value::Int(5))]);
        assert_eq!(
            call(
                "cmd.shell",
                "echo $X $LC_TIME".into(),
                &[("env", variables)]
            ),
            Ok(Value::from("5 C"))
        );
        let input = [("stdin", Value::from("x"))];
        assert_eq!(call("cmd.run", "cat".into(), &input), Ok(Value::from("x")));
        let kept = [("rstrip", Value::Bool(false))];
        assert_eq!(
            call("cmd.run", "echo a".into(), &kept),
            Ok(Value::from("a\n"))
        );
    }

    #[test]
    fn failed_command_reports_its_exit_code() {
        assert_eq!(call("cmd.retcode", "false".into(), &[]), Ok(Value::Int(1)));
        let done = call("cmd.run_all", "ls /nonexistent".into(), &[]).expect("it runs");
        assert_eq!(done.get("stdout"), Some(&Value::from("")));
        assert_ne!(done.get("retcode"), Some(&Value::Int(0)));
        assert!(
            call(
                "cmd.run",
                "false".into(),
                &[("raise_err", Value::Bool(true))]
            )
            .is_err()
        );
        for (script, named) in [
            ("yes", None),
            ("exit 2", None),
            ("'open", None),
            ("id", Some(("runas", Value::from("nobody")))),
            ("id", Some(("template", Value::from("jinja")))),
        ] {
            let named: Vec<_> = named.into_iter().collect();
            assert!(call("cmd.run", script.into(), &named).is_err(), "{script}");
        }
        assert_eq!(
            call("cmd.which", "nosuchprogram".into(), &[]),
            Ok(Value::Nil)
        );
        assert_eq!(
            call("cmd.has_exec", "sh".into(), &[]),
            Ok(Value::Bool(true))
        );
    }
}
