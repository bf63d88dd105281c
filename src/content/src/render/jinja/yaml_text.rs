//! Writes YAML as PyYAML's emitter does with Salt's dumper: sorted keys, lists at the
//! column of their key, lines folded at eighty columns, and quotes where a reader of YAML 1.1 would see
//! another type.
//!
//! A little over 500 lines, because the emitter's state is shared by all of its parts.

use std::sync::LazyLock;

use fancy_regex::Regex;
use minijinja::value::Value;
use saltern_python::number::float_repr;

use super::fault::{Fault, Outcome};
use super::value::{Kind, undefined_fault};
use super::{ops, value};

const WIDTH: usize = 80;
const MAX_DEPTH: usize = 150;

/// Texts that a reader would take for something else than text.
static TYPED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        r"|[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?",
        r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        r"|[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+",
        r"|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+|<<|~|null|Null|NULL||=",
        r"|[0-9]{4}-[0-9]{2}-[0-9]{2}",
        r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}",
        r"(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)$"
    ))
    .expect("invariant: the pattern is valid")
});

/// A double-quoted scalar on one line, letters beyond ASCII as they are.
pub(crate) fn double_quoted(text: &str) -> String {
    quoted(text, true)
}

/// A double-quoted scalar on one line.
pub(crate) fn quoted(text: &str, unicode: bool) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        escape(&mut out, letter, unicode);
    }
    out.push('"');
    out
}

fn escape(out: &mut String, letter: char, unicode: bool) {
    let special = matches!(
        letter,
        '"' | '\\' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
    );
    let plain = matches!(letter, ' '..='~')
        || (unicode && matches!(letter, '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}'));
    if plain && !special {
        out.push(letter);
        return;
    }
    out.push('\\');
    let short = match letter {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => letter,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            let code = u32::from(letter);
            out.push_str(&match code {
                0..=0xff => format!("x{code:02X}"),
                0x100..=0xffff => format!("u{code:04X}"),
                _ => format!("U{code:08X}"),
            });
            return;
        }
    };
    out.push(short);
}

/// A single-quoted scalar without folding.
pub(crate) fn single_quoted(text: &str) -> String {
    let mut emitter = Emitter::new(true);
    emitter.fold = false;
    emitter.single(text, true);
    emitter.out.trim_start().to_owned()
}

/// How the emitter can write a text.
struct Analysis {
    multiline: bool,
    flow_plain: bool,
    block_plain: bool,
    single: bool,
}

fn analyse(text: &str) -> Analysis {
    if text.is_empty() {
        return Analysis {
            multiline: false,
            flow_plain: false,
            block_plain: true,
            single: true,
        };
    }
    let letters: Vec<char> = text.chars().collect();
    let (mut block, mut flow, mut breaks, mut special) = (false, false, false, false);
    if text.starts_with("---") || text.starts_with("...") {
        (block, flow) = (true, true);
    }
    let is_space = |letter: Option<&char>| {
        letter.is_none_or(|c| "\0 \t\r\n\u{85}\u{2028}\u{2029}".contains(*c))
    };
    let mut before = true;
    let (mut space_break, mut break_space) = (false, false);
    let (mut previous_space, mut previous_break) = (false, false);
    let (mut leading_space, mut leading_break) = (false, false);
    let (mut trailing_space, mut trailing_break) = (false, false);
    for (index, letter) in letters.iter().enumerate() {
        let followed = is_space(letters.get(index + 1));
        if index == 0 {
            match letter {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"'
                | '%' | '@' | '`' => (flow, block) = (true, true),
                '?' | ':' => {
                    flow = true;
                    block |= followed;
                }
                '-' if followed => (flow, block) = (true, true),
                _ => {}
            }
        } else {
            match letter {
                ',' | '?' | '[' | ']' | '{' | '}' => flow = true,
                ':' => {
                    flow = true;
                    block |= followed;
                }
                '#' if before => (flow, block) = (true, true),
                _ => {}
            }
        }
        let is_break = "\n\u{85}\u{2028}\u{2029}".contains(*letter);
        breaks |= is_break;
        let printable = matches!(letter, '\n' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
            | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10fffe}')
            && *letter != '\u{feff}';
        special |= !printable;
        if *letter == ' ' {
            leading_space |= index == 0;
            trailing_space |= index == letters.len() - 1;
            break_space |= previous_break;
            (previous_space, previous_break) = (true, false);
        } else if is_break {
            leading_break |= index == 0;
            trailing_break |= index == letters.len() - 1;
            space_break |= previous_space;
            (previous_space, previous_break) = (false, true);
        } else {
            (previous_space, previous_break) = (false, false);
        }
        before = is_space(Some(letter));
    }
    let edges = leading_space || leading_break || trailing_space || trailing_break;
    let plain = !edges && !break_space && !space_break && !special && !breaks;
    Analysis {
        multiline: breaks,
        flow_plain: plain && !flow,
        block_plain: plain && !block,
        single: !space_break && !special && !break_space,
    }
}

