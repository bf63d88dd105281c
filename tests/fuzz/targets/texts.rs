//! Texts: YAML, templates, targets, and reactions.

use std::sync::Arc;
use std::time::Duration;

use saltern_automation::reactor::Reactions;
use saltern_config::yaml;
use saltern_content::render::functions::Registry;
use saltern_content::render::jinja::{Context, Limits, NoTemplates, render};
use saltern_fuzz::Fuzz;
use saltern_model::{Jid, MinionId, SaltEnv, Tag, Target, TargetType};
use saltern_policy::target::{Candidates, Targeting};
use saltern_wire::msgpack::Value;

use crate::site::{clock, config};

#[test]
fn yaml_document() {
    Fuzz {
        name: "yaml_document",
        seeds: vec![
            b"a: &x [1, 2.5, yes, null, 0x1f, 1:30, 2026-01-02]\nb: *x\nc: {d: 'e', f: \"g\\u00e9\"}\n".to_vec(),
            b"- |\n  text\n- >-\n  folded\n- ? k\n  : v\n- !!str 5\n".to_vec(),
            b"<<: {a: 1}\n'*':\n  - match: glob\n".to_vec(),
        ],
        words: &[b": ", b"- ", b"&a ", b"*a", b"!!", b"<<: ", b"|\n", b"? ", b"---\n", b"%YAML 1.1\n", b"\t", b"\n ", b"[", b"{", b"'", b"\"", b"\\x"],
        count: 15_000,
    }
    .run(|bytes| {
        let limits = yaml::Limits {
            depth: 64,
            nodes: 10_000,
            bytes: 1 << 20,
        };
        let _ = yaml::parse_bytes(bytes, "fuzz", &limits);
    });
}

fn context() -> Context {
    let grains = Value::map([("id", Value::from("m1")), ("n", 3_i64.into())]);
    Context {
        values: vec![("grains".to_owned(), Arc::new(grains))],
        // None of the functions of `salt`: they read files and run commands.
        functions: Arc::new(Registry::new()),
        loader: Arc::new(NoTemplates),
        clock: clock(),
        limits: Limits {
            time: Duration::from_secs(5),
            output: 1 << 16,
            steps: 200_000,
            rounds: 2_000,
            depth: 100,
            ..Limits::DEFAULT
        },
        python: None,
    }
}

#[test]
fn jinja_template() {
    let context = context();
    Fuzz {
        name: "jinja_template",
        seeds: vec![
            b"{% for k, v in grains.items() %}{{ k }}: {{ v | tojson }}\n{% endfor %}".to_vec(),
            b"{% macro m(a, b=2) -%}{{ a ~ b }}{%- endmacro %}{{ m(1) }}{% set x = [1,2,3] | map('string') | join(',') %}{{ x[::-1] }}".to_vec(),
            b"{% if grains.get('n', 0) > 2 and 'a' in 'abc' %}yes{% elif not true %}{% else %}no{% endif %}{# c #}".to_vec(),
            b"{{ \"%s %d\" | format('a', 5) }}{{ '{:>5}'.format(3) }}{{ {'a': 1} | dictsort }}{{ range(3) | list }}".to_vec(),
            b"#!jinja|yaml\n{% raw %}{{ x }}{% endraw %}{{ grains | yaml }}{{ 2 ** 10 // 3 }}".to_vec(),
        ],
        words: &[b"{{ ", b" }}", b"{% ", b" %}", b"| ", b"for x in ", b"endfor", b"if ", b"endif", b"set x = ", b"loop.index", b"range(9)", b"**", b"%", b"'", b"[0]", b".x", b"(", b")", b"-%}", b"import 'a'", b"regex_replace('(a+)+$', 'b')"],
        count: 4_000,
    }
    .run(|bytes| {
        let _ = render(&String::from_utf8_lossy(bytes), "fuzz", &context);
    });
}

struct Fleet(Vec<MinionId>);

impl Candidates for Fleet {
    fn ids(&self) -> &[MinionId] {
        &self.0
    }

    fn find(&self, id: &str) -> Option<&MinionId> {
        self.0.iter().find(|known| known.as_str() == id)
    }
}

/// Types of targets, by their names on the wire; the first byte of an input chooses one.
const KINDS: [&str; 12] = [
    "glob",
    "pcre",
    "list",
    "grain",
    "grain_pcre",
    "pillar",
    "pillar_pcre",
    "pillar_exact",
    "ipcidr",
    "range",
    "nodegroup",
    "compound",
];

