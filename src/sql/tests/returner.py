"""Calls functions of one of stock's returners, as its master does, and prints what each returned.

Reads {"name": RETURNER, "opts": {…}, "calls": [[FUNCTION, ARGUMENT, …], …]} from its input.
"""

import json
import sys

import salt.config
import salt.loader

question = json.load(sys.stdin)
opts = salt.config.master_config("/nonexistent")
opts.update(question["opts"])
returners = salt.loader.returners(opts, {})


def call(function, *arguments):
    name = f"{question['name']}.{function}"
    if name not in returners:
        return "no such function"
    try:
        return returners[name](*arguments)
    except Exception as error:  # What stock fails of is compared too.
        return f"{type(error).__name__}"


json.dump([call(*one) for one in question["calls"]], sys.stdout)
