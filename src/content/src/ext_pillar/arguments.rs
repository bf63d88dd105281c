//! The arguments of a source, bound to its parameters as Python binds them: a mapping by name, a
//! list by position, anything else as the first.

use saltern_config::yaml::Node;

use super::error::ArgumentError;

/// Bound arguments; parameters that were not given, and those given as null, are absent.
pub(super) struct Arguments {
    given: Vec<(&'static str, Node)>,
}

impl Arguments {
    /// Binds what was written to these parameters.
    ///
    /// # Errors
    /// [`ArgumentError`], for an argument that there is no parameter for.
    pub(super) fn of(value: &Node, names: &'static [&'static str]) -> Result<Self, ArgumentError> {
        let mut given = Vec::new();
        if let Some(map) = value.as_map() {
            for (key, entry) in map.iter() {
                let name = names.iter().find(|name| key.as_str() == Some(**name));
                let name = name.ok_or_else(|| ArgumentError::Keyword(key.to_string()))?;
                given.push((*name, entry.value.clone()));
            }
        } else {
            let values = value.as_seq().unwrap_or(std::slice::from_ref(value));
            if values.len() > names.len() {
                // Stock counts the minion's id and the pillar too.
                return Err(ArgumentError::TooMany {
                    most: names.len() + 2,
                    given: values.len() + 2,
                });
            }
            given.extend(names.iter().copied().zip(values.iter().cloned()));
        }
        given.retain(|(_, node)| !node.is_null());
        Ok(Self { given })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        let found = self.given.iter().find(|(given, _)| *given == name);
        found.map(|(_, node)| node)
    }

    /// A text; absent if it was not given.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, ArgumentError> {
        match self.get(name) {
            None => Ok(None),
            Some(node) => match node.as_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(wrong(name, node, "text")),
            },
        }
    }

    /// A text that must be there.
    pub(super) fn need_text(&self, name: &'static str) -> Result<String, ArgumentError> {
        self.text(name)?.ok_or(ArgumentError::Missing(name))
    }

    /// A list of texts; absent if it was not given.
    pub(super) fn texts(&self, name: &'static str) -> Result<Option<Vec<String>>, ArgumentError> {
        let Some(node) = self.get(name) else {
            return Ok(None);
        };
        let items = node.as_seq().ok_or_else(|| wrong(name, node, "a list"))?;
        let texts = items.iter().map(|item| match item.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(ArgumentError::Item {
                name,
                kind: item.kind(),
            }),
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// Whether Python would take the argument for true.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(Node::is_truthy)
    }
}

/// The error of an argument of another kind than `wanted`.
pub(super) fn wrong(name: &str, node: &Node, wanted: &'static str) -> ArgumentError {
    ArgumentError::Kind {
        name: name.to_owned(),
        kind: node.kind(),
        wanted,
    }
}
