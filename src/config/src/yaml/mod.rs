//! YAML 1.1 as stock Salt reads it: PyYAML's safe loader with the changes Salt makes to it
//! (`salt/utils/yamlloader.py`).
//!
//! That is a dialect of its own. `yes` and `off` are booleans, `1:30` is ninety, `<<` merges, a
//! key given twice is an error, `2024-01-01` stays text, and `0644` is six hundred and forty-four,
//! because Salt strips the zeros. A YAML 1.2 library that builds values reads other values from
//! the same file. So the events come from `libyaml-safer`, a port of the very library that PyYAML
//! uses, and everything that
//! has meaning is decided here.
//!
//! Every node carries the place it was written, which is what a message about a wrong value needs.
//! Nothing here knows what a configuration or a pillar is.
//!
//! `tests/yaml_stock.rs` compares it with stock on some thousand documents, and knows of no
//! difference, except that stock accepts a collection that contains itself, and a tag with a comma
//! after it.

mod compose;
mod construct;
mod resolve;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use indexmap::{Equivalent, IndexMap};
use saltern_python::number::float_repr;

/// Position in a file. Lines and columns count from one; line 0 means "no place in a file", as for
/// a default.
#[derive(Clone, PartialEq, Eq)]
pub struct Mark {
    /// The file as it was named when it was opened, or a word such as `default`.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl Mark {
    /// A mark for a value that stands in no file.
    pub fn nowhere(name: &str) -> Mark {
        Mark {
            file: Arc::from(name),
            line: 0,
            column: 0,
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{}:{}", self.file, line, self.column),
        }
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A value and the place it was written. Equality looks at the value only.
#[derive(Clone)]
pub struct Node {
    /// The value.
    pub value: NodeValue,
    /// Its position.
    pub mark: Mark,
}

/// Value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeValue {
    /// Nothing, `~` or `null`.
    Null,
    /// `true`, `Yes`, `off`, …
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// A larger integer, as decimal text with an optional `-`.
    BigInt(String),
    /// A number with a fraction or exponent, an infinity or not-a-number.
    Float(f64),
    /// Text.
    Str(String),
    /// A date or time as it was written. Salt hands it on as text, and so does [`Node::as_str`].
    Timestamp(String),
    /// `!!binary`.
    Binary(Vec<u8>),
    /// A list. `!!set`, `!!pairs` and `!!omap` become lists, as they do on Salt's wire.
    Seq(Vec<Node>),
    /// A mapping in the order it was written.
    Map(Mapping),
}

/// The key of a mapping. Keys are equal when Python says they are: `1`, `1.0` and `true` are one.
#[derive(Clone, Debug)]
pub enum Key {
    /// The null key.
    Null,
    /// A boolean key.
    Bool(bool),
    /// An integer key.
    Int(i64),
    /// An integer key beyond 64 bits, in decimal.
    BigInt(String),
    /// A floating point key.
    Float(f64),
    /// A text key; also a date.
    Str(String),
    /// A `!!binary` key.
    Binary(Vec<u8>),
}

/// Identity of a key: equal keys have the same.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    Null,
    Int(i64),
    Digits(&'a str),
    Bits(u64),
    Str(&'a str),
    Binary(&'a [u8]),
}

impl Key {
    fn identity(&self) -> Identity<'_> {
        match self {
            Key::Null => Identity::Null,
            Key::Bool(flag) => Identity::Int(i64::from(*flag)),
            Key::Int(number) => Identity::Int(*number),
            Key::BigInt(digits) => Identity::Digits(digits),
            Key::Float(number) => {
                let whole = *number as i64;
                if whole as f64 == *number {
                    Identity::Int(whole)
                } else {
                    Identity::Bits(number.to_bits())
                }
            }
            Key::Str(text) => Identity::Str(text),
            Key::Binary(bytes) => Identity::Binary(bytes),
        }
    }

    /// The text of a text key.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Key::Str(text) => Some(text),
            _ => None,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Null => f.write_str("null"),
            Key::Bool(flag) => write!(f, "{flag}"),
            Key::Int(number) => write!(f, "{number}"),
            Key::BigInt(text) | Key::Str(text) => f.write_str(text),
            Key::Float(number) => f.write_str(&float_repr(*number)),
            Key::Binary(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
        }
    }
}

/// Looks a text key up without building a [`Key`].
struct TextKey<'a>(&'a str);

impl Hash for TextKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Identity::Str(self.0).hash(state);
    }
}

impl Equivalent<Key> for TextKey<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        key.as_str() == Some(self.0)
    }
}

/// One entry of a mapping.
#[derive(Clone)]
pub struct Entry {
    /// Position of the key.
    pub key_mark: Mark,
    /// The value.
    pub value: Node,
}

/// A mapping that keeps the order in which it was written.
#[derive(Clone, Default)]
pub struct Mapping {
    entries: IndexMap<Key, Entry>,
}

