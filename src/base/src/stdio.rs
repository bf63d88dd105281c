//! What programs print for whoever called them. A reader that has gone away is no error.

use std::io::Write;

/// Prints to standard output.
pub fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes());
    let _ = output.flush();
}

/// Prints a line to standard error.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
