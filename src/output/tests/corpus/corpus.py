"""
Stock's side of the corpus: generates returns, prints them with the outputters of the release whose
Python runs this, and writes all of it as JSON: a list of cases with the name, the outputter, the
options, the value (hex of msgpack, since JSON has neither bytes nor keys that are no text), and the
text that stock prints or the type of the exception that ends it.

    ~/.cache/saltern/stock/3008.3/bin/python src/output/tests/corpus/corpus.py < /dev/null

The same cases come out of every run and every release, but for outputters that a release lacks.
"""

import datetime
import importlib
import json
import logging
import os
import random
import sys
import tempfile

import salt.loader
import salt.output
import salt.payload

logging.disable(logging.CRITICAL)

MODULES = {
    "nested": "nested", "highstate": "highstate", "json": "json_out", "yaml": "yaml_out",
    "raw": "raw", "txt": "txt", "pprint": "pprint_out", "key": "key", "table": "table_out",
    "no_return": "no_return", "quiet": "no_out_quiet", "newline_values_only": "newline_values_only",
    "overstatestage": "overstatestage", "virt_query": "virt_query", "profile": "profile",
}
OPTIONS = {
    "transport": "zeromq", "strip_colors": True, "state_output": "full", "state_verbose": True,
    "state_output_profile": True,
}
MODES = [
    "full", "terse", "mixed", "changes", "filter",
    "full_id", "terse_id", "mixed_id", "changes_id", "filter_id", "FULL", "other",
]


def loaded():
    """The modules of this release, without the loader, which would read all of Salt's for each case."""
    found = {}
    for name, module in MODULES.items():
        try:
            found[name] = importlib.import_module(f"salt.output.{module}")
        except ImportError:
            continue
    return found


class Corpus:
    def __init__(self):
        self.cases = []

    def add(self, name, out, value, retcode=0, theme=None, **options):
        packed = salt.payload.dumps(value, use_bin_type=True)
        options = {key.replace("__", "."): option for key, option in options.items()}
        for color in (False, True):
            # Only some returns are shown in the colours of the site's own.
            case = {"out": out, "retcode": retcode, "value": packed.hex(), "theme": theme}
            case["name"] = f"{out}/{name}"
            case["options"] = {"color": color, **options}
            self.cases.append(case)


def state(number=0, result=True, changes=None, comment="all is well", **fields):
    info = {
        "__run_num__": number, "result": result, "changes": {} if changes is None else changes,
        "comment": comment, "name": "/etc/motd", "__id__": "motd", "__sls__": "base.motd",
        "duration": 12.345, "start_time": "10:11:12.131415",
    }
    info.update(fields)
    return {key: value for key, value in info.items() if value != "<none>"}


def named(module="file", id_="motd", name="/etc/motd", function="managed"):
    return f"{module}_|-{id_}_|-{name}_|-{function}"


DIFF = "--- \n+++ \n@@ -1,2 +1,2 @@\n-old line\n+new \x1b[31mline\n context\twith tab\n"
CHANGES = [
    {}, {"diff": DIFF}, {"new": "a", "old": "b"}, {"mode": "0644", "deep": {"list": [1, {"a": []}]}},
    {"pid": 12, "retcode": 0, "stdout": "one\ntwo", "stderr": ""}, "text", ["a", 1], 5, None, "",
    {"ret": None, "out": "highstate"}, {"ret": True}, {"out": "highstate"}, {1: 2, "a": None},
    {"ret": {}, "out": "highstate"}, {"ret": "text", "out": "highstate"},
]


def minion_run(number=0):
    return {
        named(): state(number, True, {"diff": DIFF}),
        named("pkg", "nginx", "nginx", "installed"): state(number + 1, False, comment="not found"),
        named("service", "web", "nginx", "running"): state(number + 2, None, comment="would start"),
        named("test", "nop", "nop", "nop"): state(number + 3),
    }


