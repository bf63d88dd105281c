#!/usr/bin/env python3
"""Prints what stock Salt makes of master configurations, for `src/config/tests/master_stock.rs`.

    PYTHON_OF_SALT tests/vectors/options_master.py --version
    PYTHON_OF_SALT tests/vectors/options_master.py DIR...

For each directory with a file `master`: one line of JSON with all options that JSON can hold.
"""

import json
import sys

import salt.config
import salt.utils.job
import salt.version


def plain(value):
    try:
        json.dumps(value)
        return value
    except TypeError:
        return repr(value)


def main(arguments):
    if arguments == ["--version"]:
        print(salt.version.__version__)
        return
    for directory in arguments:
        opts = salt.config.master_config(directory + "/master")
        row = {name: plain(opts[name]) for name in opts}
        row["effective_keep_jobs"] = salt.utils.job.get_keep_jobs_seconds(opts)
        print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1:])
