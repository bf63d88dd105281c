//! The same rules and calls to stock's `CkMinions` and to us, in all three lines: random lists of
//! rules over a few words, so that about half of the answers are yes. What the head of
//! [`crate::acl`] lists as different is not asked.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use saltern_model::{Compat, MinionId, Target, TargetType};
use saltern_wire::msgpack::Value;
use serde_json::{Value as Json, json};

use super::*;
use crate::matching::{MatchOptions, NoData, Nodegroups, Site};
use crate::target::{Candidates, Targeting};

const QUESTIONS: usize = 3_000;

/// Asks stock; the accepted minions lie below the directory in the first argument.
const SCRIPT: &str = "
import json, sys
import salt.config, salt.utils.minions
opts = dict(salt.config.DEFAULT_MASTER_OPTS)
root = sys.argv[1]
opts.update(pki_dir=root + '/pki', cachedir=root + '/cache', conf_file=root + '/master',
            sock_dir=root + '/run', extension_modules='', root_dir=root, id='m', __role='master')
minions = salt.utils.minions.CkMinions(opts)

def job(q):
    args = list(q['args'])
    if q['kwargs']:
        args.append(dict(q['kwargs'], __kwarg__=True))
    return bool(minions.auth_check(q['rules'], q['fun'], args, 'x', 'glob', minions=q['minions'],
                                   whitelist=['saltutil.find_job']))

def call(q, check):
    answer = check(q['rules'], q['fun'], {'arg': q['args'], 'kwarg': q['kwargs']})
    return 'error' if isinstance(answer, dict) else bool(answer)

answers = [[job(q), call(q, minions.runner_check), call(q, minions.wheel_check)]
           for q in json.load(sys.stdin)]
print(json.dumps(answers))
";

const ACCEPTED: [&str; 4] = ["db1", "db2", "web1", "web2"];
const FUNCTIONS: [&str; 7] = [
    "test.ping",
    "test.echo",
    "cmd.run",
    "jobs.list_jobs",
    "key.accept",
    "saltutil.find_job",
    "no_module",
];
const EXPRESSIONS: [&str; 9] = [
    "test.*",
    "test.ping",
    "cmd",
    ".*run$",
    "(",
    "jobs.*",
    "list_jobs",
    "accept",
    ".*",
];
const TARGETS: [&str; 8] = [
    "*",
    "web*",
    "db1",
    "web1 or db1",
    "E@web.",
    "@x",
    "L@web1,db2",
    "no-one",
];
const MASTER: [&str; 8] = [
    "@runner", "@runners", "@wheel", "@wheels", "@jobs", "@key", "@test", "@x",
];
const TEXTS: [&str; 4] = ["a", "ab", "b", "1"];

/// Numbers that look random and are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    fn several(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> Json) -> Vec<Json> {
        (0..self.below(most + 1)).map(|_| one(self)).collect()
    }

    /// A text, or nothing: what an argument has to look like.
    fn wanted(&mut self) -> Json {
        match self.below(3) {
            0 => Json::Null,
            _ => json!(self.one_of(&["^a$", "a", "b|1", ".*"])),
        }
    }

    fn arguments(&mut self) -> Json {
        let mut wanted = serde_json::Map::new();
        if self.below(2) == 0 {
            wanted.insert("args".to_owned(), self.several(2, Self::wanted).into());
        }
        if self.below(2) == 0 {
            let name = self.one_of(&["x", "y"]);
            wanted.insert("kwargs".to_owned(), json!({ name: self.wanted() }));
        }
        Json::Object(wanted)
    }

    fn condition(&mut self) -> Json {
        match self.below(4) {
            0 => json!({ self.one_of(&EXPRESSIONS): self.arguments() }),
            1 => {
                let several = self.several(2, Self::arguments);
                json!({ self.one_of(&EXPRESSIONS): several })
            }
            _ => json!(self.one_of(&EXPRESSIONS)),
        }
    }

    fn rule(&mut self) -> Json {
        let name = match self.below(2) {
            0 => self.one_of(&TARGETS),
            _ => self.one_of(&MASTER),
        };
        match self.below(6) {
            0 => json!(self.one_of(&EXPRESSIONS)),
            1 => json!(self.one_of(&MASTER)),
            2 => json!({ name: self.condition() }),
            3 => json!({ name: self.condition(), "second": ".*" }),
            _ => json!({ name: self.several(2, Self::condition) }),
        }
    }

    fn question(&mut self) -> Json {
        // Somebody, always: of nobody, 3006 and 3007 take a rule for functions of the master for one
        // of minions.
        let mut minions = vec![self.one_of(&ACCEPTED)];
        minions.extend(ACCEPTED.iter().filter(|_| self.below(4) == 0));
        let mut kwargs = serde_json::Map::new();
        for name in ["x", "y"] {
            if self.below(2) == 0 {
                kwargs.insert(name.to_owned(), json!(self.one_of(&TEXTS)));
            }
        }
        json!({
            "rules": self.several(3, Self::rule),
            "fun": self.one_of(&FUNCTIONS),
            "args": self.several(3, |chance| json!(chance.one_of(&TEXTS))),
            "kwargs": kwargs,
            "minions": minions,
        })
    }
}

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => Value::Array(items.iter().map(value).collect()),
        Json::Object(entries) => {
            let entries = entries.iter();
            Value::map(entries.map(|(name, entry)| (name.as_str(), value(entry))))
        }
        other => panic!("not asked: {other}"),
    }
}

