//! `file_ignore_regex` and `file_ignore_glob`: what is neither listed nor served.
//!
//! Stock applies them to the whole path on disk when a file is asked for, and to the path below
//! the root when files are listed (`salt.fileserver.is_file_ignored`). The callers here do too.

use saltern_config::OptionValue;
use saltern_config::yaml::{Node, NodeValue};
use saltern_python::expression::{Expression, ExpressionFlags, Pattern};

use super::error::FilesError;

/// The rules of one master.
#[derive(Default)]
pub(crate) struct IgnoreRules {
    regexes: Vec<Expression>,
    globs: Vec<Pattern>,
    /// The entries of `file_ignore_regex` that are left out, each with what is wrong with it.
    pub(crate) broken: Vec<String>,
}

impl IgnoreRules {
    /// Takes the two options, each a text or a list of texts. A regex that is none is left out, as
    /// in stock.
    pub(crate) fn new(regex: OptionValue<'_>, glob: OptionValue<'_>) -> Result<Self, FilesError> {
        let mut rules = Self::default();
        for expression in texts(regex)? {
            match Expression::new(expression, ExpressionFlags::default()) {
                Ok(regex) => rules.regexes.push(regex),
                Err(error) => rules.broken.push(format!("{error}, and is left out")),
            }
        }
        for pattern in texts(glob)? {
            let wrong = |error| FilesError::option(glob.name(), format!("{error}"));
            rules.globs.push(Pattern::glob(pattern).map_err(wrong)?);
        }
        Ok(rules)
    }

    /// Whether the path is to be left out. A regex that takes too many steps counts as a match: a
    /// rule that hides files must not fail open.
    pub(crate) fn matches(&self, path: &str) -> bool {
        self.regexes
            .iter()
            .any(|regex| regex.is_match(path).unwrap_or(true))
            || self.globs.iter().any(|glob| glob.matches(path))
    }
}

/// A text or a list of texts.
pub(crate) fn texts(option: OptionValue<'_>) -> Result<Vec<&str>, FilesError> {
    let Some(node) = option.node().filter(|node| node.is_truthy()) else {
        return Ok(Vec::new());
    };
    let wrong =
        |node: &Node| FilesError::option(option.name(), format!("{} is no text", node.kind()));
    match &node.value {
        NodeValue::Seq(items) => items
            .iter()
            .map(|item| item.as_str().ok_or_else(|| wrong(item)))
            .collect(),
        _ => Ok(vec![node.as_str().ok_or_else(|| wrong(node))?]),
    }
}
