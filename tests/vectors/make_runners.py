#!/usr/bin/env python3
"""Writes the names of the runner functions of stock Salt: `src/runners/src/stock_names.rs`.

    tests/vectors/make_runners.py SALT_3006 SALT_3007 SALT_3008

Each argument is the directory of the package `salt` of that line.  Nothing is imported: names come
from the syntax trees of `salt/runners`.
"""

import ast
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def names_of(path):
    """The module's name and its functions, under the names by which they are called."""
    tree = ast.parse(path.read_text())
    module, aliases, functions = path.stem, {}, set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            functions.add(node.name)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name == "__virtualname__" and isinstance(node.value, ast.Constant):
                module = node.value.value
            elif name == "__func_alias__":
                aliases = ast.literal_eval(node.value)
            elif not name.startswith("_") and isinstance(node.value, ast.Call):
                # `orch = salt.utils.functools.alias_function(orchestrate, …)`
                functions.add(name)
    return module, {aliases.get(name, name) for name in functions}


def main(packages):
    modules = {}
    for package in packages:
        for path in sorted(pathlib.Path(package, "runners").glob("*.py")):
            if path.stem != "__init__":
                module, functions = names_of(path)
                modules.setdefault(module, set()).update(functions - {"log"})
    out = [
        "//! The runner functions of stock's three lines, those of its modules in Python among them.",
        "//!",
        "//! Written by `tests/vectors/make_runners.py`; edit that, not this.",
        "",
        "/// Modules with the names of their functions, both sorted.",
        "#[rustfmt::skip]",
        "pub(crate) const STOCK_RUNNERS: &[(&str, &[&str])] = &[",
    ]
    for module in sorted(modules):
        line = '    ("%s", &[' % module
        for name in sorted(modules[module]):
            word = '"%s", ' % name
            if len(line + word) > 98:
                out.append(line.rstrip())
                line = "        "
            line += word
        out.append(line.rstrip().rstrip(",") + "]),")
    out.append("];")
    (ROOT / "src/runners/src/stock_names.rs").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) == 4 else sys.exit(__doc__)
