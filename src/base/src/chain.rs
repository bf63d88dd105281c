//! An error with its chain of sources as one line of text. An error's own text never repeats its
//! source, and the cause that matters is mostly the last one.

use std::error::Error;

/// The error and its causes, outermost first, with colons between them.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
