//! `cmd.run`, as far as stock's `salt/modules/cmdmod.py` goes on Linux without templates,
//! terminals and background jobs. What it does not know it refuses; it ignores nothing.
//!
//! A command that was published goes through the shell unless `python_shell=False` says
//! otherwise: that is stock's rule for everything that comes from the master.
//!
//! Two differences: a command that times out is a failed job (stock reports return code 0 for it,
//! having left before it notes the code), and `runas` sets HOME, USER, LOGNAME and SHELL instead
//! of asking a login shell for that user's environment.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::FutureExt;
use rustix::process::Pid;
use saltern_base::locale;
use saltern_python::shlex;
use saltern_wire::msgpack::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::arguments::{Arguments, Parameter, Signature};
use super::as_user::OtherUser;
use super::{Call, Failure, Function, FunctionResult, Outcome};
use crate::python;

/// Stock's `DEFAULT_SHELL` on Linux.
const DEFAULT_SHELL: &str = "/bin/sh";

/// Maximum output of a command in bytes; the return says that the rest is cut off.
const MAX_OUTPUT: usize = 64 << 20;

pub(crate) const RUN: Function = Function {
    name: "cmd.run",
    doc: "Runs a command and gives what it writes. Knows cwd, stdin, runas, shell, python_shell, \
          env, clean_env, prepend_path, rstrip, timeout, ignore_retcode, hide_output, \
          redirect_stderr, raise_err and success_retcodes.",
    signature: Signature {
        function: "run",
        parameters: &[
            Parameter::Required("cmd"),
            Parameter::Optional("cwd"),
            Parameter::Optional("stdin"),
            Parameter::Optional("runas"),
            Parameter::Optional("group"),
            Parameter::Optional("shell"),
            Parameter::Optional("python_shell"),
            Parameter::Optional("env"),
            Parameter::Optional("clean_env"),
            Parameter::Optional("template"),
            Parameter::Optional("rstrip"),
            Parameter::Optional("umask"),
            Parameter::Optional("output_encoding"),
            Parameter::Optional("output_loglevel"),
            Parameter::Optional("log_callback"),
            Parameter::Optional("hide_output"),
            Parameter::Optional("timeout"),
            Parameter::Optional("reset_system_locale"),
            Parameter::Optional("ignore_retcode"),
            Parameter::Optional("saltenv"),
            Parameter::Optional("use_vt"),
            Parameter::Optional("redirect_stderr"),
            Parameter::Optional("bg"),
            Parameter::Optional("password"),
            Parameter::Optional("encoded_cmd"),
            Parameter::Optional("raise_err"),
            Parameter::Optional("prepend_path"),
            Parameter::Optional("success_retcodes"),
            Parameter::Optional("success_stdout"),
            Parameter::Optional("success_stderr"),
        ],
        more: false,
        keywords: true,
    },
    body: |call| run(call).boxed(),
    quick: false,
    out: None,
};

/// Arguments of stock that this minion cannot honour.
const UNSUPPORTED: &[&str] = &[
    "group",
    "template",
    "umask",
    "output_encoding",
    "log_callback",
    "use_vt",
    "bg",
    "password",
    "encoded_cmd",
    "success_stdout",
    "success_stderr",
];

async fn run(call: Call) -> Outcome {
    let arguments = &call.arguments;
    let unsupported = UNSUPPORTED.iter().find(|name| arguments.flag(name, false));
    if let Some(name) = unsupported {
        let text = format!("this minion does not support the argument \"{name}\" of cmd.run");
        return Err(Failure::Invocation(text));
    }
    let success = success_retcodes(arguments)?;
    let line = Line::new(arguments)?;
    let mut command = prepare(arguments, &line)?;
    let (reader, child) = spawn(&mut command, arguments, &line)?;
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut work = Work {
        child,
        group,
        over: false,
    };
    call.job.set_command(group);
    let stdin = arguments
        .get("stdin")
        .map(|text| python::text(text).replace("\\n", "\n"));
    let finished = within(timeout(arguments)?, work.finish(reader, stdin)).await;
    call.job.set_command(None);
    let Some(finished) = finished else {
        work.kill().await;
        let limit = arguments
            .get("timeout")
            .map(python::text)
            .unwrap_or_default();
        let text = format!("{} : Timed out after {limit} seconds", line.shown());
        return Ok(FunctionResult {
            value: Value::from(text),
            retcode: 1,
        });
    };
    let (output, status) = finished.map_err(|error| Failure::Execution(error.to_string()))?;
    let mut text = String::from_utf8_lossy(&output).into_owned();
    if arguments.flag("rstrip", true) {
        text.truncate(text.trim_end().len());
    }
    let retcode = retcode(status);
    let retcode = if success.contains(&retcode) {
        0
    } else {
        retcode
    };
    let shown = if arguments.flag("hide_output", false) {
        String::new()
    } else {
        text
    };
    if arguments.flag("ignore_retcode", false) {
        return Ok(FunctionResult::ok(shown));
    }
    if retcode != 0 && arguments.flag("raise_err", false) {
        return Err(Failure::Execution(shown));
    }
    Ok(FunctionResult {
        value: Value::from(shown),
        retcode,
    })
}

