//! Errors of the files and of the request of a pillar.
//!
//! A pillar is compiled whatever is wrong: these texts go to the minion, in its `_errors`.

use std::io;

use saltern_policy::matching::single::SingleError;

use super::compile::OVERRIDE_BYTES;
use super::sources::MAX_TEXT_BYTES;
use crate::render::RenderError;

/// Why a file of a root cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The system refused.
    #[error("cannot read \"{path}\": {error}")]
    Io {
        /// The file.
        path: String,
        /// The error of the system call.
        error: io::Error,
    },
    /// It is larger than a text may be.
    #[error("cannot read \"{0}\": it has more than {MAX_TEXT_BYTES} bytes")]
    TooLarge(String),
    /// It is no text.
    #[error("cannot read \"{0}\": it is not UTF-8")]
    Encoding(String),
}

/// Why an SLS file or a top file has no data.
#[derive(Debug, thiserror::Error)]
pub(super) enum SlsError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The defaults of its include are no mapping.
    #[error("the defaults of an include must be a mapping")]
    Defaults,
    /// A name among the defaults is no text, in Python's words.
    #[error("keywords must be strings")]
    Keyword,
    /// A name among the defaults is one that stock passes itself.
    #[error("\"{0}\" cannot be among the defaults of an include")]
    Reserved(String),
    /// It does not render.
    #[error(transparent)]
    Render(#[from] RenderError),
}

/// Why a request compiles nothing, or its override does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// An environment that is no plain name.
    #[error("the {what} {name:?} cannot be the name of an environment")]
    Environment {
        /// `saltenv` or `pillarenv`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The override is larger than is allowed.
    #[error("the pillar override takes more than {OVERRIDE_BYTES} bytes")]
    OverrideSize,
    /// The override is deeper than is allowed.
    #[error("the pillar override is nested too deeply")]
    OverrideDepth,
}

/// Why a target of a top file cannot be matched.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    /// Its `match` is no text.
    #[error("the name of its matcher is no text")]
    Matcher,
    /// The expression is wrong.
    #[error(transparent)]
    Expression(#[from] SingleError),
}
