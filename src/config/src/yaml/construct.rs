//! From the graph of unresolved nodes to values: merge keys, duplicate keys, tags.
//!
//! The rules are those of `SaltYamlSafeLoader.flatten_mapping` and `.construct_mapping`. An alias
//! is built anew each time it is used, so the count of built nodes is what bounds a document.

use std::collections::HashSet;
use std::sync::Arc;

use super::compose::{Graph, Id, Raw, Shape, mark_at};
use super::resolve::{self, ScalarTag};
use super::{Entry, Key, Limits, Mapping, Mark, Node, NodeValue, YamlError};

pub(super) fn construct(
    graph: &Graph,
    file: &Arc<str>,
    limits: &Limits,
) -> Result<Node, YamlError> {
    let Some(root) = graph.root else {
        return Ok(Node::new(NodeValue::Null, mark_at(file, 1, 1)));
    };
    let mut builder = Builder {
        graph,
        file,
        limits,
        built: 0,
        merged: 0,
        open: HashSet::new(),
        depth: 0,
    };
    builder.node(root)
}

struct Builder<'a> {
    graph: &'a Graph,
    file: &'a Arc<str>,
    limits: &'a Limits,
    /// Nodes built so far, aliases counted as often as they are used.
    built: usize,
    /// Entries looked at for merging; a bomb can be made of `<<` as well.
    merged: usize,
    /// Collections that are being built: an alias to one of them is a circle.
    open: HashSet<Id>,
    depth: usize,
}