/// Python's return code: the signal with a minus when one ended the process.
fn retcode(status: ExitStatus) -> i64 {
    i64::from(
        status
            .code()
            .unwrap_or_else(|| -status.signal().unwrap_or(1)),
    )
}

fn success_retcodes(arguments: &Arguments) -> Result<Vec<i64>, Failure> {
    let wrong = || Failure::Invocation("success_retcodes must be a list of integers".to_owned());
    match arguments.get("success_retcodes") {
        None => Ok(vec![0]),
        Some(Value::Array(codes)) => codes
            .iter()
            .map(|code| python::int(code).map_err(|_| wrong()))
            .collect(),
        Some(other) => python::text(other)
            .split(',')
            .map(|code| code.trim().parse().map_err(|_| wrong()))
            .collect(),
    }
}

fn timeout(arguments: &Arguments) -> Result<Option<Duration>, Failure> {
    let Some(value) = arguments.get("timeout").filter(|value| value.is_truthy()) else {
        return Ok(None);
    };
    let seconds = value
        .as_f64()
        .or_else(|| value.as_i64().map(|whole| whole as f64));
    match seconds.filter(|seconds| (0.0..1e9).contains(seconds)) {
        Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
        None => Err(Failure::Exception(format!(
            "Error: timeout {} must be a number",
            python::text(value)
        ))),
    }
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// The command: one text for a shell, or words.
enum Line {
    Shell { shell: String, text: String },
    Words(Vec<String>),
}

impl Line {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let shell = arguments
            .get("shell")
            .map_or_else(|| DEFAULT_SHELL.to_owned(), python::text);
        if !is_program(&shell) {
            return Err(Failure::Execution(format!(
                "The shell {shell} is not available"
            )));
        }
        let cmd = arguments.get("cmd").cloned().unwrap_or(Value::Nil);
        match cmd {
            Value::Array(words) => Ok(Self::Words(words.iter().map(python::text).collect())),
            cmd if arguments.flag("python_shell", true) => Ok(Self::Shell {
                shell,
                text: python::text(&cmd),
            }),
            cmd => shlex::split(&python::text(&cmd))
                .map(Self::Words)
                .map_err(|error| Failure::Exception(format!("ValueError: {error}"))),
        }
    }

    /// The command as Python shows it in a message.
    fn shown(&self) -> String {
        match self {
            Self::Shell { text, .. } => text.clone(),
            Self::Words(words) => {
                let words = words.iter().map(|word| Value::from(word.as_str()));
                saltern_python::repr(Value::Array(words.collect()))
            }
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::Shell { shell, text } => {
                let mut command = Command::new(shell);
                command.arg("-c").arg(text);
                command
            }
            Self::Words(words) => {
                let mut command = Command::new(words.first().map_or("", String::as_str));
                command.args(words.iter().skip(1));
                command
            }
        }
    }
}

