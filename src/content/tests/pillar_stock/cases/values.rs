//! Content of SLS files: types, renderers, the names that templates see, and errors.

use super::{Case, case};

pub(super) fn cases() -> Vec<Case> {
    let mut all = values();
    all.extend(templates());
    all.extend(renderers());
    all
}

fn values() -> Vec<Case> {
    vec![
        case("scalars").all(
            "a: 1\nb: 1.5\nc: true\nd: no\ne: ~\nf: null\ng: text\nh: 'quoted'\n\
             i: \"d\\tq\"\nj: ''\nk:\n",
        ),
        case("numbers of YAML 1.1").all(
            "a: 010\nb: 0x1f\nc: 1_000\nd: 1:30\ne: 0b11\nf: 1e3\n\
             g: 1.0e+3\nh: .inf\ni: -.inf\nj: 0o17\nk: -5\nl: +3\n",
        ),
        case("large numbers").all(
            "a: 9223372036854775807\nb: 18446744073709551615\n\
             c: -9223372036854775808\n",
        ),
        case("dates").all("a: 2024-01-31\nb: 2024-01-31 10:00:00\nc: 12:30:45\n"),
        case("words of YAML 1.1").all("a: yes\nb: Off\nc: y\nd: TRUE\ne: ON\nf: NULL\n"),
        case("keys of all types").all("1: a\n2.5: b\ntrue: c\n~: d\n'5': e\n"),
        case("lists and mappings").all(
            "a: [1, [2, [3]]]\nb: {c: {d: {e: []}}}\nf: {}\ng:\n\
             - h: 1\n  i: 2\n- j\n",
        ),
        case("text in blocks").all(
            "a: |\n  one\n    two\n\nb: >\n  one\n  two\n\nc: |-\n  x\n\
             d: >+\n  y\n\n",
        ),
        case("anchors").all("a: &a {x: 1, y: [1]}\nb: *a\nc: {<<: *a, x: 2}\n"),
        case("unicode").all("grüße: 'ß → 日本語 🧂'\n'ключ': значение\n"),
        case("binary").all("a: !!binary aGVsbG8=\n"),
        case("no mapping: a list").all("- a\n- b\n"),
        case("no mapping: a text").all("just a text\n"),
        case("no mapping: a number").all("0\n"),
        case("an empty file").all(""),
        case("only comments").all("# nothing\n"),
        case("duplicate keys").all("a: 1\na: 2\n"),
        case("wrong yaml").all("a: [1\nb: 2\n"),
        case("tabs in yaml").all("a:\n\tb: 1\n"),
        case("double curly braces in yaml")
            .config("renderer: yaml\n")
            .all("a: {{ b }}\n"),
        case("windows line ends").all("a: 1\r\nb: |\r\n  x\r\n  y\r\nc: 'd'\r\n"),
        case("several documents").all("a: 1\n---\nb: 2\n"),
        case("dots in names of directories")
            .top("base: {'*': [a.b.c, 'a*']}\n")
            .file("base/a.b/c.sls", "dotted: 1\n")
            .file("base/a/b/c.sls", "plain: 1\n"),
        case("slashes in names")
            .top("base: {'*': [a/b, /c]}\n")
            .file(
                "base/a/b.sls",
                "b: \
                 1\n",
            )
            .file("base/c.sls", "c: 1\n"),
        case("names that lead out")
            .top(
                "base: {'*': ['../secret', '/../secret', \
                 '..secret']}\n",
            )
            .file("secret.sls", "secret: 1\n"),
    ]
}

