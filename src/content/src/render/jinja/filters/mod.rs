//! The filters of templates: Jinja2's own (`builtin.rs`), Salt's (`serial.rs`, `dicts.rs`,
//! `words.rs`, `patterns.rs`, `digests.rs`, `dates.rs`), those that go
//! through lists with other filters and tests (`lists.rs`), those that write markup
//! (`markup.rs`), those that look at the master (`machine.rs`), and those for addresses
//! (`../network.rs`).

mod builtin;
mod dates;
mod dicts;
mod digests;
mod lists;
mod machine;
mod markup;
mod patterns;
mod pretty;
mod serial;
mod words;

use minijinja::value::Value;
use saltern_python::expression::{Expression, ExpressionFlags};

use super::args::{Args, Bound};
use super::fault::{Fault, Outcome};
use super::text::str_of;
use super::{Py, network};

/// A filter: it gets the rendering and its bound arguments, the value first.
pub(super) type Filter = fn(&mut Py<'_, '_, '_>, &Bound) -> Outcome<Value>;
/// Name, parameters, filter.
pub(super) type Row = (&'static str, &'static [&'static str], Filter);

fn find(name: &str) -> Option<&'static Row> {
    [
        serial::FILTERS,
        builtin::FILTERS,
        dicts::FILTERS,
        words::FILTERS,
        patterns::FILTERS,
        digests::FILTERS,
        lists::FILTERS,
        network::FILTERS,
        dates::FILTERS,
        markup::FILTERS,
        machine::FILTERS,
    ]
    .into_iter()
    .flatten()
    .find(|(found, ..)| *found == name)
}

/// Whether there is a filter of that name.
pub(crate) fn exists(name: &str) -> bool {
    find(name).is_some()
}

/// Applies a filter; the value is the first argument.
pub(crate) fn apply(py: &mut Py<'_, '_, '_>, name: &str, args: Args) -> Outcome<Value> {
    let Some((_, parameters, filter)) = find(name) else {
        return Err(Fault::runtime(format!("No filter named '{name}'.")));
    };
    let bound = args.bind(name, parameters)?;
    bound.need(0)?;
    filter(py, &bound)
}

/// A compiled pattern from arguments: the pattern, whether to ignore case, whether lines count.
pub(crate) fn pattern(
    args: &Bound,
    pattern: usize,
    ignore_case: usize,
    multiline: usize,
) -> Outcome<Expression> {
    let flags = ExpressionFlags {
        ignores_case: args.flag(ignore_case, false)?,
        is_multiline: args.flag(multiline, false)?,
    };
    compile(&str_of(args.need(pattern)?)?, flags)
}

/// Compiles a pattern of our own, which is written for the engine.
fn own_pattern(text: &str) -> Outcome<fancy_regex::Regex> {
    fancy_regex::Regex::new(text).map_err(|error| Fault::other(error.to_string()))
}

/// Compiles a pattern of Python's `re`.
pub(crate) fn compile(text: &str, flags: ExpressionFlags) -> Outcome<Expression> {
    Expression::new(text, flags).map_err(|error| Fault::other(error.to_string()))
}
