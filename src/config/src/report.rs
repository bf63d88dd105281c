//! Findings as text for people.

use std::fmt::Write as _;

use crate::finding::{Finding, Severity};

/// All findings as text for people, worst first, one a line; says so if there is none.
pub fn render_findings(findings: &[Finding]) -> String {
    let groups = [
        (
            Severity::Error,
            "error",
            "errors: the master does not start, or cannot do what only Python can",
        ),
        (
            Severity::Warning,
            "warning",
            "warnings: the master starts, but not all is as asked",
        ),
        (Severity::Info, "hint", "hints: nothing is lost"),
    ];
    let mut text = String::new();
    for (severity, _, title) in groups {
        let group: Vec<&Finding> = findings.iter().filter(|f| f.severity == severity).collect();
        if group.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{title}");
        for finding in group {
            let _ = writeln!(text, "  {finding}");
        }
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let counts: Vec<String> = groups
        .iter()
        .map(|(severity, word, _)| match count(*severity) {
            1 => format!("1 {word}"),
            number => format!("{number} {word}s"),
        })
        .collect();
    let _ = writeln!(text, "{}", counts.join(", "));
    text
}