def runs():
    """State runs of one minion by name."""
    yield "clean", {named(): state()}
    yield "mixed", minion_run()
    yield "names", {
        named("cmd", "many", name, "run"): state(at, at % 3 != 0, {"pid": at} if at % 2 else {},
                                                 name=name, __id__="many", duration=at * 1.0005)
        for at, name in enumerate(["true", "false", "a b", "/bin/ls -l", "größe", "x" * 90])
    }
    for at, changes in enumerate(CHANGES):
        yield f"changes-{at}", {named(): state(changes=changes), named("b"): state(1)}
        yield f"failed-changes-{at}", {named(): state(0, False, changes)}
    for at, result in enumerate([True, False, None, 1, 0, 1.0, "x", "warnings", "", 2, b"\xff"]):
        yield f"result-{at}", {named(): state(0, result), named("b"): state(1, True, {"a": 1})}
    for at, result in enumerate([[], {}, [1], datetime.datetime(2026, 1, 2, 3, 4, 5)]):
        yield f"odd-result-{at}", {named(): state(0, result)}
    comments = [
        "", "  spaces  ", "two\nlines\r\nand three\n", "\n\n", None, 5, 1.5, [], ["a", "b\nc"], {"a": 1},
        b"\xff\xfe", "esc \x1b[31mred", "größe 日本 \u202e \U0001f980", "l" * 300, "{0} {braces} }{",
        "tab\tand \x0b \x0c", "\x85nel \u2028 ls",
    ]
    for at, comment in enumerate(comments):
        yield f"comment-{at}", {named(): state(0, at % 2 == 0, {}, comment)}
    for field in ["comment", "changes", "result", "duration", "start_time", "name", "__run_num__",
                  "__id__", "__sls__"]:
        yield f"without-{field}", {named(): state(**{field: "<none>"}), named("b"): state(1)}
    yield "without-times", {named(): state(duration="<none>", start_time="<none>")}
    durations = [0, 5, 999, 1000, 1000.5, 123456.789, -1.5, "12.5", "12.5 ms", "soon", "", "1 ms x",
                 True, 0.0004, 1e17, float("inf"), float("nan"), " 7 ", "1_0"]
    for at, duration in enumerate(durations):
        yield f"duration-{at}", {named(): state(duration=duration), named("b"): state(1, False)}
        yield f"parallel-{at}", {
            named(): state(duration=duration, __parallel__=True),
            named("b"): state(1, duration=3, __parallel__=False), named("c"): state(2, duration=4),
        }
    for at, duration in enumerate([None, [], {}, b"\xff"]):
        yield f"odd-duration-{at}", {named(): state(duration=duration)}
    for at, start in enumerate(["", None, 5, ["a"], "größe"]):
        yield f"start-{at}", {named(): state(start_time=start)}
    for at, data in enumerate([[], ["a", 1, None], {}, {"k": "v", 1: [2]}, "text", 5, None, True]):
        yield f"data-{at}", {named(): state(data=data)}
    warnings = [["one"], ["a" * 100, "b c " * 40], [], "text", {"k": 1}, [1], None, 5,
                ["brace {0} and {6[name]}"], ["{"], ["}"], ["{nope}"], ["a-hyphenated-" * 12], ["a\nb\tc"],
                ["größe 日本 " * 20]]
    for at, warning in enumerate(warnings):
        yield f"warnings-{at}", {named(): state(0, at % 2 == 0, warnings=warning)}
    numbers = [[2, 0, 1], [1, 1, 1], [0.5, 0, True], ["b", "a", "c"], ["1", 1, 2], [None, None, 1],
               [[2], [1], [3]]]
    for at, order in enumerate(numbers):
        yield f"order-{at}", {named(f"m{i}"): state(n) for i, n in enumerate(order)}
    names = ["plain", "a_|-b", "a_|-b_|-c", "a_|-b_|-c_|-d_|-e", "", "_|-_|-_|-", "größe_|-日本_|-x_|-y",
             "esc\x1b[1m_|-\x1b_|-\x1b_|-f", "m_|-id_|-multi\nline_|-f", "changes"]
    for at, name in enumerate(names):
        yield f"name-{at}", {name: state(), named(): state(1)}
    for at, key in enumerate([1, None, b"\xff", 1.5, True]):
        yield f"odd-name-{at}", {key: state(0, False)}
    yield "not-states", {"a": 1, "b": "text", "c": None, "d": [], "e": {}}
    yield "unordered", {named(): {"result": True, "x": list(range(60))}, "changes": {"a": 1},
                        named("b"): {"y": "z" * 100}}
    yield "resources", {  # 3008's minion puts the states of its resources beside its own.
        named(): state(), named(id_="node1 motd", name="node1 /etc/motd"): state(1, False),
        "no_|-node2_|-node2_|-None": {
            "result": False, "comment": "no answer", "name": "node2", "changes": {}, "__run_num__": 2},
        "node3_|-a": {"result": True, "comment": "5", "name": "[node3]", "changes": {}, "__run_num__": 3},
    }
    yield "empty", {}
    yield "merged-name", {
        "cmd_|-many (3)_|-state_compressed_a_many_True_|-run": state(0, True, {"compressed changes": {
            "a": {"pid": 1}, "b": {"pid": 2}}}),
        "cmd_|-many_|-state_compressed_x_|-run": state(1),
        "cmd_|-m (2)\n_|-state_compressed_x_|-run": state(2, True, {"a": 1}),
    }
    yield "merged-name-odd", {"_|-state_compressed_x": state()}
    nested = {"web1": minion_run(), "web2": {}, "web3\x1b": ["broken", {"a": b"x"}], "web4": "out\nput",
              "web5": True, "web6": None}
    for at, name in enumerate(["state.sls", "state.orch", "state.orchestrate", "other"]):
        yield f"orchestration-{at}", {
            named("salt", "deploy", "deploy", "state"): state(
                0, False, {"ret": nested, "out": "highstate"}, name="deploy", __jid__="1"),
            named("salt", "inner", "inner", "runner"): state(
                1, True, {"data": {"master_master": minion_run()}, "retcode": 1}, name=name),
            named("salt", "call", "call", "function"): state(
                2, True, {"ret": {"web1": "text\nmore", "web2": 5, "web3": False}, "out": "highstate"}),
        }
    for at, changes in enumerate([{}, None, "text", 5, [], {"return": {"m": {}}}, {"m": minion_run()}]):
        yield f"inner-{at}", {named("salt", "inner", "inner", "runner"): state(
            0, True, changes, name="state.sls")}