/// Where a node stands.
#[derive(Clone, Copy, PartialEq)]
enum NodePosition {
    Root,
    Item,
    Key,
    Value,
}

struct Emitter {
    out: String,
    column: usize,
    indent: Option<usize>,
    whitespace: bool,
    indention: bool,
    flow: bool,
    /// Whether what holds only scalars is in flow style.
    mixed: bool,
    fold: bool,
    flow_level: usize,
}

/// `safe_dump(value, default_flow_style=flow)` without the line end and the document end.
pub(crate) fn dump(value: &Value, flow: bool) -> Outcome<String> {
    let mut emitter = Emitter::new(flow);
    emitter.node(value, NodePosition::Root, 0)?;
    Ok(emitter.out.trim().to_owned())
}

/// `safe_dump(value, default_flow_style=None)`: what holds only scalars is in flow style.
pub(crate) fn dump_mixed(value: &Value) -> Outcome<String> {
    let mut emitter = Emitter::new(false);
    emitter.mixed = true;
    emitter.node(value, NodePosition::Root, 0)?;
    Ok(emitter.out.trim().to_owned())
}

fn is_scalar(value: &Value) -> bool {
    !matches!(
        Kind::of(value),
        Kind::List(_) | Kind::Tuple(_) | Kind::Dict(_)
    )
}

impl Emitter {
    fn new(flow: bool) -> Emitter {
        Emitter {
            out: String::new(),
            column: 0,
            indent: None,
            whitespace: true,
            indention: true,
            flow,
            mixed: false,
            fold: true,
            flow_level: 0,
        }
    }

    fn write(&mut self, text: &str) {
        self.column += text.chars().count();
        self.out.push_str(text);
    }

    fn indicator(&mut self, text: &str, need_space: bool, space: bool, indention: bool) {
        if need_space && !self.whitespace {
            self.write(" ");
        }
        self.write(text);
        self.whitespace = space;
        self.indention = self.indention && indention;
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
        self.whitespace = true;
        self.indention = true;
    }

    fn write_indent(&mut self) {
        let indent = self.indent.unwrap_or(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break();
        }
        if self.column < indent {
            self.whitespace = true;
            let spaces = " ".repeat(indent - self.column);
            self.write(&spaces);
        }
    }

    fn fold_line(&mut self) {
        if self.column > WIDTH {
            self.write_indent();
        }
    }

    fn node(&mut self, value: &Value, place: NodePosition, depth: usize) -> Outcome<()> {
        if depth > MAX_DEPTH {
            return Err(Fault::limit("maximum recursion depth exceeded"));
        }
        let key = place == NodePosition::Key;
        // Scalars that need several lines are indented deeper than what holds them.
        let before = self.indent;
        if is_scalar(value) {
            self.deeper(true);
        }
        match Kind::of(value) {
            Kind::None => self.plain("null", !key),
            Kind::Bool(flag) => self.plain(if flag { "true" } else { "false" }, !key),
            Kind::Int(number) => self.plain(&number.to_string(), !key),
            Kind::Float(number) => self.plain(&yaml_float(number), !key),
            Kind::Str(text) => self.text(text, key),
            Kind::Bytes(bytes) => {
                use base64::Engine as _;
                let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
                self.plain(&format!("!!binary \"{encoded}\""), false);
            }
            Kind::Undefined(undefined) => return Err(undefined_fault(undefined)),
            Kind::List(_) | Kind::Tuple(_) => self.sequence(&ops::items(value)?, place, depth)?,
            Kind::Dict(entries) => {
                let entries = entries.0.lock().values().cloned().collect();
                self.mapping(entries, depth)?;
            }
            Kind::Set(_) | Kind::Other => {
                return Err(Fault::other(format!(
                    "cannot represent an object of type '{}'",
                    value::type_name(value)
                )));
            }
        }
        self.indent = before;
        Ok(())
    }

