"""
Writes tests/vectors/nested.json: values and what stock Salt's own outputters print for them.

Run it with the Python of an installed stock Salt:

    ~/.cache/saltern/stock/3008.3/bin/python src/output/tests/make_vectors.py

Values are stored packed (hex of msgpack), since JSON has neither bytes nor integer keys.
"""

import json
import os
import sys

import msgpack

import salt.output.nested as nested
import salt.output.no_return as no_return
import salt.payload
import salt.version

VALUES = [
    None, True, False, 0, -7, 2**63 + 5, 1.0, 0.1, 1e16, 1e-7, -0.0, float("inf"),
    "", "one", "one\ntwo", "a\r\nb\rc", "trail \n", "\n", "a\u2028b\x0bc\x1cd\x85e",
    "esc \x1b[31mred", "\u00fcmlaut \u65e5\u672c", b"\xff\xfe", b"text",
    [], [1], ["a", "b\nc"], [[1, 2], [3, [4, 5]]], [{"a": 1, "b": [1]}, {"c": {}}],
    [None, True, "x\ny"], {}, {"m1": True}, {"m1": {}}, {"m1": []}, {"m1": ""}, {"m1": None},
    {"m1": {"b": 1, "a": 2, "\u00e9": 3, "B": 4}}, {"m1": {10: "a", 9: "b"}},
    {"m1": {10: "a", "9": "b", None: "c"}}, {"m1": {True: "a", "x": "b"}}, {1.5: 1, 2: 2},
    {b"\xff'q": 1}, {b"\xff'\"\n\\": 1}, {b"\xff": 1, b"\xfe": 2}, {b"\xff": 1, "x": 2},
    {"m1": "hello   \n\n"}, {"m1": "tab\there \x1f"}, {"jid": "1"},
    {"m1": {"pid": 3, "out": {"list": ["Hello"], "deep": {"er": [{"x": ["y", {"z": 1}]}]}}}},
    {"m1": {"arg": [30], "fun": "test.sleep", "jid": "2016", "pid": 9601, "ret": ""}},
    {"m2": "Minion did not return. [No response]\nThe minions\n\nsalt-run jobs.lookup_jid 20"},
]
STYLES = [
    {"color": color, "strip_colors": strip, "retcode": retcode, "indent": indent}
    for color in (False, True)
    for strip, retcode, indent in ((True, 0, 0), (True, 2, 0), (False, 0, 3))
]


def main():
    rows = []
    for value in VALUES:
        # What arrives is what stock's own reader makes of the packed bytes.
        packed = msgpack.packb(value, use_bin_type=True)
        seen = salt.payload.loads(packed)
        for style in STYLES:
            opts = {
                "color": style["color"],
                "strip_colors": style["strip_colors"],
                "nested_indent": style["indent"],
            }
            nested.__opts__ = opts
            text = nested.output(seen, _retcode=style["retcode"])
            rows.append({"value": packed.hex(), "style": style, "out": "nested", "text": text})
        for color in (False, True):
            no_return.__opts__ = {"color": color}
            style = {"color": color, "strip_colors": True, "retcode": 0, "indent": 0}
            if isinstance(seen, dict) and all(isinstance(key, str) for key in seen):
                try:
                    text = no_return.output(seen)
                except TypeError:
                    # It sorts keys that cannot be compared; stock falls back to nested then.
                    continue
                row = {"value": packed.hex(), "style": style, "out": "no_return", "text": text}
                rows.append(row)
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "vectors", "nested.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as out:
        json.dump({"salt": salt.version.__version__, "rows": rows}, out, indent=0)
        out.write("\n")
    print(f"{len(rows)} rows by Salt {salt.version.__version__} in {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
