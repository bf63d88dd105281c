//! Rules of the reactor, which map events to files: the option `reactor`, as a list or as the path
//! of a file with one.
//!
//! Every event on the bus is matched against them, so patterns are compiled once, and most tags
//! fail at the first letters.

use std::path::{Path, PathBuf};

use saltern_base::chain;
use saltern_config::yaml::{self, Limits, Node};
use saltern_config::{MasterConfig, OptionValue};
use saltern_content::render::data::from_yaml;
use saltern_python::expression::{ExpressionError, Pattern};
use saltern_store::files::{self, Stat, Version};
use saltern_wire::msgpack::Value;

/// The most rules: each is matched against every event.
const MAX_RULES: usize = 10_000;

/// The largest file of rules, in bytes.
const MAX_FILE_BYTES: usize = 4 << 20;

/// The options of the reactor, but for its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReactorOptions {
    /// `reactor_worker_threads`: functions of the master that run at a time.
    pub threads: u32,
    /// `reactor_worker_hwm`: the most events that wait, and the most calls.
    pub most_waiting: usize,
}

impl ReactorOptions {
    /// The options; `None` where no reactor is configured, neither by rules nor by an engine. The
    /// engine's options win (`salt/engines/reactor.py`).
    pub fn read(config: &MasterConfig) -> Option<Self> {
        let engine = engine(config);
        let has_rules = config.followed().reactor().is_set();
        if engine.is_none() && !has_rules {
            return None;
        }
        let given = engine.and_then(Node::as_map);
        let number = |name: &str, option: OptionValue<'_>, default: i64| {
            let given = given.and_then(|given| given.get(name));
            let given = given.or_else(|| option.node());
            given.and_then(Node::as_i64).unwrap_or(default).max(1)
        };
        let threads = number("worker_threads", config.reactor_worker_threads(), 10);
        let hwm = number("worker_hwm", config.reactor_worker_hwm(), 10_000);
        Some(Self {
            threads: u32::try_from(threads.min(MAX_THREADS)).unwrap_or(1),
            most_waiting: usize::try_from(hwm.min(MAX_WAITING)).unwrap_or(1),
        })
    }
}

/// Threads beyond which more only cost memory.
const MAX_THREADS: i64 = 256;

/// The most waiting events, whatever the options say.
const MAX_WAITING: i64 = 1_000_000;

/// The reactor among the `engines`, with its options.
fn engine(config: &MasterConfig) -> Option<&Node> {
    let mut engines = config.engines().as_seq()?.iter();
    engines.find_map(|engine| match engine.as_map() {
        Some(named) => named.get("reactor"),
        None => (engine.as_str() == Some("reactor")).then_some(engine),
    })
}

/// One entry of the option.
struct Rule {
    tags: Pattern,
    /// The literal prefix of every tag that can match.
    start: String,
    references: Vec<String>,
    /// The entry as it was written.
    written: Value,
}

/// Source of the rules.
#[derive(Default)]
enum Source {
    /// The configuration; `reactor.add` and `reactor.delete` change them until the next start.
    #[default]
    Option,
    File(RulesFile),
}

/// File of rules, with the version last read: one that cannot be used is read, and logged, once.
#[derive(Clone, PartialEq, Eq)]
pub struct RulesFile {
    path: PathBuf,
    /// `None` where it did not exist.
    seen: Option<Version>,
}

impl RulesFile {
    /// Reads the file again if it has changed.
    pub fn changed(&self) -> Option<Reading> {
        let version = version(&self.path);
        (version != self.seen).then(|| Reading::of_file(self.path.clone(), version).logged())
    }
}

/// Rules of the reactor.
#[derive(Default)]
pub struct Rules {
    source: Source,
    rules: Vec<Rule>,
}

/// Result of reading the rules. Reading may take long, so users of the rules do not wait for it:
/// they are read first, and [taken](Rules::take) then.
pub struct Reading {
    source: Source,
    /// `None` where the file cannot be read.
    rules: Option<Vec<Rule>>,
    /// Problems: entries without effect, or a file that cannot be used.
    problems: Vec<String>,
}

impl Reading {
    /// Reads the rules of a configuration. Entries without effect are logged and skipped.
    pub fn of(config: &MasterConfig) -> Self {
        Self::quietly(config).logged()
    }

