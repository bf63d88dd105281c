//! One JSON document of all returns (`--one-document`), written as they come.

use saltern_wire::msgpack::Value;

use crate::json::json;

/// A JSON object that is written entry by entry, so that no return has to be kept.
#[derive(Debug, Default)]
pub struct JsonDocument {
    has_entries: bool,
}

impl JsonDocument {
    /// A document without entries yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { has_entries: false }
    }

    /// The text of one more entry: a minion's id and its return. It ends without a line end.
    #[must_use]
    pub fn entry(&mut self, id: &str, value: &Value) -> String {
        let text = json(&Value::Map(vec![(id.into(), value.clone())]));
        let inner = text.strip_prefix('{').unwrap_or(&text);
        let inner = inner.strip_suffix("\n}").unwrap_or(inner);
        let start = if self.has_entries { "," } else { "{" };
        self.has_entries = true;
        format!("{start}{inner}")
    }

    /// The text that ends the document, its line end included.
    #[must_use]
    pub fn end(self) -> &'static str {
        match self.has_entries {
            true => "\n}\n",
            false => "{}\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_make_one_document() {
        let mut document = JsonDocument::new();
        let mut text = document.entry("a", &Value::from(1));
        text += &document.entry("b", &Value::map([("k", true)]));
        text += document.end();
        let read: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(read, serde_json::json!({"a": 1, "b": {"k": true}}));
        assert_eq!(JsonDocument::new().end(), "{}\n");
    }
}
