//! An error and everything that caused it as one line of text: errors here say only their own part,
//! and what really happened is mostly said at the end of the chain.

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
