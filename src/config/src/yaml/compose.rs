//! From text to a graph of unresolved nodes: anchors become shared nodes, scalars stay text.
//!
//! The walk over the parser's events keeps its own stack, so deep nesting is counted, not felt.
//! Types of scalars and the meaning of `<<` are decided in `resolve.rs` and `construct.rs`.

use std::borrow::Cow;
use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use libyaml_safer::{Encoding, Event, EventData, Parser, ScalarStyle};
use saltern_base::panic_hook::catch_expected;

use super::{Limits, Mark, YamlError};

/// Line ends of YAML 1.1.
const LINE_ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Index of a node in [`Graph::nodes`].
pub(super) type Id = usize;

/// Node of the document, before types are resolved.
pub(super) enum Shape {
    /// `plain` if the text decides the type: it has no quotes, and no tag or only `!`.
    Scalar {
        text: String,
        plain: bool,
    },
    Seq(Vec<Id>),
    Map(Vec<(Id, Id)>),
}

/// An unresolved node.
pub(super) struct Raw {
    pub(super) shape: Shape,
    /// The full tag, `tag:yaml.org,2002:str` or `!mine`; `None` if none was written.
    pub(super) tag: Option<String>,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A document. Aliases are second references to the same index.
pub(super) struct Graph {
    pub(super) nodes: Vec<Raw>,
    /// `None` for an empty document.
    pub(super) root: Option<Id>,
}

/// A collection that is being read.
struct Open {
    id: Id,
    /// The key that still waits for its value, in a mapping.
    key: Option<Id>,
}

pub(super) fn mark_at(file: &Arc<str>, line: usize, column: usize) -> Mark {
    Mark {
        file: file.clone(),
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column).unwrap_or(u32::MAX),
    }
}

/// The place of one of the parser's marks, which count from zero.
fn place_of(mark: &libyaml_safer::Mark) -> (usize, usize) {
    let count = |number: u64| {
        usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_add(1)
    };
    (count(mark.line), count(mark.column))
}

fn error(file: &Arc<str>, place: (usize, usize), message: impl Into<String>) -> YamlError {
    YamlError {
        mark: mark_at(file, place.0, place.1),
        message: message.into(),
    }
}

fn syntax(file: &Arc<str>, problem: &libyaml_safer::Error) -> YamlError {
    let place = problem.problem_mark().as_ref().map_or((1, 1), place_of);
    let message = match (problem.context(), problem.context_mark()) {
        (Some(context), Some(mark)) => {
            format!(
                "{} ({context} that starts in line {})",
                problem.problem(),
                place_of(&mark).0
            )
        }
        (Some(context), None) => format!("{} ({context})", problem.problem()),
        _ => problem.problem().to_owned(),
    };
    error(file, place, message)
}

pub(super) fn compose(text: &str, file: &Arc<str>, limits: &Limits) -> Result<Graph, YamlError> {
    if text.len() > limits.bytes {
        let message = format!("{} bytes, {} are allowed", text.len(), limits.bytes);
        return Err(error(file, (1, 1), message));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_control_characters(text, file)?;

    let mut graph = Graph {
        nodes: Vec::new(),
        root: None,
    };
    let mut stack: Vec<Open> = Vec::new();
    let mut anchors: HashMap<String, Id> = HashMap::new();
    let mut documents = 0_u32;
    let ending = Ending::of(text);
    let text = ending.complete(text);
    let mut input = text.as_bytes();
    let mut parser = Parser::new();
    parser.set_encoding(Encoding::Utf8);
    parser.set_input_string(&mut input);
    let mut last = (1, 1);
    // The block scalar that nothing was written after.
    let mut block: Option<Id> = None;
    while let Some(event) = next_event(&mut parser, file, last)? {
        last = place_of(&event.end_mark);
        let at = place_of(&event.start_mark);
        let (shape, anchor, tag) = match event.data {
            EventData::DocumentStart { .. } => {
                documents += 1;
                if documents > 1 {
                    return Err(error(
                        file,
                        at,
                        "a second document starts here, one is allowed",
                    ));
                }
                continue;
            }
            EventData::Alias { anchor } => {
                block = None;
                let Some(id) = anchors.get(&anchor).copied() else {
                    return Err(error(
                        file,
                        at,
                        format!("there is no anchor \"{anchor}\" above"),
                    ));
                };
                place(&mut graph, &mut stack, id);
                continue;
            }
            EventData::Scalar {
                anchor,
                tag,
                value,
                plain_implicit: plain,
                style,
                ..
            } => {
                match style {
                    ScalarStyle::Literal | ScalarStyle::Folded => block = Some(graph.nodes.len()),
                    // The value that a lone `? |` gets, which nobody wrote.
                    ScalarStyle::Plain if value.is_empty() => {}
                    _ => block = None,
                }
                (Shape::Scalar { text: value, plain }, anchor, tag)
            }
            EventData::SequenceStart { anchor, tag, .. } => (Shape::Seq(Vec::new()), anchor, tag),
            EventData::MappingStart { anchor, tag, .. } => (Shape::Map(Vec::new()), anchor, tag),
            EventData::SequenceEnd | EventData::MappingEnd => {
                stack.pop();
                continue;
            }
            EventData::StreamStart { .. }
            | EventData::StreamEnd
            | EventData::DocumentEnd { .. } => {
                continue;
            }
        };
        if graph.nodes.len() >= limits.nodes {
            return Err(error(
                file,
                at,
                format!("more than {} values", limits.nodes),
            ));
        }
        let opens = !matches!(shape, Shape::Scalar { .. });
        let id = graph.nodes.len();
        graph.nodes.push(Raw {
            shape,
            tag,
            line: at.0,
            column: at.1,
        });
        if let Some(anchor) = anchor {
            match anchors.entry(anchor) {
                hash_map::Entry::Vacant(entry) => {
                    entry.insert(id);
                }
                hash_map::Entry::Occupied(entry) => {
                    let message = format!("the anchor \"{}\" stands here again", entry.key());
                    return Err(error(file, at, message));
                }
            }
        }
        place(&mut graph, &mut stack, id);
        if opens {
            if stack.len() >= limits.depth {
                return Err(error(
                    file,
                    at,
                    format!("nested deeper than {}", limits.depth),
                ));
            }
            stack.push(Open { id, key: None });
        }
    }
    if let Some(Raw {
        shape: Shape::Scalar { text, .. },
        ..
    }) = block.and_then(|id| graph.nodes.get_mut(id))
    {
        ending.correct(text);
    }
    Ok(graph)
}

/// How a document ends. The library cannot read a block scalar that ends without a line end, where
/// libyaml reads one whose last line has none; so a line end is added, and taken out of the value.
struct Ending<'a> {
    /// The last line, if it has no line end; else empty.
    last: &'a str,
}

