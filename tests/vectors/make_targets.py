#!/usr/bin/env python3
"""Takes known answers for `saltern_policy::matching` from stock Salt's `CkMinions`.

    PYTHON tests/vectors/make_targets.py [--seed N ...] [--questions N] [--out FILE]

PYTHON is the interpreter of an environment with Salt in it; its version decides the rules. Makes a
random fleet for each seed (accepted minions with and without cached data, cached data without an
accepted key; nested values, lists, numbers, booleans, texts in several scripts), asks stock random
questions about it and writes fleets, questions and answers as JSON. The same seed gives the same
questions.

The code that answers is stock's own; only what it reads from disk comes from memory here (the
cache, the list of keys), because thousands of questions would otherwise read millions of files.
"""

import argparse
import json
import logging
import os
import pathlib
import random
import re
import sys
import tempfile

import msgpack
import salt.key
import salt.utils.minions
import salt.version

HERE = pathlib.Path(__file__).resolve().parent
VERSION = salt.version.__version__
NEW_LAYOUT = VERSION.startswith("3008")


class Cache:
    """The minion data cache, in memory, in the banks of the version."""

    def __init__(self, data):
        self.data = data

    def list(self, bank):
        if bank == ("grains" if NEW_LAYOUT else "minions"):
            return [name for name, entry in self.data.items() if not NEW_LAYOUT or "grains" in entry]
        return []

    def fetch(self, bank, key):
        if NEW_LAYOUT:
            return self.data.get(key, {}).get(bank, {})
        return self.data.get(bank.split("/", 1)[1], {}) if key == "data" else {}


class KeyCache:
    def __init__(self, accepted):
        self.accepted = set(accepted)

    def fetch(self, bank, key):
        return {"state": "accepted"} if bank == "keys" and key in self.accepted else {}


class Keys(salt.key.Key):
    def __init__(self, accepted):  # pylint: disable=super-init-not-called
        self.accepted = accepted
        self.cache = KeyCache(accepted)

    def list_keys(self):
        return {"minions": list(self.accepted), "minions_pre": [], "minions_denied": []}

    def list_status(self, match):
        return {"minions": list(self.accepted)} if match == "accepted" else {}


class NoResources:
    def resolve_bare_resource_id(self, name):
        return None

    def get_resources_for_minion(self, name):
        return {}

    def get_resource_ids_by_type(self, name):
        return []


def checker(fleet, pki_dir):
    opts = {
        "minion_data_cache": True,
        "nodegroups": fleet["nodegroups"],
        "pki_dir": pki_dir,
        "key_cache": "",
        "transport": "zeromq",
    }
    check = salt.utils.minions.CkMinions.__new__(salt.utils.minions.CkMinions)
    check.opts = opts
    check.acc = "minions"
    check.pki_dir = pki_dir
    check.cache = Cache(fleet["data"])
    if NEW_LAYOUT:
        check.key = Keys(fleet["accepted"])
    return check


WORDS = ["Debian", "ubuntu", "RedHat", "web", "db", "größe", "Ünï", "日本", "a b", "x:y", "10.5", "",
         "True", "none", "it's", "[x]", "a.c", "UP"]
NAMES = ["os", "roles", "net", "cpus", "flags", "ver", "Mixed", "naïve", "1", "deep", "list", "a"]


def value(rng, depth):
    kind = rng.randrange(14 if depth else 9)
    if kind < 5:
        return rng.choice(WORDS)
    if kind == 5:
        return rng.choice([0, 1, 4, -7, 80, 2**40])
    if kind == 6:
        return rng.choice([True, False])
    if kind == 7:
        return rng.choice([1.5, 1.0, 1e20, 0.25, 3e-7])
    if kind == 8:
        return None
    if kind < 11:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return tree(rng, depth - 1, rng.randrange(4))


def key(rng):
    return rng.choice(NAMES) if rng.random() < 0.9 else rng.choice([1, 80, True, 1.5])


def tree(rng, depth, size):
    return {key(rng): value(rng, depth) for _ in range(size)}


def addresses(rng):
    v4 = [f"10.{rng.randrange(2)}.{rng.randrange(3)}.{rng.randrange(4)}" for _ in range(rng.randrange(3))]
    v6 = [f"2001:db8:{rng.randrange(2)}::{rng.randrange(1, 4)}" for _ in range(rng.randrange(3))]
    return {"ipv4": ["127.0.0.1"] + v4, "ipv6": ["::1", "fe80::1"][: rng.randrange(3)] + v6}


