"""Templates as people write them for Salt; `make_render.py` renders them with stock."""

GRAINS = {
    "id": "web1.example.com", "os": "Debian", "os_family": "Debian", "osmajorrelease": 12,
    "osrelease": "12.4", "num_cpus": 4, "mem_total": 7953, "roles": ["web", "db"],
    "fqdn_ip4": ["10.0.0.5"], "ip_interfaces": {"eth0": ["10.0.0.5", "fe80::1"], "lo": ["127.0.0.1"]},
    "nodename": "web1", "init": "systemd", "virtual": "kvm", "saltversioninfo": [3008, 3],
}
PILLAR = {
    "app": {"name": "shop", "port": 8080, "debug": False, "hosts": ["a", "b"], "ratio": 0.5,
            "empty": None, "nested": {"x": {"y": "z"}}},
    "users": {"alice": {"uid": 1001, "groups": ["wheel", "adm"], "shell": "/bin/zsh"},
              "bob": {"uid": 1002, "groups": []}},
    "motd": "line one\nline two\n", "quote": "it's", "list": [3, 1, 2], "unicode": "grün – ✓",
}
FILES = {
    "map.jinja": "{% set defaults = {'port': 80, 'name': 'x'} %}{% set app = salt['pillar.get']('app', defaults) %}"
                 "{% macro line(key, value='none') %}{{ key }}={{ value }}{% endmacro %}{% set _hidden = 1 %}\n",
    "ctx.jinja": "{{ seen is defined }}{% set got = seen | default('unseen') %}",
    "part.jinja": "part of {{ pillar.app.name }}: {{ who | default('nobody') }}\n",
    "data/defaults.yaml": "name: base\nports: [80, 443]\non: yes\nmode: 0644\ntext: |\n  one\n  two\n",
    "data/defaults.json": "{\"b\": 1, \"a\": [true, null, 1.5]}",
    "data/poem.txt": "roses\nred\n",
    "site/local.jinja": "{% set here = tplfile %}{{ tpldir }}",
    "site/sub/up.jinja": "{% from '../local.jinja' import here %}{% set below = here %}",
    "base.jinja": "head\n{% block body %}default{% endblock %}\nfoot\n",
    "broken.jinja": "a\n{% if %}\n",
    "undefined.jinja": "a\nb\n{{ nothere }}\n",
    "macros.jinja": "{% macro outer(x) %}<{{ inner(x) }}>{% endmacro %}{% macro inner(x) %}{{ x }}{% endmacro %}",
}

