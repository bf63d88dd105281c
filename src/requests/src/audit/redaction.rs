//! Arguments as they stand in the audit trail: JSON of bounded size, without what the options
//! `saltern_audit_redact` and `saltern_audit_redact_functions` hide.
//!
//! A value is hidden by its name: of an entry of a map at any depth, of a word `name=value`, or of
//! an option `--name=value` in a text. A secret that stands in a text without a name cannot be
//! recognised; the second option hides all arguments of a function.

use saltern_python::expression::Pattern;
use saltern_wire::msgpack::Value;
use serde_json::Value as Json;

/// Stands for what is hidden.
const HIDDEN: &str = "<hidden>";

/// Stands for what was left out because of its size.
const CUT: &str = "…";

/// The largest JSON text, in bytes.
pub(crate) const MAX_BYTES: usize = 4 << 10;

/// The most characters of one text.
const MAX_TEXT: usize = 1_000;

/// The deepest nesting.
const MAX_DEPTH: usize = 12;

/// Which arguments are hidden.
pub(crate) struct Redaction {
    names: Vec<Pattern>,
    functions: Vec<Pattern>,
}

impl Redaction {
    /// Hides values of these names and all arguments of these functions; both are wildcards, those of
    /// names in any case.
    pub(crate) fn new<'a>(
        names: impl Iterator<Item = &'a str>,
        functions: impl Iterator<Item = &'a str>,
    ) -> Self {
        let compiled = |pattern: &str| {
            let compiled = Pattern::glob(pattern);
            compiled
                .inspect_err(|error| {
                    tracing::error!(pattern, %error, "a pattern of saltern_audit_redact is ignored");
                })
                .ok()
        };
        Self {
            names: names
                .filter_map(|name| compiled(&name.to_lowercase()))
                .collect(),
            functions: functions.filter_map(compiled).collect(),
        }
    }

    /// The arguments of a function, or of several joined by commas.
    pub(crate) fn json(&self, fun: &str, arguments: &Value) -> String {
        let is_hidden = |one: &str| self.functions.iter().any(|pattern| pattern.matches(one));
        let json = match fun.split(',').any(is_hidden) {
            true => Json::from(HIDDEN),
            false => {
                let mut left = MAX_BYTES;
                self.value(arguments, MAX_DEPTH, &mut left)
            }
        };
        let text = json.to_string();
        match text.len() > MAX_BYTES {
            true => Json::from(CUT).to_string(),
            false => text,
        }
    }

    fn is_secret(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.names.iter().any(|pattern| pattern.matches(&name))
    }

    /// The value; `left` are the bytes that it may take.
    fn value(&self, value: &Value, depth: usize, left: &mut usize) -> Json {
        let json = match value {
            Value::Nil => Json::Null,
            Value::Bool(bool) => Json::from(*bool),
            Value::Int(number) => Json::from(*number),
            Value::Uint(number) => Json::from(*number),
            Value::Float(number) => Json::from(*number),
            Value::Str(text) => Json::from(self.text(text)),
            Value::Bin(bytes) => Json::from(format!("<{} bytes>", bytes.len())),
            Value::Ext(_, bytes) => Json::from(format!("<{} bytes>", bytes.len())),
            Value::Array(_) | Value::Map(_) if depth == 0 => Json::from(CUT),
            Value::Array(items) => return self.list(items, depth - 1, left),
            Value::Map(entries) => return self.map(entries, depth - 1, left),
        };
        match spend(left, cost(&json)) {
            true => json,
            false => Json::from(CUT),
        }
    }

    fn list(&self, items: &[Value], depth: usize, left: &mut usize) -> Json {
        let mut list = Vec::new();
        for item in items {
            if !spend(left, 2 * CUT.len()) {
                list.push(Json::from(CUT));
                break;
            }
            list.push(self.value(item, depth, left));
        }
        Json::Array(list)
    }

    fn map(&self, entries: &[(Value, Value)], depth: usize, left: &mut usize) -> Json {
        let mut map = serde_json::Map::new();
        for (name, value) in entries {
            let name = bounded(&saltern_python::str(name));
            if !spend(left, cost(&Json::from(name.as_str())) + 2 * CUT.len()) {
                map.insert(CUT.to_owned(), Json::from(CUT));
                break;
            }
            let shown = match self.is_secret(&name) {
                true => Json::from(HIDDEN),
                false => self.value(value, depth, left),
            };
            map.insert(name, shown);
        }
        Json::Object(map)
    }

    /// A text without the values of its words `name=value`, nor the log-ins of its URLs, nor
    /// private keys.
    fn text(&self, text: &str) -> String {
        if text.contains("PRIVATE KEY-----") {
            return HIDDEN.to_owned();
        }
        let is_plain = !text.contains('=') && !text.contains("://") && !text.contains("--");
        if is_plain {
            return bounded(text);
        }
        let mut shown = String::new();
        let mut hides_next = false;
        for (at, word) in text.split(' ').enumerate() {
            if at > 0 {
                shown.push(' ');
            }
            if std::mem::take(&mut hides_next) && !word.is_empty() {
                shown.push_str(HIDDEN);
                continue;
            }
            match word.split_once('=') {
                Some((name, _)) if self.is_secret(bare(name)) => {
                    shown.push_str(name);
                    shown.push('=');
                    shown.push_str(HIDDEN);
                    // As a keyword it has the rest of the text as its value, and so may a quotation.
                    if at == 0 || is_open(word) {
                        return bounded(&shown);
                    }
                }
                _ => {
                    hides_next = word.starts_with("--") && self.is_secret(bare(word));
                    shown.push_str(&without_log_in(word));
                }
            }
        }
        bounded(&shown)
    }
}

