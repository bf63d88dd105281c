//! Compares the Jinja renderer with what stock Salt made of the same templates:
//! `tests/vectors/render.json`, written by `tests/vectors/make_render.py`.

use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_content::render::functions::{CallError, Registry};
use saltern_content::render::jinja::{self, Context, Limits, LoadError, Loader};
use saltern_content::render::{ErrorClass, json};
use saltern_wire::msgpack::Value;

/// Templates that differ, as `src/content/DIFFERENCES.md` says and explains.
const KNOWN: &[&str] = &[
    "{{ [{'n': 'b'}, {'n': 'a'}, {'n': 'b'}] | groupby('n') }}",
    "{{ {'items': 1}.items }}",
    "{% break %}",
];

struct Files(Vec<(String, String)>);

impl Loader for Files {
    fn load(&self, path: &str) -> Result<Option<String>, LoadError> {
        Ok(self
            .0
            .iter()
            .find(|(name, _)| name == path)
            .map(|(_, text)| text.clone()))
    }
}

fn functions(pillar: Value) -> Registry {
    let mut registry = Registry::new();
    registry.add("test.echo", |args| args.need(0, "text").cloned());
    registry.add("test.refuse", |_| {
        Err(CallError::Refused("refused".to_owned()))
    });
    registry.add("pillar.get", move |args| {
        let key = args.need_text(0, "key")?;
        let found = key
            .split(':')
            .try_fold(&pillar, |value, part| value.get(part));
        let default = args
            .get(1, "default")
            .cloned()
            .unwrap_or_else(|| Value::from(""));
        Ok(found.cloned().unwrap_or(default))
    });
    registry
}

/// The name of a class of errors in the vectors.
pub(crate) fn class(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Undefined => "undefined",
        ErrorClass::Syntax => "syntax",
        ErrorClass::Function => "function",
        ErrorClass::Other => "other",
        ErrorClass::Data => "data",
        ErrorClass::Renderer => "renderer",
        ErrorClass::Limit => "limit",
    }
}

#[test]
fn templates_render_as_stock_renders_them() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/render.json"
    );
    let text = std::fs::read_to_string(path).expect("the vectors are there");
    let document = json::parse(&text).expect("the vectors are JSON");
    let part = |name: &str| document.get(name).expect("a part of the vectors").clone();
    let files: Vec<(String, String)> = part("files")
        .as_map()
        .expect("files are a mapping")
        .iter()
        .filter_map(|(name, text)| Some((name.as_str()?.to_owned(), text.as_str()?.to_owned())))
        .collect();
    let loader: Arc<dyn Loader> = Arc::new(Files(files));
    let functions = Arc::new(functions(part("pillar")));
    let rows = part("rows");
    let rows = rows.as_array().expect("rows are a list");
    assert!(rows.len() >= 200, "{} templates are not enough", rows.len());
    let mut different = Vec::new();
    let mut agreed = Vec::new();
    for row in rows {
        let template = row
            .get("template")
            .and_then(Value::as_str)
            .expect("a template");
        let mut context = Context {
            values: Vec::new(),
            functions: functions.clone(),
            loader: loader.clone(),
            clock: Clock::system(),
            limits: Limits::DEFAULT,
            python: None,
        };
        context.set("grains", part("grains"));
        context.set("pillar", part("pillar"));
        context.set(
            "opts",
            row.get("opts")
                .cloned()
                .unwrap_or_else(|| Value::Map(Vec::new())),
        );
        for (name, value) in [
            ("saltenv", "base"),
            ("sls", "site.web"),
            ("tpldir", "site"),
            ("tplfile", "site/web.sls"),
        ] {
            context.set(name, Value::from(value));
        }
        let ours = jinja::render(template, "site/web.sls", &context);
        let stock = match row.get("output").and_then(Value::as_str) {
            Some(output) => Ok(output),
            None => Err(row.get("error").and_then(Value::as_str).expect("an error")),
        };
        let same = match (&ours, &stock) {
            (Ok(ours), Ok(stock)) => ours == stock,
            (Err(ours), Err(stock)) => class(ours.class) == *stock,
            _ => false,
        };
        match (same, KNOWN.contains(&template)) {
            (false, false) => different.push(format!(
                "{template:?}\n  stock: {stock:?} {}\n  ours:  {ours:?}",
                row.get("message")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            )),
            (true, true) => agreed.push(template),
            _ => {}
        }
    }
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        rows.len(),
        different.join("\n")
    );
    assert!(
        agreed.is_empty(),
        "listed as different, but the same: {agreed:?}"
    );
}
