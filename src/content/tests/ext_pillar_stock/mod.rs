//! The external pillars beside stock's, over the same files and the same configuration.
//! The sources that 3008 has no longer are compared with 3007.

mod cases;
mod http;
mod tls;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_config::load_master;
use saltern_content::ext_pillar::{ExtInput, ExtPillars};
use saltern_content::render::functions::Registry;
use saltern_content::render::jinja::{Context, Limits, NoTemplates};
use saltern_content::render::modules::{Facts, add_all};
use saltern_content::render::{Renderers, json};
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;
use serde_json::{Value as Json, json};

use cases::{CASES, Case, FILES, LINKS};

/// The minion that all cases ask for.
const MINION: &str = "web1";
/// The node groups that it is in; stock works that out from its target.
const GROUPS: &[&str] = &["web", "all"];

fn ask_stock(version: &str, asked: &Json) -> Vec<Json> {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/ext_pillar_stock/stock.py"
    );
    let answer = saltern_stock::answer(version, script, &asked.to_string());
    serde_json::from_slice(&answer).unwrap()
}

/// A directory with the files of the cases and the configuration that both sides read.
fn site() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path();
    for (path, content) in FILES {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for (path, target) in LINKS {
        symlink(target, top.join(path)).unwrap();
    }
    fs::create_dir_all(top.join("pki/minions")).unwrap();
    fs::write(top.join("pki/minions").join(MINION), "").unwrap();
    directory
}

fn configuration(top: &Path, ext_pillar: &str) -> String {
    let at = top.to_str().unwrap();
    format!(
        "root_dir: {at}\ncachedir: {at}/cache\npki_dir: {at}/pki\nsock_dir: {at}/run\n\
         log_file: {at}/log\npillar_source_merging_strategy: recurse\n\
         pillar_roots: {{base: [{at}/pillar], dev: [{at}/pillar, {at}/tree]}}\n\
         nodegroups: {{web: 'L@web1,web2', db: 'L@db1', all: '*'}}\n{}",
        ext_pillar.replace("{top}", at)
    )
}

fn from_json(value: &Json) -> Value {
    json::parse(&value.to_string()).unwrap()
}

fn as_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => json!(flag),
        Value::Int(number) => json!(number),
        Value::Uint(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Str(text) => json!(text),
        Value::Bin(bytes) | Value::Ext(_, bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": hex })
        }
        Value::Array(items) => items.iter().map(as_json).collect(),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|(key, value)| {
                    let key = match key {
                        Value::Str(text) => text.clone(),
                        Value::Bool(true) => "True".to_owned(),
                        Value::Bool(false) => "False".to_owned(),
                        Value::Int(number) => number.to_string(),
                        other => panic!("no key of a case: {other:?}"),
                    };
                    (key, as_json(value))
                })
                .collect(),
        ),
    }
}

/// The strategy `recurse`, as far as the cases need it.
fn merge(base: Value, update: Value) -> Value {
    let (Value::Map(mut base), Value::Map(update)) = (base, update.clone()) else {
        return update;
    };
    for (key, value) in update {
        match base.iter_mut().find(|(found, _)| *found == key) {
            Some((_, old)) => *old = merge(std::mem::replace(old, Value::Nil), value),
            None => base.push((key, value)),
        }
    }
    Value::Map(base)
}

fn grains() -> Value {
    from_json(
        &json!({"id": MINION, "os": "Debian", "roles": ["web", "db"], "number": 5,
        "on": true, "deep": {"er": "down"}, "odd": "a b&c=d"}),
    )
}

