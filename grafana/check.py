#!/usr/bin/env python3
"""Checks the dashboards, the alerts and the runbooks; with a running demo also against real data.

    grafana/check.py            files: generated, complete, valid, and what the rules do with made-up series
    grafana/check.py --schema   the same, and the dashboards against the types that Grafana publishes
    grafana/check.py --live     the same, and against what `make grafana` started: every query of every
                                panel has an answer, every metric has a panel, every name exists

Prometheus comes from tests/install-stock.sh --prometheus.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

import boards

HERE = pathlib.Path(__file__).resolve().parent
SDK = pathlib.Path.home() / ".cache/saltern/tools/grafana-sdk"
SDK_VERSION = "1769699998!10.1.0"

# Metrics of ours begin so; those of the process have the names of Prometheus' client libraries.
NAME = re.compile(r"\b((?:saltern|process)_[a-z_]+)\b")
SUFFIX = re.compile(r"_(bucket|sum|count)$")

# Longest that anything below may take, in seconds.
PATIENCE = 300


def run(*command, **more):
    return subprocess.run(command, cwd=HERE, check=False, text=True, capture_output=True, **more)


def complaints_of(command, result):
    if result.returncode == 0:
        return []
    return [f"{command}:\n{result.stdout}{result.stderr}"]


def promtool(*arguments, **more):
    tools = run("../tests/install-stock.sh", "--prometheus").stdout.strip()
    return run(f"{tools}/promtool", *arguments, **more)


def queries():
    """Each query with the dashboard, the panel and its place."""
    for name, board in boards.dashboards().items():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{name}: {panel['title']}: {target['refId']}", target["expr"]


def alert_names(text):
    return set(re.findall(r"- alert: (\w+)", text))


def check_files():
    found = complaints_of("dashboards.py", run("./dashboards.py", "--check"))
    for arguments in (("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml"),
                      ("test", "rules", "alerts_test.yml")):
        found += complaints_of(" ".join(arguments), promtool(*arguments))
    alerts = alert_names((HERE / "alerts.yml").read_text())
    runbooks = {path.stem for path in HERE.glob("runbooks/*.md")}
    tested = set(re.findall(r'alertname="(\w+)"', (HERE / "alerts_test.yml").read_text()))
    for what, names in (("a runbook", runbooks), ("a test", tested)):
        found += [f"the alert {name} has no {what[2:]}" for name in sorted(alerts - names)]
        found += [f"there is {what} for {name}, and no such alert" for name in sorted(names - alerts)]
    shown = {path.stem for path in HERE.glob("pictures/*.svg")}
    found += [f"the dashboard {name} has no picture: make story" for name in boards.dashboards() if name not in shown]
    for path in HERE.glob("runbooks/*.md"):
        linked = re.findall(r"\]\((\w+)\.md\)", path.read_text())
        found += [f"{path.name} links {name}, which is not there" for name in linked if name not in runbooks]
    return found


def check_schema():
    """Through the types that Grafana publishes and back, without losing anything."""
    python = SDK / "bin/python"
    if not python.exists():
        base = run("../tests/install-stock.sh", "--python").stdout.strip()
        run(base, "-m", "venv", str(SDK))
        installed = run(str(SDK / "bin/pip"), "install", "--quiet", "--disable-pip-version-check",
                        f"grafana-foundation-sdk=={SDK_VERSION}")
        if installed.returncode != 0:
            return complaints_of("pip install grafana-foundation-sdk", installed)
    return complaints_of("schema", run(str(python), "schema.py"))


def has_answer(prometheus, expression):
    """Over the last minutes."""
    now = time.time()
    return bool(boards.answers(prometheus, expression, now - 300, now, 5))


def check_live(demo):
    prometheus = (demo / "watch/address").read_text().strip()
    config = (demo / "conf/master").read_text()
    master = re.search(r"^saltern_metrics_address: (\S+)", config, re.MULTILINE)[1]
    scraped = boards.fetch(f"http://{master}/metrics")
    # A name for the whole that ends in _count, _sum and the like is a mistake that only it finds.
    found = complaints_of("check metrics", promtool("check", "metrics", input=scraped))
    families = set(re.findall(r"^# TYPE (\S+) ", scraped, re.MULTILINE))
    asked = {}
    for place, expression in queries():
        for name in NAME.findall(expression):
            asked.setdefault(SUFFIX.sub("", name) if SUFFIX.sub("", name) in families else name, place)
    rules = {SUFFIX.sub("", name) for name in NAME.findall((HERE / "alerts.yml").read_text())}
    unseen = families - set(asked)
    found += [f"{name} is on no panel" for name in sorted(unseen) if NAME.fullmatch(name)]
    found += [f"{place}: there is no metric {name}" for name, place in asked.items()
              if name not in families and f"{name}_total" not in families and not may_be_absent(name, scraped)]
    found += [f"alerts.yml: there is no metric {name}" for name in sorted(rules)
              if name not in families and name not in asked and not may_be_absent(name, scraped)]
    return found + empty_panels(prometheus)


def may_be_absent(name, _):
    """Counters with labels that nothing was counted for yet; their queries say `or vector(0)`."""
    using = [expression for _, expression in queries() if name in expression]
    return bool(using) and all("vector(0)" in expression for expression in using)


def empty_panels(prometheus):
    """Asks until every query has an answer: rates take two scrapes."""
    missing = dict(queries())
    until = time.time() + PATIENCE
    while missing and time.time() < until:
        missing = {place: query for place, query in missing.items() if not has_answer(prometheus, query)}
        if missing:
            time.sleep(2)
    return [f"{place} is empty: {query}" for place, query in missing.items()]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--schema", action="store_true")
    arguments.add_argument("--live", action="store_true")
    chosen = arguments.parse_args()
    found = check_files()
    if chosen.schema:
        found += check_schema()
    demo = pathlib.Path(os.environ.get("DEMO", HERE.parent / ".demo"))
    if chosen.live:
        found += check_live(demo)
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    count = sum(1 for _ in queries())
    print(f"{len(boards.dashboards())} dashboards with {count} queries, "
          f"{len(alert_names((HERE / 'alerts.yml').read_text()))} alerts: all is well")


if __name__ == "__main__":
    main()
