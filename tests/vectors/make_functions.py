#!/usr/bin/env python3
"""Renders templates that call functions, with stock: `PYTHON_OF_SALT make_functions.py ROOT [battery]`.

`ROOT` is a directory; the tree of `function_snippets.py` is made in its directory `tree`. The functions are
those that `salt.pillar.Pillar` loads on a master. What comes out is printed as JSON, with the
document that the templates were rendered on; `src/content/tests/functions_stock` runs this and
compares. Interfaces and disks differ from machine to machine, so nothing is kept.
"""

import inspect
import json
import logging
import multiprocessing
import pathlib
import re
import sys

logging.disable(logging.CRITICAL)

import battery
import function_snippets as given
import jinja2
import salt.config
import salt.pillar
import salt.utils.decorators.jinja
import salt.utils.jinja
import salt.utils.templates
from make_render import render_with

try:
    # Values of the pillar are shown as stars outside of a compilation, since 3008.
    import salt.utils.secret as secret
except ImportError:
    secret = None


def main():
    state = sys.argv[1] + "/state"
    root = sys.argv[1] + "/tree"
    for name, text in given.TREE.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
    opts = salt.config.master_config(None)
    opts.update(json.loads(json.dumps(given.OPTS).replace("ROOT", root)))
    opts.update(
        {
            "id": "salt.example.com_master", "root_dir": state, "cachedir": state + "/cache", "pki_dir": state + "/pki",
            "sock_dir": state + "/sock", "extension_modules": state + "/ext", "conf_file": state + "/master",
            "file_roots": {"base": [root + "/files"]}, "pillar_roots": {"base": [root + "/files"]},
        }
    )
    shown = {name: opts[name] for name in (*given.OPTS, "id", "file_roots")}
    pillar = salt.pillar.Pillar(opts, given.GRAINS, given.MINION, "base")
    pillar.functions.pack["__pillar__"].update(given.PILLAR)
    if secret is not None:
        secret.mask_pillar.set(False)
    # The releases do not agree whose id functions run with.
    shown["id"] = pillar.functions["config.get"]("id")
    # Some functions of stock change what they look into.
    document = {"grains": pairs(given.GRAINS), "pillar": pairs(given.PILLAR), "opts": shown, "rows": []}


    def render(text):
        context = {
            "opts": pillar.opts, "saltenv": "base", "sls": "site", "grains": given.GRAINS,
            "pillar": given.PILLAR, "salt": pillar.functions, "_pillar_rend": True,
        }
        return {"template": text, **render_with(text, context)}

    document["filters"], document["tests"], functions = names()
    if sys.argv[2:] == ["battery"]:
        salts = pathlib.Path(sys.argv[1], "functions").read_text(encoding="utf-8").split()
        rows = battery.templates(document["filters"], document["tests"], functions, salts)
        # Forked processes have what is loaded here, and the odd values change nothing of it.
        battery.render = render
        with multiprocessing.get_context("fork").Pool() as pool:
            document["rows"] = pool.map(as_list, rows, chunksize=100)
    else:
        document["rows"] = [render(snippet.replace("ROOT", root)) for snippet in given.SNIPPETS]
    print(json.dumps(document))


def as_list(row):
    """What stock prints; of a generator, whose address it prints, the list."""
    rendered = battery.render(row["template"])
    if re.match(r"<.* at 0x[0-9a-f]+>$", rendered.get("output", "")):
        rendered = battery.render(row["template"].removesuffix(" }}") + " | list }}")
        rendered["template"] = row["template"]
    return {**row, **rendered}


def names():
    """The filters, tests and global functions of Jinja2 with Salt's: those of its extension, those that decorators
    made, and those that are set where a template is rendered."""
    source = inspect.getsource(salt.utils.templates.render_jinja_tmpl)
    extension = salt.utils.jinja.SerializerExtension
    engine = jinja2.Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols", extension])
    decorators = salt.utils.decorators.jinja
    filters = {*engine.filters, *decorators.JinjaFilter.salt_jinja_filters, *re.findall(r'filters\["(\w+)"\]', source)}
    tests = {*engine.tests, *decorators.JinjaTest.salt_jinja_tests, *re.findall(r'tests\["(\w+)"\]', source)}
    functions = {*engine.globals, *decorators.JinjaGlobal.salt_jinja_globals, *re.findall(r'globals\["(\w+)"\]', source)}
    return sorted(filters), sorted(tests), sorted(functions)


def pairs(value):
    """Mappings as lists of pairs, because JSON has only texts as keys."""
    if isinstance(value, dict):
        return {"pairs": [[pairs(key), pairs(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [pairs(item) for item in value]
    return value


if __name__ == "__main__":
    main()
