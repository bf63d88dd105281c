//! Starts `git` in an environment in which it prompts for nothing, runs no hooks, and has only the
//! transports that fetch from a repository.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::error::GitError;
use crate::render::process::{self, Cancel, ProcessError, Wait};

/// The oldest git: it knows `GIT_CONFIG_COUNT`, by which secrets stay out of arguments and files.
const OLDEST: (&str, u32, u32) = ("2.31", 2, 31);

/// The longest time of a call that only reads the clone.
pub(super) const LOCAL_TIME: Duration = Duration::from_secs(120);
/// The longest time of a fetch that gets on.
pub(super) const FETCH_TIME: Duration = Duration::from_secs(900);
/// The longest time in which a fetch says nothing of its progress. A git that serves says
/// something every few seconds while it works.
const FETCH_SILENCE: Duration = Duration::from_secs(60);
/// The most bytes that a call may print where they are held in memory.
const OUTPUT: u64 = 512 << 20;

/// Settings of git for every call.
const SETTINGS: &[(&str, &str)] = &[
    ("protocol.allow", "never"),
    ("protocol.file.allow", "always"),
    ("protocol.git.allow", "always"),
    ("protocol.http.allow", "always"),
    ("protocol.https.allow", "always"),
    ("protocol.ssh.allow", "always"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.quotePath", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("remote.origin.followRemoteHEAD", "never"),
    // It is done by a call of its own.
    ("maintenance.auto", "false"),
    // What tidies up must have ended when the lock on the clone is given back.
    ("gc.autoDetach", "false"),
    ("maintenance.autoDetach", "false"),
];

/// Variables of the master's environment that git may see; the others of git would change which
/// repository it works on, or print its traffic.
const KEPT_VARIABLES: &[&str] = &[
    "GIT_EXEC_PATH",
    "GIT_PROXY_COMMAND",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
];

/// Why a call of git failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// Git gave no result.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It ended with an exit code, and printed no reason.
    #[error("it ended with {0}")]
    Code(i32),
    /// A signal ended it.
    #[error("it was killed")]
    Killed,
    /// Its own error lines, as one. They may hold credentials: `Origin::redacted` removes them.
    #[error("{0}")]
    Said(String),
}

/// A call that is being put together.
pub(super) struct Git {
    command: Command,
    settings: Vec<(String, String)>,
}

impl Git {
    /// A call on a bare repository.
    pub(super) fn on(repository: &Path) -> Self {
        let mut git = Self::bare();
        git.command.arg("--git-dir").arg(repository);
        git
    }

