//! The filters `python` and `pprint`: `pprint.pformat`, with sorted keys and lines of eighty columns.

use minijinja::value::Value;
use saltern_python::node::Node;
use saltern_python::pprint::pformat;

use super::super::fault::Outcome;
use super::super::text::{Form, Shown, repr};

/// A value over as many lines as it needs.
pub(super) fn pretty(value: &Value) -> Outcome<String> {
    // A small template can describe a value without end; this has the bounds that reading lacks.
    repr(value)?;
    let value = Node::read(&Shown::new(value, Form::Repr))?;
    Ok(pformat(&value, 1))
}