impl Builder<'_> {
    fn raw(&self, id: Id) -> &Raw {
        self.graph
            .nodes
            .get(id)
            .expect("invariant: ids are indices of the graph")
    }

    fn mark(&self, id: Id) -> Mark {
        let raw = self.raw(id);
        mark_at(self.file, raw.line, raw.column)
    }

    fn error(&self, id: Id, message: impl Into<String>) -> YamlError {
        YamlError {
            mark: self.mark(id),
            message: message.into(),
        }
    }

    fn node(&mut self, id: Id) -> Result<Node, YamlError> {
        self.built += 1;
        if self.built > self.limits.nodes {
            let most = self.limits.nodes;
            return Err(self.error(id, format!("more than {most} values, aliases replaced")));
        }
        let mark = self.mark(id);
        if let Shape::Scalar { text, .. } = &self.raw(id).shape {
            let text = text.clone();
            let value = self.scalar(id, &text)?;
            return Ok(Node::new(value, mark));
        }
        if !self.open.insert(id) {
            return Err(self.error(id, "this collection contains itself"));
        }
        self.depth += 1;
        if self.depth > self.limits.depth {
            let most = self.limits.depth;
            return Err(self.error(id, format!("nested deeper than {most}, aliases replaced")));
        }
        let value = self.collection(id)?;
        self.depth -= 1;
        self.open.remove(&id);
        Ok(Node::new(value, mark))
    }

    fn scalar(&self, id: Id, text: &str) -> Result<NodeValue, YamlError> {
        let tag = self.scalar_tag(id)?;
        resolve::scalar(tag, text).map_err(|error| self.error(id, error.to_string()))
    }

    fn scalar_tag(&self, id: Id) -> Result<ScalarTag, YamlError> {
        let raw = self.raw(id);
        let Shape::Scalar { text, plain } = &raw.shape else {
            return Ok(ScalarTag::Str);
        };
        match raw.tag.as_deref() {
            None | Some("!") if *plain => Ok(resolve::implicit(text)),
            None | Some("!") => Ok(ScalarTag::Str),
            Some(tag) => resolve::explicit(tag)
                .ok_or_else(|| self.error(id, format!("the tag \"{tag}\" is not known here"))),
        }
    }

    fn collection(&mut self, id: Id) -> Result<NodeValue, YamlError> {
        let tag = self.raw(id).tag.clone();
        let short = match tag.as_deref() {
            None | Some("!") => None,
            Some(tag) => Some(tag.strip_prefix("tag:yaml.org,2002:").unwrap_or(tag)),
        };
        let graph = self.graph;
        let raw = graph
            .nodes
            .get(id)
            .expect("invariant: ids are indices of the graph");
        match (&raw.shape, short) {
            (Shape::Seq(items), None | Some("seq")) => {
                let items: Result<Vec<Node>, _> =
                    items.iter().map(|item| self.node(*item)).collect();
                Ok(NodeValue::Seq(items?))
            }
            (Shape::Seq(items), Some("omap" | "pairs")) => {
                let pairs: Result<Vec<Node>, _> =
                    items.iter().map(|item| self.pair(*item)).collect();
                Ok(NodeValue::Seq(pairs?))
            }
            (Shape::Map(_), None | Some("map")) => Ok(NodeValue::Map(self.mapping(id)?)),
            (Shape::Map(_), Some("set")) => {
                let keys = self
                    .mapping(id)?
                    .into_iter()
                    .map(|(key, entry)| key_node(key, entry));
                Ok(NodeValue::Seq(keys.collect()))
            }
            _ => {
                let tag = tag.unwrap_or_default();
                Err(self.error(id, format!("the tag \"{tag}\" is not known here")))
            }
        }
    }

    /// One item of `!!omap` or `!!pairs`: a mapping of one entry becomes a list of two.
    fn pair(&mut self, id: Id) -> Result<Node, YamlError> {
        let graph = self.graph;
        let entry = match graph.nodes.get(id).map(|raw| &raw.shape) {
            Some(Shape::Map(entries)) => match entries.as_slice() {
                [entry] => Some(*entry),
                _ => None,
            },
            _ => None,
        };
        let Some((key, value)) = entry else {
            return Err(self.error(id, "expected a mapping with one entry"));
        };
        let pair = vec![self.node(key)?, self.node(value)?];
        Ok(Node::new(NodeValue::Seq(pair), self.mark(id)))
    }

    fn mapping(&mut self, id: Id) -> Result<Mapping, YamlError> {
        let mut map = Mapping::default();
        let mut path = Vec::new();
        for (key_id, value_id) in self.flatten(id, &mut path)? {
            let key_mark = self.mark(key_id);
            let key = self.key(key_id)?;
            let value = self.node(value_id)?;
            if let Some(first) = map.entry_of(&key) {
                let line = first.key_mark.line;
                return Err(self.error(
                    key_id,
                    format!("the key \"{key}\" stands already in line {line}"),
                ));
            }
            map.insert(key, Entry { key_mark, value });
        }
        Ok(map)
    }

    fn key(&mut self, id: Id) -> Result<Key, YamlError> {
        let graph = self.graph;
        let Some(Shape::Scalar { text, .. }) = graph.nodes.get(id).map(|raw| &raw.shape) else {
            return Err(self.error(id, "a list or mapping cannot be a key"));
        };
        // PyYAML turns a plain `=` into text when it is a key.
        if self.scalar_tag(id)? == ScalarTag::Value {
            return Ok(Key::Str(text.clone()));
        }
        Ok(match self.scalar(id, text)? {
            NodeValue::Null => Key::Null,
            NodeValue::Bool(flag) => Key::Bool(flag),
            NodeValue::Int(number) => Key::Int(number),
            NodeValue::BigInt(digits) => Key::BigInt(digits),
            NodeValue::Float(number) => Key::Float(number),
            NodeValue::Str(text) | NodeValue::Timestamp(text) => Key::Str(text),
            NodeValue::Binary(bytes) => Key::Binary(bytes),
            NodeValue::Seq(_) | NodeValue::Map(_) => {
                return Err(self.error(id, "a list or mapping cannot be a key"));
            }
        })
    }

    /// The entries of a mapping with `<<` replaced. Merged entries come first, and one whose key
    /// is written in the mapping itself is left out; of a list of mappings the last comes first.
    /// Two merged mappings with the same key are not reconciled: that is a key given twice, in
    /// stock as here.
    fn flatten(&mut self, id: Id, path: &mut Vec<Id>) -> Result<Vec<(Id, Id)>, YamlError> {
        let graph = self.graph;
        let Some(Shape::Map(entries)) = graph.nodes.get(id).map(|raw| &raw.shape) else {
            return Err(self.error(id, "expected a mapping to merge"));
        };
        if path.contains(&id) {
            return Err(self.error(id, "this mapping merges itself"));
        }
        path.push(id);
        let mut merged = Vec::new();
        let mut own = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if self.is_merge_key(*key)? {
                self.merge_source(*value, path, &mut merged)?;
            } else {
                own.push((*key, *value));
            }
        }
        path.pop();
        self.merged = self.merged.saturating_add(merged.len());
        if self.merged > self.limits.nodes {
            let most = self.limits.nodes;
            return Err(self.error(id, format!("more than {most} values, aliases replaced")));
        }
        if merged.is_empty() {
            return Ok(own);
        }
        let written: HashSet<&str> = own
            .iter()
            .filter_map(|(key, _)| text_of(graph, *key))
            .collect();
        merged.retain(|(key, _)| text_of(graph, *key).is_none_or(|text| !written.contains(text)));
        merged.extend(own);
        Ok(merged)
    }

    fn merge_source(
        &mut self,
        id: Id,
        path: &mut Vec<Id>,
        merged: &mut Vec<(Id, Id)>,
    ) -> Result<(), YamlError> {
        let graph = self.graph;
        match graph.nodes.get(id).map(|raw| &raw.shape) {
            Some(Shape::Map(_)) => merged.extend(self.flatten(id, path)?),
            Some(Shape::Seq(items)) => {
                for item in items.iter().rev() {
                    merged.extend(self.flatten(*item, path)?);
                }
            }
            _ => return Err(self.error(id, "expected a mapping or a list of mappings to merge")),
        }
        Ok(())
    }

    fn is_merge_key(&self, id: Id) -> Result<bool, YamlError> {
        Ok(matches!(self.raw(id).shape, Shape::Scalar { .. })
            && self.scalar_tag(id)? == ScalarTag::Merge)
    }
}

/// The text of a key before it has a type: that is what stock compares when it merges.
fn text_of(graph: &Graph, id: Id) -> Option<&str> {
    match graph.nodes.get(id).map(|raw| &raw.shape) {
        Some(Shape::Scalar { text, .. }) => Some(text),
        _ => None,
    }
}

fn key_node(key: Key, entry: Entry) -> Node {
    let value = match key {
        Key::Null => NodeValue::Null,
        Key::Bool(flag) => NodeValue::Bool(flag),
        Key::Int(number) => NodeValue::Int(number),
        Key::BigInt(digits) => NodeValue::BigInt(digits),
        Key::Float(number) => NodeValue::Float(number),
        Key::Str(text) => NodeValue::Str(text),
        Key::Binary(bytes) => NodeValue::Binary(bytes),
    };
    Node::new(value, entry.key_mark)
}