impl Mapping {
    /// The value of a text key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries.get(&TextKey(key)).map(|entry| &entry.value)
    }

    /// The value of a text key, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.entries
            .get_mut(&TextKey(key))
            .map(|entry| &mut entry.value)
    }

    /// The value of a text key together with the place where the key was written.
    pub(crate) fn get_entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(&TextKey(key))
    }

    /// The entry of any key.
    pub(crate) fn entry_of(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The entry of any key, to be changed.
    pub(crate) fn entry_of_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    /// Sets an entry. An entry that is there keeps its place in the order.
    pub fn insert(&mut self, key: Key, entry: Entry) -> Option<Entry> {
        self.entries.insert(key, entry)
    }

    /// Removes a text key; the order of the others stays.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        self.entries.shift_remove(&TextKey(key))
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl IntoIterator for Mapping {
    type Item = (Key, Entry);
    type IntoIter = indexmap::map::IntoIter<Key, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl PartialEq for Mapping {
    fn eq(&self, other: &Mapping) -> bool {
        self.len() == other.len()
            && self.iter().all(|(key, entry)| {
                other
                    .entry_of(key)
                    .is_some_and(|there| there.value == entry.value)
            })
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(key, entry)| (key, &entry.value)))
            .finish()
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.value == other.value
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl Node {
    /// A node with a place.
    pub fn new(value: NodeValue, mark: Mark) -> Node {
        Node { value, mark }
    }

    /// The text of a string, or of a date as it was written.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Str(text) | NodeValue::Timestamp(text) => Some(text),
            _ => None,
        }
    }

    /// The flag of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            NodeValue::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    /// The number of an integer that fits 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self.value {
            NodeValue::Int(number) => Some(number),
            _ => None,
        }
    }

    /// The number of an integer or a float.
    pub fn as_f64(&self) -> Option<f64> {
        match self.value {
            NodeValue::Int(number) => Some(number as f64),
            NodeValue::Float(number) => Some(number),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn as_seq(&self) -> Option<&[Node]> {
        match &self.value {
            NodeValue::Seq(items) => Some(items),
            _ => None,
        }
    }

    /// The mapping.
    pub fn as_map(&self) -> Option<&Mapping> {
        match &self.value {
            NodeValue::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Whether nothing was written.
    pub fn is_null(&self) -> bool {
        self.value == NodeValue::Null
    }

    /// Whether Python would call the value true: not null, false, zero or empty.
    pub fn is_truthy(&self) -> bool {
        match &self.value {
            NodeValue::Null => false,
            NodeValue::Bool(flag) => *flag,
            NodeValue::Int(number) => *number != 0,
            NodeValue::Float(number) => *number != 0.0,
            NodeValue::BigInt(_) => true,
            NodeValue::Str(text) | NodeValue::Timestamp(text) => !text.is_empty(),
            NodeValue::Binary(bytes) => !bytes.is_empty(),
            NodeValue::Seq(items) => !items.is_empty(),
            NodeValue::Map(map) => !map.is_empty(),
        }
    }

    /// The kind in a word, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            NodeValue::Null => "nothing",
            NodeValue::Bool(_) => "a boolean",
            NodeValue::Int(_) | NodeValue::BigInt(_) => "an integer",
            NodeValue::Float(_) => "a number",
            NodeValue::Str(_) | NodeValue::Timestamp(_) => "text",
            NodeValue::Binary(_) => "binary data",
            NodeValue::Seq(_) => "a list",
            NodeValue::Map(_) => "a mapping",
        }
    }
}

/// Bounds on one document.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The deepest nesting.
    pub depth: usize,
    /// The most nodes, counted after aliases are replaced by what they stand for. An alias bomb
    /// ends here, before it has used memory.
    pub nodes: usize,
    /// The largest document in bytes.
    pub bytes: usize,
}

impl Limits {
    /// Limits for a configuration file or a pillar, with a wide margin.
    pub const DEFAULT: Limits = Limits {
        depth: 200,
        nodes: 2_000_000,
        bytes: 64 << 20,
    };
}

/// Why a document could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{mark}: {message}")]
pub struct YamlError {
    /// Position at which reading stopped.
    pub mark: Mark,
    /// The reason, without the place.
    pub message: String,
}

/// Reads one document. Nothing but comments and white space is a null.
///
/// # Errors
/// [`YamlError`] with the place: a syntax error, a second document, a key given twice, a tag that
/// the safe loader does not know, or a bound that was crossed.
pub fn parse(text: &str, file: &str, limits: &Limits) -> Result<Node, YamlError> {
    let file: Arc<str> = Arc::from(file);
    let composed = compose::compose(text, &file, limits)?;
    construct::construct(&composed, &file, limits)
}

/// As [`parse`], from the bytes of a file.
///
/// # Errors
/// Also when the bytes are not UTF-8.
pub fn parse_bytes(bytes: &[u8], file: &str, limits: &Limits) -> Result<Node, YamlError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text, file, limits),
        Err(error) => {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let column = before
                .iter()
                .rev()
                .take_while(|byte| **byte != b'\n')
                .count()
                + 1;
            Err(YamlError {
                mark: compose::mark_at(&Arc::from(file), line, column),
                message: "the file is not UTF-8 text".to_owned(),
            })
        }
    }
}
