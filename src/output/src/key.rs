//! Stock's outputter `key` (`salt/output/key.py`): lists of keys.
//!
//! `salt-key` prints its lists without making a value of them: of a hundred thousand keys nothing is
//! copied but their names, once.

use std::borrow::Cow;

use saltern_python::node::{Node, sorted_by, sorted_entries};
use saltern_wire::msgpack::Value;

use crate::decode::decoded;
use crate::{Color, OutputOptions};

/// The form of a list: name, heading, colour of the heading, colour of the keys.
pub type KeyListStyle = (&'static str, &'static str, Color, Color);

/// The lists in the order of `salt-key -L`.
pub const KEY_LIST_STYLES: [KeyListStyle; 5] = [
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
pub type KeyList<'a> = (&'a str, Vec<(&'a str, Option<&'a str>)>);

/// The lists in the order of their names, the keys in each by code point. Ends with a line feed
/// unless it is empty.
#[must_use]
pub fn key_lists(mut lists: Vec<KeyList<'_>>, options: &OutputOptions) -> String {
    let size: usize = lists
        .iter()
        .flat_map(|(_, keys)| keys)
        .map(|(key, _)| key.len() + 16)
        .sum();
    let mut text = String::with_capacity(size + 256);
    lists.sort_unstable_by_key(|(name, _)| *name);
    for (name, keys) in &mut lists {
        let Some(style) = style(name) else {
            continue;
        };
        push_heading(&mut text, style, options);
        keys.sort_by_key(|(key, _)| *key);
        for (key, value) in keys {
            push_key(&mut text, style, key, *value, options);
        }
    }
    let trimmed = saltern_python::text::rstrip(&text).len();
    text.truncate(trimmed);
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Lists of keys in a value. Nothing is what it prints where stock raises an exception.
pub(crate) fn key(value: &Value, options: &OutputOptions) -> Option<String> {
    let lists = match Node::read(value).ok()? {
        Node::Dict(lists) => lists,
        Node::Sequence(_, items) if items.is_empty() => Vec::new(),
        Node::Text(text) if text.is_empty() => Vec::new(),
        _ => return None,
    };
    let mut text = String::new();
    for (name, keys) in sorted_entries(&lists)? {
        let style = match name {
            Node::Text(name) => style(name)?,
            _ => return None,
        };
        push_heading(&mut text, style, options);
        match keys {
            Node::Sequence(_, keys) => {
                for key in sorted_by(keys, |key| key)? {
                    let key = decoded(key.clone())?.text();
                    push_key(&mut text, style, &key, None, options);
                }
            }
            Node::Dict(entries) => {
                for (key, value) in sorted_entries(entries)? {
                    // Stock looks the key up by its decoded form.
                    let key = Some(decoded(key.clone())?).filter(|decoded| decoded == key)?;
                    push_key(&mut text, style, &key.text(), Some(&value.text()), options);
                }
            }
            // Stock reads them letter by letter and shows none.
            Node::Text(_) | Node::Bytes(_) => {}
            _ => return None,
        }
    }
    Some(text)
}

fn style(name: &str) -> Option<&'static KeyListStyle> {
    KEY_LIST_STYLES.iter().find(|(known, ..)| *known == name)
}

fn push_heading(text: &mut String, style: &KeyListStyle, options: &OutputOptions) {
    let (_, heading, color, _) = style;
    text.push_str(&options.colors.paint(*color, heading));
    text.push('\n');
}

fn push_key(
    text: &mut String,
    style: &KeyListStyle,
    key: &str,
    value: Option<&str>,
    options: &OutputOptions,
) {
    let (.., color) = style;
    text.push_str(options.colors.code(*color));
    text.push_str(&shown(key, options));
    if let Some(value) = value {
        text.extend([":  ", value]);
    }
    text.extend([options.colors.end(), "\n"]);
}

/// A name without escape characters, unless those are wanted (`strip_colors`).
fn shown<'a>(key: &'a str, options: &OutputOptions) -> Cow<'a, str> {
    match options.strip_colors && key.contains('\x1b') {
        true => Cow::Owned(key.replace('\x1b', "?")),
        false => Cow::Borrowed(key),
    }
}