    fn is_flow<'a>(&self, mut items: impl ExactSizeIterator<Item = &'a Value>) -> bool {
        self.flow || self.flow_level > 0 || items.len() == 0 || (self.mixed && items.all(is_scalar))
    }

    fn deeper(&mut self, flow: bool) -> Option<usize> {
        let before = self.indent;
        self.indent = Some(match before {
            None if flow => 2,
            None => 0,
            Some(indent) => indent + 2,
        });
        before
    }

    fn sequence(&mut self, items: &[Value], place: NodePosition, depth: usize) -> Outcome<()> {
        let flow = self.is_flow(items.iter());
        let before = self.indent;
        // A list below a key stands at the key's own column.
        if flow || place != NodePosition::Value || self.indention {
            self.deeper(flow);
        } else {
            self.indent = before.or(Some(0));
        }
        if flow {
            self.indicator("[", true, true, false);
            self.flow_level += 1;
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    self.indicator(",", false, false, false);
                }
                self.fold_line();
                self.node(item, NodePosition::Item, depth + 1)?;
            }
            self.flow_level -= 1;
            self.indicator("]", false, false, false);
        } else {
            for item in items {
                self.write_indent();
                self.indicator("-", true, false, true);
                self.node(item, NodePosition::Item, depth + 1)?;
            }
        }
        self.indent = before;
        Ok(())
    }

    fn mapping(&mut self, entries: Vec<(Value, Value)>, depth: usize) -> Outcome<()> {
        let flow = self.is_flow(entries.iter().map(|(_, value)| value));
        let pairs = entries
            .iter()
            .enumerate()
            .map(|(index, (key, _))| (key.clone(), Value::from(index)))
            .collect();
        // Keys of types without a common order stay as they are.
        let order = ops::sorted(pairs, false)
            .unwrap_or_else(|_| (0..entries.len()).map(Value::from).collect());
        let before = self.deeper(flow);
        if flow {
            self.indicator("{", true, true, false);
            self.flow_level += 1;
        }
        let ordered = order
            .iter()
            .filter_map(|index| entries.get(index.as_usize()?));
        for (index, (key, value)) in ordered.enumerate() {
            if flow {
                if index > 0 {
                    self.indicator(",", false, false, false);
                }
                self.fold_line();
            } else {
                self.write_indent();
            }
            self.node(key, NodePosition::Key, depth + 1)?;
            self.indicator(":", false, false, false);
            self.node(value, NodePosition::Value, depth + 1)?;
        }
        if flow {
            self.flow_level -= 1;
            self.indicator("}", false, false, false);
        }
        self.indent = before;
        Ok(())
    }

    fn text(&mut self, text: &str, key: bool) {
        let analysis = analyse(text);
        let typed = TYPED.is_match(text).unwrap_or(true);
        let plain = if self.flow_level > 0 {
            analysis.flow_plain
        } else {
            analysis.block_plain
        };
        if plain && !typed && !(key && (text.is_empty() || analysis.multiline)) {
            self.plain(text, !key);
        } else if analysis.single && !(key && analysis.multiline) {
            self.single(text, !key);
        } else {
            self.double(text, !key);
        }
    }

    fn plain(&mut self, text: &str, split: bool) {
        if !self.whitespace {
            self.write(" ");
        }
        self.whitespace = false;
        self.indention = false;
        self.folded(text, split);
    }

    /// Words with single spaces between, which become line ends beyond the width.
    fn folded(&mut self, text: &str, split: bool) {
        let mut word = String::new();
        let letters: Vec<char> = text.chars().collect();
        for (index, letter) in letters.iter().enumerate() {
            let single = *letter == ' '
                && index > 0
                && letters.get(index - 1).is_some_and(|other| *other != ' ')
                && letters.get(index + 1).is_some_and(|other| *other != ' ');
            if single {
                let done = std::mem::take(&mut word);
                self.write(&done);
                if split && self.fold && self.column > WIDTH {
                    self.write_indent();
                    self.whitespace = false;
                    self.indention = false;
                    continue;
                }
            }
            word.push(*letter);
        }
        self.write(&word);
    }

    fn single(&mut self, text: &str, split: bool) {
        self.indicator("'", true, false, false);
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find('\n').unwrap_or(rest.len());
            let (line, after) = rest.split_at(end);
            self.folded(&line.replace('\'', "''"), split);
            let breaks = after.len() - after.trim_start_matches('\n').len();
            if breaks > 0 {
                self.line_break();
                for _ in 0..breaks {
                    self.line_break();
                }
                self.write_indent();
                self.whitespace = false;
            }
            rest = after.get(breaks..).unwrap_or_default();
        }
        self.whitespace = false;
        self.indention = false;
        self.indicator("'", false, false, false);
    }

    fn double(&mut self, text: &str, split: bool) {
        self.indicator("\"", true, false, false);
        let letters: Vec<char> = text.chars().collect();
        let mut held = String::new();
        for (index, letter) in letters.iter().enumerate() {
            let width = self.column + held.chars().count();
            let inner = index > 0 && index < letters.len() - 1;
            if inner && *letter == ' ' && width > WIDTH && split && self.fold {
                let done = std::mem::take(&mut held) + "\\";
                self.write(&done);
                self.write_indent();
                self.whitespace = false;
                self.indention = false;
                self.write("\\");
            }
            escape(&mut held, *letter, true);
        }
        self.write(&held);
        self.indicator("\"", false, false, false);
    }
}

fn yaml_float(number: f64) -> String {
    if number.is_nan() {
        return ".nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let text = float_repr(number);
    if text.contains('.') {
        text
    } else {
        text.replacen('e', ".0e", 1)
    }
}

/// `yaml_encode`: one scalar, quoted if it is text.
pub(crate) fn encode(value: &Value) -> Outcome<String> {
    match Kind::of(value) {
        Kind::Str(text) => Ok(quoted(text, false)),
        Kind::None | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) => dump(value, true),
        Kind::Undefined(undefined) => Err(undefined_fault(undefined)),
        _ => Err(Fault::other(format!(
            "yaml_encode() only works with YAML scalar data; failed for <class '{}'>",
            value::type_name(value)
        ))),
    }
}
