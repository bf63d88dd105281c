//! YAML of the values of templates, and the scalars that Salt's filters write with PyYAML's emitter by
//! hand. Documents are laid out by [`saltern_python::yaml`].

use minijinja::value::Value;
use saltern_python::Node;
use saltern_python::yaml::{Style, YamlError, safe_dump, safe_dump_mixed};

use super::fault::{Fault, Outcome};
use super::text::{Form, Shown, repr};
use super::value::{self, Kind, undefined_fault};

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

/// A single-quoted scalar without folding. A line end in it takes an empty line.
pub(crate) fn single_quoted(text: &str) -> String {
    let mut out = String::from("'");
    let mut is_broken = false;
    for letter in text.chars() {
        let is_break = letter == '\n';
        if is_break && !is_broken {
            out.push('\n');
        }
        if letter == '\'' {
            out.push('\'');
        }
        out.push(letter);
        is_broken = is_break;
    }
    out.push('\'');
    out
}

/// `safe_dump(value, default_flow_style=flow)` without the line end and the document end.
pub(crate) fn dump(value: &Value, flow: bool) -> Outcome<String> {
    dumped(value, |node| safe_dump(node, Style { flow, indent: None }))
}

/// `safe_dump(value, default_flow_style=None)`: what holds only scalars is in flow style.
pub(crate) fn dump_mixed(value: &Value) -> Outcome<String> {
    dumped(value, safe_dump_mixed)
}

fn dumped(value: &Value, dump: impl FnOnce(&Node) -> Result<String, YamlError>) -> Outcome<String> {
    // A small template can describe a value without end; this has the bounds that reading lacks.
    repr(value)?;
    let node = Node::read(&Shown::new(value, Form::Json))?;
    let text = dump(&node).map_err(|error| Fault::other(saltern_base::chain(&error)))?;
    let text = text.trim();
    Ok(text.strip_suffix("\n...").unwrap_or(text).to_owned())
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
