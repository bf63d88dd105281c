"""The dashboards as they are in dashboards/*.json, and what a Prometheus answers to their queries.

Shared by check.py, which asks whether a query has an answer, and by those that draw the answers.
"""

import json
import math
import pathlib
import re
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent

# Longest wait for one answer, in seconds.
PATIENCE = 30


def dashboards():
    return {path.stem: json.loads(path.read_text()) for path in sorted(HERE.glob("dashboards/*.json"))}


def fetch(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def answers(prometheus, expression, start, end, step, interval="1m"):
    """Each series that a query of a panel gives: its labels and its points, (time, value).

    `interval` is put where Grafana puts the time that a rate is taken over.
    """
    expression = expression.replace("$instance", ".*").replace("$__rate_interval", interval)
    query = {"query": expression, "start": start, "end": end, "step": step}
    url = f"http://{prometheus}/api/v1/query_range?{urllib.parse.urlencode(query)}"
    found = json.loads(fetch(url))["data"]["result"]
    return [(series["metric"], points_of(series)) for series in found]


def points_of(series):
    """Without the points that are no number: a quantile of nothing."""
    points = [(float(time), float(value)) for time, value in series["values"]]
    return [(time, value) for time, value in points if math.isfinite(value)]


def legend(pattern, labels):
    """What Grafana writes for a series: `{{label}}` becomes the label's value.

    None for the line at 0 (`or vector(0)`) of a query that names its series by labels.
    """
    if "{{" in pattern and not labels:
        return None
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), pattern)


def drawn(panel, prometheus, start, end, scrape):
    """A panel as picture.py takes it, over that time; `scrape` is the interval of Prometheus.

    The step is the one between two scrapes; rates are over the time that Grafana would take.
    """
    lines = []
    for target in panel["targets"]:
        series = answers(prometheus, target["expr"], start, end, scrape, f"{4 * scrape}s")
        lines += [(legend(target["legendFormat"], labels), points) for labels, points in series]
    named = [(name, points) for name, points in lines if name is not None]
    defaults = panel["fieldConfig"]["defaults"]
    return {
        "kind": panel["type"],
        "title": panel["title"],
        "unit": defaults["unit"],
        "lines": named or [("nothing yet", points) for _, points in lines[:1]],
        "stacked": defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
        "bad": next((step["value"] for step in defaults["thresholds"]["steps"] if step["value"]), None),
        "place": panel["gridPos"],
    }