def fleet(rng):
    ids = [f"{kind}{n}" for kind in ("web", "db", "app-") for n in range(1, 9)]
    ids += ["größe1", "host.example.com", "Web1", "a,b", "x[1]"]
    accepted = sorted(name for name in ids if rng.random() < 0.85)
    data = {}
    for name in ids:
        if rng.random() < 0.85:
            grains = tree(rng, 3, rng.randrange(9))
            if rng.random() < 0.8:
                grains.update(addresses(rng))
            data[name] = {"grains": grains if rng.random() < 0.95 else {}}
            if rng.random() < 0.8:
                data[name]["pillar"] = tree(rng, 3, rng.randrange(7))
    groups = {
        "webs": "web*",
        "pair": ["web1", "db1"],
        "text": "web1 web2 ghost",
        "regex": ["web[12]", "db."],
        "mixed": "N@pair or ( G@os:Debian and not db* )",
        "deep": ["N@mixed", "and", "not", "N@webs"],
        "loop": "N@pool or db1",
        "pool": "N@loop and web*",
        "plain": "web* or db*",
        "stranger": "N@nobody or web1",
        "none": [],
    }
    return {"accepted": accepted, "data": data, "nodegroups": groups}


def path(rng, data):
    """A walk into the data: names or indices, then a text for what is there."""
    parts = []
    while isinstance(data, (dict, list)) and data and rng.random() < 0.9:
        if isinstance(data, dict):
            name = rng.choice(list(data))
            parts.append(str(name))
            data = data[name]
        else:
            index = rng.randrange(len(data))
            if rng.random() < 0.5:
                parts.append(str(index if rng.random() < 0.7 else index - len(data)))
            data = data[index]
    if not isinstance(data, (dict, list)) or rng.random() < 0.3:
        parts.append(str(data))
    return parts


def mutate(rng, part, regex):
    choice = rng.randrange(12)
    if choice == 0:
        return "*"
    if choice == 1:
        return part.upper()
    if choice == 2 and part:
        return part[: rng.randrange(len(part) + 1)] + (".*" if regex else "*")
    if choice == 3 and part:
        at = rng.randrange(len(part))
        return part[:at] + ("." if regex else "?") + part[at + 1 :]
    if choice == 4:
        return rng.choice(NAMES + WORDS)
    if choice == 5:
        return rng.choice(["[a-z]*", "[!a]*", "(", "[", "x|d", "yes", "~", "'os'", "1_0", "+1", "^", "\\w+$"])
    return part


def data_expression(rng, fleet, bank, regex, delimiter):
    entries = [entry[bank] for entry in fleet["data"].values() if entry.get(bank)]
    parts = path(rng, rng.choice(entries)) if entries else ["os", "x"]
    if regex:
        parts = parts[:-1] + [re.escape(part) if rng.random() < 0.7 else part for part in parts[-1:]]
    parts = [mutate(rng, part, regex) if rng.random() < 0.35 else part for part in parts]
    if rng.random() < 0.1:
        parts.insert(rng.randrange(len(parts) + 1), "*")
    return delimiter.join(parts)


def glob(rng, fleet):
    text = rng.choice(fleet["accepted"] + ["ghost", "*", "web*", "db?", "[wd]*", "*1", "w*,db1", "a,b", "[!w]*"])
    return mutate(rng, text, False) if rng.random() < 0.2 else text


def pcre(rng, fleet):
    return rng.choice(["web[12]", "db", ".*1$", "(?!web)", "w(eb|x)\\d", "(", "größe\\d", "app-[0-4]", "^d", "", "x\\["])


def names(rng, fleet):
    return ",".join(rng.choice(fleet["accepted"] + ["ghost", "web9", "", "*"]) for _ in range(rng.randrange(1, 5)))


def network(rng, fleet):
    return rng.choice([
        "10.0.0.1", "10.1.1.0/24", "10.0.0.0/8", "10.0.0.1/8", "10.0.0.0/255.255.0.0", "10.1.0.0/0.0.255.255",
        "0.0.0.0/0", "127.0.0.1", "2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::2", "::1", "fe80::/10",
        "10.0.0", "x", "::/0", "2001:DB8::1", "10.0.0.1/32", "010.0.0.1", "10.1.2.3/x",
    ])


