//! The functions of templates beside stock's, as a pillar on a master has them.
//!
//! `tests/vectors/make_functions.py` renders the templates of `function_snippets.py` with stock, in
//! a directory of this test; then they are rendered here, over the same tree and on the same
//! machine. Templates that differ stand in [`KNOWN`], with the reason.

mod battery;
mod comparison;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_config::load_master;
use saltern_content::files::FileServer;
use saltern_content::render::functions::Registry;
use saltern_content::render::jinja::{self, Context, Limits, NoTemplates};
use saltern_content::render::json;
use saltern_content::render::modules::site::{NoSite, add_site};
use saltern_content::render::modules::{Commands, Facts, add_all};
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use crate::render_stock::class;
use comparison::Comparison;

/// Templates that differ, and why.
const KNOWN: &[(&str, &str)] = &[(
    "{{ {'r': {'p': ['a', 'b']}} | xml }}",
    "stock looks for the second letter of each text in a list, and fails where there is none",
)];

/// Filters of stock that are not here: two reach the network, one is a language of its own.
const NO_FILTERS: [&str; 3] = ["dns_check", "http_query", "json_query"];

/// Stock's results for the templates, as its script prints them. With the argument `battery` the
/// templates are those of `battery.py`.
fn ask_stock(root: &Path, arguments: &[&str]) -> Value {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/make_functions.py");
    let output = Command::new(saltern_stock::python(saltern_stock::NEWEST))
        .arg(script)
        .arg(root)
        .args(arguments)
        .output()
        .expect("stock's Python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "stock's side failed: {errors}");
    json::parse(&String::from_utf8_lossy(&output.stdout)).expect("stock prints JSON")
}

/// Mappings come as lists of pairs, because JSON has only texts as keys.
fn unpaired(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(unpaired).collect()),
        Value::Map(entries) => {
            let pairs = entries.first().and_then(|(_, pairs)| pairs.as_array());
            let pair = |pair: &Value| {
                let pair = pair.as_array()?;
                Some((unpaired(pair.first()?), unpaired(pair.get(1)?)))
            };
            Value::Map(pairs.into_iter().flatten().filter_map(pair).collect())
        }
        other => other.clone(),
    }
}

fn context(document: &Value, root: &Path) -> Context {
    let part = |name: &str| document.get(name).expect("a part of the document");
    let facts = Facts {
        grains: Arc::new(unpaired(part("grains"))),
        pillar: Arc::new(unpaired(part("pillar"))),
        opts: Arc::new(part("opts").clone()),
    };
    let mut context = Context {
        values: Vec::new(),
        functions: Arc::new(registry(&facts, root)),
        loader: Arc::new(NoTemplates),
        clock: Clock::system(),
        limits: Limits::DEFAULT,
        python: None,
    };
    context.values.push(("grains".to_owned(), facts.grains));
    context.values.push(("pillar".to_owned(), facts.pillar));
    context.set("saltenv", Value::from("base"));
    context
}

/// The functions of `salt`, over the tree of the test.
fn registry(facts: &Facts, root: &Path) -> Registry {
    let file = root.join("saltern.conf");
    let text = format!(
        "root_dir: {0}\nfile_roots:\n  base: [{0}/tree/files]\n",
        root.display()
    );
    std::fs::write(&file, text).expect("the directory is ours");
    let config = load_master(&file)
        .expect("the configuration is good")
        .config;
    let files = FileServer::new(&config, Clock::system()).expect("the file server starts");
    let mut registry = Registry::new();
    let programs = Commands {
        time: Duration::from_secs(30),
        deadline: None,
        output: 1 << 20,
    };
    add_all(&mut registry, facts, Some(programs));
    let minion = MinionId::parse("web1.example.com").expect("an id");
    let (files, site) = (Arc::new(files), Arc::new(NoSite));
    add_site(&mut registry, &minion, "base", files, site, facts);
    registry
}

/// A name that is not known is an error of the syntax, also where it is never used.
fn every_filter_and_test_is_known(document: &Value, context: &Context) {
    let unknown = |kind: &str, sign: &str| -> Vec<String> {
        let names = document.get(kind).and_then(Value::as_array).expect("names");
        assert!(names.len() >= 30, "{} {kind} are not enough", names.len());
        let names = names.iter().filter_map(Value::as_str);
        let is_unknown = |name: &&str| {
            let is_word = name.starts_with(|letter: char| letter.is_ascii_alphabetic());
            let template = if is_word {
                format!("{{% for x in [] %}}{{{{ x {sign} {name} }}}}{{% endfor %}}")
            } else {
                // A sign is the name of a test only where tests are given as texts.
                format!("{{{{ [1] | select('{name}', 1) | list }}}}")
            };
            jinja::render(&template, "names.sls", context).is_err()
        };
        names.filter(is_unknown).map(str::to_owned).collect()
    };
    assert_eq!(unknown("filters", "|"), NO_FILTERS);
    assert_eq!(unknown("tests", "is"), Vec::<String>::new());
}

#[test]
fn functions_answer_as_in_stock() {
    let root = tempfile::tempdir().expect("a directory");
    let document = ask_stock(root.path(), &[]);
    let context = context(&document, root.path());
    every_filter_and_test_is_known(&document, &context);
    let rows = document
        .get("rows")
        .and_then(Value::as_array)
        .expect("rows");
    assert!(rows.len() >= 120, "{} templates are not enough", rows.len());
    let mut comparison = Comparison::default();
    for row in rows {
        let text = |name: &str| row.get(name).and_then(Value::as_str);
        let template = text("template").expect("a template");
        let ours = jinja::render(template, "site.sls", &context);
        let same = match (&ours, text("output"), text("error")) {
            (Ok(ours), Some(stock), _) => ours == stock,
            (Err(ours), _, Some(stock)) => class(ours.class) == stock,
            _ => false,
        };
        let shown = template.replace(&format!("{}/tree", root.path().display()), "ROOT");
        let is_known = KNOWN.iter().any(|(known, _)| *known == shown);
        comparison.add(&shown, row, &ours, (same, is_known));
    }
    comparison.finish();
}
