#!/usr/bin/env python3
"""Writes what stock Salt's YAML loader makes of many short documents: `options_yaml.json`.

    PYTHON_OF_SALT_3008 tests/vectors/options_yaml.py

Each row is the document and either its value, with types spelled out, or null for an error.  The
test `src/config/tests/yaml_stock.rs` compares our reader with them.
"""

import json
import math
import pathlib
import random

import salt.utils.yaml

DOCUMENTS = [
    # Nothing, and the forms of nothing.
    "", "# only a comment\n", "---\n", "--- \n...\n", "~", "null", "a:", "a: ~", "a: NULL", "a: nUll",
    # Booleans.
    *[f"a: {word}" for word in "yes no Yes NO true True TRUE tRue on On ON off OFF y n Y N t".split()],
    "a: 'yes'", 'a: "on"',
    "a: !!str yes", "a: !!bool Yes", "a: !!bool tRuE", "a: !!bool y", "a: !!bool ''",
    # Numbers.
    "a: 0", "a: 00", "a: 007", "a: 0644", "a: -0644", "a: +0644", "a: 08", "a: 0o17", "a: 0x1F",
    "a: -0x1f", "a: 0b101", "a: 0b", "a: 0x", "a: 1_000", "a: _1", "a: 1__0", "a: 0_7", "a: 0_",
    "a: 1:30", "a: 1:60", "a: 01:30", "a: 190:20:30", "a: 1:2:3.5", "a: -1:30", "a: 12:30:45",
    "a: 9223372036854775807", "a: 9223372036854775808", "a: -9223372036854775808",
    "a: 123456789012345678901234567890123456789012345678901234567890",
    "a: 0xffffffffffffffffffffffffffffffffffffffffffff", "a: -0b" + "1" * 70,
    "a: 1.5", "a: 1.", "a: .5", "a: -.5", "a: 1e3", "a: 1.0e3", "a: 1.0e+3", "a: 1.5E-2", "a: .inf",
    "a: -.INF", "a: .NaN", "a: +.inf", "a: 1_0.5_0", "a: 3008.3", "a: 6.8523015e+5", "a: .",
    "a: -", "a: +", "a: 1..2", "a: 1.2.3.4", "a: 0.0", "a: -0.0", "a: !!float 1", "a: !!float x",
    "a: !!int 12", "a: !!int '12'", "a: !!int x", "a: !!int 0644", "a: !!int ''", "a: !!float 1e3",
    # Dates stay text.
    "a: 2024-01-01", "a: 2024-1-1", "a: 2001-12-14t21:59:43.10-05:00", "a: 2001-12-14 21:59:43.1 Z",
    "a: !!timestamp 2024-01-01", "2024-01-01: x",
    # Other tags.
    "a: !!null x", "a: !!str 5", "a: !!str", "a: ! 5", "a: !foo 5", "a: !!binary aGVsbG8=",
    "a: !!binary aGVsbG8", "a: !!binary 'aG Vs bG8='", "a: !!python/unicode x", "a: !!nonsense x",
    "a: !!python/object:os.system x", "!!map {a: 1}", "!!seq [1]", "a: !!seq {b: 1}", "a: !!map [1]",
    "a: !!omap [x: 1, y: 2]", "a: !!pairs [x: 1, x: 2]", "a: !!omap [{x: 1, y: 2}]", "a: !!set {x, y}",
    "a: !!set [x]", "%TAG !e! tag:yaml.org,2002:\n---\na: !e!int 5", "a: !<tag:yaml.org,2002:str> 5",
    "a: !!merge x", "a: !!value =", "a: !!str =",
    # The value key and the merge key as values.
    "a: =", "=: a", "a: <<", "a: '<<'", "'<<': a", "<<: a", "<<: ", "<<: [1]",
    # Merge.
    "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\n  c: 4",
    "x: &x {a: 1, b: 2}\ny:\n  c: 4\n  b: 3\n  <<: *x",
    "x: &x {a: 1}\nz: &z {b: 2}\ny: {<<: [*x, *z], c: 3}",
    "x: &x {a: 1}\nz: &z {a: 2}\ny: {<<: [*x, *z], c: 3}",
    "x: &x {a: 1}\nz: &z {a: 2}\ny: {<<: [*x, *z], a: 3}",
    "x: &x {a: 1}\nz: &z {b: 2}\ny: {<<: *x, <<: *z}",
    "x: &x {a: 1}\nw: &w {<<: *x, b: 2}\ny: {<<: *w, c: 3}\nv: {<<: *w, a: 5}",
    "x: &x {'a': 1}\ny: {<<: *x, a: 2}", "x: &x {1: a}\ny: {<<: *x, 01: b}",
    "x: &x [1]\ny: {<<: *x}", "x: &x {a: 1}\ny: {<<: [*x, 5]}", "<<: {a: 1}\nb: 2",
    # Anchors and aliases.
    "a: &x 5\nb: *x", "a: &x [1, {c: d}]\nb: *x", "a: *x", "&a a: 1\nb: *a", "a: &x\nb: *x",
    "- &x a\n- *x\n- {*x : 1}",
    # Keys.
    "a: 1\na: 2", "a: 1\n'a': 2", "1: a\n1.0: b", "1: a\ntrue: b", "0: a\nno: b", "1: a\n'1': b",
    "~: a\nnull: b", "? [a]\n: 1", "? {a: 1}\n: 1", "? a\n: 1", "? a\n", "5: x", "5.5: x", "yes: x",
    ": x", "a: {b: 1, b: 2}", "0x10: a\n16: b", ".nan: 1", "a b c: 1", "a:b: 1", "a: b: c",
    # Block scalars and folding.
    "a: |\n  one\n  two\n", "a: |-\n  one\n  two\n", "a: |+\n  one\n\n", "a: >\n  one\n  two\n\n  x\n",
    "a: >-\n  one\n   two\n  three\n", "a: |2\n   one\n  two\n", "a: |\n\n  x\n", "a: one\n  two\n  three",
    "a: 'it''s'", "a: \"t\\tu\\u00e9\\x41\\n\"", "a: \"line\n  folded\"", "a: 'x\n\n  y'", "a: \"\\/\"",
    "a: \"\\q\"", "a: 'open", "a: \"\\\n   x\"", "a: \"\\U0001F600\"", "a: \"\\ud83d\"",
    # Flow.
    "{a: 1, b: [2, 3]}", "[a, b, ]", "{a, b: }", "[a: 1, b]", "{a: 1,}", "[,]", "{\"a\":1}", "{a:1}",
    "[a,b]", "{a: [1, 2}", "[1, 2", "a: [1,\n 2]", "{? a : 1}", "[? a : 1]", "{a: }", "['a' : 1]",
    "{'a': 'b', c: {d: []}}", "[[[]]]", "[a\n]", "a: {\n}\n", "[]: 1", "{a: 'b'c}", "['a':1]",
    "[http://x, 1]", "{url: http://x:80/}", "[a#b, c #d\n]", "[a:b]", "a: {b:c}", "[1:2]",
    # Block structure.
    "- a\n- b\n", "a:\n- 1\n- 2\n", "a:\n  - 1\n  -\n  - b: c\n    d: e\n", "- - a\n  - b\n",
    "a: 1\n b: 2", "a:\n   b: 1\n  c: 2", "a:\n\tb: 1", "a:\tb", "a: b\t# c", "\ta: 1", "a: b # c",
    "a: b#c", "a: #c", "a:#c", "- a\nb: 1", "a: 1\n- b", "just text", "text\nmore", "---\na: 1\n---\nb: 2",
    "--- a\n", "a: 1\n...\n", "a: 1\n...\nb: 2", "%YAML 1.1\n---\na: yes", "%YAML 1.2\n---\na: yes",
    "a: @x", "a: `x", "a: %x", "a: !", "a: &", "a: *", "a: |x", "a: ,", "a: ]", "a: -x", "a: ?x", "a: :x",
    "a: - b", "a: ? b", "@a: 1", "a: 'b': c", "a: \"b\" c", "-a: 1", "?a: 1", "a : 1", "a  :  1",
    "\ufeffa: 1", "a: \ufeffb", "a: \u00e9\u4e2d\U0001F600", "a: \x01", "a: \x7f", "a: x\x85y", "a: x\u2028y",
    "a: 1\r\nb: 2\r\n", "a: 1\rb: 2", "a: |\r\n  x\r\n  y\r\n",
    "a: {\n\"b\": [\n1,\n2\n]\n}\n", "a: [\nx\n]\nb: 1\n", "a:\n  b: {\n\"x\": \"y\nz\"\n}\n  c: 2\n",
    "a: \"x\ny\"\n", "a: 'x\ny'\nb: 1\n", "a: {\n\t\"b\":\t1,\n\t\"c\": 2\n}\n", "a: x\ny\n", "- [\na\n]\n",
    "a: &x 1\nb: &x 2\n", "a: !\n", "a: ! 'x'\n", "a: ! [1]\n", "a: ! {b: 1}\n", "a: !!bool 'yes'\n",
    "a:\n  - b\n c: 1\n", "a: |\n  x\n y\n", "a: >\n  x\n\n\n  y\n", "a: \"x\\\n   y\"\n", "a: 'x'y\n", "? |\n  k\n: v\n",
    "a: *\n", "a: &a\n  b: *a\n c: 1\n", "\"a\nb\": 1\n", "a\nb: 1\n", "x" * 1030 + ": 1\n", "{" * 40 + "}" * 40,
    "k: [a, b: c, {d: e}, 'f': g]\n", "k: [? a : b, ? c]\n", "k: {a b: c d, e: }\n", "k: [-]\n", "k: [- a]\n", "k: {-: a}\n",
    "a: &a\n  b: [*a]\n", "a: [!!str, b]", "a: [!!str , b]",
    "a: |\n  x", "a: |+\n  x", "a: |-\n  x", "a: >\n  x\n  y", "a: |\n  x\n  ", "a: |+\n  x\n  ", "a: |\n  x\n    ",
    "a: |+\n  ", "a: |\n", "a: |", "a: |\n  x\n# c", "a: |\n  x \n  ", "a: \"\\", "a: |\n  x\nb: 1", "a: |\n\n  x", "a: |\r\n  x",
    # What sites write.
    "file_roots:\n  base:\n    - /srv/salt\n    - /srv/formulas\n",
    "nodegroups:\n  g1: 'L@a,b or E@c.*'\n  g2:\n    - '*.d'\n    - or\n    - N@g1\n",
    "reactor:\n  - 'salt/minion/*/start':\n    - /srv/reactor/start.sls\n",
    "external_auth:\n  pam:\n    fred:\n      - test.*\n      - '@runner'\n    '%admin':\n      - .*\n",
    "interface: '::'\nipv6: True\n", "interface: ::\n", "ext_pillar:\n  - cmd_json: 'echo {}'\n",
    "log_fmt_console: '%(asctime)s [%(levelname)-8s] %(message)s'\n", "id: 007\n", "id: 1e5\n",
    "schedule: {j: {function: test.ping, minutes: 5}}\n", "publisher_acl:\n  larry:\n    - test.ping\n",
    "mode: 0755\nother: '0755'\n", "time: 22:30\n", "version: 1.10\n", "mac: 00:11:22:33:44:55\n",
    "mac: 52:54:00:12:34:56\n", "ip: 10.0.0.1\n", "cidr: 10.0.0.0/8\n", "n: 1,000\n",
]


