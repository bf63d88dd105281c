//! `salt.utils.data.decode`: bytes inside a value as text, times in the form of ISO 8601.

use saltern_python::Node;

/// The value without bytes; nothing where some are no UTF-8, which stock ends on.
pub(crate) fn decoded(node: Node) -> Option<Node> {
    Some(match node {
        Node::Bytes(bytes) => Node::Text(String::from_utf8(bytes).ok()?),
        Node::Sequence(kind, items) => {
            let items = items.into_iter().map(decoded);
            Node::Sequence(kind, items.collect::<Option<_>>()?)
        }
        Node::Dict(entries) => {
            let entries = entries.into_iter();
            let entries = entries.map(|(key, value)| Some((decoded(key)?, decoded(value)?)));
            Node::Dict(entries.collect::<Option<_>>()?)
        }
        Node::Other {
            type_name, text, ..
        } if type_name == "datetime" => Node::Text(text.replacen(' ', "T", 1)),
        _ => node,
    })
}
