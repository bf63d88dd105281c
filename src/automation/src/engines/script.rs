//! Parses a line of a script into an event (`start` in `salt/engines/script.py`).

use bytes::Bytes;
use saltern_config::ScriptOutput;
use saltern_config::yaml::{Limits as YamlLimits, parse_bytes};
use saltern_content::render::{data::from_yaml, json};
use saltern_model::{Event, Tag, TagError};
use saltern_requests::Context;
use saltern_requests::event_data::event;
use saltern_wire::msgpack::{Limits, Value, decode_exact};

/// The most tags whose last data is remembered; a forgotten (oldest) tag fires once more.
const MAX_TAGS: usize = 1024;

/// Error of a line that is no event. Stock's engine ends there.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not in the format of the option `output`.
    #[error("it cannot be read: {0}")]
    Form(String),
    /// The line is no mapping.
    #[error("it is no mapping")]
    NoMapping,
    /// The tag is no text.
    #[error("its tag is no text")]
    NoTag,
    /// The tag cannot be fired.
    #[error(transparent)]
    Tag(#[from] TagError),
    /// The data is no mapping.
    #[error("its data is no mapping")]
    NoData,
}

/// Data fired last under each tag, for `onchange`.
#[derive(Default)]
pub struct LastData(Vec<(Tag, Value)>);

impl LastData {
    /// Whether the data differs from the last; then it is remembered.
    fn is_news(&mut self, tag: &Tag, data: &Value) -> bool {
        let known = self.0.iter().position(|(known, _)| known == tag);
        if let Some(place) = known {
            let (_, last) = self.0.remove(place);
            let is_news = last != *data;
            self.0.push((tag.clone(), data.clone()));
            return is_news;
        }
        if self.0.len() >= MAX_TAGS {
            self.0.remove(0);
        }
        self.0.push((tag.clone(), data.clone()));
        true
    }
}

/// The event of a line, its line feed included; `None` for one without a tag and, with `last`, for
/// one whose data has not changed.
///
/// # Errors
/// [`LineError`].
pub fn script_event(
    context: &Context,
    line: &Bytes,
    output: ScriptOutput,
    last: Option<&mut LastData>,
) -> Result<Option<Event>, LineError> {
    let Some((tag, data)) = tag_and_data(read(line, output)?, &context.config.id)? else {
        return Ok(None);
    };
    if last.is_some_and(|last| !last.is_news(&tag, &data)) {
        return Ok(None);
    }
    let Value::Map(entries) = data else {
        return Err(LineError::NoData);
    };
    Ok(Some(event(context, tag, entries)))
}

fn read(line: &Bytes, output: ScriptOutput) -> Result<Value, LineError> {
    let read = match output {
        ScriptOutput::Json => std::str::from_utf8(line)
            .map_err(|error| error.to_string())
            .and_then(|text| json::parse(text).map_err(|error| error.to_string())),
        ScriptOutput::Yaml => parse_bytes(line, "line", &YamlLimits::DEFAULT)
            .map(from_yaml)
            .map_err(|error| error.to_string()),
        ScriptOutput::Msgpack => {
            decode_exact(line, &Limits::WIRE).map_err(|error| error.to_string())
        }
    };
    read.map_err(LineError::Form)
}

/// Tag and data, with the name of the master where the data has none; `None` without a tag.
fn tag_and_data(line: Value, id: &str) -> Result<Option<(Tag, Value)>, LineError> {
    let Value::Map(mut entries) = line else {
        return Err(LineError::NoMapping);
    };
    let mut take = |name: &str| {
        let named = |(key, _): &(Value, Value)| key.as_str() == Some(name);
        let place = entries.iter().rposition(named)?;
        Some(entries.swap_remove(place).1)
    };
    let tag = take("tag").unwrap_or(Value::Nil);
    let data = take("data").unwrap_or_else(|| Value::Map(Vec::new()));
    // Stock names the master in the data before it looks at the tag.
    let data = match data {
        Value::Map(mut data) => {
            if !data.is_empty() && !data.iter().any(|(key, _)| key.as_str() == Some("id")) {
                data.push(("id".into(), id.into()));
            }
            Value::Map(data)
        }
        other if other.is_truthy() => return Err(LineError::NoData),
        other => other,
    };
    if !tag.is_truthy() {
        return Ok(None);
    }
    let tag = Tag::parse(tag.as_str().ok_or(LineError::NoTag)?)?;
    Ok(Some((tag, data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &[u8], output: ScriptOutput) -> String {
        let read = read(&Bytes::copy_from_slice(line), output)
            .and_then(|line| tag_and_data(line, "the_master"));
        match read {
            Ok(Some((tag, data))) => format!("{tag}: {data:?}"),
            Ok(None) => "nothing".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn line_becomes_event_as_in_stock() {
        let with = |entries: &[(&str, &str)]| {
            let entries = entries.iter().map(|(name, value)| (*name, *value));
            format!("a/b: {:?}", Value::map(entries))
        };
        let json: [(&str, String); 11] = [
            (
                r#"{"tag": "a/b", "data": {"x": "y"}}"#,
                with(&[("x", "y"), ("id", "the_master")]),
            ),
            (
                r#"{"tag": "a/b", "data": {"id": "y"}}"#,
                with(&[("id", "y")]),
            ),
            (r#"{"tag": "a/b"}"#, with(&[])),
            (r#"{"tag": "", "data": {"x": "y"}}"#, "nothing".into()),
            (r#"{"data": {"x": "y"}}"#, "nothing".into()),
            (r#"{"data": [1]}"#, "its data is no mapping".into()),
            (r#"{"tag": 5}"#, "its tag is no text".into()),
            ("[1]", "it is no mapping".into()),
            (
                "",
                "it cannot be read: Expecting value: line 1 column 1 (char 0)".into(),
            ),
            (
                "{\"tag\": \"a\\nb\"}",
                "an event tag may not contain a line break".into(),
            ),
            ("{\"tag\": \"a/b\", \"data\": {}}\n", with(&[])),
        ];
        for (line, expected) in json {
            assert_eq!(
                said(line.as_bytes(), ScriptOutput::Json),
                expected,
                "{line}"
            );
        }
        let yaml = b"{tag: a/b, data: {x: y}}\n";
        let expected = with(&[("x", "y"), ("id", "the_master")]);
        assert_eq!(said(yaml, ScriptOutput::Yaml), expected);
        let packed = b"\x82\xa3tag\xa3a/b\xa4data\x81\xa1x\xa1y";
        assert_eq!(said(packed, ScriptOutput::Msgpack), expected);
        let with_more = said(b"\x81\xa3tag\xa3a/b\n", ScriptOutput::Msgpack);
        assert!(with_more.starts_with("it cannot be read"), "{with_more}");
    }

    #[test]
    fn remembered_tags_are_bounded() {
        let mut last = LastData::default();
        let tag = |number: usize| Tag::parse(&format!("tag/{number}")).expect("a tag");
        let data = Value::map([("a", 1)]);
        for number in 0..=MAX_TAGS {
            assert!(last.is_news(&tag(number), &data));
        }
        assert!(!last.is_news(&tag(1), &data));
        assert!(last.is_news(&tag(1), &Value::Nil));
        assert!(last.is_news(&tag(0), &data), "the oldest is forgotten");
        assert_eq!(last.0.len(), MAX_TAGS);
    }
}
