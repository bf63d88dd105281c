//! Standard output and standard error of programs. A reader that has gone away is no error.

use std::io::{self, Write};

/// Prints to standard output.
pub fn say(text: &str) {
    let _ = try_say(text);
}

/// Prints to standard output, for who has more to say than a gone reader would miss.
///
/// # Errors
/// A reader that has gone away, or a full disk.
pub fn try_say(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Prints a line to standard error.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
