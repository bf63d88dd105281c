//! Terminal colours by the names of stock's themes (`salt/utils/color.py`).

use std::borrow::Cow;
use std::sync::Arc;

use saltern_python::Node;
use saltern_wire::msgpack::Value;

/// A colour that a theme can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs, reason = "each is what it is called")]
pub enum Color {
    Black,
    DarkGray,
    Red,
    LightRed,
    Green,
    LightGreen,
    Yellow,
    LightYellow,
    Blue,
    LightBlue,
    Magenta,
    LightMagenta,
    Cyan,
    LightCyan,
    LightGray,
    White,
    DefaultColor,
    /// Ends a colour.
    End,
}

const COUNT: usize = 18;

/// Stock's names and codes, in the order of [`Color`].
const STOCK: [(&str, &str); COUNT] = [
    ("BLACK", "\x1b[0;30m"),
    ("DARK_GRAY", "\x1b[0;1;30m"),
    ("RED", "\x1b[0;31m"),
    ("LIGHT_RED", "\x1b[0;1;31m"),
    ("GREEN", "\x1b[0;32m"),
    ("LIGHT_GREEN", "\x1b[0;1;32m"),
    ("YELLOW", "\x1b[0;33m"),
    ("LIGHT_YELLOW", "\x1b[0;1;33m"),
    ("BLUE", "\x1b[0;34m"),
    ("LIGHT_BLUE", "\x1b[0;1;34m"),
    ("MAGENTA", "\x1b[0;35m"),
    ("LIGHT_MAGENTA", "\x1b[0;1;35m"),
    ("CYAN", "\x1b[0;36m"),
    ("LIGHT_CYAN", "\x1b[0;1;36m"),
    ("LIGHT_GRAY", "\x1b[0;37m"),
    ("WHITE", "\x1b[0;1;37m"),
    ("DEFAULT_COLOR", "\x1b[0;39m"),
    ("ENDC", "\x1b[0;0m"),
];

/// The code of every colour. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Colors(Arc<[Cow<'static, str>; COUNT]>);

impl Colors {
    /// No colour at all.
    #[must_use]
    pub fn none() -> Self {
        Self(Arc::new([const { Cow::Borrowed("") }; COUNT]))
    }

    /// Stock's default theme.
    #[must_use]
    pub fn stock() -> Self {
        Self(Arc::new(STOCK.map(|(_, code)| Cow::Borrowed(code))))
    }

    /// Stock's default theme, or no colour.
    #[must_use]
    pub fn new(is_enabled: bool) -> Self {
        match is_enabled {
            true => Self::stock(),
            false => Self::none(),
        }
    }

    /// These colours with those of a theme file (`color_theme`), whose content is a map of names to
    /// codes such as `0;32`. A colour that it does not name stays; a file that is no map changes
    /// nothing, and no colour stays none.
    #[must_use]
    pub fn with_theme(mut self, theme: &Value) -> Self {
        if self.end().is_empty() {
            return self;
        }
        let codes = Arc::make_mut(&mut self.0);
        for (name, code) in theme.as_map().unwrap_or_default() {
            let known = STOCK
                .iter()
                .position(|(known, _)| name.as_str() == Some(known));
            if let Some(slot) = known.and_then(|at| codes.get_mut(at)) {
                *slot = format!("\x1b[{}m", saltern_python::str(code)).into();
            }
        }
        self
    }

    /// All colours shown as the one of this name (option `color: RED`); a name that stock does not
    /// know changes nothing.
    #[must_use]
    pub fn only(mut self, name: &str) -> Self {
        let Some(at) = STOCK.iter().position(|(known, _)| *known == name) else {
            return self;
        };
        let codes = Arc::make_mut(&mut self.0);
        let code = codes.get(at).cloned().unwrap_or_default();
        for slot in codes.iter_mut().take(Color::End as usize) {
            *slot = code.clone();
        }
        self
    }

    /// The code of a colour.
    #[must_use]
    pub fn code(&self, color: Color) -> &str {
        self.0.get(color as usize).map_or("", |code| code)
    }

    /// A text in a colour.
    pub(crate) fn paint(&self, color: Color, text: &str) -> String {
        format!("{}{text}{}", self.code(color), self.end())
    }

    /// The argument that a format of the site's own (`state_tabular`) gets for a colour: stock's
    /// own codes are objects that take no format, those of a theme and of no colour at all are
    /// texts.
    pub(crate) fn argument(&self, color: Color) -> Node {
        match self.0.get(color as usize) {
            Some(Cow::Borrowed(code)) if !code.is_empty() => Node::Other {
                type_name: "TextFormat".to_owned(),
                repr: (*code).to_owned(),
                text: (*code).to_owned(),
            },
            _ => Node::Text(self.code(color).to_owned()),
        }
    }

    /// The code that ends a colour.
    #[must_use]
    pub fn end(&self) -> &str {
        self.code(Color::End)
    }
}
