//! `yaml.dump(value, Dumper=SafeDumper, allow_unicode=True)` of PyYAML with libyaml.
//!
//! The text is laid out by a translation of libyaml's emitter, which PyYAML uses where it can. What
//! PyYAML adds is here: how each type is written, sorted keys, and which texts need quotes because a
//! reader of YAML 1.1 would see another type.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use libyaml_safer::{Emitter, Encoding, Event, MappingStyle, ScalarStyle, SequenceStyle};
use regex::Regex;

use crate::node::{Node, sorted_entries};
use crate::number::float_repr;
use crate::object::Sequence;

/// The arguments of `yaml.dump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// `default_flow_style`.
    pub flow: bool,
    /// `indent`; libyaml takes 2 for whatever is not in 2 to 9.
    pub indent: Option<i32>,
}

/// Why a value has no YAML.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// libyaml's emitter refused it.
    #[error("YAML emitter")]
    Emitter(#[source] libyaml_safer::Error),
    /// The emitter's text is no UTF-8.
    #[error("YAML text")]
    Text(#[source] std::string::FromUtf8Error),
}

/// The text of a value, its line end included. Values of types that YAML does not have become `NULL`,
/// as Salt's dumper has it.
///
/// # Errors
/// Values that the emitter refuses.
pub fn safe_dump(value: &Node, style: Style) -> Result<String, YamlError> {
    let collections = match style.flow {
        true => Collections::Flow,
        false => Collections::Block,
    };
    dump(value, collections, style.indent)
}

/// The same with `default_flow_style=None`: what holds only plain scalars is in flow style.
///
/// # Errors
/// What the emitter refuses.
pub fn safe_dump_mixed(value: &Node) -> Result<String, YamlError> {
    dump(value, Collections::FlowOfScalars, None)
}

/// Collections in flow style.
#[derive(Clone, Copy)]
enum Collections {
    Flow,
    Block,
    FlowOfScalars,
}

impl Collections {
    fn is_flow<'a>(self, mut items: impl Iterator<Item = &'a Node>) -> bool {
        let is_plain =
            |item: &Node| !matches!(item, Node::Sequence(..) | Node::Dict(_) | Node::Bytes(_));
        match self {
            Self::Flow => true,
            Self::Block => false,
            Self::FlowOfScalars => items.all(is_plain),
        }
    }
}

fn dump(value: &Node, collections: Collections, indent: Option<i32>) -> Result<String, YamlError> {
    let value = in_order(value);
    match Stand::for_letters_of(&value) {
        None => emit(&value, collections, indent),
        Some(stand) => {
            let (value, letters) = stand.put_into(&value);
            Ok(stand.replace_in(&emit(&value, collections, indent)?, &letters))
        }
    }
}

fn emit(value: &Node, collections: Collections, indent: Option<i32>) -> Result<String, YamlError> {
    let mut out = Vec::new();
    let mut emitter = Emitter::new();
    emitter.set_output_string(&mut out);
    emitter.set_unicode(true);
    if let Some(indent) = indent {
        emitter.set_indent(indent);
    }
    let mut dumper = Dumper {
        emitter,
        collections,
    };
    dumper.document(value).map_err(YamlError::Emitter)?;
    drop(dumper);
    String::from_utf8(out).map_err(YamlError::Text)
}

/// The value with the keys of its dicts in the order in which they are written. Keys without a common
/// order stay as they are.
fn in_order(value: &Node) -> Node {
    match value {
        Node::Sequence(kind, items) => Node::Sequence(*kind, items.iter().map(in_order).collect()),
        Node::Dict(entries) => {
            let sorted = sorted_entries(entries).unwrap_or_else(|| entries.iter().collect());
            let entries = sorted.into_iter();
            Node::Dict(
                entries
                    .map(|(key, value)| (in_order(key), in_order(value)))
                    .collect(),
            )
        }
        _ => value.clone(),
    }
}

