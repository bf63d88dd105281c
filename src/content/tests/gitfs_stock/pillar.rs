//! The external pillar `git`. What compiles its directories is a small one of the tests: it reads
//! `top.sls` and names without environments, which is enough to see which directories it is given,
//! in which order, for which environment.

use std::path::PathBuf;
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_content::ext_pillar::{ExtInput, ExtPillars};
use saltern_content::render::Renderers;
use saltern_content::render::data::from_yaml;
use saltern_content::render::functions::Registry;
use saltern_content::render::jinja::{Context, Limits, NoTemplates};
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;
use serde_json::{Value as Json, json};

use super::repository::{Repository, What};
use super::{as_json, ask_stock, configure, load, share};

const TOP: &str = "{{ saltenv }}:\n  '*': [common, data]\n";

/// A directory's `top.sls` as the tests write it, and the files it names, from the first directory
/// that has them.
fn compile(roots: &[(String, Vec<PathBuf>)]) -> (Value, Vec<String>) {
    let mut pillar = Value::Map(Vec::new());
    let mut errors = Vec::new();
    for (_, directories) in roots {
        if !directories
            .iter()
            .any(|directory| directory.join("top.sls").is_file())
        {
            continue;
        }
        for name in ["common", "data"] {
            let found = directories
                .iter()
                .map(|directory| directory.join(format!("{name}.sls")))
                .find(|path| path.is_file());
            let Some(path) = found else {
                errors.push(format!("{name} is not available"));
                continue;
            };
            let text = std::fs::read_to_string(path).unwrap();
            let limits = saltern_config::yaml::Limits::DEFAULT;
            let data = from_yaml(saltern_config::yaml::parse(&text, name, &limits).unwrap());
            pillar = merge(pillar, data);
        }
    }
    (pillar, errors)
}

fn merge(base: Value, update: Value) -> Value {
    let (Value::Map(mut base), Value::Map(update)) = (base, update) else {
        panic!("pillars of the tests are mappings");
    };
    for (key, value) in update {
        base.retain(|(found, _)| *found != key);
        base.push((key, value));
    }
    Value::Map(base)
}

/// Entries of `ext_pillar`, with `{one}` and `{two}` for URLs.
const CASES: &[&str] = &[
    "- git: ['master {one}']",
    "- git: ['dev {one}']",
    "- git: ['{one}']\ngit_pillar_branch: dev",
    "- git: ['v1 {one}']",
    "- git: ['none {one}']",
    "- git:\n  - none {one}:\n    - fallback: dev",
    "- git: ['master {one}', 'main {two}']",
    "- git: ['master {one}', 'dev {one}']",
    "- git:\n  - master {one}\n  - main {two}:\n    - env: base",
    "- git:\n  - main {two}:\n    - env: base\n  - master {one}",
    "- git:\n  - main {two}:\n    - env: base\n  - master {one}\ngit_pillar_includes: false",
    "- git: ['__env__ {one}']",
    "- git:\n  - __env__ {one}:\n    - base: dev",
    "- git:\n  - __env__ {one}:\n    - fallback: master",
    "- git:\n  - __env__ {one}:\n    - all_saltenvs: master",
    "- git:\n  - master {one}:\n    - root: below",
    "- git:\n  - master {one}:\n    - root: none",
    "- git:\n  - master {one}:\n    - env: dev",
    "- git:\n  - master {one}:\n    - env: __env__",
    "- git:\n  - master {one}\n  - main {two}:\n    - env: base\n    - mountpoint: mnt/x",
    "- git:\n  - master {one}\n  - main {two}:\n    - env: base\n    - mountpoint: ''\n    - root: below",
    "- git: ['master {one}']\n- git: ['dev {one}']",
    "- git:\n  - master {one}:\n    - name: a\n  - master {one}:\n    - name: b\n    - root: below",
];

const ENVIRONMENTS: &[(Option<&str>, Option<&str>)] = &[
    (None, None),
    (Some("dev"), None),
    (None, Some("base")),
    (None, Some("dev")),
    (None, Some("none")),
];

fn repositories(top: &std::path::Path) -> (Repository, Repository) {
    let one = Repository::new(top.join("one"));
    one.commit(
        "master",
        &[
            ("top.sls", What::File(TOP)),
            ("common.sls", What::File("common: of master\nmaster: 1\n")),
            ("data.sls", What::File("data: of master\n")),
            ("below/top.sls", What::File(TOP)),
            ("below/common.sls", What::File("common: below\n")),
            ("below/data.sls", What::File("data: below\nbelow: 1\n")),
        ],
    );
    one.git(&["tag", "v1"]);
    one.commit(
        "dev",
        &[
            ("common.sls", What::File("common: of dev\ndev: 1\n")),
            ("data.sls", What::File("data: of dev\n")),
        ],
    );
    let two = Repository::new(top.join("two"));
    two.commit(
        "main",
        &[
            ("top.sls", What::File(TOP)),
            ("common.sls", What::File("common: of two\ntwo: 1\n")),
            ("below/data.sls", What::File("data: below two\n")),
            ("data.sls", What::File("data: of two\n")),
        ],
    );
    (one, two)
}

fn ours(conf: &std::path::Path, saltenv: Option<&str>, pillarenv: Option<&str>) -> Value {
    let sources = ExtPillars::new(&load(conf)).unwrap();
    assert!(sources.refresh(), "nothing was fetched");
    let (pillar, errors) = apply(&sources, saltenv, pillarenv);
    assert!(errors.is_empty(), "{errors:?}");
    pillar
}

