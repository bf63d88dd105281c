//! Merging of SLS files and of the override, and the options that say how.

use super::{Case, case};

const STRATEGIES: [(&str, &str); 7] = [
    ("merging smart", "pillar_source_merging_strategy: smart\n"),
    (
        "merging recurse with lists",
        "pillar_source_merging_strategy: recurse\npillar_merge_lists: true\n",
    ),
    (
        "merging aggregate",
        "pillar_source_merging_strategy: aggregate\n",
    ),
    (
        "merging overwrite",
        "pillar_source_merging_strategy: overwrite\npillar_merge_lists: true\n",
    ),
    ("merging list", "pillar_source_merging_strategy: list\n"),
    (
        "merging none",
        "pillar_source_merging_strategy: none\npillar_merge_lists: true\n",
    ),
    (
        "merging by an unknown strategy",
        "pillar_source_merging_strategy: magic\npillar_merge_lists: true\n",
    ),
];

fn files(name: &'static str) -> Case {
    case(name)
        .top("base: {'*': [a, b, c]}\n")
        .file(
            "base/a.sls",
            "m: {x: 1, y: {z: [1, 2], n: null}}\nl: [1, {a: 1}, x]\ns: a\n\
             t: {u: 1}\n1: one\nk: [1]\n",
        )
        .file(
            "base/b.sls",
            "l: [x, 2, {a: 1}, 2]\nm: {w: 0, y: {z: [2, 3], n: 1}}\nt: text\n\
             true: yes\nk: {a: 1}\n",
        )
        .file("base/c.sls", "s: null\nt: {v: 2}\nm: {x: null}\nl: []\n")
}

/// Files and an external pillar.
fn ext(name: &'static str, more: &'static str) -> Case {
    let command = "ext_pillar:\n\
    - cmd_json: 'echo ''{\"a\": {\"e\": 1, \"x\": \"ext\"}, \"l\": [9], \"role\": \"db\"}'''\n";
    let config: &'static str = String::leak(format!("{command}{more}"));
    case(name)
        .config(config)
        .top("base: {'*': [a], 'role:db': [{match: pillar}, b], 'I@role:web or J@role:d.': [c]}\n")
        .file(
            "base/a.sls",
            "a: {x: sls, y: 1}\nl: [1]\n\
             saw: {{ pillar.get('role', 'nothing') }} {{ salt['pillar.get']('a:e', 'nothing') }}\n",
        )
        .file("base/b.sls", "b: 1\n")
        .file("base/c.sls", "c: 1\n")
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (name, config) in STRATEGIES {
        all.push(files(name).config(config));
    }
    for (name, config) in [
        ("override", ""),
        (
            "override and list",
            "pillar_source_merging_strategy: list\n",
        ),
        (
            "override and overwrite",
            "pillar_source_merging_strategy: overwrite\n",
        ),
        ("override and merged lists", "pillar_merge_lists: true\n"),
    ] {
        let given = r#"{"o": {"p": 1}, "m": {"x": "o", "q": [1]}, "l": ["o"], "s": null}"#;
        all.push(files(name).config(config).with(given));
    }
    all.extend([
        files("an override that is no mapping").with("[1]"),
        files("an empty override").with("{}"),
        case("override without files").with(r#"{"a": {"b": [1, null, "x"]}}"#),
        ext("ext_pillar", ""),
        ext("ext_pillar and an override", "").with(r#"{"a": {"o": 1}, "new": 1}"#),
        ext(
            "ext_pillar and a list",
            "pillar_source_merging_strategy: list\n",
        ),
        ext("ext_pillar_first", "ext_pillar_first: true\n"),
        ext(
            "ext_pillar_first and an override",
            "ext_pillar_first: true\n",
        )
        .with(r#"{"a": {"o": 1}, "new": 1}"#),
        ext(
            "ext_pillar_first and lists",
            "ext_pillar_first: true\npillar_merge_lists: true\n",
        ),
        case("override of _errors")
            .top("base: {'*': [nope]}\n")
            .with(r#"{"a": 1}"#),
        case("templates do not see the override")
            .all(
                "seen: {{ pillar.get('a', 'no') }} {{ salt['pillar.get']('a', 'no') }}\n\
                 len: {{ pillar | length }}\n",
            )
            .with(r#"{"a": 1}"#),
        case("templates do not see earlier files")
            .top("base: {'*': [a, b]}\n")
            .file("base/a.sls", "a: 1\n")
            .file(
                "base/b.sls",
                "b: {{ pillar.get('a', 'no') }} {{ salt['pillar.get']('a', 'no') \
                 }}\n",
            ),
    ]);
    all
}