fn ours(top: &Path, case: &Case, ext_pillar: &str) -> (Value, Vec<String>) {
    let conf = top.join("ours");
    fs::write(&conf, configuration(top, ext_pillar)).unwrap();
    let loaded = load_master(&conf).unwrap_or_else(|error| panic!("{ext_pillar}: {error}"));
    let sources = ExtPillars::new(&loaded.config).unwrap();
    let at = top.to_str().unwrap();
    let opts = from_json(&json!({
        "pillar_roots": {"base": [format!("{at}/pillar")],
            "dev": [format!("{at}/pillar"), format!("{at}/tree")]},
        "nodegroups": {"web": "L@web1,web2", "db": "L@db1", "all": "*"},
        "pillarenv": case.pillarenv, "saltenv": case.saltenv,
    }));
    let pillar = from_json(&json!({"kept": 1, "environment": "qa"}));
    let facts = Facts {
        grains: Arc::new(grains()),
        pillar: Arc::new(Value::Map(Vec::new())),
        opts: Arc::new(opts.clone()),
    };
    let mut registry = Registry::new();
    add_all(&mut registry, &facts, None);
    let mut context = Context {
        values: Vec::new(),
        functions: Arc::new(registry),
        loader: Arc::new(NoTemplates),
        clock: Clock::system(),
        limits: Limits::DEFAULT,
        python: None,
    };
    context.set("grains", grains());
    context.set("opts", opts.clone());
    let minion = MinionId::parse(MINION).unwrap();
    let input = ExtInput {
        minion: &minion,
        grains: &grains(),
        opts: &opts,
        saltenv: case.saltenv,
        pillarenv: case.pillarenv,
        context: &context,
        renderers: &Renderers::default(),
        in_nodegroup: &|name| GROUPS.contains(&name),
        compile_roots: &|_| panic!("only git compiles directories"),
    };
    sources.apply(pillar, &[], &input, &merge)
}

/// The input of stock's script for a case.
fn question(top: &Path, case: &Case, ext_pillar: &str) -> Json {
    let at = top.to_str().unwrap();
    // As text, because JSON knows neither the order of keys nor numbers as keys.
    let options = ext_pillar.replace("{top}", at);
    json!({"options": options, "minion": MINION, "grains": as_json(&grains()),
        "saltenv": case.saltenv, "pillarenv": case.pillarenv,
        "pillar": {"kept": 1, "environment": "qa"}})
}

/// Both sides on these cases. Values must be equal, errors must be of the same source.
fn compare(version: &str, top: &Path, cases: &[(&Case, String)]) {
    let conf = top.join("stock");
    fs::write(&conf, configuration(top, "")).unwrap();
    let questions: Vec<Json> = cases
        .iter()
        .map(|(case, ext_pillar)| question(top, case, ext_pillar))
        .collect();
    let stock = ask_stock(version, &json!({"config": conf, "cases": questions}));
    assert_eq!(stock.len(), cases.len());
    let mut different = Vec::new();
    for ((case, ext_pillar), stock) in cases.iter().zip(stock) {
        let (pillar, errors) = ours(top, case, ext_pillar);
        let kinds = |errors: Vec<String>| -> Vec<String> {
            let kind = |error: &String| error.split(": ").next().unwrap().to_owned();
            errors.iter().map(kind).collect()
        };
        let stock_errors = serde_json::from_value(stock["errors"].clone()).unwrap();
        let same =
            as_json(&pillar) == stock["pillar"] && kinds(errors.clone()) == kinds(stock_errors);
        if !same {
            different.push(format!(
                "{ext_pillar}\n  stock: {stock}\n  ours:  {} {errors:?}",
                as_json(&pillar)
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        cases.len(),
        different.join("\n")
    );
}

#[test]
fn sources_give_what_stock_gives() {
    let site = site();
    let cases: Vec<(&Case, String)> = CASES
        .iter()
        .map(|case| (case, case.ext_pillar.to_owned()))
        .collect();
    compare("3008.3", site.path(), &cases);
}

#[test]
fn unavailable_ext_pillar_is_a_named_error() {
    let site = site();
    let case = Case {
        ext_pillar: "",
        saltenv: None,
        pillarenv: None,
    };
    let option = "ext_pillar: [{mysql: {}}, {cmd_yaml: 'echo a: 1'}]";
    let (pillar, errors) = ours(site.path(), &case, option);
    assert_eq!(pillar.get("a"), Some(&Value::Int(1)));
    assert!(
        errors.len() == 1 && errors[0].contains("\"mysql\" is not available"),
        "{errors:?}"
    );
}
