//! Top files: targets, environments, and what is wrong with them.

use super::{Case, case};

/// A top file with one target of each matcher and value; the SLS names are the targets' numbers.
fn targets(name: &'static str, top: &'static str) -> Case {
    case(name)
        .config(
            "nodegroups: {webs: 'web*', deb: 'G@os:Debian and not db*', names: [web1, db1], \
             inner: 'N@deb or x*', none: 'x*'}\n",
        )
        .top(top)
        .file("base/yes.sls", "yes: true\n")
        .file("base/no.sls", "no: true\n")
        .file("base/a.sls", "a: 1\n")
        .file("base/b.sls", "b: 2\n")
        .file("base/c.sls", "c: 3\n")
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = matching();
    all.extend(environments());
    all.extend(malformed());
    all
}

fn matching() -> Vec<Case> {
    vec![
        case("no top file"),
        case("an empty top file").top(""),
        case("a top file of white space").top("  \n\n"),
        targets(
            "glob by default",
            "base: {'web*': [yes], 'db*': [no], 'web[0-9]': [a], 'web?': [b]}\n",
        ),
        targets(
            "match glob",
            "base: {'w*1': [{match: glob}, yes], 'os:Debian': [{match: glob}, no]}\n",
        ),
        targets(
            "match list",
            "base: {'web1,db1': [{match: list}, yes], 'web10,db': [{match: list}, no], 'db,web1': \
             [{match: list}, a]}\n",
        ),
        targets(
            "match pcre",
            "base: {'we(b|x)\\d': [{match: pcre}, yes], 'eb': [{match: pcre}, no]}\n",
        ),
        targets(
            "match grain",
            "base: {'os:deb*': [{match: grain}, yes], 'roles:app': [{match: grain}, a], \
             'nested:a:b:c': [{match: grain}, b], 'os:Suse': [{match: grain}, no]}\n",
        ),
        targets(
            "match grain of other types",
            "base: {'num_cpus:4': [{match: grain}, yes], 'flag:True': [{match: grain}, a], \
             'nested:list:y:z': [{match: grain}, b], 'os': [{match: grain}, no]}\n",
        ),
        targets(
            "match grain_pcre",
            "base: {'os:D.b': [{match: grain_pcre}, yes], 'roles:^x': [{match: grain_pcre}, no]}\n",
        ),
        targets(
            "match pillar finds nothing yet",
            "base: {'yes:true': [{match: pillar}, no], '*': [yes]}\n",
        )
        .with(r#"{"yes": true}"#),
        targets(
            "match pillar_pcre and pillar_exact",
            "base: {'yes:t.*': [{match: pillar_pcre}, no], 'yes:true': [{match: pillar_exact}, \
             no], '*': [yes]}\n",
        ),
        targets(
            "match compound",
            "base: {'G@os:Debian and ( db* or E@web\\d )': [{match: compound}, yes], 'not web*': \
             [{match: compound}, no], 'L@web1,web2 and not G@os:Suse': [a], 'P@os:(Debian|Suse) \
             and S@10.1.2.3': [b]}\n",
        ),
        targets(
            "compound that is none",
            "base: {'and web1': [no], 'web1 web1': [no], '( )': [no], 'R@web1 or web1': [no], \
             'web1': [yes], '( web1': [no]}\n",
        ),
        targets(
            "compound with other delimiters",
            "base: {'G|@nested|a|b|c': [yes], 'P/@os/D.*': [a], 'X@os': [no]}\n",
        ),
        targets(
            "match nodegroup",
            "base: {webs: [{match: nodegroup}, yes], deb: [{match: nodegroup}, a], names: \
             [{match: nodegroup}, b], none: [{match: nodegroup}, no], missing: [{match: \
             nodegroup}, no]}\n",
        ),
        targets(
            "nodegroups in compounds",
            "base: {'N@inner': [yes], 'N@names and N@webs': [a], 'not N@none': [b], 'N@none': \
             [no]}\n",
        ),
        targets(
            "match ipcidr",
            "base: {'10.1.0.0/16': [{match: ipcidr}, yes], '10.1.2.3': [{match: ipcidr}, a], \
             'fe80::/10': [{match: ipcidr}, b], '10.9.0.0/16': [{match: ipcidr}, no], 'bogus': \
             [{match: ipcidr}, no]}\n",
        ),
        targets(
            "match range",
            "base: {'%web': [{match: range}, no], '*': [yes]}\n",
        ),
        targets("match data", "base: {'a:b': [{match: data}, no]}\n").raises(),
        targets(
            "the last match counts",
            "base: {'web1,x': [{match: glob}, {match: list}, yes]}\n",
        ),
        targets(
            "order moves targets",
            "base: {'web1': [{order: 10}, b], 'w*': [{order: 2}, a], '*': [{order: '5'}, c], \
             'we*': [{order: x}, yes]}\n",
        ),
        targets(
            "a target twice in two tops",
            "include: [more]\nbase: {'*': [a], 'web1': [b]}\n",
        )
        .file("base/more.sls", "base: {'*': [c]}\n"),
        targets(
            "the same sls for two targets",
            "base: {'*': [a, b], 'web1': [b, a, c]}\n",
        ),
        targets(
            "keys that are no text",
            "base: {1: [no], true: [no], '*': [yes]}\n",
        ),
        targets("wildcards of names", "base: {'*': ['[ab]', 'y*']}\n"),
        targets("a wildcard without a match", "base: {'*': ['zz*', yes]}\n"),
        targets(
            "top with jinja",
            "base:\n  '*':\n{% for name in ['a', 'b'] %}\n    - {{ name }}\n{% endfor %}\n\
             {% if grains.os == 'Debian' %}    - yes{% endif %}\n",
        ),
        targets(
            "a top that renders to nothing",
            "{% if false %}base: {'*': [no]}{% endif %}\n",
        ),
        targets(
            "ignore_missing",
            "base: {'*': [{ignore_missing: true}, nothere, yes], 'web1': [a]}\n",
        ),
        targets(
            "ignore_missing holds for the name elsewhere",
            "base: {'*': [{ignore_missing: true}, nothere], 'web1': [nothere, a]}\n",
        ),
        targets(
            "missing sls",
            "base: {'*': [nothere, yes, also.not.here]}\n",
        ),
        targets(
            "the id of a grain is not the id",
            "base: {'web1': [yes], 'id:web1': [{match: grain}, a]}\n",
        ),
        targets(
            "another minion",
            "base: {'web*': [no], 'db1.example.org': [yes], 'db1*': [a]}\n",
        )
        .minion("db1.example.org"),
    ]
}

fn environments() -> Vec<Case> {
    let two = |name| {
        case(name)
            .top("base: {'*': [a]}\ndev: {'*': [b]}\n")
            .file("dev/top.sls", "base: {'web*': [c]}\ndev: {'web*': [d]}\n")
            .file("base/a.sls", "who: base-a\na: 1\nboth: {x: base}\n")
            .file("base/b.sls", "who: base-b\n")
            .file("base/c.sls", "who: base-c\nc: 1\n")
            .file("dev/b.sls", "who: dev-b\nb: 1\nboth: {x: dev, y: dev}\n")
            .file(
                "dev/d.sls",
                "who: dev-d\nd: {{ saltenv }} {{ opts.pillarenv }} {{ opts.saltenv }}\n",
            )
    };
    let any = |name| {
        case(name)
            .config(
                "pillar_roots: {base: ['{top}/base'], __env__: ['{top}/any', \
                 '{top}/envs/__env__']}\n",
            )
            .top("base: {'*': [a]}\n")
            .file("base/a.sls", "a: base\n")
            .file("any/top.sls", "{{ saltenv }}: {'*': [e, f]}\n")
            .file("any/e.sls", "e: {{ saltenv }}\n")
            .file("envs/qa/f.sls", "f: qa\n")
            .file("envs/dev/f.sls", "f: dev\n")
    };
    vec![
        two("two environments"),
        two("pillarenv dev").pillarenv("dev"),
        two("pillarenv base").pillarenv("base"),
        two("pillarenv that is not there").pillarenv("nope"),
        two("pillarenv configured").config("pillarenv: dev\n"),
        two("pillarenv of the minion goes first")
            .config("pillarenv: dev\n")
            .pillarenv("base"),
        two("pillarenv_from_saltenv")
            .config("pillarenv_from_saltenv: true\n")
            .saltenv("dev"),
        two("saltenv alone changes little").saltenv("dev"),
        two("env_order").config("env_order: [dev, base]\n"),
        two("env_order with others").config("env_order: [nope, base]\n"),
        two("strategy none reads base").config("pillar_source_merging_strategy: none\n"),
        two("strategy none reads saltenv")
            .config("pillar_source_merging_strategy: none\n")
            .saltenv("dev"),
        two("strategy none, unknown saltenv")
            .config("pillar_source_merging_strategy: none\n")
            .saltenv("nope"),
        any("__env__ by default is base"),
        any("__env__ as pillarenv").pillarenv("qa"),
        any("__env__ as saltenv").saltenv("dev"),
        any("__env__ is not used for base").pillarenv("base"),
        case("__env__ alone stands for base")
            .config("pillar_roots: {__env__: ['{top}/__env__']}\n")
            .all("x: {{ saltenv }}\n"),
        case("several roots, the first wins")
            .config("pillar_roots: {base: ['{top}/one', '{top}/nothere', '{top}/two']}\n")
            .file("two/top.sls", "base: {'*': [a, b, c.d]}\n")
            .file("one/a.sls", "a: one\n")
            .file("two/a.sls", "a: two\n")
            .file("two/b/init.sls", "b: two/init\n")
            .file(
                "one/c/d.sls",
                "{% from 'lib.jinja' import x with context %}\nd: {{ x }}\n",
            )
            .file("two/lib.jinja", "{% set x = 'lib of ' ~ saltenv %}\n"),
        case("file goes before init in all roots")
            .config("pillar_roots: {base: ['{top}/one', '{top}/two']}\n")
            .file("one/top.sls", "base: {'*': [a]}\n")
            .file("one/a/init.sls", "a: init\n")
            .file("two/a.sls", "a: file\n"),
        case("roots with wildcards")
            .config("pillar_roots: {base: ['{top}/r*']}\n")
            .file("r1/top.sls", "base: {'*': [a]}\n")
            .file("r1/a.sls", "a: 1\n"),
        case("a section for an environment without roots")
            .top("base: {'*': [a]}\nqa: {'*': [b]}\n")
            .file("base/a.sls", "a: 1\n"),
        case("roots that are empty")
            .config("pillar_roots: {base: ['{top}/base'], none: []}\n")
            .top("base: {'*': [a]}\nnone: {'*': [b]}\n")
            .file("base/a.sls", "a: 1\n"),
        case("another name of the top file")
            .config("state_top: salt://tops/pillar.sls\n")
            .file("base/tops/pillar.sls", "base: {'*': [a]}\n")
            .file("base/a.sls", "a: {{ opts.state_top }}\n"),
        case("no files at all for the environment").config("pillar_roots: {}\n"),
        case("links are followed")
            .top("base: {'*': [linked, sub.a]}\n")
            .file("outside/linked.sls", "linked: 1\n")
            .file("outside/sub/a.sls", "a: 1\n")
            .link("base/linked.sls", "../outside/linked.sls")
            .link("base/sub", "../outside/sub"),
        case("ignored directories are not ignored")
            .config("file_ignore_glob: ['.svn', 'priv*']\n")
            .top("base: {'*': ['*a']}\n")
            .file("base/private/a.sls", "private: 1\n")
            .file("base/public/a.sls", "public: 1\n"),
    ]
}

fn malformed() -> Vec<Case> {
    let top = |name, text| {
        case(name)
            .top(text)
            .file("base/a.sls", "a: 1\n")
            .file("base/f.sls", "f: 1\n")
            .file("dev/top.sls", "dev: {'*': [d]}\n")
            .file("dev/d.sls", "d: 1\n")
    };
    vec![
        top("top with wrong yaml", "base: {'*': [a\n"),
        top("top with wrong jinja", "base: {{ nothing.at.all }}\n"),
        top("top whose targets are nothing", "base:\n"),
        top("top whose targets are a list", "base: [a]\n"),
        top("top whose targets are an empty list", "base: []\n"),
        top("top whose names are a text", "base: {'*': fa}\n"),
        top("top whose names are a mapping", "base: {'*': {a: 1}}\n"),
        top("top whose names are nothing", "base: {'*': }\n"),
        top("top whose names are a number", "base: {'*': 3}\n"),
        top("top with a number among the names", "base: {'*': [3, a]}\n"),
        top(
            "top with an order that is a list",
            "base: {'*': [{order: []}, a]}\n",
        ),
        top("top that is a list", "[base]\n").raises(),
        top(
            "top with an unknown matcher",
            "base: {'*': [{match: stars}, a]}\n",
        )
        .raises(),
        top(
            "top with a pattern that is none",
            "base: {'((': [{match: pcre}, a]}\n",
        )
        .raises(),
        top(
            "top includes a file that is not there",
            "include: [more]\nbase: {'*': [a]}\n",
        ),
        top(
            "top includes a broken file",
            "include: [more]\nbase: {'*': [a]}\n",
        )
        .file("base/more.sls", "base: {\n"),
        top(
            "includes of included tops do not count",
            "include: [more]\nbase: {'*': [a]}\n",
        )
        .file(
            "base/more.sls",
            "include: [evenmore]\nbase: {'web1': [f]}\n",
        )
        .file("base/evenmore.sls", "base: {'w*': [nothere]}\n"),
    ]
}
