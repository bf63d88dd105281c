//! The pillar compiler beside stock's, over the same trees and the same configuration.
//!
//! Values, their types and the order of keys must be equal; errors must be of the same kind: the
//! same number, with the same first lines. Cases in which stock raises an exception are marked,
//! and need an error here.

mod cases;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_config::{MasterConfig, load_master};
use saltern_content::ext_pillar::ExtPillars;
use saltern_content::files::FileServer;
use saltern_content::pillar::merge::{Strategy, merge};
use saltern_content::pillar::{Parts, PillarRequest, Pillars};
use saltern_content::render::json;
use saltern_content::render::modules::site::NoSite;
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;
use serde_json::{Value as Json, json};

use cases::{Case, cases};

fn ask_stock(cases: &Json) -> Vec<Json> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pillar_stock/stock.py");
    let answer = saltern_stock::answer(saltern_stock::NEWEST, script, &cases.to_string());
    serde_json::from_slice(&answer).unwrap()
}

/// Writes the tree and the configuration of a case; the configuration is that of a master which
/// lives in `top`.
fn build(top: &Path, case: &Case) -> PathBuf {
    for (path, text) in &case.files {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for (path, target) in &case.links {
        std::os::unix::fs::symlink(target, top.join(path)).unwrap();
    }
    let at = top.to_str().unwrap();
    let roots = match case.config.contains("pillar_roots:") {
        true => String::new(),
        false => format!("pillar_roots: {{base: [{at}/base], dev: [{at}/dev]}}\n"),
    };
    let text = format!(
        "root_dir: {at}\ncachedir: {at}/cache\npki_dir: {at}/pki\nsock_dir: {at}/run\n\
         conf_file: {at}/master\nlog_file: {at}/log\n{roots}{}",
        case.config.replace("{top}", at)
    );
    let conf = top.join("master");
    fs::write(&conf, text).unwrap();
    conf
}

fn ours(config: &MasterConfig, case: &Case) -> Value {
    let clock = Clock::system();
    let parts = Parts {
        clock: clock.clone(),
        files: Arc::new(FileServer::new(config, clock).unwrap()),
        ext: ExtPillars::new(config).unwrap(),
        site: Arc::new(NoSite),
        bridge: None,
    };
    let pillars = Pillars::new(config, parts).unwrap();
    let data = |text: &str| json::parse(text).unwrap();
    let request = PillarRequest {
        minion: MinionId::parse(case.minion).unwrap(),
        grains: Arc::new(data(case.grains)),
        saltenv: case.saltenv.map(str::to_owned),
        pillarenv: case.pillarenv.map(str::to_owned),
        pillar_override: case.pillar_override.map(data),
        extra_minion_data: None,
        ext: case.ext.map(data),
        clean_cache: false,
    };
    let first = pillars.compile(&request);
    // What was remembered of the first time changes nothing.
    assert_eq!(first, pillars.compile(&request), "{}", case.name);
    first
}

/// As `shown` of `stock.py`.
fn shown(value: &Value) -> Json {
    match value {
        Value::Nil => json!(["none"]),
        Value::Bool(flag) => json!(["bool", flag]),
        Value::Int(number) => json!(["int", number.to_string()]),
        Value::Uint(number) => json!(["int", number.to_string()]),
        Value::Float(number) => json!(["float", format!("{number:?}")]),
        Value::Str(text) => json!(["str", text]),
        Value::Bin(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!(["bytes", hex])
        }
        Value::Array(items) => json!(["list", items.iter().map(shown).collect::<Vec<_>>()]),
        Value::Map(entries) => {
            let entries = entries.iter().map(|(k, v)| json!([shown(k), shown(v)]));
            json!(["map", entries.collect::<Vec<_>>()])
        }
        Value::Ext(code, _) => json!(["ext", code]),
    }
}

/// Takes `_errors` out of a shown pillar, and the first line of each. Stock reports many
/// failures twice; each counts once.
fn split_errors(pillar: &Json) -> (Json, Vec<String>) {
    let mut pillar = pillar.clone();
    let mut errors = Vec::new();
    if let Some(entries) = pillar[1].as_array_mut() {
        entries.retain(|entry| {
            let is_errors = entry[0] == json!(["str", "_errors"]);
            if is_errors {
                let texts = entry[1][1].as_array().unwrap().iter();
                for text in texts {
                    let text = text[1].as_str().unwrap();
                    let line = text.lines().next().unwrap_or_default().to_owned();
                    if !errors.contains(&line) {
                        errors.push(line);
                    }
                }
            }
            !is_errors
        });
    }
    (pillar, errors)
}

/// The difference between the two, if there is any.
fn difference(case: &Case, ours: &Value, stock: &Json) -> Option<String> {
    let (our_pillar, our_errors) = split_errors(&shown(ours));
    if let Some(raised) = stock.get("raised") {
        if case.stock_raises && !our_errors.is_empty() {
            return None;
        }
        return Some(format!(
            "stock raised {raised}, ours: {our_pillar} {our_errors:?}"
        ));
    }
    if case.stock_raises {
        return Some(format!("stock raised nothing: {stock}"));
    }
    let (stock_pillar, stock_errors) = split_errors(&stock["pillar"]);
    let same = our_pillar == stock_pillar && our_errors == stock_errors;
    (!same).then(|| {
        format!(
            "stock: {stock_pillar} {stock_errors:?}\n  ours:  {our_pillar} {our_errors:?}\n  {:?}",
            ours.get("_errors")
        )
    })
}

#[test]
fn pillars_are_those_that_stock_makes() {
    let directory = tempfile::tempdir().unwrap();
    let cases = cases();
    assert!(cases.len() >= 80, "{} pillars are not enough", cases.len());
    let mut questions = Vec::new();
    let mut answers = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let top = directory.path().join(index.to_string());
        fs::create_dir(&top).unwrap();
        let conf = build(&top, case);
        questions.push(json!({
            "conf": conf,
            "minion": case.minion,
            "grains": case.grains,
            "saltenv": case.saltenv,
            "pillarenv": case.pillarenv,
            "override": case.pillar_override,
            "ext": case.ext,
        }));
        let loaded = load_master(&conf)
            .unwrap_or_else(|errors| panic!("{}: {:?}", case.name, errors.findings));
        answers.push(ours(&loaded.config, case));
    }
    let stock = ask_stock(&Json::Array(questions));
    assert_eq!(stock.len(), cases.len());
    let different: Vec<String> = cases
        .iter()
        .zip(answers.iter().zip(&stock))
        .filter_map(|(case, (ours, stock))| {
            let difference = difference(case, ours, stock)?;
            Some(format!("{}\n  {difference}", case.name))
        })
        .collect();
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        cases.len(),
        different.join("\n")
    );
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn mapping(&mut self, depth: u64) -> Json {
        let count = self.below(6);
        let entries = (0..count).map(|_| {
            let key = ["a", "b", "c", "d", "e", "__f"][self.below(6) as usize];
            (key.to_owned(), self.value(depth))
        });
        Json::Object(entries.collect())
    }

    fn value(&mut self, depth: u64) -> Json {
        match self.below(if depth > 3 { 6 } else { 10 }) {
            0 => Json::Null,
            1 => json!(self.below(2) == 0),
            2 | 3 => json!(self.below(3)),
            4 => json!(self.below(3) as f64),
            5 => json!(["x", "", "1"][self.below(3) as usize]),
            6 | 7 => {
                let count = self.below(4);
                Json::Array((0..count).map(|_| self.value(depth + 1)).collect())
            }
            _ => self.mapping(depth + 1),
        }
    }
}

#[test]
fn mappings_are_merged_as_stock_merges_them() {
    let strategies = [
        ("smart", Strategy::Smart),
        ("aggregate", Strategy::Aggregate),
        ("recurse", Strategy::Recurse),
        ("overwrite", Strategy::Overwrite),
        ("list", Strategy::List),
        ("none", Strategy::None),
    ];
    let mut random = Random(0x5a17_e412);
    let mut questions = Vec::new();
    let mut answers = Vec::new();
    for round in 0..1200 {
        let (name, strategy) = strategies[round % strategies.len()];
        let lists = random.below(2) == 0;
        let (base, update) = (random.mapping(0).to_string(), random.mapping(0).to_string());
        let data = |text: &str| json::parse(text).unwrap();
        let merged = merge(data(&base), data(&update), strategy, lists);
        answers.push(shown(&merged));
        questions.push(json!({"merge": [base, update, name, lists]}));
    }
    let questions = Json::Array(questions);
    let stock = ask_stock(&questions);
    assert_eq!(stock.len(), answers.len());
    for ((ours, stock), question) in answers
        .iter()
        .zip(&stock)
        .zip(questions.as_array().unwrap())
    {
        assert_eq!(ours, &stock["pillar"], "{question}");
    }
}
