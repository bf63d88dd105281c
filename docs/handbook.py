#!/usr/bin/env python3
"""Builds the handbook: `make docs`.

Puts the pages together in target/handbook: those of docs/, and those that stand beside what they are about
(runbooks, differences, the map). Links to files of the source tree that are no page become their names. Then
MkDocs builds target/docs, in its strict form, and no page of it may load anything from a foreign host.
Runs in the Python that `tests/install-stock.sh --mkdocs` installed.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "target/handbook"
SITE = ROOT / "target/docs"

# Pages that stand elsewhere, with their places in the handbook.
ELSEWHERE = {
    "README.md": None,
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "grafana/README.md": "grafana/README.md",
    "packaging/README.md": "packaging.md",
    "src/saltern/TOP.md": "top.md",
}

# The differences, in the order of the one page that they make: heading, the file, and a name for links.
DIFFERENCES = [
    ("Commands", "src/cli/DIFFERENCES.md"),
    ("Output", "src/output/DIFFERENCES.md"),
    ("Answers to minions and clients", "src/requests/DIFFERENCES.md"),
    ("Transports", "src/wire/DIFFERENCES.md"),
    ("Renderers and pillars", "src/content/DIFFERENCES.md"),
    ("File server", "src/content/src/files/DIFFERENCES.md"),
    ("Runners and wheels", "src/runners/DIFFERENCES.md"),
    ("Reactor, schedule, engines", "src/automation/DIFFERENCES.md"),
    ("Modules in Python", "src/bridge/DIFFERENCES.md"),
    ("salt-api", "src/netapi/DIFFERENCES.md"),
    ("Streams of events over HTTP", "src/netapi/src/stream/DIFFERENCES.md"),
    ("Hooks", "src/netapi/src/hook/DIFFERENCES.md"),
    ("SQL returners", "src/sql/DIFFERENCES.md"),
]

# In its place stands the table of alerts.
RUNBOOKS = "<!-- runbooks -->"

# Behind it, the page has the names of the files whose contents the handbook has there.
TABLE = "<!-- differences -->"

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def slug(text):
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", text.lower()).strip())


def pages():
    """Each file of the repository that is a page or a picture, with its place in the handbook."""
    found = {}
    for path in sorted((ROOT / "docs").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and path.suffix in (".md", ".svg", ".png", ".css", ".js"):
            found[name] = name.removeprefix("docs/")
    for directory, kind in [("grafana/runbooks", "*.md"), ("grafana/pictures", "*.svg")]:
        for path in sorted((ROOT / directory).glob(kind)):
            name = path.relative_to(ROOT).as_posix()
            found[name] = name
    for name, place in ELSEWHERE.items():
        if (ROOT / name).exists():
            found[name] = place or "README.md"
    for heading, name in DIFFERENCES:
        found[name] = f"differences.md#{slug(heading)}"
    return found


def linked(text, source, place, found):
    """The text of a page with its links as the handbook has them."""
    here = os.path.dirname(place)

    def link(match):
        label, target = match.groups()
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return match.group(0)
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if path in ("docs", "docs/decisions", "grafana"):
            path += "/README.md"
        if path in found:
            to, _, own = found[path].partition("#")
            to = os.path.relpath(to, here or ".")
            anchor = anchor or own
            return f"[{label}]({to}{'#' + anchor if anchor else ''})"
        if not (ROOT / path).exists():
            return match.group(0)
        return label if path in label else f"{label} (`{path}`)"

    out, fence = [], None
    for line in text.splitlines():
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and (fence is None or line.strip() == fence):
            fence = None if fence else mark.group(1)
        if fence is None and not line.startswith("<!-- handbook:"):
            # What stands in backticks is no link.
            parts = re.split(r"(`[^`]*`(?!\]))", line)
            if len(parts) > 1 and any(re.search(r"\[[^\]]*$", part) for part in parts):
                parts = [line]
            line = "".join(part if part.startswith("`") else LINK.sub(link, part) for part in parts)
        if not line.startswith("<!-- handbook:"):
            out.append(line)
    return "\n".join(out) + "\n"


def differences(found):
    """All differences on one page; a heading of a file goes one or two levels down."""
    there = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("src/**/DIFFERENCES.md")}
    unknown = there ^ {name for _, name in DIFFERENCES}
    if unknown:
        sys.exit(f"handbook: DIFFERENCES of docs/handbook.py and the tree differ in {sorted(unknown)}")
    head = (ROOT / "docs/differences.md").read_text("utf-8").split(TABLE)[0]
    parts = [linked(head, "docs/differences.md", "differences.md", found)]
    for heading, name in DIFFERENCES:
        text = linked((ROOT / name).read_text("utf-8"), name, "differences.md", found)
        first, _, rest = text.partition("\n")
        deeper = re.sub(r"^(#+) (.*)$", lambda m: f"#{'#' * len(m[1])} {m[2]}", rest, flags=re.M)
        parts.append(f"## {heading}\n\n*{first.removeprefix('# ')}* (`{name}`)\n{deeper}")
    return "\n".join(parts)


def runbooks(place, found):
    """The table of alerts, by the runbooks, for the page at this place."""
    rows = ["| alert | it says |", "| --- | --- |"]
    for path in sorted((ROOT / "grafana/runbooks").glob("*.md")):
        first = path.read_text("utf-8").split("\n\n")[1].replace("\n", " ")
        source = path.relative_to(ROOT).as_posix()
        rows.append(linked(f"| [{path.stem}]({path.name}) | {first} |", source, place, found).rstrip())
    return "\n".join(rows)


def put_together():
    shutil.rmtree(PAGES, ignore_errors=True)
    found = pages()
    for source, place in found.items():
        if "#" in place or source == "README.md":
            continue
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if not source.endswith(".md"):
            shutil.copyfile(ROOT / source, target)
            continue
        text = linked((ROOT / source).read_text("utf-8"), source, place, found)
        if RUNBOOKS in text:
            text = text.replace(RUNBOOKS, runbooks(place, found))
        target.write_text(text, "utf-8")
    (PAGES / "differences.md").write_text(differences(found), "utf-8")


class Resources(HTMLParser):
    """Collects what a page loads by itself."""

    def __init__(self):
        super().__init__()
        self.urls = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        loads = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "object": "data"}
        # A page may say what its address is; that loads nothing.
        if tag in loads and attributes.get("rel") not in ("canonical", "prev", "next"):
            self.urls.append(attributes.get(loads[tag]) or "")


def foreign():
    """What pages and style sheets load from other hosts."""
    found = set()
    for path in SITE.rglob("*"):
        if path.suffix == ".html":
            parser = Resources()
            parser.feed(path.read_text("utf-8"))
            urls = parser.urls
        elif path.suffix == ".css":
            urls = re.findall(r"url\(['\"]?([^)'\"]+)", path.read_text("utf-8"))
        else:
            continue
        found |= {f"{path.relative_to(SITE)}: {url}" for url in urls if re.match(r"(https?:)?//", url)}
    return sorted(found)


def main():
    put_together()
    mkdocs = Path(sys.executable).parent / "mkdocs"
    command = [mkdocs, "build", "--strict", "--clean", "--config-file", ROOT / "docs/mkdocs.yml"]
    # Not with --quiet, which has its strict form pass over warnings.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    built = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if built.returncode:
        sys.exit(f"{built.stdout}\nhandbook: MkDocs refuses it")
    # For search engines, with the date of the build: the package shall not depend on that.
    for sitemap in SITE.glob("sitemap.xml*"):
        sitemap.unlink()
    hosts = foreign()
    if hosts:
        sys.exit("handbook: loaded from foreign hosts:\n" + "\n".join(hosts))
    print(f"handbook: {sum(1 for _ in SITE.rglob('*.html'))} pages in {SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
