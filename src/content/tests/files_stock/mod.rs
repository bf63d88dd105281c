//! The file server beside stock's, over the same trees and the same configuration.
//!
//! Both read the same configuration file, so the options are compared too. What is known to differ is left out of the cases here, and stands at [`known_differences`] and
//! in `files_attacks.rs`.

mod cases;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::read::GzDecoder;
use saltern_base::clock::Clock;
use saltern_config::load_master;
use saltern_content::files::{FileServer, FilesError};
use saltern_model::MinionId;
use saltern_wire::msgpack::{Limits, Value, decode};
use serde_json::{Value as Json, json};

use cases::{CASES, Case, What};

fn ask_stock(cases: &Json) -> Vec<Vec<Json>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files_stock/stock.py");
    let answer = saltern_stock::answer(saltern_stock::NEWEST, script, &cases.to_string());
    serde_json::from_slice(&answer).unwrap()
}

fn build(top: &Path, tree: &[(&str, What)]) {
    // Stock remembers a digest by the path below `__env__` and the time of change only, so that
    // two files of the same time in two environments have one digest.
    let mut time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    for (path, what) in tree {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match what {
            What::File(content) => {
                fs::write(&path, content).unwrap();
                time += Duration::from_millis(1500);
                fs::File::open(path).unwrap().set_modified(time).unwrap();
            }
            What::Directory => fs::create_dir_all(path).unwrap(),
            What::Link(target) => {
                symlink(target.replace("{top}", top.to_str().unwrap()), path).unwrap();
            }
            What::Pipe => {
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).unwrap();
            }
        }
    }
}

/// Writes the configuration of a master that lives in `top`.
fn configure(top: &Path, config: &str) -> PathBuf {
    let at = top.to_str().unwrap();
    let conf = top.join("master");
    let text = format!(
        "root_dir: {at}\ncachedir: {at}/cache\npki_dir: {at}/pki\nsock_dir: {at}/run\n\
         conf_file: {at}/master\nlog_file: {at}/log\n{}",
        config.replace("{top}", at)
    );
    fs::write(&conf, text).unwrap();
    conf
}

fn server(conf: &Path) -> FileServer {
    let loaded = load_master(conf).unwrap_or_else(|_| panic!("{} is no good", conf.display()));
    FileServer::new(&loaded.config, Clock::system()).unwrap()
}

/// Every path that a case asks for.
fn paths(tree: &[(&str, What)]) -> Vec<String> {
    let mut paths: BTreeSet<String> = [
        "",
        ".",
        "..",
        "/",
        "../salt/one.sls",
        "/etc/passwd",
        "web",
        "web/",
        "web/..",
        "none",
        "web/../one.sls",
        "./web/./init.sls",
        "web//init.sls",
        "one.sls/",
        "one.sls/x",
        "dir/..",
        "out_full/file",
        "to_dir/file",
        "to_dir/sub/up_up",
        "in_absolute_dir/file",
        "to_sub/file",
        "shared?saltenv=dev",
        "shared?saltenv=qa",
        "shared?saltenv=none",
        "shared?env=dev",
        "shared?index=0",
        "shared?index=1",
        "shared?index=-1",
        "shared?index=9",
        "shared?index=z",
        "shared?saltenv=dev&index=0",
        "shared?saltenv",
        "shared?x=y",
        "devonly?saltenv=dev",
        "shared?path=x",
        "|shared",
        "|what?now",
        "||pipe",
        "||what?now",
        "salt://shared",
        "salt://|shared",
        "web1/etc",
        "web1",
        "minions/web1/etc/hosts",
        "xxxxxxx/web1/etc/hosts",
        "web1/etc//hosts",
        "web1/./etc/hosts",
        "web1/etc/../etc/hosts",
        "nobody/etc/hosts",
    ]
    .iter()
    .map(ToString::to_string)
    .collect();
    for (path, _) in tree {
        // Below the root, and below the minion's directory.
        let path = path.replace("cache/minions/", "x/").replace("/files/", "/");
        let mut rest = path.as_str();
        while let Some((_, below)) = rest.split_once('/') {
            paths.insert(below.to_owned());
            rest = below;
        }
    }
    paths.into_iter().collect()
}

/// The environments that a case asks for: those it configures, those it takes the place of, and
/// one that is never there.
fn environments(config: &str) -> Vec<&'static str> {
    let all = ["base", "dev", "empty", "twice", "pushed", "__env__"];
    let mut asked: Vec<_> = all
        .into_iter()
        .filter(|name| config.contains(name))
        .collect();
    if config.contains("__env__") {
        asked.extend(["qa", "feature/x", "dev"]);
    }
    asked.push("none");
    asked
}

