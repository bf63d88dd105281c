"""Stock's side of the comparison: compiles the pillars of all cases, and prints them with their types.

Reads a list of cases as JSON from standard input: `conf` is a master's configuration file, the
rest is what a minion asks with; or `merge` has two mappings, a strategy and whether lists are
merged. What stock raises is printed as the name of the exception.
"""

import json
import logging
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import salt.config
import salt.pillar
import salt.utils.dictupdate


def shown(value):
    """A value with its type, so that JSON loses neither the type nor the order."""
    if value is None:
        return ["none"]
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        return ["float", repr(value)]
    if isinstance(value, str):
        return ["str", value]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, dict):
        return ["map", [[shown(key), shown(item)] for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return ["list", [shown(item) for item in value]]
    return ["other", type(value).__name__]


def parsed(text):
    return None if text is None else json.loads(text)


def merged(base, update, strategy, merge_lists):
    return salt.utils.dictupdate.merge(
        parsed(base), parsed(update), strategy, "yaml", merge_lists
    )


def compiled(case):
    if "merge" in case:
        return merged(*case["merge"])
    opts = salt.config.master_config(case["conf"])
    pillar = salt.pillar.Pillar(
        opts,
        parsed(case["grains"]),
        case["minion"],
        case["saltenv"],
        ext=parsed(case["ext"]),
        pillar_override=parsed(case["override"]),
        pillarenv=case["pillarenv"],
    )
    return pillar.compile_pillar()


def main():
    answers = []
    for case in json.load(sys.stdin):
        try:
            answers.append({"pillar": shown(compiled(case))})
        except Exception as error:  # stock's own faults are what the cases ask for
            answers.append({"raised": f"{type(error).__name__}: {error}"})
    json.dump(answers, sys.stdout)


main()
