//! The outputters by name.

use std::str::FromStr;

/// A form that returns are printed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outputter {
    /// The indented tree that most functions are shown with.
    #[default]
    Nested,
    /// The result of state runs.
    Highstate,
    /// JSON, one document a return.
    Json,
    /// YAML.
    Yaml,
    /// `repr` of Python.
    Raw,
    /// One line of text a line of output, headed by the id.
    Txt,
    /// `pprint` of Python.
    Pprint,
    /// Lists of keys, of `salt-key`.
    Key,
    /// Tables.
    Table,
    /// The red notice for a minion that did not answer.
    NoReturn,
    /// Nothing (not in 3008).
    Quiet,
    /// The values without ids (not in 3008).
    NewlineValuesOnly,
    /// Stages of an orchestration (not in 3008).
    OverstateStage,
    /// The result of the runner `virt.query` (not in 3008).
    VirtQuery,
    /// Durations of states as a table (not in 3008).
    Profile,
    /// Ours: one line of JSON a minion.
    JsonLines,
    /// Ours: one line of text a minion: what succeeded, changed and failed, the time, the first
    /// failure.
    Summary,
    /// Ours: only states that changed something or failed.
    ChangesOnly,
}

const NAMES: [(&str, Outputter); 18] = [
    ("nested", Outputter::Nested),
    ("highstate", Outputter::Highstate),
    ("json", Outputter::Json),
    ("yaml", Outputter::Yaml),
    ("raw", Outputter::Raw),
    ("txt", Outputter::Txt),
    ("pprint", Outputter::Pprint),
    ("key", Outputter::Key),
    ("table", Outputter::Table),
    ("no_return", Outputter::NoReturn),
    ("quiet", Outputter::Quiet),
    ("newline_values_only", Outputter::NewlineValuesOnly),
    ("overstatestage", Outputter::OverstateStage),
    ("virt_query", Outputter::VirtQuery),
    ("profile", Outputter::Profile),
    ("jsonl", Outputter::JsonLines),
    ("summary", Outputter::Summary),
    ("changes-only", Outputter::ChangesOnly),
];

impl Outputter {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(_, outputter)| *outputter == self);
        named.map_or("nested", |(name, _)| name)
    }

    /// All names, those of our own outputters last.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// Whether this is none of stock's. In these, text of minions cannot steer the terminal.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(self, Self::JsonLines | Self::Summary | Self::ChangesOnly)
    }

    /// The outputter for one return, as stock chooses it: `--out` (or the option `output`) before the
    /// `out` field of the return, but `highstate` is for the returns that ask for it themselves.
    ///
    /// # Errors
    /// A name that is not known; nested is meant then.
    pub fn choose(option: Option<&str>, returned: Option<&str>) -> Result<Self, UnknownOutputter> {
        let option = option.filter(|name| *name != "highstate");
        option.or(returned).unwrap_or_default().parse()
    }

    /// The outputter that a return's `out` field names. A name that is not known, or none, is shown
    /// as nested.
    #[must_use]
    pub fn for_name(name: Option<&str>) -> Self {
        name.and_then(|name| name.parse().ok()).unwrap_or_default()
    }
}

/// A name of no outputter. Stock logs this as an error, unless the name is `grains`, and falls back to
/// nested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid outputter {0} specified, fall back to nested")]
pub struct UnknownOutputter(pub String);

impl FromStr for Outputter {
    type Err = UnknownOutputter;

    /// Reads a name; `text` is `txt`, and no name at all is `nested`.
    fn from_str(name: &str) -> Result<Self, UnknownOutputter> {
        let name = match name {
            "" => "nested",
            "text" => "txt",
            _ => name,
        };
        let named = NAMES.iter().find(|(known, _)| *known == name);
        named
            .map(|(_, outputter)| *outputter)
            .ok_or_else(|| UnknownOutputter(name.to_owned()))
    }
}
