//! From text to a graph of unresolved nodes: anchors become shared nodes, scalars stay text.
//!
//! The walk over the parser's events keeps its own stack, so deep nesting is counted, not felt.
//! Types of scalars and the meaning of `<<` are decided in `resolve.rs` and `construct.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::{Limits, Mark, YamlError};

/// Index of a node in [`Graph::nodes`].
pub(super) type Id = usize;

/// What was written at one place.
pub(super) enum Shape {
    Scalar { text: String, plain: bool },
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

fn error(file: &Arc<str>, at: &Marker, message: impl Into<String>) -> YamlError {
    YamlError {
        mark: mark_at(file, at.line(), at.col() + 1),
        message: message.into(),
    }
}

pub(super) fn compose(text: &str, file: &Arc<str>, limits: &Limits) -> Result<Graph, YamlError> {
    if text.len() > limits.bytes {
        return Err(YamlError {
            mark: mark_at(file, 1, 1),
            message: format!(
                "the document has {} bytes, {} are allowed",
                text.len(),
                limits.bytes
            ),
        });
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_control_characters(text, file)?;

    let mut graph = Graph {
        nodes: Vec::new(),
        root: None,
    };
    let mut stack: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, Id> = HashMap::new();
    let mut documents = 0_u32;
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|problem| error(file, problem.marker(), problem.info()))?;
        let at = span.start;
        let (shape, anchor, tag) = match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(error(
                        file,
                        &at,
                        "a second document starts here, one is allowed",
                    ));
                }
                continue;
            }
            Event::Alias(anchor) => {
                let Some(id) = anchors.get(&anchor).copied() else {
                    return Err(error(file, &at, "an alias without its anchor"));
                };
                place(&mut graph, &mut stack, id);
                continue;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                (
                    Shape::Scalar {
                        text: text.into_owned(),
                        plain,
                    },
                    anchor,
                    tag,
                )
            }
            Event::SequenceStart(anchor, tag) => (Shape::Seq(Vec::new()), anchor, tag),
            Event::MappingStart(anchor, tag) => (Shape::Map(Vec::new()), anchor, tag),
            Event::SequenceEnd | Event::MappingEnd => {
                stack.pop();
                continue;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {
                continue;
            }
        };
        if graph.nodes.len() >= limits.nodes {
            return Err(error(
                file,
                &at,
                format!("more than {} values", limits.nodes),
            ));
        }
        let opens = !matches!(shape, Shape::Scalar { .. });
        let id = graph.nodes.len();
        graph.nodes.push(Raw {
            shape,
            tag: tag.map(|tag| full_tag(&tag)),
            line: at.line(),
            column: at.col() + 1,
        });
        if anchor > 0 {
            anchors.insert(anchor, id);
        }
        place(&mut graph, &mut stack, id);
        if opens {
            if stack.len() >= limits.depth {
                return Err(error(
                    file,
                    &at,
                    format!("nested deeper than {}", limits.depth),
                ));
            }
            stack.push(Open { id, key: None });
        }
    }
    Ok(graph)
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

fn full_tag(tag: &Tag) -> String {
    match tag.handle.as_str() {
        "!!" => format!("tag:yaml.org,2002:{}", tag.suffix),
        handle => format!("{handle}{}", tag.suffix),
    }
}

/// What PyYAML's reader refuses: control characters other than tab, line ends and NEL.
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
