"""Takes each dashboard through the types that Grafana publishes, and back; run by check.py --schema.

What the types do not know would be lost on the way: so a misspelt or misplaced field is found.
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(before, after, path):
    """The places whose value did not come back."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                # The types leave out what is nothing.
                if value not in (None, [], {}, "", False):
                    yield f"{path}.{key}"
            else:
                yield from lost(value, after[key], f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after)):
            yield from lost(*pair, f"{path}[{index}]")
    elif before != after:
        yield f"{path}: {before!r} became {after!r}"


def main():
    register_default_plugins()
    found = []
    for path in sorted(pathlib.Path("dashboards").glob("*.json")):
        before = json.loads(path.read_text())
        typed = Dashboard.from_json(before)
        after = json.loads(JSONEncoder(sort_keys=True, indent=2).encode(typed))
        found += [f"{path.name}: {place}" for place in lost(before, after, "")]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
