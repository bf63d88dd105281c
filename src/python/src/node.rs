//! A value read into memory, for writers that look at it more than once.

use std::cmp::Ordering;

use crate::object::{Object, Sequence, TextError, Visitor};
use crate::repr::{Limits, of_bytes, of_text};

/// A value of Python.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `None`.
    None,
    /// A `bool`.
    Bool(bool),
    /// An `int`.
    Int(i128),
    /// A `float`.
    Float(f64),
    /// A `str`.
    Text(String),
    /// A `bytes`.
    Bytes(Vec<u8>),
    /// A `list`, `tuple` or `set`.
    Sequence(Sequence, Vec<Node>),
    /// A `dict`, in its order.
    Dict(Vec<(Node, Node)>),
    /// A value of any other type.
    Other {
        /// The name of the type.
        type_name: String,
        /// `repr(value)`.
        repr: String,
        /// `str(value)`.
        text: String,
    },
}

impl Node {
    /// Reads a value that was bounded when it was decoded.
    ///
    /// # Errors
    /// Containers nested too deep, and what the value says.
    pub fn read<T: Object>(value: &T) -> Result<Self, T::Error> {
        Self::read_at(value, 0)
    }

    fn read_at<T: Object>(value: &T, depth: usize) -> Result<Self, T::Error> {
        if depth > Limits::OF_READ_VALUES.depth {
            return Err(TextError::TooDeep.into());
        }
        let mut reader = Reader {
            depth,
            node: Self::None,
        };
        value.accept(&mut reader)?;
        let mut node = reader.node;
        if let (Self::Other { text, .. }, Some(own)) = (&mut node, value.own_str()) {
            *text = own.into_owned();
        }
        Ok(node)
    }

    /// `repr(value)`.
    #[must_use]
    pub fn repr(&self) -> String {
        match self {
            Self::Text(text) => of_text(text),
            Self::Bytes(bytes) => of_bytes(bytes),
            Self::Other { repr, .. } => repr.clone(),
            _ => crate::repr(self),
        }
    }

    /// `str(value)`.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Other { text, .. } => text.clone(),
            _ => self.repr(),
        }
    }

    /// `type(value).__name__`.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::Bytes(_) => "bytes",
            Self::Sequence(Sequence::List, _) => "list",
            Self::Sequence(Sequence::Tuple, _) => "tuple",
            Self::Sequence(Sequence::Set, _) => "set",
            Self::Dict(_) => "dict",
            Self::Other { type_name, .. } => type_name,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// How Python orders two values; nothing where it refuses to. Sets are not ordered here.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            (Self::Bytes(left), Self::Bytes(right)) => Some(left.cmp(right)),
            (Self::Int(left), Self::Int(right)) => Some(left.cmp(right)),
            (Self::Sequence(kind, left), Self::Sequence(other_kind, right))
                if kind == other_kind && *kind != Sequence::Set =>
            {
                Self::compare_items(left, right)
            }
            (
                Self::Other {
                    type_name, text, ..
                },
                Self::Other {
                    type_name: other_type,
                    text: other_text,
                    ..
                },
            ) if type_name == other_type && type_name == "datetime" => Some(text.cmp(other_text)),
            _ => match (self.number(), other.number()) {
                (Some(left), Some(right)) => Some(left.total_cmp(&right)),
                _ => None,
            },
        }
    }

    fn compare_items(left: &[Self], right: &[Self]) -> Option<Ordering> {
        let unequal = left.iter().zip(right).find(|(left, right)| left != right);
        unequal.map_or_else(
            || Some(left.len().cmp(&right.len())),
            |(left, right)| left.compare(right),
        )
    }
}

/// Whether `sorted` finds an order of these keys. It compares each with at least one other.
fn is_sortable<'a>(keys: impl Iterator<Item = &'a Node>) -> bool {
    let mut keys = keys;
    let Some(first) = keys.next() else {
        return true;
    };
    keys.all(|key| first.compare(key).is_some())
}

