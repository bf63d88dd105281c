"""
Reads command lines as JSON, gives each to stock's own parser, and prints what became of it.

Nothing is configured: the parsers get an empty configuration, and no logging is set up.
"""

import contextlib
import io
import json
import optparse
import os
import sys
import tempfile

import salt.config
import salt.utils.parsers as parsers

PARSERS = {
    "salt": parsers.SaltCMDOptionParser,
    "salt-key": parsers.SaltKeyOptionParser,
    "salt-run": parsers.SaltRunOptionParser,
    "salt-cp": parsers.SaltCPOptionParser,
    "salt-master": parsers.MasterOptionParser,
}
RAN = []
READ = []
PARSE = optparse.OptionParser.parse_args


def parse(self, args=None, values=None):
    options, rest = PARSE(self, args, values)
    READ.append((dict(vars(options)), list(rest)))
    return options, rest


def nothing(*_args, **_kwargs):
    return None


def prepare():
    parsers.LogLevelMixIn._LogLevelMixIn__setup_logging_routines = nothing
    parsers.salt._logging.setup_temp_handler = nothing
    parsers.salt.utils.process.appendproctitle = nothing
    parsers.salt.utils.args.parse_input = lambda args, **_kwargs: args
    optparse.OptionParser.parse_args = parse
    salt.config.master_config = lambda _path: {}
    for cls in PARSERS.values():
        cls.setup_config = lambda self: {}
        cls.print_versions_report = lambda self: self.exit(0)
        # Parsers add to these lists of their classes.
        RAN.append((cls._mixin_after_parsed_funcs, list(cls._mixin_after_parsed_funcs)))


def outcome(program, words):
    for live, fresh in RAN:
        live[:] = fresh
    READ.clear()
    sys.argv = [program]
    sys.stdin = io.StringIO("")
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            parser = PARSERS[program]()
            parser.parse_args(list(words))
    except SystemExit as end:
        lines = [line for line in err.getvalue().splitlines(True) if not line.startswith("WARNING: CONFIG")]
        return {"code": end.code or 0, "stderr": "".join(lines), "helped": out.getvalue().startswith("Usage: ")}
    # As the command line gave them, before stock makes more of them.
    values = {}
    for dest, value in READ[-1][0].items():
        if value != parser.defaults.get(dest):
            if type(value) is int:
                # Ours are of 64 bits.
                value = max(-(2**63), min(2**63 - 1, value))
            values[dest] = value
    args = [word for _, words in READ for word in words]
    given = {name: parser.config[name] for name in ("tgt", "fun", "arg", "dest") if name in parser.config}
    return {"values": values, "args": args, "given": given}


def main():
    lines = json.load(sys.stdin)
    os.environ.pop("SALT_SALTFILE", None)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["HOME"] = folder
        prepare()
        answers = [outcome(program, words) for program, words in lines]
        defaults = {}
        for program, cls in PARSERS.items():
            sys.argv = [program]
            values = cls().defaults.items()
            defaults[program] = {d: v for d, v in values if isinstance(v, (bool, int, float, str))}
        os.chdir("/")
    json.dump({"answers": answers, "defaults": defaults}, sys.stdout)


if __name__ == "__main__":
    main()
