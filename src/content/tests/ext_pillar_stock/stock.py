"""What stock Salt's external pillars give, for tests/ext_pillar_stock/mod.rs.

Reads {"config": path of a master's file, "cases": [...]} as JSON from the standard input, where a
case has "options" (of the master, as YAML), "minion", "grains", "saltenv", "pillarenv" and "pillar". Writes
a list of {"pillar": ..., "errors": ...}; bytes are {"hex": ...}.
"""

import copy
import json
import logging
import sys

import salt.config
import salt.loader
import salt.pillar
import salt.utils.yaml

logging.disable(logging.CRITICAL)


def as_json(value):
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value


def main():
    asked = json.load(sys.stdin)
    base = salt.config.master_config(asked["config"])
    answers = []
    for case in asked["cases"]:
        opts = copy.deepcopy(base)
        opts.update(salt.utils.yaml.safe_load(case["options"]))
        pillar = salt.pillar.Pillar(
            opts,
            case["grains"],
            case["minion"],
            case["saltenv"],
            pillarenv=case["pillarenv"],
        )
        errors = []
        data, errors = pillar.ext_pillar(copy.deepcopy(case["pillar"]), errors)
        answers.append({"pillar": as_json(data), "errors": errors})
    json.dump(answers, sys.stdout)


main()
