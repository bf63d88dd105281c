#!/usr/bin/env python3
"""Writes the options of stock's shipped `conf/master`, every line uncommented.

    tests/vectors/make_master_conf.py SDIST_3006 SDIST_3007 SDIST_3008

Each argument is the `tar.gz` of that line of Salt (`pip download salt==VERSION --no-binary salt
--no-deps`): the wheels have no `conf/master`.  The result is `tests/vectors/master_conf.json`: for
each version a list of pairs of a name and a value, in the order of the file; an option that is
shown more than once is there more than once.  Texts are not kept.
"""

import json
import pathlib
import re
import sys
import tarfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

OPTION = re.compile(r"^#?\s?([a-z_][A-Za-z0-9_.]*):(?:\s+(.*))?$")
MORE = re.compile(r"^#(\s{2,}\S.*|\s*-\s.*)$")


def parsed(text):
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def options_of(lines):
    found = []
    for place, line in enumerate(lines):
        match = OPTION.match(line)
        if not match:
            continue
        block = [line.lstrip("#").strip()]
        for more in lines[place + 1 :]:
            if not MORE.match(more):
                break
            block.append(" " + more[1:])
        # Prose that looks like an option is no YAML, or is followed by more prose.
        value = parsed("\n".join(block))
        if not isinstance(value, dict):
            value = parsed(block[0])
        if isinstance(value, dict) and len(value) == 1:
            ((name, value),) = value.items()
            if name == match.group(1):
                found.append([name, value])
    return found


def main(archives):
    result = {}
    for archive in archives:
        version = re.search(r"salt-([\d.]+)\.tar", archive).group(1)
        with tarfile.open(archive) as tar:
            lines = tar.extractfile(f"salt-{version}/conf/master").read().decode().splitlines()
        result[version] = options_of(lines)
    target = ROOT / "tests/vectors/master_conf.json"
    target.write_text(json.dumps(result, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) == 4 else sys.exit(__doc__)
