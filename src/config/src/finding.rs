//! Findings of a configuration check, and the error that holds them.

use std::fmt;

use saltern_base::exit::Exit;

use crate::yaml::Mark;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The master does not start; or, of what only Python can run, it starts and cannot do what
    /// it is for.
    Error,
    /// The master starts, and something that was asked for does not happen.
    Warning,
    /// Good to know; nothing is lost.
    Info,
}

/// One thing that the check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The file, as it was named; empty if no file is to blame.
    pub file: String,
    /// The line from 1; 0 if no line is to blame.
    pub line: u32,
    /// The name of the option; empty if none is meant.
    pub option: String,
    /// The finding, in lower case and without a final period.
    pub message: String,
    /// Remedy: for a misspelt name the nearest known one.
    pub suggestion: Option<String>,
    /// Whether it is about something that only Python can run.
    pub needs_python: bool,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        mark: &Mark,
        option: &str,
        message: impl Into<String>,
    ) -> Finding {
        Finding {
            severity,
            file: if mark.line == 0 {
                String::new()
            } else {
                mark.file.to_string()
            },
            line: mark.line,
            option: option.to_owned(),
            message: message.into(),
            suggestion: None,
            needs_python: false,
        }
    }

    /// Whether the master does not start because of it.
    pub fn refuses_start(&self) -> bool {
        self.severity == Severity::Error && !self.needs_python
    }

    /// The same about something that only Python can run.
    pub(crate) fn about_python(mut self) -> Finding {
        self.needs_python = true;
        self
    }

    pub(crate) fn suggest(mut self, text: impl Into<String>) -> Finding {
        self.suggestion = Some(text.into());
        self
    }
}

/// Sorts findings: errors first, then in the order of the files.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| (a.severity, &a.file, a.line).cmp(&(b.severity, &b.file, b.line)));
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            f.write_str(&self.file)?;
            if self.line > 0 {
                write!(f, ":{}", self.line)?;
            }
            f.write_str(": ")?;
        }
        if !self.option.is_empty() {
            write!(f, "{}: ", self.option)?;
        }
        f.write_str(&self.message)?;
        if let Some(suggestion) = &self.suggestion {
            write!(f, " ({suggestion})")?;
        }
        Ok(())
    }
}

/// Why a configuration cannot be used: every error at once, and the milder findings with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// All findings; at least one is an error.
    pub findings: Vec<Finding>,
    /// Whether a file could not be read, as opposed to being wrong.
    pub unreadable: bool,
}

impl ConfigErrors {
    /// The errors alone.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
    }

    /// How the process should end.
    pub fn exit(&self) -> Exit {
        if self.unreadable {
            Exit::NoInput
        } else {
            Exit::Usage
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.errors().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fmt::Display::fmt(finding, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