def word(rng, fleet):
    engine = rng.choice("GGGPPIIJELLSNN" + ("M" if NEW_LAYOUT else "") + "    ")
    if engine in "GPIJ":
        given = rng.choice(["", "", "", "|", "/"])
        bank = "grains" if engine in "GP" else "pillar"
        text = data_expression(rng, fleet, bank, engine in "PJ", given or ":")
        return f"{engine}{given}@{text}".replace(" ", "?")
    if engine == " ":
        return rng.choice([glob(rng, fleet)] * 12 + ["Q@x", "G@", "L@", "N@nobody", "@"])
    make = {"E": pcre, "L": names, "S": network, "M": glob}.get(engine)
    return f"{engine}@" + (make(rng, fleet) if make else rng.choice(list(fleet["nodegroups"])))


def compound(rng, fleet, depth=3):
    parts = []
    for index in range(rng.randrange(1, 4)):
        if index:
            parts.append(rng.choice(["and", "or"] if rng.random() < 0.95 else ["", "not", "and or"]))
        if rng.random() < 0.25:
            parts.append("not")
        if depth and rng.random() < 0.25:
            parts.append("( " + compound(rng, fleet, depth - 1) + " )")
        else:
            parts.append(word(rng, fleet))
    if rng.random() < 0.04:
        parts.insert(rng.randrange(len(parts) + 1), rng.choice(["and", "or", "not", "(", ")", "( )"]))
    return " ".join(parts)


def question(rng, fleet):
    kind = rng.choice(["grain"] * 4 + ["grain_pcre"] * 2 + ["pillar"] * 3 + ["pillar_pcre", "pillar_exact"]
                      + ["compound"] * 8 + ["compound_pillar_exact"] * 2
                      + ["glob", "pcre", "list", "ipcidr", "ipcidr", "nodegroup"])
    delimiter = ":"
    if kind.startswith(("grain", "pillar")):
        delimiter = rng.choice([":", ":", ":", "|", "::", "/"])
        text = data_expression(rng, fleet, kind.split("_")[0].replace("grain", "grains"), "pcre" in kind, delimiter)
    elif kind.startswith("compound"):
        text = compound(rng, fleet)
    elif kind == "nodegroup":
        text = rng.choice(list(fleet["nodegroups"]) + ["nobody"])
    else:
        text = {"glob": glob, "pcre": pcre, "list": names, "ipcidr": network}[kind](rng, fleet)
    return kind, text, delimiter, rng.random() < 0.7


def ask(seed, questions):
    rng = random.Random(seed)
    site = fleet(rng)
    accepted = set(site["accepted"])
    with tempfile.TemporaryDirectory() as pki_dir:
        os.mkdir(os.path.join(pki_dir, "minions"))
        for name in accepted:
            pathlib.Path(pki_dir, "minions", name).touch()
        check = checker(site, pki_dir)
        answers = []
        for _ in range(questions):
            kind, text, delimiter, greedy = question(rng, site)
            answer = check.check_minions(text, kind, delimiter=delimiter, greedy=greedy)
            # The listed difference: only minions with an accepted key are ever found.
            minions = sorted(set(answer["minions"]) & accepted)
            # As numbers of the sorted list of accepted minions: the file stays small.
            numbers = [site["accepted"].index(name) for name in minions]
            answers.append([kind, text, delimiter, greedy, numbers, sorted(set(answer["missing"]))])
    return {
        "seed": seed,
        "accepted": site["accepted"],
        "nodegroups": site["nodegroups"],
        "data": msgpack.packb(site["data"], use_bin_type=True).hex(),
        "questions": answers,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--questions", type=int, default=500, help="for each seed")
    parser.add_argument("--out", help="a file; - for standard output", default=str(HERE / "targets.json"))
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if NEW_LAYOUT:
        salt.utils.minions.CkMinions.registry = NoResources()
    result = {"version": VERSION, "fleets": [ask(seed, args.questions) for seed in args.seed]}
    # One line for each question, so that a change is one line in a diff.
    text = json.dumps(result, ensure_ascii=False).replace('[["', '[\n["').replace("]], [", "]],\n[")
    text = text.replace('"], ["', '"],\n["').replace("]], [\"", "]],\n[\"") + "\n"
    assert json.loads(text) == result
    if args.out == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(args.out).write_text(text, encoding="utf-8")


main()