def scalars(count):
    """Plain scalars at random, from the letters that make numbers."""
    rng = random.Random(3008)
    seen = set()
    while len(seen) < count:
        text = "".join(rng.choice("0011234567899__..::-+eExbaf") for _ in range(rng.randint(1, 9)))
        seen.add(text)
    return ["a: " + text for text in sorted(seen)]


def spelled(value, depth=0):
    if depth > 100:
        return ["without end"]
    if value is None:
        return ["null"]
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        return ["float", value if math.isfinite(value) else None]
    if isinstance(value, str):
        return ["str", value]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, dict):
        return ["map", [[spelled(key), spelled(inner, depth + 1)] for key, inner in value.items()]]
    if isinstance(value, (set, frozenset)):
        return ["list", sorted(spelled(inner) for inner in value)]
    if isinstance(value, (list, tuple)):
        return ["list", [spelled(inner, depth + 1) for inner in value]]
    raise TypeError(type(value))


def main():
    rows = []
    for document in DOCUMENTS + scalars(2500):
        try:
            value = spelled(salt.utils.yaml.safe_load(document))
            value = ["without end"] if "without end" in str(value) else value
        except Exception:  # Stock also fails with ValueError, KeyError and IndexError.
            value = None
        if value is not None:
            try:
                json.dumps([document, value]).encode()
            except UnicodeEncodeError:
                value = None
        rows.append([document, value])
    target = pathlib.Path(__file__).with_name("options_yaml.json")
    target.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
