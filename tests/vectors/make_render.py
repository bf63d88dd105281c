#!/usr/bin/env python3
"""Writes what stock Salt makes of many templates: `render.json`.

    PYTHON_OF_SALT_3008 tests/vectors/make_render.py

Each row is a template with what stock's `render_jinja_tmpl` prints, or the class of the error it
raises. Rows with `data` also hold what stock's YAML loader reads from the output. The test
`src/content/tests/render_stock.rs` compares our renderer with them; the differences it allows are
those in `src/content/DIFFERENCES.md`.
"""

import json
import pathlib
import tempfile

import jinja2
import salt.exceptions
import salt.utils.files
import salt.utils.templates
import salt.utils.yaml
from render_snippets import FILES, GRAINS, PILLAR, SNIPPETS

WORDS = (
    ("Jinja variable ", "undefined"),
    ("Jinja syntax error: ", "syntax"),
    ("Problem running salt function", "function"),
    ("Jinja error: ", "other"),
)


def functions():
    """The functions that the test gives its templates too."""

    def refuse(*args):
        raise salt.exceptions.CommandExecutionError("refused")

    def get(key, default=""):
        value = PILLAR
        for part in key.split(":"):
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    return {"test.echo": lambda text: text, "test.refuse": refuse, "pillar.get": get}


class Table(dict):
    """`salt.mod.fun` beside `salt['mod.fun']`, as stock's loader has it."""

    def __getattr__(self, name):
        found = {key: fun for key, fun in self.items() if key.startswith(name + ".")}
        if not found:
            raise AttributeError(name)
        return type("LoadedMod", (), {k.split(".")[1]: staticmethod(v) for k, v in found.items()})


def render(text, opts):
    context = {
        "opts": opts,
        "saltenv": "base",
        "sls": "site.web",
        "grains": GRAINS,
        "pillar": PILLAR,
        "salt": Table(functions()),
        "_pillar_rend": True,
        "tpldir": "site",
        "tplfile": "site/web.sls",
    }
    return render_with(text, context)


def render_with(text, context):
    """What stock prints, or the class of its error."""
    try:
        return {"output": salt.utils.templates.render_jinja_tmpl(text, context)}
    except salt.exceptions.SaltRenderError as error:
        message = str(error)
        for start, word in WORDS:
            if message.startswith(start):
                return {"error": word, "message": message.splitlines()[0]}
        raise
    except (TypeError, AttributeError) as error:
        # Stock fails to find the line of some errors, and then reports that failure instead.
        cause = error.__context__
        if isinstance(cause, jinja2.exceptions.UndefinedError):
            return {"error": "undefined", "message": str(cause)}
        if isinstance(
            cause,
            (
                jinja2.exceptions.TemplateRuntimeError,
                jinja2.exceptions.TemplateSyntaxError,
                jinja2.exceptions.SecurityError,
            ),
        ):
            return {"error": "syntax", "message": str(cause)}
        return {"error": "other", "message": str(cause)}


def main():
    here = pathlib.Path(__file__).parent
    with tempfile.TemporaryDirectory() as root:
        for name, text in FILES.items():
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with salt.utils.files.fopen(str(path), "w") as handle:
                handle.write(text)
        rows = []
        for snippet in SNIPPETS:
            text, settings = snippet if isinstance(snippet, tuple) else (snippet, {})
            opts = {
                "cachedir": root + "/cache",
                "file_client": "local",
                "file_roots": {"base": [root]},
                "pillar_roots": {"base": [root]},
                "fileserver_backend": ["roots"],
                "hash_type": "sha256",
                "extension_modules": "",
                "file_buffer_size": 262144,
                "fileserver_ignoresymlinks": False,
                "file_ignore_regex": [],
                "file_ignore_glob": [],
                "fileserver_followsymlinks": True,
                **settings,
            }
            row = {"template": text, **({"opts": settings} if settings else {})}
            row.update(render(text, opts))
            rows.append(row)
    document = {"files": FILES, "grains": GRAINS, "pillar": PILLAR, "rows": rows}
    target = here / "render.json"
    with salt.utils.files.fopen(str(target), "w") as handle:
        json.dump(document, handle, indent=1, ensure_ascii=False)
        handle.write("\n")
    print(len(rows), "rows,", sum("error" in row for row in rows), "errors")


if __name__ == "__main__":
    main()
