//! Interface of values for writers, so that this crate needs no value type of its own.

use std::borrow::Cow;

/// Why a value has no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Containers nested beyond the limit, which for Python means a container that holds itself.
    #[error("maximum recursion depth exceeded")]
    TooDeep,
    /// The same, as `json.dumps` names it.
    #[error("Circular reference detected")]
    Circular,
    /// A text beyond the limit.
    #[error("the text of a value is too long")]
    TooLong,
    /// A value that JSON has no form for; the name of its type.
    #[error("Object of type {0} is not JSON serializable")]
    NotSerializable(String),
    /// A key that JSON has no form for; the name of its type.
    #[error("keys must be str, int, float, bool or None, not {0}")]
    NotAKey(String),
    /// Keys that Python cannot sort; the names of their types.
    #[error("'<' not supported between instances of '{0}' and '{1}'")]
    NotOrdered(String, String),
}

/// A value that Python has, too.
pub trait Object {
    /// Error of reading the value.
    type Error: From<TextError>;

    /// Calls the one method of `visitor` that fits the value.
    ///
    /// # Errors
    /// Errors of the visitor and of reading the value.
    fn accept<V: Visitor>(&self, visitor: &mut V) -> Result<(), Self::Error>;

    /// `str(value)`, where that is not its `repr`.
    fn own_str(&self) -> Option<Cow<'_, str>>;
}

impl<T: Object + ?Sized> Object for &T {
    type Error = T::Error;

    fn accept<V: Visitor>(&self, visitor: &mut V) -> Result<(), Self::Error> {
        (**self).accept(visitor)
    }

    fn own_str(&self) -> Option<Cow<'_, str>> {
        (**self).own_str()
    }
}

/// The kinds of sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// `[1, 2]`.
    List,
    /// `(1, 2)`.
    Tuple,
    /// `{1, 2}`.
    Set,
}

/// A writer of values. Each method takes one value.
pub trait Visitor {
    /// `None`.
    ///
    /// # Errors
    /// When the value has no place in the output; so of all methods.
    fn none(&mut self) -> Result<(), TextError>;

    /// A `bool`.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn bool(&mut self, flag: bool) -> Result<(), TextError>;

    /// An `int`.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn int(&mut self, number: i128) -> Result<(), TextError>;

    /// A `float`.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn float(&mut self, number: f64) -> Result<(), TextError>;

    /// A `str`.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn text(&mut self, text: &str) -> Result<(), TextError>;

    /// A `bytes`.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), TextError>;

    /// A value of any other type, of which the `repr` is known.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn other(&mut self, type_name: &str, repr: &str) -> Result<(), TextError>;

    /// A value of any other type, of which the `repr` has that of another value in it.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn wrapped<T: Object>(
        &mut self,
        type_name: &str,
        before: &str,
        inner: T,
        after: &str,
    ) -> Result<(), T::Error>;

    /// A `list`, `tuple` or `set`.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn sequence<T: Object>(
        &mut self,
        kind: Sequence,
        items: impl IntoIterator<Item = T>,
    ) -> Result<(), T::Error>;

    /// A `dict`, in its order.
    ///
    /// # Errors
    /// See [`Visitor::none`].
    fn dict<T: Object>(
        &mut self,
        entries: impl IntoIterator<Item = (T, T)>,
    ) -> Result<(), T::Error>;
}
