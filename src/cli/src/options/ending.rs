//! Why a command ends before it began: help, version, or a command line that is refused.

use std::io::Write;
use std::process::ExitCode;

/// Exit code of stock for a command line that its parser refuses (`EX_USAGE`).
const USAGE: u8 = 64;

/// Last text of a command, and its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The exit code.
    pub code: u8,
    /// Text for standard output.
    pub stdout: String,
    /// Text for standard error.
    pub stderr: String,
}

impl Ending {
    /// A success with this text.
    #[must_use]
    pub fn ok(stdout: String) -> Self {
        Self {
            code: 0,
            stdout,
            stderr: String::new(),
        }
    }

    /// A refusal: the usage and the message, as `optparse` prints them.
    #[must_use]
    pub fn refused(program: &str, usage: &str, message: &str) -> Self {
        Self {
            code: USAGE,
            stdout: String::new(),
            stderr: format!("Usage: {usage}\n\n{program}: error: {message}\n"),
        }
    }

    /// An exit with a text on standard error.
    #[must_use]
    pub fn failed(code: u8, stderr: impl Into<String>) -> Self {
        Self {
            code,
            stdout: String::new(),
            stderr: stderr.into(),
        }
    }

    /// The same, after this text on standard output.
    #[must_use]
    pub fn after(mut self, stdout: String) -> Self {
        self.stdout = stdout;
        self
    }

    /// Prints the texts and gives the exit code; a reader that has gone away is no error.
    #[must_use]
    pub fn finish(&self) -> ExitCode {
        let _ = std::io::stdout().write_all(self.stdout.as_bytes());
        let _ = std::io::stdout().flush();
        let _ = std::io::stderr().write_all(self.stderr.as_bytes());
        ExitCode::from(self.code)
    }
}
