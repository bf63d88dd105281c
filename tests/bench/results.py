"""The results of the benchmarks: each script adds its figures to those that are there.

results.json is the record; results.md, results.svg and, for the results of this directory, the
tables of docs/performance.md and README.md are made from it.
"""

import json
import pathlib
import resource

from report import write_markdown, write_pages, write_svg

KINDS = ("stock", "saltern")
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def add_arguments(parser, only=KINDS):
    """The arguments of a script that adds to the results; `only` are the masters it can run alone."""
    parser.add_argument("--only", choices=only)
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where results.* are")


def kinds(options):
    """The masters to measure."""
    return [options.only] if options.only else list(KINDS)


def raise_descriptor_limit():
    """Both ends of each connection are on this machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def load(out, stock_version):
    """The results of earlier runs."""
    path = out / "results.json"
    return json.loads(path.read_text()) if path.exists() else {"stock": stock_version}


def of_master(results, kind):
    """The figures of one master, to be added to."""
    return results.setdefault("masters", {}).setdefault(kind, {"fleets": {}, "capped": []})


def write(results, out, with_table=True):
    """Writes the record, and what is made of it; gives the table, if there is one."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    # Without the figures of run.py there is no table to add to.
    if "site" not in results or not with_table:
        return None
    write_markdown(results, out / "results.md")
    write_svg(results, out / "results.svg")
    table = (out / "results.md").read_text()
    if out == HERE:
        write_pages(table, ROOT, has_storm="storm" in results)
    return table