    /// [`Self::of`] without logging.
    pub(crate) fn quietly(config: &MasterConfig) -> Self {
        let followed = config.followed();
        let option = followed.reactor().node();
        if let Some(path) = option
            .and_then(Node::as_str)
            .filter(|path| !path.is_empty())
        {
            return Self::of_file(path.into(), version(Path::new(path)));
        }
        let list = option.cloned().map_or(Value::Nil, from_yaml);
        let mut problems = Vec::new();
        if option.is_some_and(Node::is_truthy) && list.as_array().is_none() {
            problems.push("it is neither a list of rules nor the path of a file".to_owned());
        }
        Self {
            source: Source::Option,
            rules: Some(rules(list.as_array().unwrap_or_default(), &mut problems)),
            problems,
        }
    }

    /// The problems, each as a part of a sentence about the option `reactor`.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The files that the rules name, as they are written.
    pub(crate) fn references(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().flatten();
        let references = rules.flat_map(|rule| &rule.references);
        references.map(String::as_str)
    }

    fn logged(self) -> Self {
        for problem in &self.problems {
            tracing::error!(
                problem,
                "the option \"reactor\" is not followed as it is written"
            );
        }
        self
    }

    /// Reads a file that had this version before: a change in between is found the next time.
    fn of_file(path: PathBuf, version: Option<Version>) -> Self {
        let mut problems = Vec::new();
        Self {
            rules: read_file(&path, &mut problems),
            problems,
            source: Source::File(RulesFile {
                path,
                seen: version,
            }),
        }
    }
}

fn version(path: &Path) -> Option<Version> {
    let stat = Version::of(path, true);
    stat.ok().flatten().map(|stat: Stat| stat.version)
}

fn read_file(path: &Path, problems: &mut Vec<String>) -> Option<Vec<Rule>> {
    let name = path.display().to_string();
    let text = match files::read_text(path, MAX_FILE_BYTES) {
        Ok(Some(text)) => text,
        Ok(None) => {
            problems.push(format!("there is no file \"{name}\""));
            return None;
        }
        Err(error) => {
            problems.push(format!("its file cannot be read: {}", chain(&error)));
            return None;
        }
    };
    match yaml::parse(&text, &name, &Limits::DEFAULT) {
        Ok(node) => {
            let list = from_yaml(node);
            if list.as_array().is_none() && list != Value::Nil {
                problems.push(format!("the file \"{name}\" holds no list of rules"));
            }
            Some(rules(list.as_array().unwrap_or_default(), problems))
        }
        Err(error) => {
            problems.push(format!("its file is no YAML: {error}"));
            None
        }
    }
}

fn rules(list: &[Value], problems: &mut Vec<String>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for entry in list {
        match rule(entry) {
            Ok(rule) if rules.len() < MAX_RULES => rules.push(rule),
            Ok(_) => {
                problems.push(format!("there are more than {MAX_RULES} rules"));
                break;
            }
            Err(problem) => problems.push(format!("an entry is passed over: {problem}")),
        }
    }
    rules
}

impl Rules {
    /// The rules of a configuration; none where their file cannot be read.
    pub fn read(config: &MasterConfig) -> Self {
        let mut rules = Self::default();
        rules.take(Reading::of(config));
        rules
    }

    /// Replaces the rules by those read. When reading failed, the rules stay until the file can be
    /// read.
    pub fn take(&mut self, reading: Reading) {
        self.source = reading.source;
        if let Some(rules) = reading.rules {
            self.rules = rules;
        }
    }

    /// The file that the rules come from, to be checked while others use the rules.
    pub fn file(&self) -> Option<RulesFile> {
        match &self.source {
            Source::File(file) => Some(file.clone()),
            Source::Option => None,
        }
    }

    /// [Takes](Self::take) a reading of this file, unless the rules come from elsewhere by now.
    pub fn take_of(&mut self, file: &RulesFile, reading: Reading) {
        if matches!(&self.source, Source::File(own) if own == file) {
            self.take(reading);
        }
    }

    /// Whether a rule matches an event of this tag.
    pub fn is_meant(&self, tag: &str) -> bool {
        self.rules.iter().any(|rule| rule.is_for(tag))
    }

