//! Options of printing beside the outputter: stock's of the same names, read from configuration and
//! command line by the caller.

use std::time::Duration;

use saltern_wire::msgpack::Value;

use crate::Colors;

/// How values are printed.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputOptions {
    /// Terminal colours.
    pub colors: Colors,
    /// Shows an escape character inside a string as `?` (`strip_colors`, on by default).
    pub strip_colors: bool,
    /// The return code of the function; anything but 0 turns keys red.
    pub retcode: i64,
    /// From publishing until the return came; shown by [`Outputter::Summary`](crate::Outputter) for
    /// functions that are no state runs.
    pub elapsed: Option<Duration>,
    /// Spaces before the first column (`nested_indent`).
    pub nested_indent: usize,
    /// `output_indent` and `--out-indent`.
    pub indent: Indent,
    /// Options of the highstate outputter.
    pub state: StateOptions,
    /// How tables are drawn.
    pub table: TableOptions,
}

impl OutputOptions {
    /// Stock's defaults, with or without colour.
    #[must_use]
    pub fn new(color: bool) -> Self {
        Self {
            colors: Colors::new(color),
            strip_colors: true,
            retcode: 0,
            elapsed: None,
            nested_indent: 0,
            indent: Indent::Unset,
            state: StateOptions::default(),
            table: TableOptions::default(),
        }
    }

    /// The same options for a return with this return code.
    #[must_use]
    pub fn with_retcode(&self, retcode: i64) -> Self {
        Self {
            retcode,
            ..self.clone()
        }
    }
}

/// Indentation of the outputters `json`, `yaml` and `pprint`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Indent {
    /// Not set: each outputter's own default.
    #[default]
    Unset,
    /// `null`: JSON on one line; `yaml` and `pprint` refuse it.
    Null,
    /// `pretty`: four spaces and sorted keys; JSON only.
    Pretty,
    /// So many spaces; a negative number means everything on one line.
    Spaces(i64),
    /// Any other text, which JSON repeats once a level.
    Text(String),
}

impl Indent {
    /// The option `output_indent` as configured. Booleans are numbers, as in Python.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        match value {
            Value::Nil => Self::Null,
            Value::Bool(flag) => Self::Spaces(i64::from(*flag)),
            Value::Str(text) if text == "pretty" => Self::Pretty,
            Value::Str(text) => Self::Text(text.clone()),
            _ => value.as_i64().map_or(Self::Null, Self::Spaces),
        }
    }
}

/// Options of the highstate outputter.
#[derive(Debug, Clone, PartialEq)]
pub struct StateOptions {
    /// `state_output`.
    pub output: StateOutput,
    /// `state_verbose`: also states that succeeded without changes.
    pub verbose: bool,
    /// `state_output_diff`: only states that failed or changed something.
    pub diff: bool,
    /// `state_output_profile`: start time and duration.
    pub profile: bool,
    /// `state_output_pct`: percentages in the summary.
    pub percent: bool,
    /// `state_compress_ids`: one entry for all names of a state id with the same result.
    pub compress_ids: bool,
    /// `state_tabular`.
    pub tabular: Tabular,
    /// `state_output_exclude`, or `exclude=` on the command line: results that
    /// [`StateMode::Filter`] leaves out. A list, a text parted by commas, or what stock fails on.
    pub exclude: Value,
    /// `state_output_terse`, or `terse=` on the command line: results that [`StateMode::Filter`]
    /// shows on one line.
    pub terse: Value,
}

impl Default for StateOptions {
    /// The defaults of stock's configuration.
    fn default() -> Self {
        Self {
            output: StateOutput::default(),
            verbose: true,
            diff: false,
            profile: true,
            percent: false,
            compress_ids: false,
            tabular: Tabular::Off,
            exclude: Value::Array(Vec::new()),
            terse: Value::Array(Vec::new()),
        }
    }
}

impl StateOptions {
    /// Takes `exclude=` and `terse=` from the arguments of the function (the job's `arg`); the last
    /// map of keyword arguments counts.
    pub fn apply_arguments(&mut self, arguments: &[Value]) {
        let keywords = arguments.iter().rev();
        let Some(keywords) = keywords
            .clone()
            .find(|item| item.get("__kwarg__").is_some())
        else {
            return;
        };
        if let Some(exclude) = keywords.get("exclude") {
            self.exclude = exclude.clone();
        }
        if let Some(terse) = keywords.get("terse") {
            self.terse = terse.clone();
        }
    }
}

/// `state_output`: how much of each state is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateOutput {
    /// How much.
    pub mode: StateMode,
    /// The suffix `_id`: the state's id stands in place of its name.
    pub by_id: bool,
}

impl StateOutput {
    /// Reads `full`, `terse`, `mixed`, `changes`, `filter`, each also with `_id`, in any case. Only
    /// the beginning and the end count, as for stock; any other word is `full`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let text = text.to_lowercase();
        const MODES: [(&str, StateMode); 4] = [
            ("filter", StateMode::Filter),
            ("terse", StateMode::Terse),
            ("mixed", StateMode::Mixed),
            ("changes", StateMode::Changes),
        ];
        let mode = MODES.iter().find(|(name, _)| text.starts_with(name));
        Self {
            mode: mode.map_or(StateMode::Full, |(_, mode)| *mode),
            by_id: text.ends_with("_id"),
        }
    }
}

/// How much of each state is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateMode {
    /// Everything.
    #[default]
    Full,
    /// One line.
    Terse,
    /// One line, unless the state failed.
    Mixed,
    /// One line for states without changes or failure.
    Changes,
    /// By result, see [`StateOptions::exclude`] and [`StateOptions::terse`].
    Filter,
}

/// `state_tabular`: the form of one-line states.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Tabular {
    /// Words.
    #[default]
    Off,
    /// Columns.
    Aligned,
    /// A format of Python: `{0}` colour, `{1}` name, `{2}` module, `{3}` function, `{4}` result,
    /// `{5}` end of colour, `{6}` the state's return.
    Format(String),
}

/// Options `out.table.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableOptions {
    /// Whether the first row is a heading.
    pub has_header: bool,
    /// The character that separator lines consist of.
    pub row_delimiter: String,
    /// Between columns.
    pub delim: String,
    /// Alignment of text in its column.
    pub justify: Justify,
    /// Whether separator lines stand between rows.
    pub separate_rows: bool,
    /// Before each row.
    pub prefix: String,
    /// Behind each row.
    pub suffix: String,
    /// Characters of a cell before it is wrapped.
    pub width: usize,
    /// Shows only the rows below this key.
    pub rows_key: Option<String>,
    /// The key of the headings.
    pub labels_key: Option<String>,
    /// The heading of a table chosen by `rows_key`.
    pub title: Option<String>,
    /// Spaces before the first column.
    pub nested_indent: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            has_header: true,
            row_delimiter: "-".to_owned(),
            delim: " | ".to_owned(),
            justify: Justify::Center,
            separate_rows: true,
            prefix: "| ".to_owned(),
            suffix: " |".to_owned(),
            width: 50,
            rows_key: None,
            labels_key: None,
            title: None,
            nested_indent: 0,
        }
    }
}

/// Alignment of text in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Justify {
    /// In the middle.
    #[default]
    Center,
    /// On the left.
    Left,
    /// On the right.
    Right,
}
