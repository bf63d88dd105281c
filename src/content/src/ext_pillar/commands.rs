//! `cmd_yaml` and `cmd_json`: what a program prints (`salt/pillar/cmd_yaml.py`, `cmd_json.py`).
//!
//! `%s` in the command stands for the minion's id, without quotes of ours: sites write their own
//! where they want them. `cmd_yaml` runs in a shell and `cmd_json` does not, as in stock. Ids are
//! chosen by minions and may hold nearly every letter, so an id with one that a shell would read
//! ([`is_plain`]) is an error of the pillar; stock runs what such an id says.
//!
//! Time and output of a program are bounded, which stock's are not.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

use saltern_python::shlex;
use saltern_wire::msgpack::Value;

use super::arguments::Arguments;
use super::error::{ArgumentError, SourceError};
use super::{Call, Source, yaml};
use crate::render::json;
use crate::render::process::{self, ProcessError};

/// The parameters of both.
pub(super) const PARAMETERS: &[&str] = &["command"];

/// The longest time of a program.
const TIME: Duration = Duration::from_secs(60);
/// The most bytes that a program may print.
const OUTPUT: u64 = 64 << 20;

/// `cmd_yaml`.
pub(super) struct CmdYaml(String);

/// `cmd_json`.
pub(super) struct CmdJson(String);

impl CmdYaml {
    pub(super) fn new(arguments: Arguments) -> Result<Self, ArgumentError> {
        arguments.need_text("command").map(Self)
    }
}

impl CmdJson {
    pub(super) fn new(arguments: Arguments) -> Result<Self, ArgumentError> {
        arguments.need_text("command").map(Self)
    }
}

impl Source for CmdYaml {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError> {
        let text = command_for(&self.0, call)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&text).stderr(Stdio::null());
        let printed = run(command, call)?;
        Ok(read(yaml(&printed, "cmd_yaml"), &text))
    }
}

impl Source for CmdJson {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError> {
        let text = command_for(&self.0, call)?;
        let words = match shlex::split(&text) {
            Ok(words) => words,
            Err(error) => return Ok(read(Err(error), &text)),
        };
        let mut command = Command::new("/bin/sh");
        // The shell only joins the two outputs, as `cmd.run` does; the words are its arguments and
        // not its text.
        command.args(["-c", "exec \"$@\" 2>&1", "sh"]).args(words);
        let printed = run(command, call)?;
        Ok(read(json::parse(&printed), &text))
    }
}

/// The command for a minion.
fn command_for(command: &str, call: &Call<'_>) -> Result<String, SourceError> {
    let id = call.input.minion.as_str();
    if command.contains("%s") && !is_plain(id) {
        return Err(SourceError::MinionId(id.to_owned()));
    }
    Ok(command.replace("%s", id))
}

/// Whether an id means nothing but itself to a shell, inside quotes and outside.
fn is_plain(id: &str) -> bool {
    !id.starts_with('-')
        && id.chars().all(|letter| {
            letter.is_alphanumeric() || matches!(letter, '.' | '_' | '-' | '@' | ':' | '+' | ',')
        })
}

/// Output of a program, without the white space at its end. Its exit code does not matter.
fn run(mut command: Command, call: &Call<'_>) -> Result<String, ProcessError> {
    command.env("LC_ALL", "C");
    if let Some(home) = std::env::home_dir().filter(|home| home.is_dir()) {
        command.current_dir(home);
    }
    let done = process::run(command, Vec::new(), call.left_of(TIME), OUTPUT)?;
    let text = String::from_utf8_lossy(&done.output);
    Ok(text.trim_end().to_owned())
}

/// Reads a command's output; output that cannot be parsed is logged and the source gives nothing,
/// as in stock.
fn read<E: Error>(parsed: Result<Value, E>, command: &str) -> Value {
    parsed.unwrap_or_else(|error| {
        let problem = error.to_string();
        tracing::error!(
            command,
            problem,
            "the output of an ext_pillar command cannot be read"
        );
        Value::Map(Vec::new())
    })
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn minion_ids_with_shell_characters_are_refused() {
        for id in ["web1", "web-1.example.com", "dbä", "a@b", "a:b"] {
            assert!(is_plain(id), "{id}");
        }
        for id in [
            "-rf", "a;b", "$(id)", "a b", "`id`", "a'b", "a\"b", "a*", "a\nb", "a|b", "~",
        ] {
            assert!(!is_plain(id), "{id}");
        }
    }
}
