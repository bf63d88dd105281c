//! The files of the site, and what is asked of them.

/// A question. `{top}` stands for the directory of the site.
pub(crate) struct Case {
    pub(crate) ext_pillar: &'static str,
    pub(crate) saltenv: Option<&'static str>,
    pub(crate) pillarenv: Option<&'static str>,
}

const fn case(ext_pillar: &'static str) -> Case {
    within(ext_pillar, None, None)
}

const fn within(
    ext_pillar: &'static str,
    saltenv: Option<&'static str>,
    pillarenv: Option<&'static str>,
) -> Case {
    Case {
        ext_pillar,
        saltenv,
        pillarenv,
    }
}

pub(crate) const FILES: &[(&str, &str)] = &[
    ("tree/hosts/web1/top", "of the host\n"),
    ("tree/hosts/web1/two\nlines", "x\n\n"),
    ("tree/hosts/web1/app/conf.d/one", "1\n"),
    ("tree/hosts/web1/app/conf.d/two", "2"),
    ("tree/hosts/web1/app/empty", ""),
    ("tree/hosts/web1/shared", "host\n"),
    ("tree/hosts/db1/secret", "not yours\n"),
    ("tree/nodegroups/web/shared", "group\n"),
    ("tree/nodegroups/web/app/group", "g\n"),
    ("tree/nodegroups/db/no", "no\n"),
    ("tree/nodegroups/unknown/no", "no\n"),
    ("tree/nodegroups/all/everybody", "all\n"),
    (
        "templates/hosts/web1/rendered",
        "id: {{ grains['id'] }}\nlist: [1, 2]\n",
    ),
    (
        "templates/hosts/web1/text",
        "#!jinja\nplain {{ grains.os }}\n",
    ),
    ("templates/hosts/web1/json", "#!json\n{\"a\": 1}\n"),
    ("templates/hosts/web1/blank", "  \n"),
    ("broken/hosts/web1/rendered", "{{ nothing.there }}\n"),
    ("pillar/files/hosts/web1/first", "1\n"),
    ("tree/files/hosts/web1/second", "2\n"),
    ("hostfile/hosts/web1", "not a directory\n"),
    (
        "stack/stack.cfg",
        "core.yml\nos/{{ __grains__['os'] }}.yml\n\nnone.yml\nroles/*.yml\n",
    ),
    (
        "stack/core.yml",
        "a: 1\nlist: [1, 2]\nmap: {x: 1, y: {z: 1}}\nid: {{ minion_id }}\n\
        env: {{ pillarenv }}\nkept: {{ pillar.kept }}\nundefined: '{{ nothing }}'\n",
    ),
    (
        "stack/os/Debian.yml",
        "a: 2\nlist: [3]\nmap: {x: 2, y: {w: 2}}\n\
        seen: {{ stack.a }}\npath: {{ ymlpath | length > 0 }}\n\
        cfg: {{ __stack__.cfg_path.endswith('stack.cfg') }}\n\
        down: {{ __stack__['traverse'](__grains__, 'deep:er') }}\n\
        none: {{ __stack__['traverse'](__grains__, 'deep:no', 'default') }}\n",
    ),
    ("stack/roles/b.yml", "role: b\nmap: {x: 3}\n"),
    (
        "stack/roles/a.yml",
        "role: a\nsalt: {{ __salt__['grains.get']('os') }}\n\
        {% do [] %}{% set x = {'a': 1} %}x: {{ x | json }}\n",
    ),
    ("stack/roles/.hidden.yml", "hidden: true\n"),
    (
        "stack/list.cfg",
        "- core.yml\n- merge/first.yml\n- merge/*.yml\n",
    ),
    (
        "stack/merge/first.yml",
        "__: merge-first\na: 7\nlist: [9]\nmap: {x: 9, n: {__: 1}}\nnew: [{__: x}, 1]\n",
    ),
    (
        "stack/merge/list.yml",
        "list:\n  - __: remove\n  - 9\nmap:\n  __: remove\n  x: 0\n",
    ),
    (
        "stack/merge/over.yml",
        "map:\n  __: overwrite\n  only: {__: 2, this: 1}\n",
    ),
    ("stack/merge/types.yml", "a: [1]\nnew: {was: a list}\n"),
    ("stack/merge/zlist.yml", "list:\n  - __: overwrite\n  - 4\n"),
    (
        "stack/merge/zzfirst.yml",
        "list:\n  - __: merge-first\n  - 0\n",
    ),
    ("stack/bad_strategy.cfg", "bad_strategy.yml\n"),
    ("stack/bad_strategy.yml", "__: unknown\na: 1\n"),
    ("stack/bad_yaml.cfg", "bad_yaml.yml\n"),
    ("stack/bad_yaml.yml", "a: [\n"),
    ("stack/bad_jinja.cfg", "bad_jinja.yml\n"),
    ("stack/bad_jinja.yml", "{% if %}\n"),
    ("stack/bad_type.cfg", "- 1\n"),
    ("stack/outside.cfg", "../tree/hosts/web1/shared\n"),
    ("stack/included.cfg", "included.yml\nlisted.yml\n"),
    (
        "stack/included.yml",
        "{% include 'part.txt' %}\n{% import 'macros' as m %}m: {{ m.two() }}\n",
    ),
    ("stack/part.txt", "part: 1"),
    ("stack/macros", "{% macro two() %}2{% endmacro %}"),
    ("stack/listed.yml", "- not\n- a mapping\n"),
    ("stack/qa.cfg", "roles/a.yml\n"),
    ("stack/dev.cfg", "roles/b.yml\n"),
    ("stack/default.cfg", "core.yml\n"),
];