fn is_program(path: &str) -> bool {
    let found = std::fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn prepare(arguments: &Arguments, line: &Line) -> Result<Command, Failure> {
    let other = match arguments.get("runas").map(python::text) {
        None => None,
        Some(name) => Some(
            OtherUser::find(&name)
                .ok_or_else(|| Failure::Execution(format!("User '{name}' is not available")))?,
        ),
    };
    let cwd = match arguments.get("cwd").filter(|cwd| cwd.is_truthy()) {
        Some(cwd) => python::text(cwd),
        None => {
            let own = || std::env::var("HOME").unwrap_or_default();
            let home = other.as_ref().map_or_else(own, |user| user.home.clone());
            if Path::new(&home).is_dir() {
                home
            } else {
                "/".to_owned()
            }
        }
    };
    if !Path::new(&cwd).is_absolute() || !Path::new(&cwd).is_dir() {
        let text = format!("Specified cwd '{cwd}' either not absolute or does not exist");
        return Err(Failure::Execution(text));
    }
    let mut command = line.command();
    command.current_dir(cwd).kill_on_drop(true).process_group(0);
    set_environment(&mut command, arguments, other.as_ref());
    if let Some(user) = other {
        user.apply(&mut command);
    }
    Ok(command)
}

fn set_environment(command: &mut Command, arguments: &Arguments, user: Option<&OtherUser>) {
    if arguments.flag("clean_env", false) {
        command.env_clear();
    }
    command.env_remove("NOTIFY_SOCKET");
    if arguments.flag("reset_system_locale", true) {
        command.envs(locale::VARIABLES.map(|name| (name, "C")));
    }
    if let Some(user) = user {
        command.env("HOME", &user.home).env("SHELL", &user.shell);
        command.env("USER", &user.name).env("LOGNAME", &user.name);
    }
    let set = |command: &mut Command, map: &Value| {
        for (name, value) in map.as_map().into_iter().flatten() {
            let value = if value.is_nil() {
                String::new()
            } else {
                python::text(value)
            };
            command.env(python::text(name), value);
        }
    };
    match arguments.get("env") {
        Some(Value::Array(maps)) => maps.iter().for_each(|map| set(command, map)),
        Some(map) => set(command, map),
        None => {}
    }
    if let Some(first) = arguments
        .get("prepend_path")
        .filter(|path| path.is_truthy())
    {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", python::text(first)));
    }
}

/// Starts the command; both of its output streams go into one pipe, in the order of writing.
fn spawn(
    command: &mut Command,
    arguments: &Arguments,
    line: &Line,
) -> Result<(pipe::Receiver, Child), Failure> {
    let io = |error: std::io::Error| Failure::Execution(error.to_string());
    let (reader, writer) = std::io::pipe().map_err(io)?;
    if arguments.flag("redirect_stderr", true) {
        command.stderr(writer.try_clone().map_err(io)?);
    } else {
        // As in stock, what is written to the other stream is not part of the result.
        command.stderr(Stdio::null());
    }
    command.stdout(writer);
    let wants_input = arguments.get("stdin").is_some();
    command.stdin(if wants_input {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    let child = command.spawn().map_err(|error| {
        let reason = match (error.kind(), line) {
            (std::io::ErrorKind::NotFound, Line::Words(words)) => format!(
                "[Errno 2] No such file or directory: '{}'",
                words.first().map_or("", String::as_str)
            ),
            _ => error.to_string(),
        };
        Failure::Execution(format!(
            "Unable to run command '{}', reason: {reason}",
            line.shown()
        ))
    });
    // The command keeps its end of the pipe open; this process must not.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = child?;
    let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(io)?;
    Ok((reader, child))
}

/// A command while it runs. Dropped before its end, it takes its whole process group with it.
struct Work {
    child: Child,
    group: Option<Pid>,
    over: bool,
}

impl Work {
    async fn finish(
        &mut self,
        mut reader: pipe::Receiver,
        stdin: Option<String>,
    ) -> std::io::Result<(Vec<u8>, ExitStatus)> {
        let input = self.child.stdin.take();
        let feed = async {
            if let (Some(mut input), Some(text)) = (input, stdin) {
                // A command that does not read its input is no error.
                let _ = input.write_all(text.as_bytes()).await;
            }
        };
        let mut output = Vec::new();
        let read = async {
            let mut chunk = vec![0; 16 << 10];
            loop {
                let count = reader.read(&mut chunk).await?;
                if count == 0 {
                    return Ok::<_, std::io::Error>(());
                }
                let room = MAX_OUTPUT.saturating_sub(output.len());
                output.extend_from_slice(&chunk[..count.min(room)]);
            }
        };
        let (read, ()) = tokio::join!(read, feed);
        read?;
        if output.len() == MAX_OUTPUT {
            output.extend_from_slice(b"\n(cut off by the minion)");
        }
        let status = self.child.wait().await?;
        self.over = true;
        Ok((output, status))
    }

    async fn kill(&mut self) {
        self.kill_group();
        // The process is killed for certain; its end is waited for so that it is reaped.
        let _ = self.child.wait().await;
        self.over = true;
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            // It may be gone already.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.over {
            self.kill_group();
        }
    }
}