/// Only accepted minions are found, whatever the expression.
#[test]
fn target_expression() {
    let ids = ["db1", "web1", "web2.example.com"];
    let fleet = Fleet(ids.iter().map(|id| MinionId::parse(id).unwrap()).collect());
    let site = saltern_policy::matching::Site::new(
        saltern_model::Compat::V3008,
        saltern_policy::matching::Nodegroups::default(),
        None,
    );
    let targeting = Targeting::of(site);
    let seed = |kind: u8, text: &str| [&[kind], text.as_bytes()].concat();
    Fuzz {
        name: "target_expression",
        seeds: vec![
            seed(0, "web[12]*"),
            seed(1, r"^(web|db)\d+(?=\.)?$"),
            seed(2, "web1,db1"),
            seed(3, "os:Debian"),
            seed(8, "10.0.0.0/8"),
            seed(9, "%web{1..20},&x"),
            seed(
                11,
                "G@os:Debian and ( not web* or E@db.* ) and not L@a,b or S@10.0.0.0/8",
            ),
        ],
        words: &[
            b"G@", b"E@", b"P@", b"I@", b"J@", b"L@", b"N@", b"S@", b"R@", b" and ", b" or ",
            b" not ", b"( ", b" )", b"*", b"[!a]", b"(?i)", b"(a+)+$", b"{1,9}", b"\\d", b"%",
            b"..",
        ],
        count: 10_000,
    }
    .run(|bytes| {
        let (first, text) = bytes.split_first().unwrap_or((&0, b""));
        let kind = KINDS[usize::from(*first) % KINDS.len()];
        let Some(kind) = TargetType::from_wire(kind) else {
            panic!("the type \"{kind}\" is known");
        };
        let text = String::from_utf8_lossy(text).into_owned();
        if let Ok(found) = targeting.resolve(&Target::Expression(kind, text), &fleet) {
            assert!(found.minions.iter().all(|id| fleet.0.contains(id)));
        }
    });
}

/// A name that is taken is one entry of a directory.
#[test]
fn names() {
    Fuzz {
        name: "names",
        seeds: vec![
            b"web1.example.com".to_vec(),
            b"20260102030405060708".to_vec(),
            b"salt/job/1/ret/m1".to_vec(),
            b"base".to_vec(),
        ],
        words: &[
            b"..",
            b"/",
            b"\0",
            b"\\",
            b"\n",
            "\u{202e}".as_bytes(),
            b"%2e",
        ],
        count: 20_000,
    }
    .run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let is_one_name = |name: &str| {
            !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
        };
        if let Ok(id) = MinionId::parse(&text) {
            assert!(is_one_name(id.as_str()), "{text:?}");
        }
        if let Ok(jid) = Jid::parse(&text) {
            assert!(is_one_name(jid.as_str()), "{text:?}");
        }
        let _ = (SaltEnv::parse(&text), Tag::parse(&text));
    });
}

#[test]
fn reactor_sls() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "");
    let reactions = Reactions::alone(&config, &clock()).unwrap();
    let path = dir.path().join("reaction.sls");
    let reference = [path.to_str().unwrap().to_owned()];
    let data = Value::map([("id", Value::from("m1")), ("n", 3_i64.into())]);
    let data = Arc::new(data);
    Fuzz {
        name: "reactor_sls",
        seeds: vec![
            b"ping:\n  local.test.ping:\n    - tgt: {{ data['id'] }}\n    - args: [1, {a: 2}]\n".to_vec(),
            b"up:\n  runner.manage.up: []\nkeys:\n  wheel.key.accept:\n    - match: {{ data.id }}\n".to_vec(),
            b"{% if data.n > 2 %}\nsls:\n  caller.state.apply:\n    - args:\n      - mods: x\n{% endif %}\n".to_vec(),
        ],
        words: &[b"local.", b"runner.", b"wheel.", b"caller.", b"- tgt: ", b"- arg: ", b"- kwarg: ", b"{{ data", b"{{ tag }}", b": []", b"\n  ", b"require:", b"order: "],
        count: 250,
    }
    .run(|bytes| {
        std::fs::write(&path, bytes).unwrap();
        let _ = reactions.of(&reference, "my/tag", &data);
    });
}
