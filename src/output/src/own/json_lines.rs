//! `jsonl`: a line of JSON for each minion, with `id`, `retcode` and `return`.

use saltern_base::escaped_json_for_terminal;
use saltern_wire::msgpack::Value;

use crate::OutputOptions;
use crate::json::json_line;

/// A line for each entry of a map; what is no map has one line, without id.
pub(crate) fn json_lines(value: &Value, options: &OutputOptions) -> String {
    let retcode = ("retcode", Value::from(options.retcode));
    let Some(entries) = value.as_map() else {
        return line(&Value::map([retcode, ("return", value.clone())]));
    };
    let lines = entries.iter().map(|(id, value)| {
        let id = Value::from(saltern_python::str(id).into_owned());
        line(&Value::map([
            ("id", id),
            retcode.clone(),
            ("return", value.clone()),
        ]))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn line(value: &Value) -> String {
    escaped_json_for_terminal(&json_line(value))
}

#[cfg(test)]
mod tests {
    use saltern_base::is_unsafe_for_terminal;

    use super::*;

    #[test]
    fn each_minion_has_one_line_of_json_without_unsafe_characters() {
        let value = Value::map([("a", "x\n\u{1b}\u{202e}\u{e0041}ü"), ("b", "y")]);
        let options = OutputOptions::new(true).with_retcode(2);
        let text = json_lines(&value, &options);
        assert!(
            !text.replace('\n', "").contains(is_unsafe_for_terminal),
            "{text:?}"
        );
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("it is JSON"))
            .collect();
        let expected = [
            serde_json::json!({"id": "a", "retcode": 2, "return": "x\n\u{1b}\u{202e}\u{e0041}ü"}),
            serde_json::json!({"id": "b", "retcode": 2, "return": "y"}),
        ];
        assert_eq!(lines, expected);
    }
}
