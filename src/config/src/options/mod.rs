//! Every option name there is: stock's three versions and our own, with defaults and a status.
//!
//! `stock.rs` is written by a script from stock Salt, `status.rs` says by hand what this program
//! does with each, `ours.rs` documents the options that only this program has. A name that is in
//! none of them is unknown: stock allows that, since sites keep data of their own in the master's
//! configuration, so it is a warning with the nearest known name, never an error.

mod modules;
mod ours;
mod status;
mod stock;

use saltern_model::Compat;

pub(crate) use modules::module_of;
pub use ours::{OURS, OurOption};
pub use status::{NotBuilt, Status, status};

/// The types of a value, as stock's schema names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Str,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A number.
    Float,
    /// A list.
    List,
    /// A mapping.
    Map,
    /// Nothing.
    Null,
}

impl Kind {
    /// The kind in a word, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Str => "text",
            Kind::Bool => "a boolean",
            Kind::Int => "an integer",
            Kind::Float => "a number",
            Kind::List => "a list",
            Kind::Map => "a mapping",
            Kind::Null => "nothing",
        }
    }
}

/// Where in stock's source a name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `DEFAULT_MASTER_OPTS`.
    Master,
    /// `DEFAULT_MINION_OPTS` and not the master's.
    Minion,
    /// Only in `VALID_OPTS`, without a default.
    Schema,
    /// Read with `opts.get(…)` and declared nowhere.
    Undeclared,
}

/// An option of stock Salt.
#[derive(Debug)]
pub struct StockOption {
    /// The name in the file.
    pub name: &'static str,
    /// Where stock declares it.
    pub origin: Origin,
    /// Whether 3006, 3007 and 3008 know it, in this order.
    pub known: [bool; 3],
    /// The types of `VALID_OPTS`; empty if stock declares none.
    pub types: &'static [Kind],
    /// JSON texts: none, one for all versions, or one a version.
    defaults: &'static [Option<&'static str>],
}

fn index(compat: Compat) -> usize {
    match compat {
        Compat::V3006 => 0,
        Compat::V3007 => 1,
        Compat::V3008 => 2,
    }
}

impl StockOption {
    /// The default as JSON text; `None` if stock has none in that version.
    pub fn default(&self, compat: Compat) -> Option<&'static str> {
        match self.defaults {
            [only] => *only,
            several => several.get(index(compat)).copied().flatten(),
        }
    }

    /// Whether that version knows the name.
    pub fn is_known_to(&self, compat: Compat) -> bool {
        self.known.get(index(compat)).copied().unwrap_or(false)
    }
}

/// All options of stock, sorted by name.
pub fn all() -> &'static [StockOption] {
    stock::STOCK
}

/// The stock option of that name.
pub fn stock(name: &str) -> Option<&'static StockOption> {
    let place = stock::STOCK
        .binary_search_by(|option| option.name.cmp(name))
        .ok()?;
    stock::STOCK.get(place)
}

/// Our own option of that name.
pub fn ours(name: &str) -> Option<&'static OurOption> {
    OURS.iter().find(|option| option.name == name)
}

/// The known name that an unknown one was probably meant to be.
pub fn nearest(name: &str) -> Option<&'static str> {
    let lower = name.to_lowercase().replace('-', "_");
    let names = OURS.iter().map(|option| option.name).chain(
        stock::STOCK
            .iter()
            .filter(|o| o.origin != Origin::Minion)
            .map(|o| o.name),
    );
    names
        .map(|known| (strsim::damerau_levenshtein(&lower, known), known))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, known)| *distance <= 1 + known.len() / 8)
        .map(|(_, known)| known)
}
