//! Log check: our own processes may log no WARN or ERROR line that a test did not announce.
//!
//! A WARN or ERROR line is for something an operator must know; one that no test announced is a
//! fault, or a line logged at the wrong level.

use std::path::Path;

/// Texts that a test expects in WARN or ERROR lines.
#[derive(Default)]
pub struct Expected(Vec<String>);

impl Expected {
    /// Announces lines that contain this text.
    pub fn announce(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    /// The unannounced WARN and ERROR lines of a log file.
    pub fn unexpected(&self, log: &Path) -> Vec<String> {
        read(log)
            .lines()
            .filter(|line| is_serious(line))
            .filter(|line| !self.0.iter().any(|text| line.contains(text.as_str())))
            .map(str::to_owned)
            .collect()
    }
}

/// A log file's text without colour codes; empty if there is none.
pub fn read(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut plain = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(start) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..start]);
        let code = &rest[start + 2..];
        rest = code.find('m').map_or("", |end| &code[end + 1..]);
    }
    plain.push_str(rest);
    plain
}

/// The level stands near the start of a line, after the time and the place: `[ERROR   ] text` on
/// the console, `2026-11-21 11:38:25,849 [place:50 ][ERROR   ][1379] text` in a file,
/// `{"time":"2026-11-21T… Z","level":"ERROR",…` for programs.
fn is_serious(line: &str) -> bool {
    line.contains("panicked at")
        || line
            .split([' ', '[', ']', ':', '{', '"', ','])
            .filter(|word| !word.is_empty())
            .take(8)
            .any(|word| matches!(word, "WARN" | "WARNING" | "ERROR" | "CRITICAL"))
}