pub(crate) const LINKS: &[(&str, &str)] = &[
    ("tree/hosts/web1/linked", "app"),
    ("tree/hosts/web1/linked_file", "top"),
    ("tree/hosts/web1/dangling", "nowhere"),
];

pub(crate) const CASES: &[Case] = &[
    case("ext_pillar: []"),
    // Commands.
    case("ext_pillar: [{cmd_yaml: 'echo \"a: [1, yes]\"'}]"),
    case("ext_pillar: [{cmd_yaml: 'echo \"id: %s %s\"'}]"),
    case("ext_pillar: [{cmd_yaml: 'echo a: 1; echo b: 2 >&2; exit 3'}]"),
    case("ext_pillar: [{cmd_yaml: {command: \"printf 'a: %%s\\\\n' %s\"}}]"),
    case("ext_pillar: [{cmd_yaml: ['echo a: {b: 2}']}]"),
    case("ext_pillar: [{cmd_yaml: 'echo \"a: [\"'}]"),
    case("ext_pillar: [{cmd_yaml: 'echo kept: 2; echo more: 1'}, {cmd_yaml: 'echo more: {a: 1}'}]"),
    case("ext_pillar: [{cmd_yaml: 'true'}]"),
    case("ext_pillar: [{cmd_yaml: {command: 'echo a: 1', other: 1}}]"),
    case("ext_pillar: [{cmd_yaml: ['echo a: 1', 'b']}]"),
    case("ext_pillar: [{cmd_yaml: 'echo a: 1', cmd_json: \"echo '{}'\"}]"),
    case("ext_pillar: [{cmd_yaml: 'echo a: 1', cmd_json: \"echo '{\\\"b\\\": 1}'\"}]"),
    case("ext_pillar: [{cmd_json: 'echo {\\\"id\\\":\\\"%s\\\"}'}]"),
    case("ext_pillar: [{cmd_json: 'echo ''{\"a\": [1, null, \"x y\"]}'' '}]"),
    case("ext_pillar: [{cmd_json: 'echo ''{}'' | cat'}]"),
    case("ext_pillar: [{cmd_json: 'echo ''{\"a\": 1}'' ; exit 1'}]"),
    case("ext_pillar: [{cmd_json: 'sh -c ''echo {} >&2'''}]"),
    case("ext_pillar: [{cmd_json: 'no-such-program-here'}]"),
    case("ext_pillar: [{cmd_json: 'echo ''open'}]"),
    // A tree of files.
    case("ext_pillar: [{file_tree: {root_dir: '{top}/tree'}}]"),
    case("ext_pillar: [{file_tree: '{top}/tree'}]"),
    case("ext_pillar: [{file_tree: ['{top}/tree', true]}]"),
    case(
        "ext_pillar: [{file_tree: {root_dir: '{top}/tree/', follow_dir_links: true, debug: true}}]",
    ),
    case("ext_pillar: [{file_tree: {root_dir: '{top}/tree', keep_newline: true}}]"),
    case(
        "ext_pillar: [{file_tree: {root_dir: '{top}/tree', keep_newline: ['app/*', top, './shared']}}]",
    ),
    case("ext_pillar: [{file_tree: {root_dir: '{top}/tree', keep_newline: app}}]"),
    case("ext_pillar: [{file_tree: {root_dir: '{top}/none'}}]"),
    case("ext_pillar: [{file_tree: {root_dir: '{top}/hostfile'}}]"),
    case("ext_pillar: [{file_tree: {}}]"),
    case("ext_pillar: [{file_tree: {root_dir: files}}]"),
    within(
        "ext_pillar: [{file_tree: {root_dir: files}}]",
        None,
        Some("base"),
    ),
    within(
        "ext_pillar: [{file_tree: {root_dir: ./files}}]",
        None,
        Some("dev"),
    ),
    within(
        "ext_pillar: [{file_tree: {root_dir: files}}]",
        None,
        Some("none"),
    ),
    case(
        "ext_pillar: [{file_tree: {root_dir: '{top}/templates', template: true, \
        render_default: 'jinja|yaml'}}]",
    ),
    case(
        "ext_pillar: [{file_tree: {root_dir: '{top}/templates', template: false, \
        render_default: 'jinja|yaml'}}]",
    ),
    case(
        "ext_pillar: [{file_tree: {root_dir: '{top}/templates', template: true, \
        render_default: yaml, renderer_blacklist: [jinja]}}]",
    ),
    case("ext_pillar: [{file_tree: {root_dir: '{top}/templates', template: true}}]"),
    case(
        "ext_pillar: [{file_tree: {root_dir: '{top}/broken', template: true, \
        render_default: 'jinja|yaml'}}]",
    ),
    case("ext_pillar: [{file_tree: {root: x}}]"),
    // Groups.
    case("ext_pillar: [{nodegroups: {}}]"),
    case("ext_pillar: [{nodegroups: {pillar_name: groups}}]"),
    case("ext_pillar: [{nodegroups: groups}]"),
    case("ext_pillar: [{nodegroups: null}]"),
    case("ext_pillar: [{nodegroups: {name: x}}]"),
    // A stack.
    case("ext_pillar: [{stack: '{top}/stack/stack.cfg'}]"),
    within(
        "ext_pillar: [{stack: '{top}/stack/stack.cfg'}]",
        Some("qa"),
        Some("dev"),
    ),
    case("ext_pillar: [{stack: ['{top}/stack/list.cfg']}]"),
    case("ext_pillar: [{stack: ['{top}/stack/stack.cfg', '{top}/stack/list.cfg', '{top}/none']}]"),
    case("ext_pillar: [{stack: '{top}/stack/bad_strategy.cfg'}]"),
    case("ext_pillar: [{stack: '{top}/stack/bad_yaml.cfg'}]"),
    case("ext_pillar: [{stack: '{top}/stack/bad_jinja.cfg'}]"),
    case("ext_pillar: [{stack: '{top}/stack/bad_type.cfg'}]"),
    case("ext_pillar: [{stack: '{top}/stack/outside.cfg'}]"),
    case("ext_pillar: [{stack: '{top}/stack/included.cfg'}]"),
    case(
        "ext_pillar: [{stack: {'pillar:environment': {qa: '{top}/stack/qa.cfg', \
        dev: '{top}/stack/dev.cfg'}}}]",
    ),
    case(
        "ext_pillar: [{stack: {'grains:os': {Debian: ['{top}/stack/qa.cfg', '{top}/stack/dev.cfg']}, \
        'grains:deep:er': {down: '{top}/stack/default.cfg'}}}]",
    ),
    case("ext_pillar: [{stack: {'grains:number': {5: '{top}/stack/qa.cfg'}}}]"),
    case("ext_pillar: [{stack: {'grains:roles:0': {web: '{top}/stack/qa.cfg'}}}]"),
    case("ext_pillar: [{stack: {'grains:roles': {web: '{top}/stack/qa.cfg'}}}]"),
    case("ext_pillar: [{stack: {'grains:none': {web: '{top}/stack/qa.cfg'}}}]"),
    case("ext_pillar: [{stack: {'minion:x': {}}}]"),
    case("ext_pillar: [{stack: {'nocolon': {}}}]"),
    within(
        "ext_pillar: [{stack: {'opts:pillarenv': {__env__: '{top}/stack/__env__.cfg'}}}]",
        None,
        Some("dev"),
    ),
    within(
        "ext_pillar: [{stack: {'opts:saltenv': {__env__: '{top}/stack/__env__.cfg'}}}]",
        Some("qa"),
        None,
    ),
    within(
        "ext_pillar: [{stack: {'opts:saltenv': {qa: '{top}/stack/__env__.cfg'}}}]",
        Some("qa"),
        Some("dev"),
    ),
    // Forms.
    case("ext_pillar: [{nodegroups: {}}, {cmd_yaml: 'echo nodegroups: {a: 1}'}]"),
];