const PREFIXES: &[&str] = &[
    "",
    "/",
    "web",
    "/web/",
    "web/files",
    "we",
    "deep/a",
    "none",
    "to",
    "to_dir/",
    "web1",
    "web1/etc",
    "web1/et",
    "minions/web1/etc",
    "minions",
    "minions/web1",
    "web1/../web2",
    "dir",
];

fn calls(case: &Case) -> Vec<Json> {
    let environments = environments(case.config);
    let mut calls = vec![json!(["file_envs"])];
    for saltenv in &environments {
        for prefix in PREFIXES {
            for list in [
                "file_list",
                "file_list_emptydirs",
                "dir_list",
                "symlink_list",
            ] {
                calls.push(json!([list, saltenv, prefix]));
            }
        }
    }
    for path in paths(case.tree) {
        for saltenv in &environments {
            for function in ["file_find", "file_hash", "file_hash_and_stat"] {
                calls.push(json!([function, path, saltenv]));
            }
            for (loc, gzip) in [
                (0, 0),
                (3, 0),
                (1_000_000, 0),
                (0, 1),
                (2, 9),
                (0, -1),
                (-1, 0),
            ] {
                calls.push(json!(["serve_file", path, saltenv, loc, gzip]));
            }
        }
        calls.push(json!(["serve_file", path, "base", 0, 77]));
    }
    calls
}