def options_of(rng, mode):
    chosen = {"state_output": mode}
    if rng.random() < 0.4:
        chosen["state_verbose"] = False
    if rng.random() < 0.2:
        chosen["state_output_diff"] = True
    if rng.random() < 0.4:
        chosen["state_output_profile"] = False
    if rng.random() < 0.4:
        chosen["state_output_pct"] = True
    if rng.random() < 0.4:
        chosen["state_compress_ids"] = True
    if rng.random() < 0.2:
        chosen["strip_colors"] = False
    tabular = [
        True, True, "{0}{1:>20} {2}.{3} {4}{5}", "{0:>5}", "{6[comment]!r} {6[duration]:>9}", "{7}", "{x}",
        "{6[nope]}", "{", 1, "",
    ]
    if rng.random() < 0.5:
        chosen["state_tabular"] = rng.choice(tabular)
    lists = [["True"], ["False", "None"], "True,None", "", [], True, None, 5, {"True": 1}, [True]]
    if mode.startswith("filter"):
        for key in ("state_output_exclude", "state_output_terse"):
            if rng.random() < 0.6:
                chosen[key] = rng.choice(lists)
        if rng.random() < 0.4:
            chosen["arg"] = ["mods", {"__kwarg__": True, "exclude": rng.choice(lists)}]
        if rng.random() < 0.3:
            chosen["arg"] = [{"__kwarg__": True, "terse": rng.choice(lists)}]
    return chosen