    /// The files of all rules that match this tag, in their order.
    pub fn references(&self, tag: &str) -> Vec<String> {
        let meant = self.rules.iter().filter(|rule| rule.is_for(tag));
        meant.flat_map(|rule| rule.references.clone()).collect()
    }

    /// The tags of the rules that match this tag, as they are written.
    pub fn matching(&self, tag: &str) -> Vec<String> {
        let meant = self.rules.iter().filter(|rule| rule.is_for(tag));
        meant.map(Rule::written_tags).collect()
    }

    /// The tags of each rule as they are written, with its files.
    pub fn written(&self) -> impl Iterator<Item = (String, &[String])> {
        let rules = self.rules.iter();
        rules.map(|rule| (rule.written_tags(), rule.references.as_slice()))
    }

    /// The rules as they were written.
    pub fn list(&self) -> Value {
        Value::Array(self.rules.iter().map(|rule| rule.written.clone()).collect())
    }

    /// Adds a rule; answers in stock's words.
    pub fn add(&mut self, tags: &str, references: &Value) -> Value {
        if let Source::File(file) = &self.source {
            return result(
                false,
                &format!("Reactors are read from {}.", file.path.display()),
            );
        }
        if self.position(tags).is_some() {
            return result(false, "Reactor already exists.");
        }
        if self.rules.len() >= MAX_RULES {
            return result(false, "There are too many reactors.");
        }
        match rule(&Value::map([(tags, references.clone())])) {
            Ok(rule) => {
                self.rules.push(rule);
                result(true, "Reactor added.")
            }
            Err(problem) => result(false, &problem.to_string()),
        }
    }

    /// Removes a rule; answers in stock's words.
    pub fn delete(&mut self, tags: &str) -> Value {
        if let Source::File(file) = &self.source {
            return result(
                false,
                &format!("Reactors are read from {}.", file.path.display()),
            );
        }
        match self.position(tags) {
            Some(at) => {
                self.rules.remove(at);
                result(true, "Reactor deleted.")
            }
            None => result(false, "Reactor does not exists."),
        }
    }

    fn position(&self, tags: &str) -> Option<usize> {
        let is_it = |rule: &Rule| rule.written.get(tags).is_some();
        self.rules.iter().position(is_it)
    }
}

impl Rule {
    fn written_tags(&self) -> String {
        let entries = self.written.as_map().unwrap_or_default();
        let tags = entries.first().map(|(tags, _)| saltern_python::str(tags));
        tags.unwrap_or_default().into_owned()
    }

    fn is_for(&self, tag: &str) -> bool {
        tag.starts_with(&self.start) && self.tags.matches(tag)
    }
}

/// Why an entry of the option is refused.
#[derive(Debug, thiserror::Error)]
enum RuleError {
    #[error("it is no mapping of one pattern to its files")]
    NoMapping,
    #[error("the pattern is no text")]
    NoText,
    #[error("\"{0}\" names neither a file nor a list of files")]
    NoFiles(String),
    #[error("the files of \"{0}\" are not all texts")]
    Files(String),
    #[error("the pattern \"{tags}\": {source}")]
    Pattern {
        tags: String,
        source: ExpressionError,
    },
}

fn rule(entry: &Value) -> Result<Rule, RuleError> {
    let [(tags, references)] = entry.as_map().unwrap_or_default() else {
        return Err(RuleError::NoMapping);
    };
    let tags = tags.as_str().ok_or(RuleError::NoText)?;
    let references = match references {
        Value::Str(one) => vec![one.clone()],
        Value::Array(names) => {
            let names = names.iter().map(|name| name.as_str().map(str::to_owned));
            let names: Option<Vec<String>> = names.collect();
            names.ok_or_else(|| RuleError::Files(tags.to_owned()))?
        }
        _ => {
            return Err(RuleError::NoFiles(tags.to_owned()));
        }
    };
    Ok(Rule {
        start: tags.chars().take_while(|c| !"*?[".contains(*c)).collect(),
        tags: Pattern::glob(tags).map_err(|source| RuleError::Pattern {
            tags: tags.to_owned(),
            source,
        })?,
        references,
        written: entry.clone(),
    })
}

fn result(status: bool, comment: &str) -> Value {
    Value::map([("status", Value::from(status)), ("comment", comment.into())])
}