struct Accepted(Vec<MinionId>);

impl Candidates for Accepted {
    fn ids(&self) -> &[MinionId] {
        &self.0
    }

    fn find(&self, id: &str) -> Option<&MinionId> {
        self.0.iter().find(|known| known.as_str() == id)
    }
}

fn ids(names: impl Iterator<Item = impl AsRef<str>>) -> Vec<MinionId> {
    names
        .map(|name| MinionId::parse(name.as_ref()).expect("a valid id"))
        .collect()
}

/// Our answers to a question.
fn ours(question: &Json, targeting: &Targeting, acl: &Acl) -> Json {
    let rules = Rules::of(&value(&question["rules"]));
    let functions = [question["fun"].as_str().expect("a text").to_owned()];
    let names = question["minions"].as_array().expect("a list").iter();
    let minions = ids(names.map(|name| name.as_str().expect("a text")));
    let positional = value(&question["args"]);
    let named = value(&question["kwargs"]);
    let named = named.as_map().expect("a map");
    let mut arguments = positional.as_array().expect("a list").to_vec();
    if !named.is_empty() {
        let mark = (Value::from(KWARG_MARK), Value::Bool(true));
        arguments.push(Value::Map(named.iter().cloned().chain([mark]).collect()));
    }
    let job = AskedJob {
        functions: &functions,
        in_list: false,
        arguments: &Value::Array(arguments),
        minions: Whom::These(&minions),
    };
    let accepted = Accepted(ids(ACCEPTED.iter()));
    let minions_of = |target: &str| {
        let target = Target::Expression(TargetType::Compound, target.to_owned());
        let options = MatchOptions {
            greedy: false,
            ..MatchOptions::default()
        };
        let resolved = targeting.resolve_with(&target, &accepted, &options);
        resolved
            .map(|resolved| resolved.minions)
            .unwrap_or_default()
    };
    let sorted = CallArguments {
        positional: positional.as_array().expect("a list").to_vec(),
        named: named
            .iter()
            .map(|(name, value)| (name.as_str().expect("a text").to_owned(), value.clone()))
            .collect(),
    };
    let call = |form| match acl.allows_call(&rules, form, &functions[0], &sorted) {
        Verdict::Allowed => json!(true),
        Verdict::Refused => json!(false),
        Verdict::NoFunction => json!("error"),
    };
    json!([
        acl.allows_job(&rules, &job, minions_of),
        call(Form::Runner),
        call(Form::Wheel)
    ])
}

fn ask_stock(version: &str, root: &Path, questions: &Json) -> Json {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let python = PathBuf::from(home).join(format!(".cache/saltern/stock/{version}/bin/python"));
    assert!(
        python.exists(),
        "\"{}\" does not exist: this test compares with stock Salt {version}",
        python.display()
    );
    let mut child = Command::new(python)
        .args(["-W", "ignore", "-c", SCRIPT])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("stock's python starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(questions.to_string().as_bytes())
        .expect("stock reads");
    drop(stdin);
    let output = child.wait_with_output().expect("stock answers");
    assert!(output.status.success(), "stock {version} fails");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default()).expect("one JSON value")
}

#[test]
fn rules_allow_what_stock_allows() {
    let root = tempfile::tempdir().expect("a directory");
    for dir in ["pki/minions", "cache", "run"] {
        std::fs::create_dir_all(root.path().join(dir)).expect("a directory");
    }
    for id in ACCEPTED {
        std::fs::write(root.path().join("pki/minions").join(id), "key").expect("a key");
    }
    let mut chance = Chance(7);
    let questions: Vec<Json> = (0..QUESTIONS).map(|_| chance.question()).collect();
    let questions = Json::Array(questions);
    let lines = [
        ("3006.28", Compat::V3006),
        ("3007.15", Compat::V3007),
        ("3008.3", Compat::V3008),
    ];
    for (version, compat) in lines {
        let targeting = Targeting::of(Site::new(
            compat,
            Nodegroups::default(),
            Some(Arc::new(NoData)),
        ));
        let acl = Acl::default();
        let stock = ask_stock(version, root.path(), &questions);
        let mut allowed = [0; 3];
        let mut different = Vec::new();
        let questions = questions.as_array().expect("a list");
        for (question, stock) in questions.iter().zip(stock.as_array().expect("a list")) {
            let ours = ours(question, &targeting, &acl);
            for (count, answer) in allowed.iter_mut().zip(ours.as_array().expect("a list")) {
                *count += usize::from(answer == &json!(true));
            }
            if &ours != stock {
                different.push(format!("{question}: stock {stock}, ours {ours}"));
            }
        }
        assert!(
            different.is_empty(),
            "{version}: {} differ, such as\n{}",
            different.len(),
            different[..different.len().min(5)].join("\n")
        );
        assert!(
            allowed.iter().all(|count| *count > QUESTIONS / 20),
            "too few are allowed for a test: {allowed:?}"
        );
    }
}
