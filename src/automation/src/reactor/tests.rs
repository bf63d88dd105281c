//! Compilation of reaction files: order, forms of arguments, mistakes.

#![allow(clippy::indexing_slicing, reason = "tests; a failure shows where")]

use std::fs;

use saltern_runners::Arguments;

use super::*;

/// A site with files of reactions.
struct Site {
    dir: tempfile::TempDir,
    reactions: Reactions,
}

impl Site {
    fn new(compat: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().display();
        let options = format!(
            "root_dir: {root}\nuser: root\nsalt_compat: {compat}\npython_bridge: false\n\
             file_roots: {{base: [{root}/srv]}}\n"
        );
        fs::create_dir(dir.path().join("srv")).unwrap();
        fs::write(dir.path().join("master"), options).unwrap();
        let loaded = saltern_config::load_master(&dir.path().join("master"));
        let config = loaded.map_err(|errors| errors.to_string()).unwrap().config;
        let reactions = Reactions::alone(&config, &Clock::system()).unwrap();
        Self { dir, reactions }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn plan(&self, text: &str) -> Plan {
        let path = self.file("one.sls", text);
        self.of(&[path])
    }

    fn of(&self, references: &[String]) -> Plan {
        let data = Value::map([("id", Value::from("m1")), ("n", 3.into())]);
        self.reactions.of(references, "my/tag", &Arc::new(data))
    }
}

fn plan(text: &str) -> Plan {
    Site::new("3008").plan(text)
}

fn ids(plan: &Plan) -> Vec<&str> {
    let ids = plan.reactions.iter();
    ids.map(|reaction| reaction.id.as_str()).collect()
}

fn one(text: &str) -> ReactionCall {
    let mut plan = plan(text);
    assert_eq!(plan.problems, [], "{text}");
    assert_eq!(plan.reactions.len(), 1, "{text}");
    plan.reactions.remove(0).call
}

fn named(entries: &[(&str, Value)]) -> Vec<(String, Value)> {
    let entries = entries.iter();
    entries
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn arguments(call: &ReactionCall) -> &Arguments {
    match call {
        ReactionCall::Runner(function)
        | ReactionCall::Wheel(function)
        | ReactionCall::Caller(function) => &function.arguments,
        ReactionCall::Local(_) => panic!("it is a job"),
    }
}

#[test]
fn local_reaction_is_load_of_client() {
    let call = one(
        "a:\n  cmd.test.arg:\n    - tgt: {{ data['id'] }}\n    - arg: [1, 20200101000000000000]\n    \
         - kwarg: {x: '{{ tag }}'}\n    - metadata: {k: v}\n",
    );
    let ReactionCall::Local(load) = call else {
        panic!("{call:?} is no job");
    };
    let get = |name| load.get(name).cloned();
    assert_eq!(get("fun"), Some("test.arg".into()));
    assert_eq!(get("tgt"), Some("m1".into()));
    assert_eq!(get("tgt_type"), Some("glob".into()));
    let kwarg = Value::map([("__kwarg__", Value::from(true)), ("x", "my/tag".into())]);
    let given = vec![1.into(), "20200101000000000000".into(), kwarg];
    assert_eq!(get("arg"), Some(Value::Array(given)));
    let kwargs = load.get("kwargs").unwrap();
    assert_eq!(kwargs.get("state"), Some(&"local".into()));
    assert_eq!(kwargs.get("metadata"), Some(&Value::map([("k", "v")])));
    assert!(kwargs.get("arg").is_none() && kwargs.get("tgt").is_none());
}

#[test]
fn new_argument_form_gives_named_arguments() {
    for args in ["{a: 1, b: x}", "[{a: 1}, {b: x}]"] {
        let call = one(&format!("r:\n  runner.m.f:\n    - args: {args}\n"));
        let expected = named(&[("a", 1.into()), ("b", "x".into())]);
        assert_eq!(arguments(&call).named, expected, "{args}");
    }
    let call = one("r:\n  wheel.key.accept:\n    - args:\n      - m1\n");
    assert_eq!(arguments(&call).named, named(&[("m1", Value::Nil)]));
}

#[test]
fn old_argument_forms_are_passed_as_written() {
    let call = one("r:\n  runner.m.f:\n    - arg: [1]\n    - kwarg: {b: x}\n    - order: 3\n");
    let both = arguments(&call);
    assert_eq!(both.positional, [1.into()]);
    assert_eq!(both.named, named(&[("b", "x".into())]));
    let call = one("r:\n  runner.m.f:\n    - mods: x\n    - name: n\n");
    let ReactionCall::Runner(function) = call else {
        panic!("{call:?} is no runner");
    };
    assert!(function.is_flat);
    assert_eq!(function.arguments.named, named(&[("mods", "x".into())]));
    let internal = |name: &str| function.if_taken.iter().find(|(known, _)| known == name);
    assert_eq!(internal("name").map(|(_, value)| value), Some(&"n".into()));
    let call = one("r:\n  caller.m.f:\n    - args: [1, 2]\n");
    assert_eq!(arguments(&call).positional, [1.into(), 2.into()]);
}

#[test]
fn reactions_run_by_order_and_by_the_alphabet() {
    let text = "z: {local.test.ping: [{tgt: m1}]}\n\
                a: {runner.x.y: []}\n\
                l: {local.test.ping: [{tgt: m1}, {order: last}]}\n\
                f: {local.test.ping: [{tgt: m1}, {order: first}]}\n\
                n: {local.test.ping: [{tgt: m1}, {order: -1}]}\n\
                b: {local.test.ping: [{tgt: m1}, {order: 5}]}\n";
    for compat in ["3006", "3008"] {
        let plan = Site::new(compat).plan(text);
        assert_eq!(ids(&plan), ["f", "b", "z", "a", "n", "l"], "{compat}");
    }
}

#[test]
fn names_give_one_reaction_each() {
    let text = "r:\n  local.test.ping:\n    - tgt: m1\n    - names: [b, a, {c: [{tgt: m2}]}, b]\n";
    let targets = |plan: &Plan| -> Vec<String> {
        let loads = plan.reactions.iter().map(|reaction| match &reaction.call {
            ReactionCall::Local(load) => load.clone(),
            other => panic!("{other:?} is no job"),
        });
        let of = |load: Value| {
            let name = load.get("kwargs").and_then(|kwargs| kwargs.get("name"));
            format!("{:?}{:?}", name, load.get("tgt"))
        };
        loads.map(of).collect()
    };
    let newer = targets(&Site::new("3008").plan(text));
    assert_eq!(newer.len(), 3);
    assert!(newer[0].contains("\"b\"") && newer[2].contains("\"m2\""));
    let older = targets(&Site::new("3006").plan(text));
    assert!(older[0].contains("\"a\"") && older[1].contains("\"b\""));
}

#[test]
fn requisites_order_reactions_since_3008() {
    let text = "a: {local.test.ping: [{tgt: m1}, {require: [{local: b}]}]}\n\
                b: {local.test.ping: [{tgt: m1}, {require: [c]}]}\n\
                c: {local.test.ping: [{tgt: m1}]}\n";
    assert_eq!(ids(&Site::new("3008").plan(text)), ["c", "b", "a"]);
    assert_eq!(ids(&Site::new("3007").plan(text)), ["a", "b", "c"]);
    let circle = "a: {local.test.ping: [{tgt: m1}, {require: [b]}]}\n\
                  b: {local.test.ping: [{tgt: m1}, {require: [a]}]}\n";
    let plan = Site::new("3008").plan(circle);
    assert!(plan.reactions.is_empty() && plan.problems.len() == 2);
    let missing = "a: {local.test.ping: [{tgt: m1}, {require: [x]}]}\n";
    let plan = Site::new("3008").plan(missing);
    assert!(plan.reactions.is_empty() && plan.problems.len() == 1);
}

#[test]
fn every_mistake_names_its_file_and_id() {
    let table = [
        ("a: [1]", "no mapping"),
        ("- a", "no mapping of ids"),
        ("1: {local.test.ping: [{tgt: x}]}", "no text"),
        ("a: {local.test.ping: {tgt: x}}", "no list"),
        ("a: {local.test.ping: }", "colon"),
        ("a: {local: [{tgt: x}]}", "no function"),
        ("a: {local: [test.ping, test.fib]}", "several functions"),
        ("a: {local.test.ping: [tgt x]}", "white space"),
        ("a: {local.test.ping: []}", "\"tgt\" is missing"),
        ("a: {foo.bar: []}", "no type of reaction"),
        ("a: {runner.x.y: [{args: 1}]}", "neither a mapping nor"),
        ("a: {runner.x.y: [{args: []}]}", "neither a mapping nor"),
        ("a: {local.test.ping: [{tgt: x}, {require: b}]}", "no list"),
        ("a: {local.test.ping: [{tgt: x}, {names: b}]}", "no list"),
        ("a: {local.test.ping: [{tgt: x}, {}]}", "empty mapping"),
        ("a: {{ nothing.there }}", "cannot render"),
        ("a: [", "cannot render"),
    ];
    for (text, expected) in table {
        let plan = plan(text);
        assert!(plan.reactions.is_empty(), "{text}");
        assert!(!plan.problems.is_empty(), "{text}");
        let problem = plan.problems[0].to_string();
        assert!(problem.contains(expected), "{text}: {problem}");
        assert!(problem.contains("one.sls"), "{problem}");
    }
}

#[test]
fn broken_file_does_not_drop_the_others() {
    let site = Site::new("3008");
    let good = site.file("good.sls", "g: {runner.x.y: []}");
    let bad = site.file("bad.sls", "b: {runner.x.y: 1}\nc: {runner.x.y: []}");
    let missing = site.dir.path().join("missing.sls");
    let missing = missing.to_str().unwrap().to_owned();
    let plan = site.of(&[bad, missing, good]);
    assert_eq!(ids(&plan), ["g"]);
    assert_eq!(plan.problems.len(), 2);
}

#[test]
fn files_come_from_patterns_and_from_the_file_server() {
    let site = Site::new("3008");
    site.file("a1.sls", "one: {runner.x.y: []}");
    site.file("a2.sls", "two: {runner.x.y: []}");
    site.file("srv/map.jinja", "{% set who = 'three' %}");
    site.file(
        "srv/s.sls",
        "{% from 'map.jinja' import who %}{{ who }}: {runner.x.z: []}",
    );
    let pattern = site.dir.path().join("a*.sls");
    let references = [
        pattern.to_str().unwrap().to_owned(),
        "salt://s.sls".to_owned(),
    ];
    let plan = site.of(&references);
    assert_eq!(plan.problems, []);
    assert_eq!(ids(&plan), ["one", "three", "two"]);
    let plan = site.of(&["salt://none.sls".to_owned()]);
    assert!(plan.problems[0].to_string().contains("salt://none.sls"));
}

#[test]
fn last_reaction_of_an_id_wins() {
    let site = Site::new("3008");
    let first = site.file("1.sls", "same: {runner.x.first: []}");
    let second = site.file("2.sls", "same: {runner.x.second: []}");
    let plan = site.of(&[first, second]);
    assert_eq!(plan.reactions.len(), 1);
    assert_eq!(plan.reactions[0].call.fun(), "x.second");
}

#[test]
fn empty_file_has_no_reactions() {
    for text in ["", "\n", "{% if false %}x{% endif %}", "{}", "a: {}"] {
        let plan = plan(text);
        assert!(
            plan.reactions.is_empty() && plan.problems.is_empty(),
            "{text}"
        );
    }
}

#[test]
fn short_reaction_takes_function_from_body() {
    let call = one("a: runner.manage.up");
    assert_eq!((call.kind(), call.fun()), ("runner", "manage.up"));
}

#[test]
fn reaction_has_key_within_id_and_file_problem_has_no_id() {
    let text = "r:\n  local.test.ping: [{tgt: m1}, {names: [b, a]}]\n  runner.x.y: []\n";
    let spots = plan(text).reactions.into_iter().map(|reaction| {
        let ReactionKey {
            state,
            number,
            name,
        } = reaction.key;
        format!("{state} {number} {name}")
    });
    let spots: std::collections::BTreeSet<String> = spots.collect();
    let expected = ["local 1 b", "local 2 a", "runner 0 "].map(str::to_owned);
    assert_eq!(spots, expected.into());
    for whole in [
        "a: {local.test.ping: 1}\nb: {local.test.ping: 2}",
        "a: {local.test.ping: [{tgt: m1}, {require: [x]}]}",
        "a: 1",
    ] {
        let problems = plan(whole).problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!((&problems[0].id, &problems[0].key), (&None, &None));
        assert!(problems[0].to_string().contains("\"a\""), "{problems:?}");
    }
    let one = plan("a: {local.test.ping: []}\nb: {runner.x.y: []}").problems;
    assert_eq!(one[0].id.as_deref(), Some("a"));
    assert!(one[0].key.is_some());
}

#[test]
fn rules_file_is_read_once_per_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules");
    let options = format!(
        "root_dir: {}\nuser: root\nreactor: {}\n",
        dir.path().display(),
        path.display()
    );
    fs::write(dir.path().join("master"), options).unwrap();
    let loaded = saltern_config::load_master(&dir.path().join("master"));
    let config = loaded.map_err(|errors| errors.to_string()).unwrap().config;
    let mut rules = Rules::read(&config);
    let mut reads = || {
        let file = rules.file().unwrap();
        let reading = file.changed();
        let has_read = reading.is_some();
        if let Some(reading) = reading {
            rules.take_of(&file, reading);
        }
        (has_read, rules.is_meant("a/1"))
    };
    assert_eq!(reads(), (false, false));
    fs::write(&path, "[{'a/*': /nowhere.sls}]").unwrap();
    assert_eq!([reads(), reads()], [(true, true), (false, true)]);
    fs::write(&path, "[").unwrap();
    assert_eq!([reads(), reads()], [(true, true), (false, true)]);
    fs::remove_file(&path).unwrap();
    assert_eq!([reads(), reads()], [(true, true), (false, true)]);
}

#[test]
fn reaction_size_counts_its_arguments() {
    let sizes = ["runner.m.f", "wheel.m.f", "caller.m.f"].map(|fun| {
        let text = "x".repeat(10_000);
        one(&format!(
            "r:\n  {fun}:\n    - args: {{a: [{text}, {{b: {text}}}]}}\n"
        ))
        .size()
    });
    assert!(
        sizes.iter().all(|size| (20_000..21_000).contains(size)),
        "{sizes:?}"
    );
}