    fn bare() -> Self {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GIT_") && !KEPT_VARIABLES.contains(&text.as_ref()) {
                command.env_remove(&name);
            }
        }
        if std::env::var_os("HOME").is_none()
            && let Some(home) = std::env::home_dir()
        {
            command.env("HOME", home);
        }
        command
            .env("LC_ALL", "C")
            .env("LANGUAGE", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "false")
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env_remove("SSH_ASKPASS");
        let settings = SETTINGS
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self {
            command,
            settings: settings.collect(),
        }
    }

    pub(super) fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.command.args(args);
        self
    }

    /// A setting for this call only. It is in the environment, which other users cannot read.
    pub(super) fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    pub(super) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(super) fn in_directory(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Whether the user has said how ssh is to be called, for this repository.
    pub(super) fn has_own_ssh(&self) -> bool {
        let is_set = |name| std::env::var_os(name).is_some();
        if is_set("GIT_SSH") || is_set("GIT_SSH_COMMAND") {
            return true;
        }
        let mut asking = Self::bare();
        asking.command.args(self.command.get_args());
        asking
            .args(["config", "--get", "core.sshCommand"])
            .output(Vec::new())
            .is_ok()
    }

    fn command(mut self) -> Command {
        self.command
            .env("GIT_CONFIG_COUNT", self.settings.len().to_string());
        for (index, (name, value)) in self.settings.iter().enumerate() {
            self.command.env(format!("GIT_CONFIG_KEY_{index}"), name);
            self.command.env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        self.command
    }

    /// Runs the call and returns its standard output. Its errors are not kept: the only one of a
    /// call on the clone is that the object is not there.
    ///
    /// # Errors
    /// [`CommandError`]
    pub(super) fn output(self, input: Vec<u8>) -> Result<Vec<u8>, CommandError> {
        let mut command = self.command();
        command.stderr(Stdio::null());
        let done = process::run(command, input, LOCAL_TIME, OUTPUT)?;
        match done.code {
            Some(0) => Ok(done.output),
            code => Err(ended(code)),
        }
    }

    /// The same of a call that looks something up: `None` where git says that it is not there.
    ///
    /// # Errors
    /// [`CommandError`], where git could not look.
    pub(super) fn lookup(self) -> Result<Option<Vec<u8>>, CommandError> {
        let mut command = self.command();
        command.stderr(Stdio::null());
        let done = process::run(command, Vec::new(), LOCAL_TIME, OUTPUT)?;
        match done.code {
            Some(0) => Ok(Some(done.output)),
            Some(1) => Ok(None),
            code => Err(ended(code)),
        }
    }

    /// Runs the call; what it prints goes into `file`, or nowhere.
    ///
    /// # Errors
    /// [`CommandError`]: what git said.
    pub(super) fn run(self, file: Option<File>, time: Duration) -> Result<(), CommandError> {
        let wait = Wait {
            time,
            silence: None,
            cancel: None,
        };
        self.run_under(None, file, wait)
    }

    /// Runs a call that holds an open file while it runs.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub(super) fn run_holding(
        self,
        held: File,
        time: Duration,
        cancel: Option<&Cancel>,
    ) -> Result<(), CommandError> {
        let wait = Wait {
            time,
            silence: None,
            cancel,
        };
        self.run_under(Some(held), None, wait)
    }

    /// Runs a fetch: a call that prints its progress, and holds an open file while it runs.
    ///
    /// # Errors
    /// As [`Git::run`], and that it makes no progress.
    pub(super) fn run_fetching(
        self,
        held: File,
        cancel: Option<&Cancel>,
    ) -> Result<(), CommandError> {
        let wait = Wait {
            time: FETCH_TIME,
            silence: Some(FETCH_SILENCE),
            cancel,
        };
        self.run_under(Some(held), None, wait)
    }

    fn run_under(
        self,
        input: Option<File>,
        file: Option<File>,
        wait: Wait<'_>,
    ) -> Result<(), CommandError> {
        let done = process::run_into(self.command(), input, file, wait)?;
        if done.code == Some(0) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.errors);
        match without_progress(&said).as_str() {
            "" => Err(ended(done.code)),
            said => Err(CommandError::Said(said.to_owned())),
        }
    }
}

/// The error lines of git as one, without progress lines.
fn without_progress(said: &str) -> String {
    let is_progress = |line: &&str| {
        let parts = ["objects: ", "deltas: ", "Total "];
        let line = line.strip_prefix("remote: ").unwrap_or(line);
        line.is_empty() || parts.iter().any(|part| line.contains(part))
    };
    let lines = said.split(['\n', '\r']).map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !is_progress(line)).collect();
    lines.join("; ")
}

fn ended(code: Option<i32>) -> CommandError {
    code.map_or(CommandError::Killed, CommandError::Code)
}

/// Checks that there is a git that can be used.
///
/// # Errors
/// [`GitError::Missing`].
pub(super) fn check() -> Result<(), GitError> {
    let (oldest, major, minor) = OLDEST;
    let missing = |problem: String| GitError::Missing(oldest, problem);
    let said = Git::bare()
        .args(["version"])
        .output(Vec::new())
        .map_err(|error| missing(error.to_string()))?;
    let said = String::from_utf8_lossy(&said);
    let number = said.trim().strip_prefix("git version ").unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(found), Some(after)) if (found, after) >= (major, minor) => Ok(()),
        _ => Err(missing(format!("\"{}\" was found", said.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::without_progress;

    #[test]
    fn fetch_error_omits_progress_lines() {
        let said = "remote: Enumerating objects: 5, done.\nremote: Counting objects:  20% (1/5)\r\
                    Receiving objects: 100% (5/5), done.\nfatal: early EOF\nfatal: it ended\n";
        assert_eq!(without_progress(said), "fatal: early EOF; fatal: it ended");
        assert_eq!(without_progress("remote: Not found\n"), "remote: Not found");
        assert_eq!(without_progress(""), "");
    }
}