# Printing values.
SNIPPETS = [
    "{{ [1, 'a', None, True, 1.5, {'k': 'v'}] }}", "{{ {'a': 1, 'b': [1, 2], 'c': None} }}", "{{ (1, 2) }}",
    "{{ (1,) }}", "{{ () }}", "{{ 'x', 'y' }}", "{{ None }} {{ True }} {{ false }}", "{{ 1.0 }} {{ 1e20 }} {{ 1e-7 }} {{ 0.1 + 0.2 }}",
    "{{ 100000000000000000000 }}", "{{ 'it\\'s' }} {{ [\"it's\"] }} {{ ['a\"b'] }}", "{{ ['a\\nb', 'c\\td', '\\\\'] }}",
    "{{ {'k': 'a\\nb'} }}", "{{ {'k': {'n': 'tab\\there'}} }}", "{{ [{'k': 'a\\nb: \"x\"'}] }}", "{{ ['grün', '✓'] }}", "{{ pillar }}",
    "{{ pillar.users }}", "{{ grains.roles }}", "{{ pillar.motd }}", "{{ pillar.app.empty }}", "{{ {} }} {{ [] }}", "{{ {1: 'a', 'b': 2} }}",
    "{{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }}", "{{ range(3) }} {{ range(1, 5) | list }}", "{{ {'a': 1}.items() }} {{ {'a': 1}.keys() }}",
    # Operators.
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 3 }}", "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }}",
    "{{ 'a' ~ 1 ~ None ~ [1] }}", "{{ 'ab' * 3 }} {{ [1] * 2 }}", "{{ [1] + [2, 3] }}", "{{ 'a' + 'b' }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 1 / 0 }}",
    "{{ 'x=%s y=%d' % ('a', 5) }}", "{{ '%05.1f|%-5s|%5s|%%' % (3.14159, 'ab', 'cd') }}", "{{ '%(a)s' % {'a': 1} }}", "{{ '%s' % [1, 2] }}",
    "{{ '%x %o %e' % (255, 8, 12345.678) }}", "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }}", "{{ 'a' in 'abc' }} {{ 'x' not in ['x'] }} {{ 'k' in {'k': 1} }}",
    "{{ 1 == 1.0 }} {{ 1 == True }} {{ '1' == 1 }}", "{{ [1, 2] == [1, 2] }} {{ {'a': 1} == {'a': 1} }}", "{{ 'a' < 1 }}", "{{ not 0 }} {{ not '' }} {{ not [1] }}",
    "{{ 0 or 'x' }} {{ 1 and 'y' }} {{ '' and 'z' }}", "{{ 'a' if true else 'b' }}", "{{ 'a' if false }}", "{{ ('a' if false) is defined }}",
    "{{ [1, 2, 3][-1] }} {{ 'abc'[0] }} {{ [1, 2, 3][1:] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[::-1] }} {{ [1,2,3,4][::2] }} {{ 'abc'[:-1] }}",
    "{{ [1][5] }}", "{{ [1][5] is defined }}", "{{ 'abc'[10] | default('none') }}", "{{ -3 | abs }} {{ (-3) | abs }}", "{{ +5 }} {{ - 5 }}", "{{ True + 1 }}",
    "{{ 1 if grains.os == 'Debian' and grains['osmajorrelease'] >= 12 else 2 }}",
    # Undefined.
    "{{ nothere }}", "{{ nothere.x }}", "{{ pillar.nothere }}", "{{ pillar.nothere.x }}", "{{ pillar['nothere'] }}", "{{ grains.nothere | default('d') }}",
    "{{ nothere | default('d') }} {{ nothere is defined }} {{ pillar.app.nope is undefined }}", "{{ none | default('d') }} {{ none | default('d', true) }}",
    "{{ '' | default('d', boolean=True) }}", "{% if nothere %}x{% endif %}", "{% for x in nothere %}x{% endfor %}", "{{ nothere ~ 'x' }}", "{{ nothere == 1 }}",
    "{{ 'a' in nothere }}", "{{ nothere() }}", "{{ [nothere] }}", "{{ nothere | upper }}", "{{ pillar.app.name.nope }}", "{{ pillar.get('nope').x }}",
    ("{{ nothere }}|{% if nothere %}x{% endif %}|{% for x in nothere %}x{% endfor %}|", {"allow_undefined": True}), ("{{ nothere.x }}", {"allow_undefined": True}),
    "{{ nothere | yaml }}", "{{ {'a': nothere} | json }}", "{{ none.x }}", "{{ pillar.app.empty.x }}", "{{ 5 .x }}",
    # What is no list, where Jinja2 first asks whether it is true.
    *["{{ %s | map('upper') | list }} {{ %s | map(attribute='x') | list }} {{ %s | select | list }} {{ %s | reject('odd') | list }} {{ %s | selectattr('x') | list }} {{ %s | rejectattr('x', 'odd') | list }}" % ((no,) * 6)
      for no in ("none", "0", "''", "false", "{}", "0.0")],
    "{{ 1 | map('upper') | list }}", "{{ true | select | list }}", "{{ nothere | map('upper') | list }}", "{{ none | map | list }} {{ none | map('nope') | list }} {{ [] | selectattr | list }}",
    # A colon at the end of a tag that a body follows.
    "{% if true: %}a{% endif %}{% if false: %}b{% elif true: %}c{% else: %}d{% endif %}{% if false %}{% else : %}e{% endif %}", "{% for a in [1, 2]: %}{{ a }}{% else: %}n{% endfor %}{% for a in [] recursive: %}{% else: %}n{% endfor %}",
    "{% for a in [1, 2] if a > 1: %}{{ a }}{% endfor %}", "{% macro m(a): %}{{ a }}{{ caller() }}{% endmacro %}{% call m(1): %}x{% endcall %}{% filter upper: %}y{% endfilter %}",
    "{% set x: %}z{% endset %}{{ x }}{% autoescape false: %}v{% endautoescape %}{% block b: %}u{% endblock %}{% load_yaml as y: %}{a: 1}{% endload %}{{ y }}{% profile as 'p': %}q{% endprofile %}",
    "{% with a = 1: %}{{ a }}{% endwith %}", "{% with: %}w{% endwith %}", "{% if true %}a{% endif: %}", "{% set x = 1: %}", "{% do 1: %}", "{% if true:: %}a{% endif %}", "{% for a in [1]: %}{% endfor: %}", "{% include 'part.jinja': %}", "{% import 'map.jinja' as m: %}",
    # A namespace by subscript.
    "{% set ns = namespace(x=1) %}{{ ns['x'] }} {% set ns.y = 2 %}{{ ns['y'] }} {{ ns['z'] is defined }} {{ ns['z'] | default('d') }} {{ ns.z is defined }}", "{% set ns = namespace(x=1) %}{{ ns['z'] }}", "{% set ns = namespace(x=1) %}{{ ns[0] is defined }}", "{% set ns = namespace(x=1) %}{{ ns[0] }}", "{% set ns = namespace(x=[1]) %}{{ ns['x'][0] }} {{ [ns] | map(attribute='x') | list }}",
    # White space.
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n{%- if true %}\nb\n{%- endif %}\nc\n", "a\n  {%- if true -%}\n  b\n  {%- endif -%}\n  c\n",
    "  {% if true %}\n  b\n  {% endif %}\n", ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", {"jinja_sls_env": {"trim_blocks": True, "lstrip_blocks": True}}),
    ("a\n  {%+ if true %}\n  b\n  {% endif +%}\nc\n", {"jinja_sls_env": {"trim_blocks": True, "lstrip_blocks": True}}), ("{% if true %}\nx\n{% endif %}\n", {"jinja_trim_blocks": True}),
    ("  {# c #}\nx\n", {"jinja_sls_env": {"lstrip_blocks": True, "trim_blocks": True}}), "{# comment #}x{#- more -#} y", "{{- 'a' -}}\n b", "x\n\n\n", "x\r\ny\r\n", "", "\n", "x",
    "{% raw %}{{ not }} {% this %}{% endraw %}", "a\n{%- raw -%}\n {{ x }} \n{%- endraw %}\nb", "{% raw %}\n#{\n{% endraw %}\n",
    ("# for x in [1, 2]\n- {{ x }}\n# endfor\n", {"jinja_sls_env": {"line_statement_prefix": "#"}}), ("% if true\nyes\n% endif\n## note\nend\n", {"jinja_sls_env": {"line_statement_prefix": "%", "line_comment_prefix": "##"}}),
    ("<% if true %>[[ 'x' ]]<% endif %>", {"jinja_sls_env": {"block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "[[", "variable_end_string": "]]"}}),
    "#jinja2: {\"trim_blocks\": true}\n{% if true %}\nx\n{% endif %}\n", "#!jinja|yaml\n#jinja2: {\"lstrip_blocks\": true}\n  {% if true %}x{% endif %}\n", ("x\n", {"jinja_sls_env": {"keep_trailing_newline": True}}),
    "{{ {'a': {'b': 1}} }}", "{{ '}}' }} {{ '%}' }}", "{{ [\n 1,\n 2\n] }}\n",
    # Control flow.
    "{% for x in [1, 2, 3] %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}", "{% for x in [1, 2, 3] %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in pillar.users %}{{ k }} {% endfor %}", "{% for u, d in pillar.users.items() %}{{ u }}:{{ d.get('shell', '/bin/sh') }} {% endfor %}",
    "{% for x in [] %}x{% else %}empty{% endfor %}", "{% for x in range(10) if x % 2 %}{{ x }}{{ loop.first }}{% endfor %}", "{% for x in 'abc' %}{{ x }}-{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1,2] %}{{ loop.cycle('odd', 'even') }} {% endfor %}", "{% for x in [1,1,2] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in [1,2,3] %}{{ loop.previtem is defined }}{{ loop.nextitem | default('end') }} {% endfor %}",
    "{% for n in [{'n': 1, 'c': [{'n': 2, 'c': []}]}] recursive %}{{ n.n }}@{{ loop.depth }}{{ loop(n.c) }}{% endfor %}", "{% for x in [1] %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.index0 }}{{ loop.first }}{% endfor %}",
    "{% for x in [1,2] %}{% for y in [1,2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% if 0 %}a{% elif '' %}b{% elif none %}c{% else %}d{% endif %}", "{% if grains.os_family == 'Debian' %}apt{% elif grains.os_family == 'RedHat' %}yum{% endif %}",
    # Scopes.
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "{% if true %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% set l = [] %}{% for i in [1, 2] %}{% do l.append(i) %}{% endfor %}{{ l }}", "{% set d = {} %}{% do d.update({'a': 1}) %}{% do d.update(b=2) %}{{ d }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}", "{% set x | upper %}abc{% endset %}{{ x }}", "{% filter upper %}abc{{ 'd' }}{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% set l = [1] %}{% set m = l %}{% do m.append(2) %}{{ l }}", "{% set d = {'a': [1]} %}{% do d.a.extend([2, 3]) %}{{ d }}", "{% set d = {} %}{% set _ = d.setdefault('a', []).append(1) %}{{ d }}",
    "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "{% set grains = {'os': 'mine'} %}{{ grains.os }}", "{% set true_ = 1 %}{{ true_ }}", "{% for loop_ in [1] %}{{ loop_ }}{% endfor %}",
    # Macros.
    "{% macro f(a, b='x') %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 2) }} {{ f(b=3, a=4) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f() }}", "{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}body{% endcall %}", "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f(x) %}{{ x }}{% endmacro %}{{ [1, 2] | map('string') | join('-') }}{{ f('a') | upper }}", "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}", "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ f(1) }}]",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(nope=1) }}", "{{ f() }}{% macro f() %}{% endmacro %}", "{% macro a() %}{{ caller is defined }}{% endmacro %}{{ a() }}",
    # Imports.
    "{% from 'map.jinja' import app, defaults with context %}{{ app.port }} {{ defaults.port }}", "{% from 'map.jinja' import app as a, line %}{{ a.name }} {{ line('k') }} {{ line('k', value=2) }}", "{% import 'map.jinja' as m %}{{ m.app.port }} {{ m.line('x', 1) }}",
    "{% from 'map.jinja' import nothere %}x", "{% from 'map.jinja' import nothere %}{{ nothere }}", "{% from 'map.jinja' import _hidden %}", "{% import 'nofile.jinja' as m %}", "{% include 'nofile.jinja' %}", "{% include 'nofile.jinja' ignore missing %}ok",
    "{% set seen = 1 %}{% from 'ctx.jinja' import got %}{{ got }}", "{% set seen = 1 %}{% from 'ctx.jinja' import got with context %}{{ got }}", "{% set who = 'me' %}{% include 'part.jinja' %}", "{% set who = 'me' %}{% include 'part.jinja' without context %}", "{% for who in ['a', 'b'] %}{% include 'part.jinja' %}{% endfor %}",
    "{% import_yaml 'data/defaults.yaml' as d %}{{ d }}", "{% import_yaml 'data/defaults.yaml' as d %}{{ d.text | indent(2) }}{{ d.mode }}{{ d.ports[1] }}", "{% import_json 'data/defaults.json' as d %}{{ d }}", "{% import_text 'data/poem.txt' as t %}{{ t }}", "{% from './local.jinja' import here %}{{ here }}", "{% include './local.jinja' %}",
    "{% from 'site/sub/up.jinja' import below %}{{ below }}", "{% include '../../etc/passwd' %}", "{% extends 'base.jinja' %}{% block body %}mine + {{ super() }}{% endblock %}", "{% import 'macros.jinja' as m %}{{ m.outer(5) }}", "{% from 'broken.jinja' import x %}", "{% include 'undefined.jinja' %}", "{% include ['nofile.jinja', 'part.jinja'] %}",
    "{% import 'map.jinja' as m %}{{ m.nope }}", "{% import 'data/poem.txt' as m %}{{ m | upper }}",
    # Loads.
    "{% load_yaml as x %}\na: 1\nb: [yes, 0644, 1:30, 2024-01-01]\n{% endload %}{{ x }}", "{% load_json as x %}{\"a\": [1, null]}{% endload %}{{ x }}", "{% load_text as x %} a {% endload %}[{{ x }}]", "{% load_yaml as x %}a: [{% endload %}", "{% load_json as x %}{a}{% endload %}",
    "{% load_yaml as x %}a: {{ pillar.app.port }}{% endload %}{{ x.a + 1 }}", "{% set x = '{a: 1, b: [x, y]}' | load_yaml %}{{ x.b[1] }}", "{% set x = '[1, 2]' | load_json %}{{ x }}", "{% load_yaml as x %}a: 1\na: 2{% endload %}", "{% profile as 'x' %}in{% endprofile %}",
    # Serializers.
    "{{ pillar.app | yaml }}", "{{ pillar.app | yaml(False) }}", "{{ pillar.users | yaml(False) | indent(4) }}", "{{ pillar.app | json }}", "{{ pillar.app | json(indent=2) }}", "{{ pillar.app | json(sort_keys=False) }}", "{{ pillar.app | tojson }}", "{{ '<a&b\\'>' | tojson }}", "{{ pillar.unicode | json }} {{ pillar.unicode | tojson }}",
    "{{ pillar.users | python }}", "{{ 'a: b' | yaml }} {{ 'yes' | yaml }} {{ '1' | yaml }} {{ '' | yaml }} {{ 'x y' | yaml }} {{ 1.0 | yaml }} {{ none | yaml }} {{ true | yaml }}", "{{ ['- x', '# y', 'a#b', 'k: v', '*z', '@m', 'it\\'s', 'q\"q', '1.5', 'null', '~', '2024-01-01', '12:30', 'off', '=', '<<', '0x1f', ' lead', 'trail '] | yaml }}",
    "{{ 'a\\nb' | yaml }}", "{{ {'k': 'a\\nb\\n', 'l': 'x'} | yaml(False) }}", "{{ {'b': 1, 'a': {'d': [1, [2, 3], {}], 'c': []}} | yaml(False) }}", "{{ range(60) | list | yaml }}", "{{ 'word ' * 40 }}x\n{{ ('word ' * 30 ~ 'end') | yaml }}", "{{ [{'a': 1, 'b': 2}, {'c': 3}] | yaml(False) }}", "{{ pillar.unicode | yaml }}", "{{ '\\u0007 bell' | yaml }}",
    "{{ 'a\"b\\n' | yaml_dquote }} {{ 'it\\'s' | yaml_squote }} {{ 'x: y' | yaml_encode }} {{ 5 | yaml_encode }} {{ none | yaml_encode }} {{ true | yaml_encode }}", "{{ pillar.unicode | yaml_dquote }}", "{{ [1] | yaml_encode }}", "{{ {'name': 'x', 'changes': True, 'n': [1, 2]} | dict_to_sls_yaml_params | indent }}", "{{ (1, 2) | json }} {{ (1, 2) | yaml }}",
    # Salt's filters.
    "{{ 'yes' | to_bool }} {{ 'no' | to_bool }} {{ 1 | to_bool }} {{ none | to_bool }} {{ [] | to_bool }} {{ 'True' | to_bool }} {{ 0 | to_bool }}", "{{ 'abcd' | regex_match('(a)(.)') }} {{ 'abcd' | regex_match('b') }} {{ 'abcd' | regex_search('(c)') }} {{ 'abcd' | regex_search('c') }}", "{{ 'aBC' | regex_match('ab(c)', ignorecase=True) }}",
    "{{ 'lets replace' | regex_replace('\\\\s+', '__') }} {{ 'ab' | regex_replace('(a)(b)', '\\\\2\\\\1') }}", "{{ 'a.b+c' | regex_escape }}", "{{ 'web12.example.com' | regex_search('web(?P<n>\\\\d+)') | first }}", "{{ \"it's\" | quote }} {{ 'plain' | quote }} {{ '' | quote }}", "{{ 'example' | uuid }}", "{{ [1, 2, 2, 'a', 'a'] | unique }}",
    "{{ [1, 2, 3] | union([2, 4]) }} {{ [1, 2, 3] | intersect([2, 3, 5]) }} {{ [1, 2, 3] | difference([2]) }} {{ [1, 2, 3] | symmetric_difference([2, 4]) }}", "{{ [1, 2, 3] | avg }} {{ [3, 1] | min }} {{ [3, 1] | max }} {{ [1, 2] | sum }}", "{{ [] | min }}", "{{ 'a' | base64_encode }} {{ 'YQ==' | base64_decode }}",
    "{{ 'a' | md5 }} {{ 'a' | sha1 }}", "{{ 'a' | sha256 }} {{ 'a' | sha512 }}", "{{ 'get salted' | hmac_compute('shared secret') }}", "{{ 'get salted' | hmac('shared secret', 'eBWf9bstXg+NiP5AOwppB5HMvZiYMPzEM9W5YMm/AmQ=') }}", "{{ 1 | sequence }} {{ [1] | sequence }} {{ 'a' | sequence | first }}", "{{ pillar | traverse('app:hosts:1') }} {{ pillar | traverse('app:nope', 'd') }}",
    "{{ '5' | to_num }} {{ '5.5' | to_num }} {{ 'x' | to_num }}", "{{ 'abc' | is_hex }} {{ 'xyz' | is_hex }} {{ 'a b' | contains_whitespace }}", "{{ '2G' | human_to_bytes }} {{ '30MB' | human_to_bytes }} {{ '64KiB' | human_to_bytes }} {{ '5' | human_to_bytes('M') }}", "{{ 'camelCase' | to_snake_case }} {{ 'snake_case_x' | to_camelcase }} {{ 'snake_case' | to_camelcase(uppercamel=True) }}",
    "{{ {'a': 1} | compare_dicts({'a': 2}) }}", "{{ [1, 2] | compare_lists([2, 3]) }}", "{{ ['yes', False, 0] | exactly_one_true }} {{ [1, 1] | exactly_n_true(2) }}", "{{ 'x' | substring_in_list(['ax', 'b']) }} {{ [1] | is_list }} {{ 'a' | is_iter }} {{ ['b', 'A', 'a'] | sorted_ignorecase }}", "{{ [3, [4, [2]], none] | flatten }} {{ [3, [4, [2]]] | flatten(levels=1) }}",
    "{{ {'a': 1, 'b': 2} | to_entries }}", "{{ [{'key': 'a', 'value': 1}] | from_entries }}", "{{ {} | set_dict_key_value('a:b:c', 5) }} {{ {} | append_dict_key_value('a:b', 5) }}", "{{ {} | extend_dict_key_value('a', [1]) }} {{ {'a': {}} | update_dict_key_value('a', {'x': 1}) }}", "{{ '/srv' | path_join('a', '/b/', 'c') }}", "{{ 'x' | skip }}|",
    "{{ 'web1' | check_whitelist_blacklist(whitelist=['web*']) }}", "{{ ['a', 'b'] | zip([1, 2]) | list }}", "{{ [1, 2, 3] | combinations(2) | list }} {{ [1, 2] | permutations | list }} {{ [1, 2] | product(['a']) | list }}", "{{ 'abc' | method_call('upper') }}", "{{ 0 | strftime }} {{ 1000000000 | strftime('%Y-%m-%d %H:%M:%S') }} {{ '2002/12/25' | strftime('%d.%m.%Y') }}",
    # Networks.
    "{{ '10.0.0.1' | is_ip }} {{ '10.0.0.1' | is_ipv4 }} {{ '::1' | is_ipv6 }} {{ 'x' | is_ip }} {{ '10.0.0.0/8' | is_ipv4 }}", "{{ '10.0.0.1' | ipaddr }} {{ ['10.0.0.1', '::1', 'x'] | ipaddr }} {{ ['10.0.0.1', '::1'] | ipv6 }} {{ 'x' | ipaddr }}", "{{ '192.168.0.10/24' | ip_host }} {{ '192.168.0.0/30' | network_hosts }} {{ '192.168.0.0/24' | network_size }}",
    "{{ '10.0.0.1' | is_ipv4(options='private') }} {{ '8.8.8.8' | ipv4(options='public') }} {{ '127.0.0.1' | is_ip('loopback') }}", "{{ grains.ip_interfaces | filter_by_networks(['10.0.0.0/8']) }}", "{{ ['::1', '10.0.0.1'] | ipwrap }}", "{{ '10.0.0.1' | ipv6 }}",
    # Jinja2's filters.
    "{{ 'hello world' | capitalize }} {{ 'hello world' | title }} {{ 'ABC' | lower }} {{ ' x ' | trim }}|", "{{ [1, 2, 3] | first }} {{ [1, 2, 3] | last }} {{ [3, 1, 2] | sort }} {{ ['b', 'A'] | sort }} {{ [1, 2] | sort(reverse=True) }}", "{{ ['a', 1] | sort }}", "{{ [{'n': 2}, {'n': 1}] | sort(attribute='n') }}", "{{ [] | first }}", "{{ [] | first | default('none') }}",
    "{{ ['a', 'b'] | join(', ') }} {{ [1, 2] | join }} {{ [{'n': 1}] | join(',', attribute='n') }}", "{{ [1, 2, 3] | map('string') | join('-') }} {{ ['a'] | map('upper') | list }} {{ [{'n': 1}, {}] | map(attribute='n', default=0) | list }}", "{{ [1, 2, 3, 4] | select('even') | list }} {{ [1, 2] | reject('odd') | list }} {{ ['', 'a'] | select | list }}",
    "{{ [{'n': 1, 'on': true}, {'n': 2, 'on': false}] | selectattr('on') | map(attribute='n') | list }} {{ [{'n': 1}, {'n': 2}] | rejectattr('n', 'equalto', 1) | list }}", "{{ [{'n': 'b'}, {'n': 'a'}, {'n': 'b'}] | groupby('n') }}", "{% for k, g in [{'n': 'b', 'v': 1}, {'n': 'b', 'v': 2}] | groupby('n') %}{{ k }}{{ g | length }}{% endfor %}",
    "{{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(false, 'value') }}", "{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }} {{ [1, 2, 3, 4] | slice(3) | list }}", "{{ 'abc' | replace('b', 'x') }} {{ 'aaa' | replace('a', 'b', 2) }}", "{{ 3.14159 | round(2) }} {{ 2.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 42 | round }} {{ 3.7 | int }} {{ '5' | int + 1 }} {{ 'x' | int(9) }} {{ '0x1f' | int(base=16) }}",
    "{{ '1.5' | float }} {{ 'x' | float }} {{ 1000000 | filesizeformat }} {{ 1024 | filesizeformat(true) }}", "{{ 'a\nb' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(2, blank=true) }} {{ 'a\nb' | indent('> ') }}", "{{ 'abc' | length }} {{ {'a': 1} | count }} {{ 5 | length }}", "{{ 'a b' | urlencode }} {{ {'a': 'b c', 'd': 1} | urlencode }} {{ '/x y' | urlencode }}",
    "{{ '<b>' | e }} {{ '<b>' | escape | upper }} {{ '<i>x</i>' | striptags }}", "{{ 'foo bar baz' | truncate(7) }} {{ 'foo bar baz' | truncate(7, true, '', 0) }} {{ 'hello' | center(11) }}|", "{{ '%s=%s' | format('a', 1) }} {{ '%(x)s' | format(x=2) }}", "{{ 'one two' | wordcount }} {{ 'aa bb cc' | wordwrap(5) }}", "{{ [1, 2] | reverse | list }} {{ 'abc' | reverse }}", "{{ {'a': 1} | items | list }} {{ 'abc' | list }}",
    "{{ {'x': {'y': 2}} | attr('x') }}", "{{ pillar.app | attr('name') }}", "{{ 'a' | nofilter }}", "{% if false %}{{ 'a' | nofilter }}{% endif %}x", "{{ 1 is notest }}", "{{ [1, 2, 3] | sum(start=10) }} {{ [{'n': 2}] | sum(attribute='n') }}", "{{ [[1, 2], [3]] | sum(start=[]) }}", "{{ 'a,b' | upper.x }}",
    # Tests.
    "{{ 1 is odd }} {{ 2 is even }} {{ 4 is divisibleby 2 }} {{ 'a' is string }} {{ 1 is number }} {{ {} is mapping }} {{ [] is sequence }} {{ 'a' is sequence }} {{ none is none }} {{ 'a' is iterable }}", "{{ 'a' is in ['a'] }} {{ 'abc' is match('a.c') }} {{ 'ABC' is match('abc', ignorecase=True) }} {{ 1 is equalto 1 }} {{ 1 is eq(1) }} {{ 'x' is lower }}", "{{ true is boolean }} {{ 1 is integer }} {{ 1.0 is float }} {{ 1 is true }} {{ [1] is list }} {{ (1,) is list }} {{ 1 is not none }}",
    "{{ not 1 is odd }} {{ 1 is sameas 1 }} {{ 1 is gt 0 }} {{ 1 is lt(0) }} {{ true is integer }} {{ pillar is defined and 1 is odd }}", "{{ salt is defined }} {{ 'test.echo' in salt }} {{ salt['no.fun'] is defined }} {{ range is callable }}",
    # Methods.
    "{{ 'a,b,c'.split(',') }} {{ 'a b'.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a.b.c'.rsplit('.', 1) }}", "{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('c', 'x')) }} {{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }} {{ 'a-b'.replace('-', '_') }}", "{{ 'x={} y={y:>5}|{0!r}'.format(1, y='b') if false else 'n' }} {{ '{} {}'.format('a', 1) }} {{ '{a[k]} {b:05.2f}'.format(a={'k': 'v'}, b=3.14159) }}",
    "{{ '-'.join(['a', 'b']) }} {{ '-'.join([1]) }}", "{{ 'abc'.upper() }} {{ 'Abc'.lower() }} {{ 'a b'.title() }} {{ 'abc'.capitalize() }} {{ 'abc'.find('c') }} {{ 'abcabc'.count('b') }} {{ '7'.zfill(3) }} {{ '12'.isdigit() }} {{ 'a\nb'.splitlines() }} {{ 'a=b'.partition('=') }} {{ 'ab'.center(6, '*') }} {{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4) }}", "{{ 'abc'.nope() }}", "{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'b': 1, 'a': 2}.keys() | list }} {{ {'a': 1}.values() | list }}",
    "{% set l = [1, 2, 3] %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}{% do l.insert(0, 9) %}{% do l.remove(2) %}{{ l }}{{ l.index(9) }}{{ l.count(9) }}", "{% set d = {'a': 1, 'b': 2} %}{{ d.pop('a') }}{{ d.pop('x', 'none') }}{{ d }}{{ d.copy() }}", "{% set l = [2, 1] %}{% do l.sort() %}{{ l }}{% do l.reverse() %}{{ l }}", "{{ {'items': 1}.items }}", "{{ {'items': 1}['items'] }}", "{{ {'a': 1}.a }} {{ {'a': {'b': 2}}.a.b }} {{ {1: 'x'}[1] }}", "{{ [[1, 2]][0][1] }} {{ [[1, 2]].0.1 }}",
    "{{ [].pop() }}", "{{ ''.__class__ }}", "{{ {}.__class__.__mro__ }}", "{{ 'é'.encode('utf-8') }}", "{% set d = dict(a=1, b=2) %}{{ d }} {{ dict({'x': 1}, y=2) }} {{ dict([('k', 'v')]) }}", "{% set j = joiner(',') %}{% for x in [1,2] %}{{ j() }}{{ x }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}",
    # Calls.
    "{{ salt['test.echo']('x') }} {{ salt.test.echo('y') }}", "{{ salt['pillar.get']('app:port') }} {{ salt['pillar.get']('no:pe', 'd') }} {{ salt.pillar.get('app:hosts')[0] }}", "{{ salt['test.refuse']() }}", "{{ salt['no.fun']() }}", "{{ salt.no.fun() }}", "{{ raise('stop here') }}", "{{ raise }}{{ 1" , "{% if grains.os != 'Debian' %}{{ raise('no') }}{% endif %}fine",
    "{{ ifelse(false, 'a', true, 'b', 'c') if false else 'x' }}", "{{ [1, 2](0) }}", "{{ 'a'() }}", "{% do salt['test.echo']('x') %}ok", "{{ salt['test.echo'](**{'text': 'kw'}) }} {{ salt['test.echo'](*['pos']) }}",
    # Syntax errors.
    "{% if %}{% endif %}", "{% for %}", "{% endfor %}", "{{ }}", "{% nosuchtag %}", "{% if true %}", "{{ a b }}", "{{ 'open }}", "{% set = 1 %}", "{{ [1, 2 }}", "{% macro %}{% endmacro %}", "{# open", "{% raw %}x", "{{ 1 + }}", "{% else %}", "{{ a..b }}", "{% break %}",
    # Things from formulas.
    "{%- set roles = grains.get('roles', []) %}\n{%- if 'web' in roles %}\n  - nginx\n{%- endif %}\n", "{%- for user, data in pillar.get('users', {}).items() %}\n{{ user }}:\n  user.present:\n    - uid: {{ data.uid }}\n    - groups: {{ data.groups }}\n    - shell: {{ data.get('shell', '/bin/bash') }}\n{%- endfor %}\n",
    "{% set os_map = {'Debian': {'pkg': 'apache2'}, 'RedHat': {'pkg': 'httpd'}}.get(grains.os_family) %}{{ os_map.pkg }}", "{% set a = {'x': 1} %}{% set b = {'y': 2} %}{% do a.update(b) %}{{ a | tojson }}", "{{ grains['id'].split('.')[0] }} {{ grains.id.split('.')[1:] | join('.') }}", "{{ (grains.mem_total * 0.75) | int }} {{ grains.mem_total // 1024 }}G", "{{ grains.osrelease.split('.') | map('int') | list }}",
    "{% set users = pillar.users %}{% for name in users | sort %}{{ loop.index }}. {{ name }} ({{ users[name]['groups'] | join(', ') or 'none' }})\n{% endfor %}", "{% set out = [] %}{% for h in pillar.app.hosts %}{% do out.append('http://%s:%d' % (h, pillar.app.port)) %}{% endfor %}urls: {{ out | json }}", "motd: |\n  {{ pillar.motd | indent(2) }}\n", "{{ pillar.get('missing', {}) | yaml }}", "x: {{ pillar.quote | yaml_squote }}\ny: {{ pillar.quote | json }}",
    "{% set cfg = salt['pillar.get']('app', {}) %}{{ cfg.port | default(80) }} {{ cfg.nope | default(80, true) }}", "{% if salt['pillar.get']('app:debug') %}on{% else %}off{% endif %}", "{{ '%.2f' | format(pillar.app.ratio) }} {{ '{:,}'.format(1234567) }}", "{% for iface, addrs in grains.ip_interfaces | dictsort %}{{ iface }}={{ addrs | select('match', '^10\\\\.') | list }} {% endfor %}", "{% set x = 'a' %}{% set x = x ~ 'b' %}{% set x = x ~ 'c' %}{{ x }}",
    "{{ tplfile }} {{ tpldir }} {{ sls }} {{ saltenv }}", "{{ 10 | string | length }} {{ 'a' is defined and 'b' or 'c' }}", "{{ opts is mapping }} {{ opts.get('nope', 'd') }}", "{{ {'a': 1, 'b': 2} | length > 1 and 'many' or 'one' }}", "{% set port = 80 if not pillar.app.debug else 8080 %}{{ port }}", "{{ pillar.list | sort | last }} {{ pillar.list | min }} {{ pillar.list | sum }}",
]