/// `sorted(items, key=key)`, or nothing where Python raises a `TypeError`.
pub fn sorted_by<'a, T>(items: &'a [T], key: impl Fn(&'a T) -> &'a Node) -> Option<Vec<&'a T>> {
    if !is_sortable(items.iter().map(&key)) {
        return None;
    }
    let mut sorted: Vec<&'a T> = items.iter().collect();
    sorted.sort_by(|left, right| key(left).compare(key(right)).unwrap_or(Ordering::Equal));
    Some(sorted)
}

/// The entries of a dict by `sorted`, or nothing where Python raises a `TypeError`.
#[must_use]
pub fn sorted_entries(entries: &[(Node, Node)]) -> Option<Vec<&(Node, Node)>> {
    sorted_by(entries, |(key, _)| key)
}

struct Reader {
    depth: usize,
    node: Node,
}

impl Reader {
    fn set(&mut self, node: Node) -> Result<(), TextError> {
        self.node = node;
        Ok(())
    }
}

impl Visitor for Reader {
    fn none(&mut self) -> Result<(), TextError> {
        self.set(Node::None)
    }

    fn bool(&mut self, flag: bool) -> Result<(), TextError> {
        self.set(Node::Bool(flag))
    }

    fn int(&mut self, number: i128) -> Result<(), TextError> {
        self.set(Node::Int(number))
    }

    fn float(&mut self, number: f64) -> Result<(), TextError> {
        self.set(Node::Float(number))
    }

    fn text(&mut self, text: &str) -> Result<(), TextError> {
        self.set(Node::Text(text.to_owned()))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), TextError> {
        self.set(Node::Bytes(bytes.to_vec()))
    }

    fn other(&mut self, type_name: &str, repr: &str) -> Result<(), TextError> {
        self.set(Node::Other {
            type_name: type_name.to_owned(),
            repr: repr.to_owned(),
            text: repr.to_owned(),
        })
    }

    fn wrapped<T: Object>(
        &mut self,
        type_name: &str,
        before: &str,
        inner: T,
        after: &str,
    ) -> Result<(), T::Error> {
        let mut repr = before.to_owned();
        crate::repr::write_repr(&mut repr, inner, Limits::OF_READ_VALUES)?;
        repr.push_str(after);
        Ok(self.other(type_name, &repr)?)
    }

    fn sequence<T: Object>(
        &mut self,
        kind: Sequence,
        items: impl IntoIterator<Item = T>,
    ) -> Result<(), T::Error> {
        let depth = self.depth + 1;
        let items = items.into_iter().map(|item| Node::read_at(&item, depth));
        self.node = Node::Sequence(kind, items.collect::<Result<_, _>>()?);
        Ok(())
    }

    fn dict<T: Object>(
        &mut self,
        entries: impl IntoIterator<Item = (T, T)>,
    ) -> Result<(), T::Error> {
        let depth = self.depth + 1;
        let entries = entries
            .into_iter()
            .map(|(key, value)| Ok((Node::read_at(&key, depth)?, Node::read_at(&value, depth)?)));
        self.node = Node::Dict(entries.collect::<Result<_, T::Error>>()?);
        Ok(())
    }
}

impl Object for Node {
    type Error = TextError;

    fn accept<V: Visitor>(&self, visitor: &mut V) -> Result<(), TextError> {
        match self {
            Self::None => visitor.none(),
            Self::Bool(flag) => visitor.bool(*flag),
            Self::Int(number) => visitor.int(*number),
            Self::Float(number) => visitor.float(*number),
            Self::Text(text) => visitor.text(text),
            Self::Bytes(bytes) => visitor.bytes(bytes),
            Self::Sequence(kind, items) => visitor.sequence(*kind, items),
            Self::Dict(entries) => visitor.dict(entries.iter().map(|(key, value)| (key, value))),
            Self::Other {
                type_name, repr, ..
            } => visitor.other(type_name, repr),
        }
    }

    fn own_str(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Text(text) | Self::Other { text, .. } => Some(text.into()),
            _ => None,
        }
    }
}