WORDS = ["web", "größe", "日本", "a b", "x" * 70, "", "esc\x1b[1m", "line\nline", "tab\t", "-", "100%", "{0}"]


def text(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(4)))


def value(rng, depth=0):
    kind = rng.randrange(12 if depth < 3 else 9)
    if kind < 3:
        return text(rng)
    if kind < 9:
        return [None, True, False, rng.randrange(-5, 2000), rng.random() * 100, 1e16][kind - 3]
    if kind == 9:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {text(rng): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def random_run(rng):
    states = {}
    for number in range(rng.randrange(1, 7)):
        id_ = rng.choice(["motd", "many", "größe", text(rng)])
        module, function = rng.choice(["file", "pkg", "x" * 20]), rng.choice(["managed", "run", "y" * 15])
        changes = rng.choice([{}, {}, {"diff": DIFF}, {text(rng): value(rng)}])
        fields = {}
        if rng.random() < 0.1:
            fields["warnings"] = [text(rng) for _ in range(rng.randrange(3))]
        if rng.random() < 0.1:
            fields["__parallel__"] = True
        if rng.random() < 0.1:
            fields["data"] = value(rng)
        name = rng.choice([id_, "/etc/motd", text(rng)])
        states[named(module, id_, f"{name}{number}", function)] = state(
            rng.choice([number, 10 - number]), rng.choice([True, True, False, None]), changes,
            text(rng), __id__=id_, name=name, duration=round(rng.random() * rng.choice([1, 900]), 3),
            **fields)
    return states


def highstate(corpus):
    for name, run in runs():
        for at, mode in enumerate([None, *MODES]):
            rng = random.Random(f"{name} {mode}")
            if mode is None:
                corpus.add(f"{name}/default", "highstate", {"web1": run})
            elif rng.random() < 0.45:
                corpus.add(f"{name}/{at}", "highstate", {"web1": run}, **options_of(rng, mode))
    for name in ("mixed", "names", "orchestration-0", "orchestration-1", "warnings-1"):
        run = dict(runs())[name]
        for at, mode in enumerate(MODES * 3):
            rng = random.Random(f"more {name} {at}")
            corpus.add(f"{name}/more-{at}", "highstate", {"web1": run}, **options_of(rng, mode))
    for at in range(300):
        rng = random.Random(at)
        hosts = {f"{rng.choice(WORDS)}{host}": random_run(rng) for host in range(rng.randrange(1, 3))}
        corpus.add(f"random/{at}", "highstate", hosts, **options_of(rng, rng.choice(MODES)))
    run = minion_run()
    wrapped = [
        {"return": {"web1": run}}, {"data": {"web1": run}}, {"return": {"data": {"web1": run}}},
        {"data": {"web1": run}, "retcode": 1, "outputter": "highstate"},
        {"job": {"jid": "1", "fun": "f", "return": {"data": {"web1": run}}}},
        {"job": {"jid": "1", "fun": "f", "return": {"web1": run}}}, {"job": {"jid": "1", "fun": "f"}},
        {"job": {"jid": "1", "fun": "f", "return": "text"}}, {"web1": run, "web2": run, "web3\x1b[1m": {}},
        {"retcode": 0, "web1_master": run}, {"retcode": 1, "web1_master": run, "b_master": run},
        {"retcode": 1, "web1": run}, {"web1": run, 5: run}, {b"\xff": run}, {None: run},
        {"web1": ["Rendering SLS failed", "second\nline", "esc \x1b[31m", 5, None, {"a": b"x"}, []]},
        {"web1": [b"\xff"]}, {"web1": []}, {"web1": "text\nlines\x1b[1m\u2028x"}, {"web1": ""},
        {"web1": 5}, {"web1": True}, {"web1": False}, {"web1": None}, {"web1": 1.5}, {"web1": b"\xff"},
        {"web1": datetime.datetime(2026, 1, 2, 3, 4, 5, 6)}, {"web1": [datetime.datetime(2026, 1, 2)]},
        {}, [], "", "text  \n", 5, True, None, 1.5, b"\xff", ["a"], {"data": None}, {"return": 5},
        {"data": "text"}, {"größe 日本": run},
    ]
    for at, whole in enumerate(wrapped):
        corpus.add(f"whole/{at}", "highstate", whole)
        corpus.add(f"whole/{at}-terse", "highstate", whole, state_output="terse_id", strip_colors=False)
    theme = {"RED": "35", "GREEN": "1;36", "ENDC": "0", "nope": 5, "CYAN": 34}
    for mode in ("full", "terse"):
        corpus.add(f"theme/{mode}", "highstate", {"web1": run}, theme=theme, state_output=mode,
                   state_tabular="{0:>9}{1}{5:<3}")


KEYS = [
    {}, {"minions": []}, {"minions": ["b", "a", "größe", "esc\x1b[1m"]},
    {"minions": ["a"], "minions_pre": ["b"], "minions_rejected": [], "minions_denied": ["c"], "local": ["m.pem"]},
    {"minions": {"b": "aa:bb", "a": "cc"}, "local": {"master.pem": "dd", "x": None}},
    {"minions": {"a": {"deep": [1]}}}, {"other": ["a"]}, {"minions": "text"}, {"minions": None},
    {"minions": 5}, {"minions": [3, 1]}, {"minions": [3, "a"]}, {"minions": [b"\xff"]},
    {"minions": {b"\xff": 1}}, {"minions": {1: 2}}, {1: ["a"]}, [], "", "text", 5, None, True, ["a"],
    {"minions": [None]}, {"return": {"minions": ["a"]}}, {"minions": [""]}, {"local": []},
]
ROWS = [
    [], ["a", "b"], ["one text", "x" * 60, "a b " * 30], [["a", "b"], ["ccc", "d"]],
    [["a b " * 20, "x\ny\nz"], ["größe", "日本"]], [{"a_b": 1, "name": "x"}, {"a_b": 22, "name": None}],
    [{"k": "v"}, {"k": "long " * 20}], [{"a": 1, "b": 2}, {"a": 3}], [1, 2], [None], [True, False], [1.5],
    ["a", 1], [["a"], "b"], [[]], [{}], [["a", 1]], [{"a": [1, 2]}, {"a": {"x": b"y"}}], [["a"], ["b", "c"]],
    [{1: "a", "b": 2}], [{"a": "x\ny"}, {"a": ""}], [[""]], [b"\xff"], [["a  b", " "]],
    [{"ßtraße_x": 1, "ǆ": 2}], [datetime.datetime(2026, 1, 2, 3, 4, 5)],
    [{"at": datetime.datetime(2026, 1, 2, 3, 4, 5)}],
]
TABLES = [
    {}, {"out.table.separate_rows": False}, {"out.table.has_header": False},
    {"out.table.justify": "left", "out.table.delim": "  ", "out.table.prefix": "", "out.table.suffix": ""},
    {"out.table.justify": "right", "out.table.width": 10, "out.table.row_delimiter": "_="},
    {"out.table.nested_indent": 3, "out.table.rows_key": "rows", "out.table.title": "Title"},
    {"out.table.rows_key": "rows", "out.table.labels_key": "labels"}, {"out.table.labels_key": "labels"},
    {"out.table.separate_rows": False, "out.table.has_header": False, "out.table.rows_key": "out"},
]


def tables(corpus):
    for at, rows in enumerate(ROWS):
        whole = [
            {"web1": {"out": rows, "result": True, "comment": "x"}}, {"web1": rows}, rows,
            {"web1": {"rows": rows, "labels": ["l1", "label two"], "other": rows}},
            {"web1": {"deep": {"rows": rows, "labels": {"b": "B", "a": "A"}}}, "web2": {"rows": [["q"]]}},
        ]
        for which, shown in enumerate(whole):
            rng = random.Random(f"table {at} {which}")
            corpus.add(f"{at}/{which}", "table", shown)
            corpus.add(f"{at}/{which}-options", "table", shown, **rng.choice(TABLES))
    odd = [None, 5, True, "text", b"\xff", {}, {"a": 1}, {1: 2, "a": []}, {"a": {"b": {"c": ["x"]}}},
           {"rows": ["a"], "labels": "xy"}, {"rows": [["a", "b"]], "labels": "xy"},
           {"rows": [["a"]], "labels": 5}, {"rows": [["a"]], "labels": [1]}, {"rows": [["a"]], "labels": {}},
           {"labels": ["a"], "rows": "text"}]
    for at, shown in enumerate(odd):
        for which, options in enumerate(TABLES):
            corpus.add(f"odd-{at}/{which}", "table", shown, **options)


def profiles(corpus):
    for name, run in runs():
        corpus.add(name, "profile", {"web1": run})
    for at in range(20):
        rng = random.Random(f"profile {at}")
        corpus.add(f"random/{at}", "profile", {f"web{host}": random_run(rng) for host in range(2)},
                   **rng.choice(TABLES))
    for at, whole in enumerate([{}, [], "", "text", 5, None, {"web1": None}, {"web1": "ab"}, {"web1": ["x", "y"]},
                                {"web1": 5}, {"web1": []}, {"web1": {}}, {"web1": {"a": None, 5: "x"}},
                                {"web1": {"a": {"name": 5}}}, {"web1": {"a": {"name": None}}}, ["a"],
                                {"web1": {"a": {"name": "n" * 61}, "b": {"name": "m" * 60}}}]):
        corpus.add(f"whole/{at}", "profile", whole)


def runners(corpus):
    stages = [
        [], {}, "", [{"group": {"match": ["a", "b"], "sls": ["x"], "require": []}}], [{"a": {}, "b": {"k": "v"}}],
        [{}], ["text"], [1], {"a": 1}, 5, None, "text", [{"a": []}], [{"a": ""}], [{"a": "text"}], [{"a": None}],
        [{"a": {1: 2, "b": 3}}], [{5: {"größe": "日本\n"}}], [{"a": {"b": b"\xff"}}],
    ]
    for at, shown in enumerate(stages):
        corpus.add(str(at), "overstatestage", shown)
    vm = {
        "cpu": 2, "mem": 1024, "state": "running", "graphics": {"type": "vnc", "port": 5900},
        "disks": {"vda": {"disk size": "10G", "file": "/a", "file format": "qcow2"}},
        "nics": {"aa:bb": {"source": {"bridge": "br0"}, "type": "bridge"}},
    }
    def machines(**fields):
        info = {"vm_info": {"one": {**vm, **fields}, "two": {}}}
        return {"data": {"host": info}, "host": info}
    queries = [
        {}, {"data": {}}, {"data": {"host": {"vm_info": {}}}}, {"data": {"host": {"vm_info": {"one": vm}}}},
        machines(), machines(graphics={"type": "spice"}), machines(graphics={}), machines(graphics=None),
        machines(graphics={"type": "vnc"}), machines(disks={}), machines(disks={"a": {}}), machines(disks=[]),
        machines(nics={}), machines(nics=[]), machines(nics={"a": {"source": {}, "type": 1}}),
        machines(nics={"a": {"type": 1}}), machines(cpu=None, mem=[1], state={"a": "b"}), 5, None, "text", [],
        {"data": []}, {"data": None}, {"data": {"host": 5}}, {"data": {"host": {"vm_info": []}}},
    ]
    for at, shown in enumerate(queries):
        corpus.add(str(at), "virt_query", shown)


VALUES = [
    None, True, False, 0, -7, 2**63 + 5, 1.0, 0.1, 1e16, 1e-7, -0.0, float("inf"), float("nan"), "", "one",
    "one\ntwo", "a\r\nb\rc", "trail \n", "\n", "a\u2028b\x0bc\x1cd\x85e", "esc \x1b[31mred", "größe 日本 \U0001f980",
    b"\xff\xfe", b"text", [], [1], ["a", "b\nc"], [[1, 2], [3, [4, 5]]], [{"a": 1, "b": [1]}, {"c": {}}],
    [None, True, "x\ny"], {}, {"m1": True}, {"m1": {}}, {"m1": []}, {"m1": ""}, {"m1": None},
    {"m1": {"b": 1, "a": 2, "é": 3, "B": 4}}, {"m1": {10: "a", 9: "b"}}, {"m1": {10: "a", "9": "b", None: "c"}},
    {"m1": {True: "a", "x": "b"}}, {1.5: 1, 2: 2}, {b"\xff'q": 1}, {b"\xff": 1, "x": 2}, {"m1": "hello   \n\n"},
    {"m1": "tab\there \x1f"}, {"m1": "x" * 200}, {"m1": "word " * 40}, {"m1": ["a" * 90, "b" * 90]},
    {"m1": {"out": {"list": ["Hello"], "deep": {"er": [{"x": ["y", {"z": 1}]}]}}}}, {"m1": b"\xff"},
    {"m1": datetime.datetime(2026, 1, 2, 3, 4, 5, 6)}, {"m1": [b"\xff", {"k": b"\xfe"}]}, {"m1": "null"}, {"m1": "yes"},
    {"m1": "- a: b"}, {"m1": "1"}, {"m1": "a: b # c"}, {"m1": 1.0, "m2": "__no_return__"}, {"retcode": 1},
    {b"\xff'\"\n\\": 1}, {b"\xff": 1, b"\xfe": 2}, {"jid": "1"},
    {"m1": {"arg": [30], "fun": "test.sleep", "jid": "2016", "pid": 9601, "ret": ""}},
    {"m2": "Minion did not return. [No response]\nThe minions\n\nsalt-run jobs.lookup_jid 20"},
]


def others(corpus):
    for out in ("nested", "json", "yaml", "raw", "txt", "pprint", "no_return", "quiet", "newline_values_only"):
        for at, shown in enumerate(VALUES):
            rng = random.Random(f"{out} {at}")
            corpus.add(str(at), out, shown, retcode=at % 3)
            if out in ("json", "yaml", "pprint"):
                indent = rng.choice([0, 1, 2, -1, None, "pretty", "\t", True])
                corpus.add(f"{at}-indent", out, shown, output_indent=indent)
            if out == "nested":
                corpus.add(f"{at}-indent", out, shown, nested_indent=3, strip_colors=False)
        for at in range(30):
            rng = random.Random(f"{out} random {at}")
            corpus.add(f"random/{at}", out, {"web1": value(rng)}, strip_colors=rng.random() < 0.7)
    for at, shown in enumerate(KEYS):
        corpus.add(str(at), "key", shown)
        corpus.add(f"{at}-raw", "key", shown, strip_colors=False)


def printed(case, modules, themes):
    options = {**OPTIONS, **case["options"]}
    if case["theme"] is not None:
        options["color_theme"] = os.path.join(themes, "theme")
        with open(options["color_theme"], "w", encoding="utf-8") as file:
            json.dump(case["theme"], file)
    for module in modules.values():
        module.__opts__ = options
    value = salt.payload.loads(bytes.fromhex(case["value"]))
    try:
        return {"text": salt.output.out_format(value, case["out"], options, _retcode=case["retcode"])}
    except Exception as error:  # pylint: disable=broad-except
        return {"error": type(error).__name__, "left": salt.payload.dumps(value).hex()}


def main():
    modules = loaded()
    functions = {name: module.output for name, module in modules.items()}
    salt.loader.outputters = lambda options: functions
    corpus = Corpus()
    for part in (highstate, tables, profiles, runners, others):
        part(corpus)
    answers = []
    with tempfile.TemporaryDirectory() as themes:
        for case in corpus.cases:
            if case["out"] in functions:
                answers.append({**case, **printed(case, modules, themes)})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
