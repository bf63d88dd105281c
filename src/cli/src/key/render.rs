//! Lists of keys as stock's outputter `key` prints them, straight from the lists: of a hundred
//! thousand keys nothing is copied but their names, once.

use std::borrow::Cow;

use saltern_output::{Color, OutputOptions};

/// What a list is printed with: name, heading, colour of the heading, colour of the keys.
pub(super) type Style = (&'static str, &'static str, Color, Color);

pub(super) const STYLES: [Style; 5] = [
    ("local", "Local Keys:", Color::LightMagenta, Color::Magenta),
    ("minions", "Accepted Keys:", Color::LightGreen, Color::Green),
    (
        "minions_denied",
        "Denied Keys:",
        Color::LightMagenta,
        Color::Magenta,
    ),
    (
        "minions_pre",
        "Unaccepted Keys:",
        Color::LightRed,
        Color::Red,
    ),
    (
        "minions_rejected",
        "Rejected Keys:",
        Color::LightBlue,
        Color::Blue,
    ),
];

/// A list of keys, with what is shown beside each, if anything.
pub(super) type ShownList<'a> = (&'a str, Vec<(&'a str, Option<&'a str>)>);

/// The lists in the order of their names, the keys in each by code point. Ends with a line feed
/// unless it is empty.
pub(super) fn render(mut lists: Vec<ShownList<'_>>, options: &OutputOptions) -> String {
    let size: usize = lists
        .iter()
        .flat_map(|(_, keys)| keys)
        .map(|(key, _)| key.len() + 16)
        .sum();
    let mut text = String::with_capacity(size + 256);
    lists.sort_unstable_by_key(|(name, _)| *name);
    let end = options.colors.code(Color::End);
    for (name, keys) in &mut lists {
        let Some((_, heading, light, color)) = STYLES.iter().find(|(known, ..)| known == name)
        else {
            continue;
        };
        let (light, color) = (options.colors.code(*light), options.colors.code(*color));
        text.extend([light, heading, end, "\n"]);
        keys.sort_by_key(|(key, _)| *key);
        for (key, value) in keys {
            text.push_str(color);
            text.push_str(&shown(key, options));
            if let Some(value) = value {
                text.push_str(":  ");
                text.push_str(value);
            }
            text.extend([end, "\n"]);
        }
    }
    let trimmed = saltern_python::text::rstrip(&text).len();
    text.truncate(trimmed);
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// A name without escape characters, unless those are wanted (`strip_colors`).
fn shown<'a>(key: &'a str, options: &OutputOptions) -> Cow<'a, str> {
    match options.strip_colors && key.contains('\x1b') {
        true => Cow::Owned(key.replace('\x1b', "?")),
        false => Cow::Borrowed(key),
    }
}
