//! An error with its chain of sources as one line of text. The errors of this workspace do not repeat
//! their source; where one of a library does, its source is left out.

use std::error::Error;

/// The error and its causes, outermost first, with colons between them.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let source = error.to_string();
        if !text.ends_with(&source) {
            text.push_str(": ");
            text.push_str(&source);
        }
        cause = error.source();
    }
    text
}
