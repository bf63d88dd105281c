//! Filters that write XML and HTML: `xml`, `xmlattr`, `urlize`.

use std::sync::OnceLock;

use fancy_regex::Regex;
use minijinja::value::Value;

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::ops;
use super::super::text::{repr, str_of};
use super::super::value::{Kind, is_undefined};
use super::builtin::escaped;
use super::{Row, own_pattern};

/// How deep values are written.
const MAX_DEPTH: usize = 100;

/// An address in running text: with a scheme, or beginning with `www.`, or ending in one of four
/// domains (`_http_re` in `jinja2/utils.py`).
const ADDRESS: &str = r"(?i)\A(?:https?://(?:(?:[\w%-]+\.)+)?(?:[a-z]{2,63}|xn--[\w%]{2,59})|(?:[\w%-]{2,63}\.)+(?:com|net|int|edu|gov|org|info|mil)|https?://(?:(?:[\d]{1,3})(?:\.[\d]{1,3}){3}|\[(?:[\da-f]{0,4}:){2}(?:[\da-f]{0,4}:?){1,6}\])|www\.\S+)(?::[\d]{1,5})?(?:[/?#]\S*)?\z";
const MAIL: &str = r"\A\S+@\w[\w.-]*\.\w+\z";

/// Compiled once: it takes longer than most templates.
static PATTERNS: OnceLock<(Regex, Regex)> = OnceLock::new();

pub(super) const FILTERS: &[Row] = &[
    ("xml", &["value"], |_, args| xml(args.need(0)?)),
    ("xmlattr", &["d", "autospace"], |_, args| attributes(args)),
    (
        "urlize",
        &[
            "value",
            "trim_url_limit",
            "nofollow",
            "target",
            "rel",
            "extra_schemes",
        ],
        |_, args| urlize(args),
    ),
];

fn xmlattr_key(key: &str) -> bool {
    key.contains(|letter: char| letter.is_whitespace() || matches!(letter, '/' | '>' | '='))
}

fn attributes(args: &Bound) -> Outcome<Value> {
    let entries = match Kind::of(args.need(0)?) {
        Kind::Dict(entries) => entries.0.lock().values().cloned().collect::<Vec<_>>(),
        _ => return Err(Fault::other("a dictionary is needed")),
    };
    let mut out: Vec<String> = Vec::new();
    for (key, value) in entries {
        if value.is_none() || is_undefined(&value) {
            continue;
        }
        let name = str_of(&key)?;
        if xmlattr_key(&name) {
            let name = repr(&key)?;
            return Err(Fault::other(format!(
                "Invalid character in attribute name: {name}"
            )));
        }
        out.push(format!(
            "{}=\"{}\"",
            escaped(&name),
            escaped(&str_of(&value)?)
        ));
    }
    let space = if args.flag(1, true)? && !out.is_empty() {
        " "
    } else {
        ""
    };
    Ok(Value::from(format!("{space}{}", out.join(" "))))
}

/// An element with its text, its attributes and what is in it.
#[derive(Default)]
struct Element {
    tag: String,
    text: Option<String>,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
}

/// The filter `xml`: scalars of a mapping are attributes, mappings and lists in it are elements.
fn xml(value: &Value) -> Outcome<Value> {
    let mut root = None;
    for (tag, content) in pairs(value)? {
        // As in stock only the last element at the top remains.
        root = element(&tag, &content, 0)?.into_iter().next_back();
    }
    let root = root.ok_or_else(|| Fault::other("there is no element"))?;
    let mut out = "<?xml version=\"1.0\" ?>\n".to_owned();
    write(&mut out, &root, 0);
    Ok(Value::from(out))
}

fn pairs(value: &Value) -> Outcome<Vec<(String, Value)>> {
    match Kind::of(value) {
        Kind::Dict(entries) => {
            let entries: Vec<_> = entries.0.lock().values().cloned().collect();
            let named = entries
                .into_iter()
                .map(|(key, value)| Ok((str_of(&key)?, value)));
            named.collect()
        }
        Kind::List(_) | Kind::Tuple(_) => {
            let items = ops::items(value)?;
            match items.as_slice() {
                [tag, content] if tag.as_str().is_some() => {
                    Ok(vec![(str_of(tag)?, content.clone())])
                }
                _ => Ok(Vec::new()),
            }
        }
        _ => Err(Fault::runtime(
            "Value is not a dict or list. Cannot render as XML",
        )),
    }
}

/// The elements of a tag: several for a list.
fn element(tag: &str, content: &Value, depth: usize) -> Outcome<Vec<Element>> {
    if depth > MAX_DEPTH {
        return Err(Fault::other("maximum recursion depth exceeded"));
    }
    let mut element_of = Element {
        tag: tag.to_owned(),
        ..Element::default()
    };
    match Kind::of(content) {
        Kind::List(_) => {
            let mut all = Vec::new();
            for item in ops::items(content)? {
                all.extend(element(tag, &item, depth + 1)?);
            }
            return Ok(all);
        }
        Kind::Str(_) | Kind::Int(_) | Kind::Bool(_) | Kind::Float(_) => {
            element_of.text = Some(str_of(content)?);
            return Ok(vec![element_of]);
        }
        _ => {}
    }
    for (name, value) in pairs(content)? {
        if matches!(Kind::of(&value), Kind::List(_) | Kind::Dict(_)) {
            element_of
                .children
                .extend(element(&name, &value, depth + 1)?);
        } else if matches!(Kind::of(content), Kind::Dict(_)) {
            element_of.attributes.push((name, str_of(&value)?));
        }
    }
    Ok(vec![element_of])
}