pub(crate) fn as_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => json!(flag),
        Value::Int(number) => json!(number),
        Value::Uint(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Str(text) => json!(text),
        Value::Bin(bytes) => json!({"hex": hex(bytes)}),
        Value::Array(items) => items.iter().map(as_json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|(key, value)| (key.as_str().unwrap().to_owned(), as_json(value)))
            .collect(),
        Value::Ext(..) => panic!("no answer has an extension type"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn list(packed: Result<bytes::Bytes, FilesError>) -> Result<Value, FilesError> {
    packed.map(|packed| decode(&packed, &Limits::WIRE).unwrap())
}

pub(crate) fn ask_us(server: &FileServer, call: &Json) -> Json {
    let text = |at: usize| call[at].as_str().unwrap_or_default();
    let number = |at: usize| call[at].as_i64().unwrap_or_default();
    let answer = match text(0) {
        "file_envs" => Ok(server.file_envs()),
        "file_find" => server.file_find(text(1), text(2)),
        "file_hash" => server.file_hash(text(1), text(2)),
        "file_hash_and_stat" => server.file_hash_and_stat(text(1), text(2)),
        "serve_file" => server
            .serve_file(text(1), text(2), number(3), Some(number(4)))
            .map(inflated),
        "file_list" => list(server.file_list(text(1), text(2))),
        "file_list_emptydirs" => list(server.file_list_emptydirs(text(1), text(2))),
        "dir_list" => list(server.dir_list(text(1), text(2))),
        "symlink_list" => server.symlink_list(text(1), text(2)),
        other => panic!("{other}"),
    };
    answer.map_or_else(|_| json!({"exception": true}), |value| as_json(&value))
}

/// Data is compared as bytes, unpacked.
fn inflated(mut answer: Value) -> Value {
    let is_zipped = answer.get("gzip").is_some();
    if let Value::Map(entries) = &mut answer {
        for (_, data) in entries
            .iter_mut()
            .filter(|(key, _)| key.as_str() == Some("data"))
        {
            let mut bytes = data.as_bytes().unwrap().to_vec();
            if is_zipped {
                let mut plain = Vec::new();
                GzDecoder::new(bytes.as_slice())
                    .read_to_end(&mut plain)
                    .unwrap();
                bytes = plain;
            }
            *data = Value::Bin(bytes.into());
        }
    }
    answer
}

/// Both sides without what no two calls have in common: the time of access of a file of roots, and
/// which exception.
pub(crate) fn comparable(function: &str, mut answer: Json) -> Json {
    if answer.get("exception").is_some() {
        return json!({"exception": true});
    }
    let stat = match function {
        "file_hash_and_stat" => answer.get_mut(1),
        _ => answer.get_mut("stat"),
    };
    if let Some(accessed) = stat.and_then(|stat| stat.get_mut(7)) {
        *accessed = Json::Null;
    }
    answer
}

/// Whether ours differs on purpose, and stock's answer is therefore not compared.
fn known_differences(call: &Json, ours: &Json, stock: &Json) -> bool {
    let path = call[1].as_str().unwrap_or_default();
    let nothing = [
        json!({"path": "", "rel": ""}),
        json!({"data": {"hex": ""}, "dest": ""}),
    ];
    // Stock passes the query on as arguments and fails; there is no such file for us.
    path.contains("path=") && nothing.contains(ours) && stock.get("exception").is_some()
}

#[test]
fn file_server_answers_as_stock() {
    let tops: Vec<tempfile::TempDir> = CASES.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    let mut questions = Vec::new();
    for (case, top) in CASES.iter().zip(&tops) {
        build(top.path(), case.tree);
        let conf = configure(top.path(), case.config);
        questions.push(json!({"config": conf, "calls": calls(case)}));
    }
    let answers = ask_stock(&json!(questions));
    let (mut compared, mut different) = (0, Vec::new());
    for (((case, top), question), answers) in CASES.iter().zip(&tops).zip(&questions).zip(answers) {
        let server = server(&top.path().join("master"));
        let calls = question["calls"].as_array().unwrap();
        assert_eq!(calls.len(), answers.len());
        for (call, stock) in calls.iter().zip(answers) {
            let function = call[0].as_str().unwrap();
            let ours = comparable(function, ask_us(&server, call));
            let stock = comparable(function, stock);
            compared += 1;
            if ours != stock && !known_differences(call, &ours, &stock) {
                different.push(format!(
                    "{}: {call}\n  ours  {ours}\n  stock {stock}",
                    case.name
                ));
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
    assert!(
        different.is_empty(),
        "{} of {compared} answers differ:\n{}",
        different.len(),
        different
            .iter()
            .take(40)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
}

#[test]
fn files_are_received_as_by_stock() {
    let config = "file_recv: True\nfile_recv_max_size: 1\n";
    let long = "6f".repeat(700_000);
    let pushes = [
        json!(["web1", ["etc", "hosts"], 0, "6f6e65"]),
        json!(["web1", ["etc", "hosts"], 3, "74776f"]),
        json!(["web1", ["etc", "again"], 0, "616161616161"]),
        json!(["web1", ["etc", "again"], 0, "6262"]),
        json!(["web1", ["etc/joined", "file"], 0, "63"]),
        json!(["web1", ["a", "..", "b"], 0, "64"]),
        json!(["web1", ["hole"], 5, "65"]),
        json!(["web1", ["empty"], 0, ""]),
        json!(["web1", ["ünï", "日本"], 0, "66"]),
        json!(["web2", [".."], 0, "67"]),
        json!(["web2", ["..", "..", "web1", "files", "x"], 0, "68"]),
        json!(["web2", ["a", "../../x"], 0, "69"]),
        json!(["web2", ["a", "../", "x"], 0, "6a"]),
        json!(["web2", ["", "etc", "x"], 0, "6b"]),
        json!(["web2", ["/etc/x"], 0, "6c"]),
        json!(["web2", ["negative"], -1, "6d"]),
        json!(["web2", ["large"], 0, long]),
        json!(["web2", ["large"], 700_000, long]),
        json!(["web2", ["far"], 1_048_576, "6e"]),
        json!(["web2", ["edge"], 1_048_575, "6e"]),
    ];
    let tops = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut calls: Vec<Json> = pushes
        .iter()
        .map(|push| json!(["file_recv", push[0], push[1], push[2], push[3]]))
        .collect();
    calls.push(json!(["received"]));
    let conf = configure(tops[0].path(), config);
    let stock = ask_stock(&json!([{"config": conf, "calls": calls}])).remove(0);

    let server = server(&configure(tops[1].path(), config));
    for (push, stock) in pushes.iter().zip(&stock) {
        let minion = MinionId::parse(push[0].as_str().unwrap()).unwrap();
        let parts: Vec<&str> = push[1]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part.as_str().unwrap())
            .collect();
        let data = push[3].as_str().unwrap();
        let data: Vec<u8> = (0..data.len() / 2)
            .map(|at| u8::from_str_radix(&data[at * 2..at * 2 + 2], 16).unwrap())
            .collect();
        let ours = server.receive(&minion, &parts, push[2].as_i64().unwrap(), &data);
        let shown: String = push.to_string().chars().take(80).collect();
        assert_eq!(json!(ours.unwrap()), *stock, "{shown}");
    }
    let mut received = serde_json::Map::new();
    collect(&tops[1].path().join("cache/minions"), "", &mut received);
    assert_eq!(Json::Object(received), stock[pushes.len()]);
}

fn collect(directory: &Path, below: &str, found: &mut serde_json::Map<String, Json>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{name}/"), found);
        } else {
            found.insert(name, json!(hex(&fs::read(entry.path()).unwrap())));
        }
    }
}
