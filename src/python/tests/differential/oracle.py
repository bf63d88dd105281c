"""CPython's side of the differential test: one question in JSON on standard input, one answer out.

A question is a list of jobs, `[function, arguments…]`; an answer is the list of their results, an
error being `{"error": text}`. Values arrive tagged, because JSON has neither bytes nor NaN.
"""

import fnmatch
import json
import posixpath
import pprint
import re
import shlex
import signal
import sys
import textwrap
import unicodedata
import warnings

import yaml

warnings.simplefilter("ignore")
signal.alarm(300)


def value(tagged):
    kind, inner = tagged
    if kind == "float":
        return float.fromhex(inner)
    if kind == "int":
        return int(inner)
    if kind == "bytes":
        return bytes(inner)
    if kind == "list":
        return [value(item) for item in inner]
    if kind == "tuple":
        return tuple(value(item) for item in inner)
    if kind == "set":
        return {value(item) for item in inner}
    if kind == "dict":
        return {value(key): value(item) for key, item in inner}
    return inner


def dumps(tagged, ascii, sort, indent):
    return json.dumps(value(tagged), ensure_ascii=ascii, sort_keys=sort, indent=indent)


def letters(test):
    """The ranges of characters for which a test holds, as of all that are text."""
    ranges = []
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code < 0xE000 or not test(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def matches(expression, texts):
    compiled = re.compile(expression)
    return [[bool(compiled.match(text)), bool(compiled.fullmatch(text))] for text in texts]


def spans(expression, ignore_case, multiline, texts):
    flags = (re.I if ignore_case else 0) | (re.M if multiline else 0)
    found = [re.compile(expression, flags).search(text) for text in texts]
    return [found and [found.group(0), *found.groups()] for found in found]


def safe_dump(tagged, flow, indent):
    return yaml.dump(value(tagged), Dumper=yaml.CSafeDumper, allow_unicode=True,
                     default_flow_style=flow, indent=indent)


def fill(text, width, initial, subsequent):
    wrapper = textwrap.TextWrapper(width=width, initial_indent=" " * initial,
                                   subsequent_indent=" " * subsequent)
    return wrapper.fill(text)


def formatted(template, arguments):
    try:
        return template.format(*map(value, arguments))
    except (IndexError, KeyError, AttributeError, TypeError, ValueError) as error:
        return {"error": type(error).__name__}


FUNCTIONS = {
    "pformat": lambda tagged, indent: pprint.pformat(value(tagged), indent=indent),
    "safe_dump": safe_dump,
    "fill": fill,
    "format": formatted,
    "title": str.title,
    "center": str.center,
    "round": lambda text, digits: round(float.fromhex(text), digits).hex(),
    "repr": lambda tagged: repr(value(tagged)),
    "str": lambda tagged: str(value(tagged)),
    "dumps": dumps,
    "float": lambda text: float(text).hex(),
    "int": lambda text, base: str(int(text, base)),
    "split": str.split,
    "splitlines": str.splitlines,
    "strip": str.strip,
    "rstrip": str.rstrip,
    "shlex": shlex.split,
    "quote": shlex.quote,
    "normpath": posixpath.normpath,
    "join": posixpath.join,
    "dirname": posixpath.dirname,
    "fnmatch": lambda pattern, texts: [fnmatch.fnmatchcase(text, pattern) for text in texts],
    "matches": matches,
    "spans": spans,
    "spaces": lambda: letters(str.isspace),
    "line_ends": lambda: letters(lambda c: len((c + "x").splitlines()) == 2),
    "unprintable": lambda: letters(lambda c: not c.isprintable()),
    "unassigned": lambda: letters(lambda c: unicodedata.category(c) == "Cn"),
    "digits": lambda: [[ord(c), unicodedata.decimal(c)]
                       for c in map(chr, range(sys.maxunicode + 1))
                       if unicodedata.decimal(c, None) is not None],
}

answers = []
for function, *arguments in json.load(sys.stdin):
    try:
        answers.append(FUNCTIONS[function](*arguments))
    except (re.error, ArithmeticError, ValueError, TypeError, RecursionError) as error:
        answers.append({"error": str(error)})
json.dump(answers, sys.stdout)