struct Dumper<'w> {
    emitter: Emitter<'w>,
    collections: Collections,
}

type Emitted = Result<(), libyaml_safer::Error>;

impl Dumper<'_> {
    fn document(&mut self, value: &Node) -> Emitted {
        self.emitter.emit(Event::stream_start(Encoding::Utf8))?;
        self.emitter.emit(Event::document_start(None, &[], true))?;
        self.node(value)?;
        self.emitter.emit(Event::document_end(true))?;
        self.emitter.emit(Event::stream_end())
    }

    fn node(&mut self, value: &Node) -> Emitted {
        match value {
            Node::None => self.scalar("null", "null"),
            Node::Bool(flag) => self.scalar("bool", if *flag { "true" } else { "false" }),
            Node::Int(number) => self.scalar("int", &number.to_string()),
            Node::Float(number) => self.scalar("float", &yaml_float(*number)),
            Node::Text(text) => {
                let is_plain = !READ_AS_TYPED.is_match(text);
                self.event("str", text, is_plain, true, ScalarStyle::Any)
            }
            Node::Bytes(bytes) => {
                let text = base64_lines(bytes);
                self.event("binary", &text, false, false, ScalarStyle::Literal)
            }
            Node::Sequence(Sequence::Set, items) => self.set(items),
            Node::Sequence(_, items) => self.sequence(items),
            Node::Dict(entries) => self.mapping(entries),
            Node::Other {
                type_name, text, ..
            } if type_name == "datetime" => self.scalar("timestamp", text),
            Node::Other { .. } => self.scalar("null", "NULL"),
        }
    }

    /// A scalar that is read back as its own type without quotes.
    fn scalar(&mut self, tag: &str, text: &str) -> Emitted {
        self.event(tag, text, true, false, ScalarStyle::Any)
    }

    fn event(
        &mut self,
        tag: &str,
        text: &str,
        is_plain_implicit: bool,
        is_quoted_implicit: bool,
        style: ScalarStyle,
    ) -> Emitted {
        let tag = format!("tag:yaml.org,2002:{tag}");
        self.emitter.emit(Event::scalar(
            None,
            Some(&tag),
            text,
            is_plain_implicit,
            is_quoted_implicit,
            style,
        ))
    }

    fn sequence(&mut self, items: &[Node]) -> Emitted {
        let style = match self.collections.is_flow(items.iter()) {
            true => SequenceStyle::Flow,
            false => SequenceStyle::Block,
        };
        let tag = Some("tag:yaml.org,2002:seq");
        self.emitter
            .emit(Event::sequence_start(None, tag, true, style))?;
        for item in items {
            self.node(item)?;
        }
        self.emitter.emit(Event::sequence_end())
    }

    fn mapping(&mut self, entries: &[(Node, Node)]) -> Emitted {
        let scalars = entries.iter().flat_map(|(key, value)| [key, value]);
        self.start_mapping("map", true, self.collections.is_flow(scalars))?;
        for (key, value) in entries {
            self.node(key)?;
            self.node(value)?;
        }
        self.emitter.emit(Event::mapping_end())
    }

    fn set(&mut self, items: &[Node]) -> Emitted {
        self.start_mapping("set", false, self.collections.is_flow(items.iter()))?;
        for item in items {
            self.node(item)?;
            self.node(&Node::None)?;
        }
        self.emitter.emit(Event::mapping_end())
    }

    fn start_mapping(&mut self, tag: &str, is_implicit: bool, is_flow: bool) -> Emitted {
        let style = match is_flow {
            true => MappingStyle::Flow,
            false => MappingStyle::Block,
        };
        let tag = format!("tag:yaml.org,2002:{tag}");
        let start = Event::mapping_start(None, Some(&tag), is_implicit, style);
        self.emitter.emit(start)
    }
}

