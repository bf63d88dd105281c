//! Log lines for programs (`saltern_log_format: json`): one object a line.
//!
//! `time` (RFC 3339, UTC, microseconds), `level`, `target`, `message`, then the fields of the line
//! under their own names. A field that has one of these four names is called `field_…`.

use saltern_base::clock::civil;
use serde_json::Value as Json;

use super::line::{LogLine, Value};

/// The names that every line has.
const FIXED: [&str; 4] = ["time", "level", "target", "message"];

/// The line as an object, with its end of line.
pub(super) fn form(line: &LogLine) -> String {
    let time = civil(line.micros).strftime("%FT%T.%6fZ");
    let level = line.level();
    let target = line.metadata.target();
    let mut out = format!(
        r#"{{"time":"{time}","level":"{level}","target":{},"message":{}"#,
        Json::from(target),
        Json::from(line.message.as_str())
    );
    for (name, value) in &line.fields {
        let prefix = if FIXED.contains(name) { "field_" } else { "" };
        out.push_str(&format!(",{}:", Json::from(format!("{prefix}{name}"))));
        match value {
            Value::Bare(bare) => out.push_str(bare),
            Value::Text(text) => out.push_str(&Json::from(text.as_str()).to_string()),
        }
    }
    out.push_str("}\n");
    out
}