fn templates() -> Vec<Case> {
    vec![
        case("grains").all("os: {{ grains.os }}\nid: {{ grains['id'] }}\n\
        get: {{ salt['grains.get']('nested:a:b') }}\nroles: {{ grains.roles | json }}\n"),
        case("names of the sls")
            .top("base: {'*': [d.e, d]}\n")
            .file("base/d/e.sls", "e: [{{ sls }}, '{{ slspath }}', '{{ tpldir }}', '{{ tplfile \
            }}', '{{ tpldot }}', '{{ slsdotpath }}', '{{ slscolonpath }}', '{{ sls_path }}', {{ \
            saltenv }}]\n")
            .file("base/d/init.sls", "d: [{{ sls }}, '{{ slspath }}', '{{ tpldir }}', '{{ tplfile \
            }}', '{{ tpldot }}']\n"),
        case("names of the top file").top("base: {'*': [a]}\n\
        {% set _ = ['{{ sls }}', tplfile] %}\n").file("base/a.sls", "a: 1\n"),
        case("opts").config("my_option: {deep: [1, x]}\n").saltenv("base").all(
            "id: {{ opts.id }}\nmid: {{ opts.minion_id }}\nenv: {{ opts.saltenv }}\n\
             penv: {{ opts.pillarenv }}\n\
             client: {{ opts.file_client }}\nmine: {{ opts.my_option | json }}\nrenderer: {{ opts.renderer }}\n\
             grain: {{ opts.grains.os }}\nports: [{{ opts.publish_port }}, {{ opts.ret_port }}]\nhash: {{ opts.hash_type }}\n"),
        case("config.get").config("my_option: {deep: [1, x]}\n\
        ").all("a: {{ salt['config.get']('my_option:deep') | json }}\n\
         b: {{ salt['config.get']('none', 'd') }}\n"),
        case("no env").all("a: {{ env | default('none') }}\n"),
        case("imports")
            .all("{% from 'lib/a.jinja' import m, v with context %}\n\
            {% import 'lib/b.jinja' as b %}\na: {{ m(1) }}\nv: {{ v }}\nb: {{ b.w }}\n{% include 'part.txt' %}\n")
            .file("base/lib/a.jinja", "{% from './b.jinja' import w %}{% macro m(x) %}{{ x }}-{{ \
            grains.os }}{% endmacro %}{% set v = w ~ saltenv %}")
            .file("base/lib/b.jinja", "{% set w = 'w' %}")
            .file("base/part.txt", "part: {{ sls }}\n"),
        case("imports of data")
            .all("{% import_yaml 'data.yaml' as y %}\n{% import_json 'data.json' as j %}\n\
            {% import_text 'data.txt' as t %}\ny: {{ y | json }}\nj: {{ j | json }}\nt: '{{ t }}'\n")
            .file("base/data.yaml", "a: [1, yes]\n")
            .file("base/data.json", "{\"b\": null}")
            .file("base/data.txt", "text"),
        case("imports stay in their environment")
            .top("base: {'*': [a]}\ndev: {'*': [b]}\n")
            .file("base/a.sls", "{% import 'lib.jinja' as l %}a: {{ l.x }}\n")
            .file("base/lib.jinja", "{% set x = 'base' %}")
            .file("dev/b.sls", "{% import 'lib.jinja' as l %}b: {{ l.x }}\n"),
        case("imports that lead out").all("{% include '../secret' %}\n\
        ").file("secret", "secret: 1\n"),
        case("imports that are not there").all("{% from 'nope.jinja' import x %}\na: 1\n"),
        case("imports that may be missing").all("{% include 'nope.jinja' ignore missing %}\n\
        a: 1\n"),
        case("loops and conditions").all("{% for n in range(3) %}\nk{{ n }}: {{ n * 2 }}\n\
        {% endfor %}\n{% if grains.num_cpus > 2 %}\nbig: true\n{% else %}\nsmall: true\n\
        {% endif %}\n"),
        case("undefined").all("a: {{ nothing }}\n"),
        case("undefined in hiding").config("pillar_safe_render_error: false\n\
        ").all("a: {{ nothing }}\n"),
        case("unknown function").all("a: {{ salt['no.such']() }}\n"),
        case("raise").all("{{ raise('stop here') }}\n"),
        case("trim_blocks").config("jinja_trim_blocks: true\n\
        jinja_lstrip_blocks: true\n").all("a: |\n    {% if true %}\n    x\n    {% endif %}\n    y\n"),
        case("jinja_sls_env").config("jinja_sls_env: {line_statement_prefix: '%%', \
        variable_start_string: '<<', variable_end_string: \
        '>>'}\n").all("%% for n in [1, 2]\nk<< n >>: << n >>\n%% endfor\n"),
        case("several broken files")
            .top("base: {'*': [a, b, c]}\n")
            .file("base/a.sls", "a: {{ x.y.z }}\n")
            .file("base/b.sls", "b: 1\n")
            .file("base/c.sls", "c: [\n"),
        case("a value that a template makes").all("a: {{ {'x': [1, 2.5, none, true]} | yaml }}\n\
        b: {{ [1, 'two'] }}\nc: {{ {'k': 'v'} | json }}\n"),
    ]
}

fn renderers() -> Vec<Case> {
    vec![
        case("yaml alone").all("#!yaml\na: '{{ grains.os }}'\n"),
        case("json").all("#!json\n{\"a\": [1, 2.5, null, true], \"b\": {\"c\": \"d\"}}\n"),
        case("jinja and json")
            .all("#!jinja|json\n{\"a\": \"{{ grains.os }}\", \"n\": {{ grains.num_cpus }}}\n"),
        case("json that is wrong").all("#!json\n{\"a\": }\n"),
        case("json null").all("#!json\nnull\n"),
        case("jinja alone").all("#!jinja\na: 1\n"),
        case("yaml_jinja").all("#!yaml_jinja\na: {{ grains.os }}\n"),
        case("a path is no renderer").all("#!/usr/bin/env yaml\na: {{ grains.os }}\n"),
        case("renderer yaml")
            .config("renderer: yaml\n")
            .all("a: '{{ x }}'\n"),
        case("renderer json")
            .config("renderer: jinja|json\n")
            .top("{\"base\": {\"*\": [\"a\"]}}")
            .file("base/a.sls", "{\"a\": 1}"),
        case("blacklist of a shebang")
            .config("renderer_blacklist: [json]\n")
            .all("#!jinja|json|yaml\na: 1\n"),
        case("whitelist")
            .config("renderer_whitelist: [jinja, yaml]\n")
            .all("#!yaml|json\na: 1\n"),
        case("all renderers disallowed")
            .config("renderer_blacklist: [json]\n")
            .all("#!json\n{\"a\": 1}\n"),
        case("only jinja allowed")
            .config("renderer_blacklist: [yaml]\n")
            .all("a: 1\n")
            .raises(),
    ]
}
