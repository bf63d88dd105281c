//! Turns an HTTP request into an event (`WebHook` in `salt/engines/webhook.py`).

use bytes::Bytes;
use saltern_base::percent_decoded;
use saltern_model::{Event, Tag, TagError};
use saltern_requests::{Context, master_event};
use saltern_wire::msgpack::{as_bytes, as_map};
use serde::Serialize;

/// Error of a request that is no event.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The path is not UTF-8 text.
    #[error("the path is no text")]
    Path,
    /// Its path cannot be the end of a tag.
    #[error(transparent)]
    Tag(#[from] TagError),
}

/// The event of a request to `path`, which begins with a slash.
///
/// # Errors
/// [`HookError`].
pub fn hook_event<'a>(
    context: &Context,
    path: &str,
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
    body: &Bytes,
) -> Result<Event, HookError> {
    let tag = Tag::parse(&format!("salt/engines/hook/{}", decoded(path)?))?;
    let data = Hook {
        headers: named(headers),
        body,
    };
    Ok(master_event(context, tag, &data))
}

/// Data of `salt/engines/hook/…`.
#[derive(Serialize)]
struct Hook<'a> {
    #[serde(serialize_with = "as_map::serialize")]
    headers: Vec<(String, String)>,
    #[serde(serialize_with = "as_bytes::serialize")]
    body: &'a Bytes,
}

/// The path without its slash and with its percent signs resolved.
fn decoded(path: &str) -> Result<String, HookError> {
    let path = path.strip_prefix('/').unwrap_or(path);
    String::from_utf8(percent_decoded(path)).map_err(|_| HookError::Path)
}

/// Headers as tornado gives them: words of names begin with a capital, and a repeated header has
/// both values in one text.
fn named<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<(String, String)> {
    let mut named: Vec<(String, String)> = Vec::new();
    for (name, value) in headers {
        let words = name.split('-').map(capital);
        let name = words.collect::<Vec<_>>().join("-");
        // One byte is one letter there.
        let value: String = value.iter().map(|byte| char::from(*byte)).collect();
        match named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = format!("{known},{value}"),
            None => named.push((name, value)),
        }
    }
    named
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_becomes_tag() {
        let table = [
            ("/", Some("")),
            ("/a/b", Some("a/b")),
            ("/a%20b%2Fc", Some("a b/c")),
            ("/100%", Some("100%")),
            ("/%zz%4", Some("%zz%4")),
            ("/%C3%A4", Some("ä")),
            ("/%ff", None),
        ];
        for (path, expected) in table {
            assert_eq!(decoded(path).ok().as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn headers_are_named_as_in_tornado() {
        let headers: [(&str, &[u8]); 3] =
            [("content-type", b"a/b"), ("x-a", b"1"), ("x-a", b"\xe4")];
        let expected = [("Content-Type", "a/b"), ("X-A", "1,ä")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(named(headers.into_iter()), expected);
    }
}