impl<'a> Ending<'a> {
    fn of(text: &'a str) -> Ending<'a> {
        Ending {
            last: text.rsplit(LINE_ENDS).next().unwrap_or_default(),
        }
    }

    fn complete(&self, text: &'a str) -> Cow<'a, str> {
        if self.last.is_empty() {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(format!("{text}\n"))
        }
    }

    /// Takes out of the last block scalar what the added line end put into it.
    fn correct(&self, value: &mut String) {
        let Some(before) = value.strip_suffix('\n') else {
            return;
        };
        let content = self.last.trim_start_matches(' ');
        let added = if self.last.is_empty() {
            false
        } else if content.is_empty() {
            // Spaces are either deeper than the scalar, and are its last line, or they add an
            // empty line, which only shows where trailing lines are kept.
            before
                .rsplit('\n')
                .next()
                .is_some_and(|line| line.chars().all(|c| c == ' '))
        } else {
            // Else the last line is a comment or the end of the document.
            before.ends_with(content)
        };
        if added {
            value.pop();
        }
    }
}

/// The next event. The library has places where it panics, of which one can be reached (a tag with
/// a comma after it: `[!x, y]`). A document must not end a thread, so a panic is an error here; nor may it
/// fill the log, because strangers send some.
fn next_event(
    parser: &mut Parser<&mut &[u8]>,
    file: &Arc<str>,
    last: (usize, usize),
) -> Result<Option<Event>, YamlError> {
    match catch_expected(|| parser.next()) {
        Some(event) => event.transpose().map_err(|problem| syntax(file, &problem)),
        None => Err(error(
            file,
            last,
            "what follows here cannot be read; a tag before a comma?",
        )),
    }
}

/// Puts a finished or just opened node where it belongs: in the collection on top of the stack.
fn place(graph: &mut Graph, stack: &mut [Open], id: Id) {
    let Some(open) = stack.last_mut() else {
        graph.root = Some(id);
        return;
    };
    match graph.nodes.get_mut(open.id).map(|node| &mut node.shape) {
        Some(Shape::Seq(items)) => items.push(id),
        Some(Shape::Map(entries)) => match open.key.take() {
            None => open.key = Some(id),
            Some(key) => entries.push((key, id)),
        },
        _ => {}
    }
}

/// Refuses the characters that PyYAML's reader refuses: control characters other than tab, line
/// ends and NEL.
fn refuse_control_characters(text: &str, file: &Arc<str>) -> Result<(), YamlError> {
    let bad = |c: char| {
        matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'
            | '\u{80}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
    };
    let Some((offset, found)) = text.char_indices().find(|(_, c)| bad(*c)) else {
        return Ok(());
    };
    let before = text.get(..offset).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Err(YamlError {
        mark: mark_at(file, line, column),
        message: format!(
            "the control character U+{:04X} is not allowed",
            u32::from(found)
        ),
    })
}