/// The name in a word such as `--db-password` or `"password`: as options and keywords have it.
fn bare(name: &str) -> &str {
    name.trim_start_matches(|c: char| !c.is_alphanumeric())
}

/// Whether a quotation begins in the value of a word and does not end in it.
fn is_open(word: &str) -> bool {
    let quotes = |quote| word.matches(quote).count() % 2 == 1;
    quotes('"') || quotes('\'')
}

/// A URL without its user and password.
fn without_log_in(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    match host.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{path}"),
        None => word.to_owned(),
    }
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}{CUT}", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Bytes of a scalar as JSON.
fn cost(json: &Json) -> usize {
    json.to_string().len()
}

fn spend(left: &mut usize, bytes: usize) -> bool {
    let rest = left.checked_sub(bytes);
    // Once something did not fit, nothing behind it is shown as if it were whole.
    *left = rest.unwrap_or(0);
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of a site that has set nothing.
    fn by_default() -> Redaction {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master");
        std::fs::write(&path, format!("root_dir: {}\n", dir.path().display())).unwrap();
        let loaded = saltern_config::load_master(&path);
        let config = loaded.map_err(|errors| errors.to_string()).unwrap().config;
        Redaction::of_site(&config)
    }

    fn kwargs(entries: &[(&str, Value)]) -> Value {
        let marked = [("__kwarg__", Value::from(true))];
        Value::Array(vec![Value::map(
            marked.into_iter().chain(entries.iter().cloned()),
        )])
    }

    #[test]
    fn secret_is_hidden_by_its_name_wherever_it_stands() {
        const SECRET: &str = "hunter2";
        let text = |text: &str| Value::Array(vec![text.into()]);
        let nested = Value::map([("db", Value::map([("Admin_Password", SECRET)]))]);
        for (fun, arguments) in [
            ("user.add", kwargs(&[("password", SECRET.into())])),
            ("user.add", kwargs(&[("db", nested)])),
            (
                "state.apply",
                kwargs(&[("pillar", Value::map([("x", SECRET)]))]),
            ),
            ("a.b", kwargs(&[("api_key", SECRET.into())])),
            ("a.b", kwargs(&[("AUTH_TOKEN", SECRET.into())])),
            ("a.b", text("password=hunter2")),
            ("a.b", text("password=a hunter2")),
            ("cmd.run", text("mysql --password=hunter2 -e x")),
            ("cmd.run", text("tool --api-token hunter2 go")),
            ("cmd.run", text("PGPASSWORD='a hunter2' psql")),
            (
                "cmd.run",
                text("git clone https://ann:hunter2@example.org/x"),
            ),
            ("cp.put", text("-----BEGIN RSA PRIVATE KEY-----\nhunter2")),
            ("shadow.set_password", text("root hunter2")),
            ("test.ping,shadow.set_password", text("root hunter2")),
            ("mysql.user_create", text(SECRET)),
            ("auth.mk_token", kwargs(&[("x", SECRET.into())])),
        ] {
            let shown = by_default().json(fun, &arguments);
            assert!(!shown.contains(SECRET), "{fun} {arguments:?}: {shown}");
            assert!(shown.contains("hidden"), "{fun} {arguments:?}: {shown}");
        }
    }

    #[test]
    fn other_arguments_stand_as_they_are() {
        let arguments = Value::Array(vec![
            "uptime; echo a=b".into(),
            Value::from(3),
            Value::map([("test", Value::from(true)), ("x", Value::Nil)]),
        ]);
        assert_eq!(
            by_default().json("cmd.run", &arguments),
            r#"["uptime; echo a=b",3,{"test":true,"x":null}]"#
        );
        let url = Value::from("https://example.org/a@b");
        assert_eq!(
            by_default().json("x.y", &url),
            r#""https://example.org/a@b""#
        );
    }

    #[test]
    fn arguments_of_any_size_and_depth_are_bounded_json() {
        let long = Value::from("x".repeat(1 << 20));
        let controls = Value::from("\u{1}".repeat(100_000));
        let wide = Value::Array(vec![Value::from(1); 100_000]);
        let texts = Value::Array(vec![Value::from("\u{1}".repeat(900)); 50]);
        let mut deep = Value::Nil;
        for _ in 0..200 {
            deep = Value::Array(vec![deep]);
        }
        let names = (0..10_000).map(|number| (format!("name{number}"), Value::from(1)));
        let map = Value::map(names.map(|(name, value)| (Value::from(name.as_str()), value)));
        for arguments in [long, controls, wide, texts, deep, map] {
            let shown = by_default().json("test.arg", &arguments);
            assert!(shown.len() <= MAX_BYTES, "{}", shown.len());
            assert!(shown.contains(CUT), "{shown}");
            serde_json::from_str::<Json>(&shown).expect("JSON");
        }
    }
}