fn apply(
    sources: &ExtPillars,
    saltenv: Option<&str>,
    pillarenv: Option<&str>,
) -> (Value, Vec<String>) {
    let nothing = Value::Map(Vec::new());
    let context = Context {
        values: Vec::new(),
        functions: Arc::new(Registry::new()),
        loader: Arc::new(NoTemplates),
        clock: Clock::system(),
        limits: Limits::DEFAULT,
        python: None,
    };
    let minion = MinionId::parse("web1").unwrap();
    let input = ExtInput {
        minion: &minion,
        grains: &nothing,
        opts: &nothing,
        saltenv,
        pillarenv,
        context: &context,
        renderers: &Renderers::default(),
        in_nodegroup: &|_| false,
        compile_roots: &compile,
    };
    sources.apply(nothing.clone(), &[], &input, &merge)
}

#[test]
fn git_pillar_that_was_never_fetched_is_an_error_without_its_password() {
    let top = tempfile::tempdir().unwrap();
    let (one, _) = repositories(top.path());
    let config = format!(
        "ext_pillar:\n- git:\n  - master http://user:hidden@127.0.0.1:1/x\n  - master {}\n",
        one.url()
    );
    let sources = ExtPillars::new(&load(&configure(&top.path().join("master"), &config))).unwrap();
    let log = Log::default();
    let (before, after) = tracing::subscriber::with_default(log.clone(), || {
        let before = apply(&sources, None, None);
        assert!(sources.refresh());
        (before, apply(&sources, None, None))
    });
    let count = |errors: &[String]| {
        let url = "http://***@127.0.0.1:1/x";
        errors.iter().filter(|error| error.contains(url)).count()
    };
    assert_eq!((before.1.len(), count(&before.1)), (2, 1), "{:?}", before.1);
    assert_eq!((after.1.len(), count(&after.1)), (1, 1), "{:?}", after.1);
    assert_eq!(as_json(&after.0)["common"], json!("of master"));
    let log = log.0.lock().join("\n");
    assert!(
        log.contains("cannot be fetched") && !log.contains("hidden"),
        "{log}"
    );
}

#[test]
fn remotes_that_are_refused_are_named_without_their_passwords() {
    let top = tempfile::tempdir().unwrap();
    for remote in [
        "https//user:hidden@host/x",
        "ftp://user:hidden@host/x",
        "https://user:hid/hidden@host/x: [{unknown: 1}]",
        "https://user:hidden@host/x: 7",
        "https://user:hidden@host/x: [{user: u}]",
        "https://user:hidden@host/x: [{root: ../..}]",
        "https://user:hidden@host/x: [{base: b}]",
        "https://user:hidden@host/x: [{refspecs: x}]",
    ] {
        let config = format!("ext_pillar:\n- git:\n  - master {remote}\n");
        let config = load(&configure(&top.path().join("master"), &config));
        let error = ExtPillars::new(&config).err().expect(remote).to_string();
        assert!(
            error.contains("***@host/x") || remote.starts_with("ftp"),
            "{error}"
        );
        assert!(!error.contains("hid"), "{remote}: {error}");
    }
}

/// All log lines, with all fields.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn directories_and_environments_are_those_of_stock() {
    let top = tempfile::tempdir().unwrap();
    let (one, two) = repositories(top.path());
    let calls: Vec<Json> = ENVIRONMENTS
        .iter()
        .map(|(saltenv, pillarenv)| json!(["pillar", "web1", saltenv, pillarenv]))
        .collect();
    let (mut steps, mut asked) = (Vec::new(), Vec::new());
    for (index, case) in CASES.iter().enumerate() {
        let case = case
            .replace("{one}", &one.url())
            .replace("{two}", &two.url());
        // Stock fails for the second environment that one cache directory is used for.
        let environments = calls.iter().zip(ENVIRONMENTS).enumerate();
        let environments = environments.filter(|(at, _)| (at + index).is_multiple_of(share()));
        for (number, (call, environment)) in environments {
            asked.push(environment);
            let master = top.path().join(format!("master{index}.{number}"));
            let config = format!("pillar_roots: {{}}\next_pillar:\n{case}\n");
            let conf = configure(&master, &config);
            steps.push(json!({"config": conf, "calls": [call]}));
        }
    }
    let answers = ask_stock(&json!(steps));
    let mut different = Vec::new();
    for ((step, (saltenv, pillarenv)), answer) in steps.iter().zip(asked).zip(&answers) {
        let conf = PathBuf::from(step["config"].as_str().unwrap());
        let mut ours = ours(&conf, *saltenv, *pillarenv);
        let mut stock = answer[0].clone();
        // Errors are equal in number, not in words.
        let count = |errors: Option<&Json>| errors.and_then(Json::as_array).map_or(0, Vec::len);
        let errors = (
            count(as_json(&ours).get("_errors")),
            count(stock.get("_errors")),
        );
        if let Value::Map(entries) = &mut ours {
            entries.retain(|(key, _)| key.as_str() != Some("_errors"));
        }
        if let Some(stock) = stock.as_object_mut() {
            stock.remove("_errors");
        }
        if as_json(&ours) != stock || errors.0 != errors.1 {
            let written = std::fs::read_to_string(&conf).unwrap();
            let case = written.split_once("ext_pillar:").unwrap().1.to_owned();
            different.push(format!(
                "{case} {saltenv:?} {pillarenv:?}\n  ours  {} {}\n  stock {stock} {}",
                as_json(&ours),
                errors.0,
                errors.1
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        answers.len(),
        different.join("\n")
    );
}
