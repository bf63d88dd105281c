//! Every option name there is, a row each: stock's three versions and our own.
//!
//! A row holds everything there is to say of an option: what stock has, what this program does with
//! it, what it means, and whether SIGHUP takes a change over. Validation, `check-config --explain`, the
//! reload and the reference (`docs/options.md`) are made from it. Each row that is honoured has a field
//! that reads it (`master.rs`, or `followed.rs` where SIGHUP takes it over); a test compares both ways.
//!
//! A name without a row is unknown: stock allows that, since sites keep data of their own in the
//! master's configuration, so it is a warning with the nearest known name, never an error.

mod modules;
mod ours;
mod reference;
mod status;
mod stock;

use saltern_model::Compat;

pub(crate) use modules::module_of;
pub use ours::OURS;
pub use reference::reference;
pub use status::{NotBuilt, Status};

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

/// Origin of an option's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Stock's `DEFAULT_MASTER_OPTS`.
    Master,
    /// Stock's `DEFAULT_MINION_OPTS` and not the master's.
    Minion,
    /// Only in stock's `VALID_OPTS`, without a default.
    Schema,
    /// Read by stock with `opts.get(…)` and declared nowhere.
    Undeclared,
    /// This program.
    Ours,
}

/// Effect of a changed option when the configuration is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// It holds from now on.
    InEffect,
    /// It holds after a restart.
    NeedsRestart,
    /// It does nothing here, before and after.
    NoEffect,
}

/// An option: one row.
#[derive(Debug)]
pub struct ConfigOption {
    /// The name in the file.
    pub name: &'static str,
    /// Its origin.
    pub origin: Origin,
    /// Whether 3006, 3007 and 3008 know it, in this order.
    pub known: [bool; 3],
    /// The types of stock's `VALID_OPTS`; empty if stock declares none.
    pub types: &'static [Kind],
    /// Support by this program.
    pub status: Status,
    /// Effect of a change when the configuration is read again.
    pub reload: Reload,
    /// Its meaning with its unit; empty where it has no effect, which gives its reason.
    pub doc: &'static str,
    /// Whether its value has no field, because it is only handed on with all others: to templates, to
    /// Python, to stock's programs, which read the same file.
    pub is_handed_on: bool,
    /// JSON texts: none, one for all versions, or one a version.
    defaults: &'static [Option<&'static str>],
}

/// The parts of a row.
impl ConfigOption {
    const fn of_stock(
        name: &'static str,
        origin: Origin,
        known: [bool; 3],
        types: &'static [Kind],
        defaults: &'static [Option<&'static str>],
    ) -> Self {
        Self {
            name,
            origin,
            known,
            types,
            status: Status::Honoured,
            reload: Reload::NeedsRestart,
            doc: "",
            is_handed_on: false,
            defaults,
        }
    }

    const fn of_ours(
        name: &'static str,
        default: &'static [Option<&'static str>],
        doc: &'static str,
    ) -> Self {
        Self::of_stock(name, Origin::Ours, [true; 3], &[], default).honoured(doc)
    }

    const fn with(self, status: Status, reload: Reload, doc: &'static str) -> Self {
        Self {
            status,
            reload,
            doc,
            ..self
        }
    }

    /// It is done as asked.
    const fn honoured(self, doc: &'static str) -> Self {
        self.with(Status::Honoured, Reload::NeedsRestart, doc)
    }

    /// It is done as asked, by others that are handed the value.
    const fn handed_on(self, doc: &'static str) -> Self {
        Self {
            is_handed_on: true,
            ..self.honoured(doc)
        }
    }

    /// Only the default can be used.
    const fn refused(self, doc: &'static str, why: &'static str) -> Self {
        self.with(Status::Refused(why), Reload::NeedsRestart, doc)
    }

    /// Its value cannot make a difference.
    const fn no_effect(self, why: &'static str) -> Self {
        self.with(Status::NoEffect(why), Reload::NoEffect, "")
    }

    /// It is for a part that is still to come.
    const fn not_built(self, part: NotBuilt, doc: &'static str) -> Self {
        self.with(Status::NotBuilt(part), Reload::NoEffect, doc)
    }

    /// It is for a module in Python that has not its name in the option's.
    const fn in_python(self, doc: &'static str) -> Self {
        self.with(Status::InPython, Reload::NeedsRestart, doc)
    }

    /// SIGHUP takes a change over: read it from what holds now, never from the start.
    const fn followed(self) -> Self {
        Self {
            reload: Reload::InEffect,
            ..self
        }
    }
}

fn index(compat: Compat) -> usize {
    match compat {
        Compat::V3006 => 0,
        Compat::V3007 => 1,
        Compat::V3008 => 2,
    }
}

impl ConfigOption {
    /// The default as JSON text; `None` if there is none in that version.
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

    /// Whether only this program has it.
    pub fn is_ours(&self) -> bool {
        self.origin == Origin::Ours
    }

    /// The default, or those of each line where they are not the same.
    pub fn defaults_text(&self) -> String {
        let of_lines: Vec<(String, &str)> = Compat::ALL
            .iter()
            .filter_map(|line| Some((line.to_string(), self.default(*line)?)))
            .collect();
        let Some((_, first)) = of_lines.first() else {
            return "none".to_owned();
        };
        if of_lines.iter().all(|(_, default)| default == first) {
            return (*first).to_owned();
        }
        let of_lines = of_lines.iter();
        let of_lines: Vec<String> = of_lines
            .map(|(line, default)| format!("{default} in {line}"))
            .collect();
        of_lines.join(", ")
    }

    /// The versions that know it, separated by commas.
    pub fn versions_text(&self) -> String {
        let lines: Vec<String> = Compat::ALL
            .iter()
            .filter(|line| self.is_known_to(**line))
            .map(ToString::to_string)
            .collect();
        lines.join(", ")
    }
}

/// All options of stock, sorted by name.
pub fn all() -> &'static [ConfigOption] {
    stock::STOCK
}

/// The stock option of that name.
pub fn stock(name: &str) -> Option<&'static ConfigOption> {
    let place = stock::STOCK
        .binary_search_by(|option| option.name.cmp(name))
        .ok()?;
    stock::STOCK.get(place)
}

/// Our own option of that name.
pub fn ours(name: &str) -> Option<&'static ConfigOption> {
    OURS.iter().find(|option| option.name == name)
}

/// The option of that name.
pub fn find(name: &str) -> Option<&'static ConfigOption> {
    stock(name).or_else(|| ours(name))
}

/// Effect of a change of an option. A template or a module may read an unknown option.
pub fn reload_of(name: &str) -> Reload {
    find(name).map_or(Reload::NeedsRestart, |option| option.reload)
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