/// Placeholder of a letter beyond U+FFFF while the text is laid out.
///
/// libyaml escapes these letters, and its translation does not. Two letters that both escape, and whose
/// escapes are as wide as that of one beyond U+FFFF, stand for each of them, and are replaced in the text.
struct Stand {
    /// The two letters.
    pair: String,
    /// How they are written.
    escaped: String,
}

impl Stand {
    /// A pair that is in none of the texts; nothing if no text needs one.
    fn for_letters_of(value: &Node) -> Option<Self> {
        let mut texts = Vec::new();
        collect_texts(value, &mut texts);
        if !texts.iter().any(|text| text.chars().any(is_beyond_bmp)) {
            return None;
        }
        let pairs = ('\u{86}'..='\u{9f}').map(|second| Self {
            pair: format!("\u{ffff}{second}"),
            escaped: format!("\\uFFFF\\x{:02X}", u32::from(second)),
        });
        let is_unused = |stand: &Self| {
            let mut texts = texts.iter();
            !texts.any(|text| text.contains(&stand.pair) || text.contains(&stand.escaped))
        };
        pairs.into_iter().find(is_unused)
    }

    /// The value with the pair in place of the letters, and the letters in the order of the text.
    fn put_into(&self, value: &Node) -> (Node, Vec<char>) {
        let mut letters = Vec::new();
        (self.put(value, &mut letters), letters)
    }

    fn put(&self, value: &Node, letters: &mut Vec<char>) -> Node {
        match value {
            Node::Text(text) => {
                letters.extend(text.chars().filter(|letter| is_beyond_bmp(*letter)));
                Node::Text(text.replace(is_beyond_bmp, &self.pair))
            }
            Node::Sequence(kind, items) => {
                let items = items.iter().map(|item| self.put(item, letters));
                Node::Sequence(*kind, items.collect())
            }
            Node::Dict(entries) => {
                let entries = entries.iter().map(|(key, value)| {
                    let key = self.put(key, letters);
                    (key, self.put(value, letters))
                });
                Node::Dict(entries.collect())
            }
            _ => value.clone(),
        }
    }

    fn replace_in(&self, text: &str, letters: &[char]) -> String {
        let mut out = String::with_capacity(text.len());
        let mut letters = letters.iter();
        let mut parts = text.split(&self.escaped);
        out.extend(parts.next());
        for part in parts {
            if let Some(letter) = letters.next() {
                out.push_str(&format!("\\U{:08X}", u32::from(*letter)));
            }
            out.push_str(part);
        }
        out
    }
}

const fn is_beyond_bmp(letter: char) -> bool {
    letter as u32 > 0xffff
}

fn collect_texts<'a>(value: &'a Node, texts: &mut Vec<&'a str>) {
    match value {
        Node::Text(text) => texts.push(text),
        Node::Sequence(_, items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Node::Dict(entries) => {
            for (key, value) in entries {
                collect_texts(key, texts);
                collect_texts(value, texts);
            }
        }
        _ => {}
    }
}

/// Texts that a reader of YAML 1.1 takes for a boolean, number, null, merge key, default key or time.
static READ_AS_TYPED: LazyLock<Regex> = LazyLock::new(|| {
    let boolean = "yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF";
    let float = r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)";
    let int = "[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+";
    let date = "[0-9]{4}-[0-9]{2}-[0-9]{2}";
    let time = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?";
    let other = "<<|=|~|null|Null|NULL|";
    // A line end may follow, as Python's `$` allows.
    let expression = format!(r"\A(?:{boolean}|{float}|{int}|{date}|{time}|{other})\n?\z");
    Regex::new(&expression).expect("invariant: a valid expression")
});

fn yaml_float(number: f64) -> String {
    if number.is_nan() {
        return ".nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let text = float_repr(number);
    match text.contains('.') {
        true => text,
        false => text.replacen('e', ".0e", 1),
    }
}

/// `base64.encodebytes`: lines of 76 letters.
fn base64_lines(bytes: &[u8]) -> String {
    let lines = bytes.chunks(57).map(|line| BASE64.encode(line) + "\n");
    lines.collect()
}