fn safe(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('"', "&quot;").replace('>', "&gt;")
}

/// As `minidom` prints: one space deeper for each level, a lone text on the line of its element.
fn write(out: &mut String, element: &Element, depth: usize) {
    let indent = " ".repeat(depth);
    out.push_str(&format!("{indent}<{}", element.tag));
    for (name, value) in &element.attributes {
        out.push_str(&format!(" {name}=\"{}\"", safe(value)));
    }
    match &element.text {
        Some(text) if !text.is_empty() => {
            out.push_str(&format!(">{}</{}>\n", safe_text(text), element.tag));
        }
        _ if element.children.is_empty() => out.push_str("/>\n"),
        _ => {
            out.push_str(">\n");
            for child in &element.children {
                write(out, child, depth + 1);
            }
            out.push_str(&format!("{indent}</{}>\n", element.tag));
        }
    }
}

fn safe_text(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

/// The filter `urlize`: addresses in a text become links.
fn urlize(args: &Bound) -> Outcome<Value> {
    let text = escaped(&str_of(args.need(0)?)?);
    let limit = match args.get(1) {
        Some(limit) if !limit.is_none() => Some(args.int(1, 0)?),
        _ => None,
    };
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let mut rel: Vec<String> = args
        .text(4, "")?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    if args.flag(2, false)? {
        rel.push("nofollow".to_owned());
    }
    rel.push("noopener".to_owned());
    rel.sort();
    rel.dedup();
    let mut marks = format!(" rel=\"{}\"", escaped(&rel.join(" ")));
    let target = args.text(3, "")?;
    if !target.is_empty() {
        marks.push_str(&format!(" target=\"{}\"", escaped(&target)));
    }
    let schemes = match args.get(5) {
        Some(schemes) if !schemes.is_none() => ops::items(schemes)?
            .iter()
            .map(str_of)
            .collect::<Outcome<Vec<_>>>()?,
        _ => Vec::new(),
    };
    let patterns = match PATTERNS.get() {
        Some(patterns) => patterns,
        None => {
            let patterns = (own_pattern(ADDRESS)?, own_pattern(MAIL)?);
            PATTERNS.get_or_init(|| patterns)
        }
    };
    let mut out = String::new();
    let mut word = String::new();
    for letter in text.chars() {
        if letter.is_whitespace() {
            out.push_str(&link(&word, patterns, limit, &marks, &schemes));
            word.clear();
            out.push(letter);
        } else {
            word.push(letter);
        }
    }
    out.push_str(&link(&word, patterns, limit, &marks, &schemes));
    Ok(Value::from(out))
}

/// One word; what surrounds an address stays outside of the link.
fn link(
    word: &str,
    (address, mail): &(Regex, Regex),
    limit: Option<usize>,
    marks: &str,
    schemes: &[String],
) -> String {
    let (head, middle, tail) = parts(word);
    let is = |pattern: &Regex, text: &str| pattern.is_match(text).unwrap_or(false);
    let shown = |text: &str| match limit {
        Some(limit) if text.chars().count() > limit => {
            text.chars().take(limit).collect::<String>() + "..."
        }
        _ => text.to_owned(),
    };
    let middle = if is(address, &middle) {
        let scheme = if middle.starts_with("http://") || middle.starts_with("https://") {
            ""
        } else {
            "https://"
        };
        format!("<a href=\"{scheme}{middle}\"{marks}>{}</a>", shown(&middle))
    } else if let Some(name) = middle.strip_prefix("mailto:").filter(|name| is(mail, name)) {
        format!("<a href=\"{middle}\">{name}</a>")
    } else if !middle.starts_with("www.")
        && !middle.starts_with('@')
        && !middle.contains(':')
        && is(mail, &middle)
    {
        format!("<a href=\"mailto:{middle}\">{middle}</a>")
    } else {
        schemes.iter().fold(middle, |middle, scheme| {
            if middle != *scheme && middle.starts_with(scheme.as_str()) {
                format!("<a href=\"{middle}\"{marks}>{middle}</a>")
            } else {
                middle
            }
        })
    };
    format!("{head}{middle}{tail}")
}

/// Takes brackets in front and brackets and punctuation behind off a word; what is open inside is
/// closed inside.
fn parts(word: &str) -> (String, String, String) {
    let mut middle = word;
    loop {
        let rest = middle.strip_prefix(['(', '<']);
        match rest.or_else(|| middle.strip_prefix("&lt;")) {
            Some(rest) => middle = rest,
            None => break,
        }
    }
    let head = word.get(..word.len() - middle.len()).unwrap_or_default();
    let whole = middle;
    loop {
        let rest = middle.strip_suffix([')', '>', '.', ',']);
        match rest.or_else(|| middle.strip_suffix("&gt;")) {
            Some(rest) => middle = rest,
            None => break,
        }
    }
    let mut tail = whole.get(middle.len()..).unwrap_or_default().to_owned();
    let mut middle = middle.to_owned();
    for (open, close) in [("(", ")"), ("<", ">"), ("&lt;", "&gt;")] {
        let opened = middle.matches(open).count();
        if opened <= middle.matches(close).count() {
            continue;
        }
        for _ in 0..opened.min(tail.matches(close).count()) {
            if let Some(at) = tail.find(close) {
                let rest = tail.split_off(at + close.len());
                middle.push_str(&tail);
                tail = rest;
            }
        }
    }
    (head.to_owned(), middle, tail)
}
