#!/usr/bin/env python3
"""Compares the versions in Cargo.lock with the advisories of RustSec, from a snapshot kept here.

    tests/advisories.py                the check: part of `make vet`, needs no network
    tests/advisories.py --read CLONE   writes the snapshot anew, from a clone of DATABASE, then checks
    tests/advisories.py --self-check   tests of this file

The snapshot is supply-chain/advisories.toml: ids, dates and ranges of versions, no text of an advisory, and the
names of all crates that were looked at. A crate that is not among them fails the check, so that none comes in
without a look. So does a locked version that an advisory affects, of whatever kind, unless an exception with a
reason names that version; and an exception that is needed no more. An advisory for another platform counts as
one for ours.

The check is as old as its snapshot, whose date it prints. It never fails because of its age: the same sources
give the same result on any day.
"""

import argparse
import datetime
import itertools
import operator
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import tomllib
except ImportError:
    sys.exit("tests/advisories.py needs Python 3.11 or later, which reads TOML")

ROOT = pathlib.Path(__file__).resolve().parent.parent
SNAPSHOT = "supply-chain/advisories.toml"
PAGE = "docs/security.md"
LOCKS = ["Cargo.lock", "tests/schemata/Cargo.lock"]
DATABASE = "https://github.com/rustsec/advisory-db"

# What an advisory is called that names no kind of its own.
VULNERABILITY = "vulnerability"
KINDS = [VULNERABILITY, "unsound", "unmaintained", "notice"]

# An advisory gets its number when it is accepted; proposals are 0000.
ID = re.compile(r"RUSTSEC-[1-9]\d{3}-\d{4}")
VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*(\S+)")

# What each entry has; an advisory may be withdrawn as well, and an exception has a reason.
FIELDS_OF_HEAD = operator.itemgetter("date", "newest")
FIELDS = operator.itemgetter("crate", "id", "date", "kind", "patched", "unaffected")
NAME = operator.itemgetter("crate", "id", "version")

HEADER = """\
# What RustSec says of the crates in Cargo.lock, as facts: ids, dates and versions. tests/advisories.py compares
# them with Cargo.lock (`make vet`) and writes this file anew where the database can be reached (--read), comments
# left out. docs/security.md says what it is worth.
"""


class Malformed(Exception):
    """What is written cannot be understood."""


def parse(text):
    """The parts of a version: its numbers, of which there may be less than three, and its pre-release."""
    found = VERSION.fullmatch(text)
    if not found:
        raise Malformed(f'"{text}" is no version')
    numbers = tuple(int(part) for part in found.groups()[:3] if part is not None)
    return numbers, found[4]


def order(numbers, pre=None):
    """A key by which versions are ordered as semantic versioning says: a pre-release is before its release."""
    filled = numbers + (0,) * (3 - len(numbers))
    if pre is None:
        return filled, ((2, 0, ""),)
    parts = ((0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre.split("."))
    return filled, tuple(parts)


def above(numbers, index):
    """The first release in which the number at this place is larger."""
    return order(numbers[:index] + (numbers[index] + 1,))


def satisfies(version, sign, bound):
    """Whether a version is in the range of one comparator, as Cargo reads it."""
    (numbers, pre), (wanted, wanted_pre) = version, bound
    have, low = order(numbers, pre), order(wanted, wanted_pre)
    is_whole, last = len(wanted) == 3, len(wanted) - 1
    if sign == ">=":
        return have >= low
    if sign == "<":
        return have < low
    if sign == ">":
        return have > low if is_whole else have >= above(wanted, last)
    if sign == "<=":
        return have <= low if is_whole else have < above(wanted, last)
    if sign == "=":
        return have == low if is_whole else low <= have < above(wanted, last)
    if sign == "~":
        return low <= have < above(wanted, min(last, 1))
    leading = next((index for index, number in enumerate(wanted) if number), last)
    return low <= have < above(wanted, leading)


def matches(version, requirement):
    """Whether a version meets a requirement (">= 0.4.8, < 1.0.0"), as Cargo reads it."""
    parsed, bounds = parse(version), []
    if len(parsed[0]) != 3:
        raise Malformed(f'"{version}" is no whole version')
    for part in requirement.split(","):
        found = COMPARATOR.fullmatch(part.strip())
        if not found:
            raise Malformed(f'"{requirement}" is no requirement')
        bounds.append((found[1] or "^", parse(found[2])))
    # Cargo takes a pre-release only where a comparator names one of the same release. Beside one that is not whole
    # ("< 2") its rules are odd: then it counts as outside, and somebody looks.
    is_named = any(of == parsed[0] and pre for _, (of, pre) in bounds)
    if parsed[1] is not None and not (is_named and all(len(of) == 3 for _, (of, _) in bounds)):
        return False
    return all(satisfies(parsed, sign, bound) for sign, bound in bounds)


def affects(advisory, version):
    """Whether an advisory is about this version: as RustSec has it, all are that are not said to be safe."""
    safe = advisory["patched"] + advisory["unaffected"]
    return "withdrawn" not in advisory and not any(matches(version, requirement) for requirement in safe)


def locked():
    """The crates from crates.io that are locked, each as its name and version."""
    found = set()
    for lock in LOCKS:
        packages = tomllib.loads((ROOT / lock).read_text())["package"]
        found |= {(package["name"], package["version"]) for package in packages if "source" in package}
    return found


def tests_only():
    """The crates that `cargo vet` lets into tests alone, each as its name and version."""
    exemptions = tomllib.loads((ROOT / "supply-chain/config.toml").read_text())["exemptions"]
    return {
        (name, entry["version"])
        for name, entries in exemptions.items()
        for entry in entries
        if entry["criteria"] == "safe-to-run"
    }


def advice(crate, advisory):
    """The sentence on what to do about an advisory."""
    if advisory["patched"]:
        return f"`cargo update -p {crate}` to a version that is patched ({' or '.join(advisory['patched'])})"
    return "no version is patched: do without the crate"


def crate_problems(looked_at, names):
    for name in sorted(names - set(looked_at)):
        yield (
            f"{name} is locked, and nobody has looked for advisories of it: look into crates/{name} of {DATABASE}, then "
            f'write its name under "crates" of {SNAPSHOT} and each advisory under "advisories" (CONTRIBUTING.md, "Structure")'
        )
    for name in sorted(set(looked_at) - names):
        yield f'{name} is locked no more: remove it from "crates" of {SNAPSHOT}, and its advisories'
    for name in sorted({name for name in looked_at if looked_at.count(name) > 1}):
        yield f'{name} stands under "crates" of {SNAPSHOT} more than once'


def entry_problems(advisories, looked_at):
    seen = set()
    for advisory in advisories:
        crate, number = advisory["crate"], advisory["id"]
        if not ID.fullmatch(number) or advisory["kind"] not in KINDS:
            yield f"{number} of {crate}: the id or the kind is none that RustSec has"
        if crate not in looked_at:
            yield f'{number} is of {crate}, which does not stand under "crates" of {SNAPSHOT}'
        if (crate, number) in seen:
            yield f"{number} of {crate} stands in {SNAPSHOT} more than once"
        seen.add((crate, number))


def exception_problems(exceptions, affected, for_tests):
    for exception in exceptions:
        crate, number, version = of = NAME(exception)
        if of not in affected:
            yield f"the exception for {crate} {version} of {number} is needed no more: remove it from {SNAPSHOT}"
        if not exception.get("reason", "").strip():
            yield f"the exception for {crate} {version} of {number} has no reason"
        if exception.get("tests_only") and (crate, version) not in for_tests:
            yield (
                f"the exception for {crate} {version} of {number} says that only tests have the crate, but "
                f"supply-chain/config.toml takes it as more than safe-to-run"
            )


def problems(snapshot, crates, for_tests):
    """What is wrong, a sentence each."""
    yield from crate_problems(snapshot["crates"], {name for name, _ in crates})
    yield from entry_problems(snapshot["advisories"], snapshot["crates"])
    excepted, affected = {NAME(exception) for exception in snapshot["exceptions"]}, set()
    for advisory, (crate, version) in itertools.product(snapshot["advisories"], sorted(crates)):
        number = advisory["id"]
        try:
            if crate != advisory["crate"] or not affects(advisory, version):
                continue
        except Malformed as error:
            yield f"{number} of {crate}: {error}"
            continue
        affected.add((crate, number, version))
        if (crate, number, version) not in excepted:
            yield (
                f"{crate} {version} is affected by {number} ({advisory['kind']}, {advisory['date']}): "
                f"{advice(crate, advisory)}; or say in an exception of {SNAPSHOT} why it does no harm here"
            )
    yield from exception_problems(snapshot["exceptions"], affected, for_tests)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def written(value):
    """A value as TOML has it, on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(written(entry) for entry in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime.date) else quoted(value)


def rendered(snapshot):
    """The file of a snapshot."""
    lines = [HEADER, "[snapshot]"]
    lines += [f"{key} = {written(value)}" for key, value in snapshot["snapshot"].items()]
    for exception in snapshot["exceptions"]:
        lines += ["", "[[exceptions]]"] + [f"{key} = {written(value)}" for key, value in exception.items()]
    lines += ["", "[facts]", "advisories = ["]
    for advisory in sorted(snapshot["advisories"], key=lambda advisory: (advisory["crate"], advisory["id"])):
        lines.append("    { " + ", ".join(f"{key} = {written(value)}" for key, value in advisory.items()) + " },")
    lines += ["]", "crates = ["]
    lines += [f"    {quoted(name)}," for name in sorted(snapshot["crates"])]
    return "\n".join(lines + ["]", ""])


def loaded(text):
    """The snapshot of a file."""
    try:
        read = tomllib.loads(text)
        facts, exceptions = read["facts"], read.get("exceptions", [])
        FIELDS_OF_HEAD(read["snapshot"])
        for advisory in facts["advisories"]:
            FIELDS(advisory)
        for exception in exceptions:
            NAME(exception)
    except tomllib.TOMLDecodeError as error:
        raise Malformed(f"{SNAPSHOT}: {error}") from error
    except KeyError as error:
        raise Malformed(f"{SNAPSHOT}: an entry lacks {error}") from error
    return {"snapshot": read["snapshot"], "crates": facts["crates"], "advisories": facts["advisories"], "exceptions": exceptions}


def fact(text):
    """What is kept of an advisory's file, which begins with its facts as TOML."""
    found = re.match(r"```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    if not found:
        raise Malformed("the advisory does not begin with its facts")
    read = tomllib.loads(found[1])
    about, versions = read["advisory"], read["versions"]
    facts = {
        "crate": about["package"],
        "id": about["id"],
        "date": datetime.date.fromisoformat(about["date"]),
        "kind": about.get("informational", VULNERABILITY),
    }
    if "withdrawn" in about:
        facts["withdrawn"] = datetime.date.fromisoformat(about["withdrawn"])
    return facts | {"patched": versions.get("patched", []), "unaffected": versions.get("unaffected", [])}


def read_clone(clone, date, crates, exceptions):
    """The snapshot of a clone of the database, for these crates."""
    files = [path for path in (clone / "crates").glob("*/RUSTSEC-*.md") if ID.fullmatch(path.stem)]
    if not files:
        raise Malformed(f'"{clone}" is no clone of {DATABASE}')
    names, advisories = {name for name, _ in crates}, []
    for path in sorted(files):
        if path.parent.name in names:
            try:
                advisories.append(fact(path.read_text()))
            except (Malformed, KeyError, ValueError) as error:
                raise Malformed(f"{path}: {error}") from error
    newest = max(path.stem for path in files)
    head = {"database": DATABASE, "date": date, "newest": newest, "read": datetime.date.today()}
    return {"snapshot": head, "crates": sorted(names), "advisories": advisories, "exceptions": exceptions}


def commit_date(clone):
    """The day of the last commit, which is the age of what is read."""
    command = ["git", "-C", str(clone), "log", "-1", "--format=%cs"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode:
        raise Malformed(f'git knows no commit of "{clone}": {ran.stderr.strip()}')
    return datetime.date.fromisoformat(ran.stdout.strip())


def keep_added(snapshot, before):
    """Keeps the entries of locked crates that the clone lacks: somebody who knew them already added them by hand."""
    known = {(advisory["crate"], advisory["id"]) for advisory in snapshot["advisories"]}
    added = [
        advisory
        for advisory in before["advisories"]
        if advisory["crate"] in snapshot["crates"] and (advisory["crate"], advisory["id"]) not in known
    ]
    snapshot["advisories"] += added
    return added


def renew(clone):
    """Writes the snapshot anew, from a clone of the database."""
    before, date = loaded((ROOT / SNAPSHOT).read_text()), commit_date(clone)
    if date < before["snapshot"]["date"]:
        raise Malformed(f'"{clone}" is of {date}, and the snapshot of {before["snapshot"]["date"]}')
    snapshot = read_clone(clone, date, locked(), before["exceptions"])
    for advisory in keep_added(snapshot, before):
        print(f"advisories: {advisory['id']} of {advisory['crate']} is not in the clone, and kept", file=sys.stderr)
    (ROOT / SNAPSHOT).write_text(rendered(snapshot))


ADVISORY = """\
```toml
[advisory]
id = "RUSTSEC-2030-0002"
package = "cork"
date = "2030-02-03"
informational = "unsound"

[versions]
patched = ["^0.3.1", ">= 1.2.0"]
```

# A title
"""


class Advisories(unittest.TestCase):
    """Each kind of violation is planted and found."""

    SAFE = ("cork", "1.2.0")
    AFFECTED = ("cork", "1.1.9")

    def snapshot(self, **changed):
        whole = {"snapshot": {}, "crates": ["cork"], "advisories": [fact(ADVISORY)], "exceptions": []}
        return whole | changed

    def exception(self, **changed):
        return {"crate": "cork", "id": "RUSTSEC-2030-0002", "version": "1.1.9", "reason": "not called"} | changed

    def found(self, lock, for_tests=frozenset(), **changed):
        return list(problems(self.snapshot(**changed), set(lock), for_tests))

    def assert_one(self, found, words):
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_requirement_is_read_as_cargo_reads_it(self):
        table = [
            (">= 0.4.8, < 1.0.0-0", "0.4.8 0.9.0", "0.4.7 1.0.0 1.1.0"),
            ("< 0.10.0, >= 0.9.18", "0.9.18", "0.9.17 0.10.0"),
            ("^0.3.24", "0.3.24 0.3.99", "0.3.23 0.4.0 1.3.24"),
            ("^ 0.3.1", "0.3.1", "0.4.2"),
            ("^0.0.3", "0.0.3", "0.0.2 0.0.4"),
            ("^0.0", "0.0.9", "0.1.0"),
            ("^0", "0.9.9", "1.0.0"),
            ("1.2", "1.2.0 1.9.0", "1.1.9 2.0.0"),
            ("0.13.10", "0.13.10 0.13.11", "0.13.9 0.14.0"),
            ("=0.2.6", "0.2.6", "0.2.5 0.2.7"),
            ("= 0.2", "0.2.0 0.2.9", "0.1.9 0.3.0"),
            ("<= 0.22", "0.21.0 0.22.9", "0.23.0"),
            ("<= 0.5.11", "0.5.11", "0.5.12"),
            ("> 0.22", "0.23.0", "0.22.0 0.22.9"),
            ("> 0.22.1", "0.22.2", "0.22.1"),
            ("< 0.12", "0.11.9", "0.12.0"),
            ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
            ("~1", "1.0.0 1.9.0", "2.0.0"),
            (">= 0", "0.0.0 7.0.0", ""),
            (">=0.3.20", "0.3.20 0.10.0", "0.3.3"),
            # A pre-release is before its release, and counts only where one of the same release is named.
            (">= 0.3.0-rc.2", "0.3.0-rc.2 0.3.0-rc.10 0.3.0 0.4.0", "0.3.0-rc.1 0.4.0-rc.1"),
            ("< 0.104.0-alpha.1", "0.103.0 0.104.0-alpha", "0.104.0-alpha.1 0.104.0-beta 0.103.0-alpha.1"),
            (">= 0.14.0", "0.14.7+wasi-0.2.4", "0.14.0-rc.1"),
            (">= 1.2.0-rc.1, < 2", "1.2.0 1.9.0", "1.2.0-rc.2 2.0.0"),
        ]
        for requirement, inside, outside in table:
            for versions, is_inside in ((inside, True), (outside, False)):
                for version in versions.split():
                    with self.subTest(requirement=requirement, version=version):
                        self.assertIs(matches(version, requirement), is_inside)

    def test_requirement_that_is_none_is_refused(self):
        refused = [("1.0.0", requirement) for requirement in ["", ">=", ">= one", ">= 1.0 < 2.0", "1.0.0.0"]]
        for version, requirement in [*refused, ("1.0", ">= 1.0")]:
            self.assertRaises(Malformed, matches, version, requirement)

    def test_safe_version_and_other_crate_have_no_problem(self):
        crates = [self.SAFE, ("cork", "0.3.7"), ("bark", "1.1.9")]
        self.assertEqual(self.found(crates, crates=["bark", "cork"]), [])

    def test_affected_version_is_found(self):
        found = self.found([self.SAFE, self.AFFECTED])
        self.assert_one(found, "cork 1.1.9 is affected by RUSTSEC-2030-0002 (unsound, 2030-02-03): `cargo update -p cork`")

    def test_patched_and_unaffected_versions_are_safe_and_no_others(self):
        unpatched, older = fact(ADVISORY) | {"patched": []}, fact(ADVISORY) | {"unaffected": ["< 1.2.0"]}
        self.assert_one(self.found([self.SAFE], advisories=[unpatched]), "no version is patched")
        self.assertEqual(self.found([self.AFFECTED], advisories=[older]), [])

    def test_withdrawn_advisory_affects_nothing(self):
        facts = fact(ADVISORY.replace("informational", 'withdrawn = "2030-03-04"\ninformational'))
        self.assertEqual(facts["withdrawn"], datetime.date(2030, 3, 4))
        self.assertEqual(self.found([self.AFFECTED], advisories=[facts]), [])

    def test_crate_that_nobody_looked_at_is_found(self):
        self.assert_one(self.found([self.SAFE, ("bark", "1.0.0")]), "bark is locked, and nobody has looked")

    def test_crate_that_is_locked_no_more_is_found(self):
        self.assert_one(self.found([self.SAFE], crates=["bark", "cork"]), "bark is locked no more")

    def test_exception_lets_its_version_pass(self):
        self.assertEqual(self.found([self.AFFECTED], exceptions=[self.exception()]), [])

    def test_exception_of_another_version_lets_nothing_pass(self):
        found = self.found([("cork", "1.1.8")], exceptions=[self.exception()])
        self.assertEqual(len(found), 2, found)
        self.assertIn("cork 1.1.8 is affected", found[0])
        self.assertIn("is needed no more", found[1])

    def test_exception_without_a_reason_is_found(self):
        found = self.found([self.AFFECTED], exceptions=[self.exception(reason=" ")])
        self.assert_one(found, "has no reason")

    def test_exception_for_tests_needs_a_crate_of_tests(self):
        exceptions = [self.exception(tests_only=True)]
        self.assertEqual(self.found([self.AFFECTED], {self.AFFECTED}, exceptions=exceptions), [])
        self.assert_one(self.found([self.AFFECTED], exceptions=exceptions), "more than safe-to-run")

    def test_entry_that_is_wrong_is_found(self):
        for change, words in [
            ({"id": "RUSTSEC-0000-0000"}, "none that RustSec has"),
            ({"kind": "rumour"}, "none that RustSec has"),
            ({"patched": ["later"]}, '"later" is no version'),
            ({"crate": "bark"}, "which does not stand under"),
        ]:
            with self.subTest(change=change):
                self.assert_one(self.found([self.SAFE], advisories=[fact(ADVISORY) | change]), words)
        self.assert_one(self.found([self.SAFE], advisories=[fact(ADVISORY)] * 2), "more than once")
        self.assert_one(self.found([self.SAFE], crates=["cork", "cork"]), "more than once")

    def test_clone_is_read_and_written_and_read_again(self):
        with tempfile.TemporaryDirectory() as clone:
            clone = pathlib.Path(clone)
            with self.assertRaises(Malformed):
                read_clone(clone, datetime.date(2030, 2, 4), {self.SAFE}, [])
            for crate, number in [("cork", "2030-0002"), ("cork", "0000-0000"), ("bark", "2030-0011")]:
                directory = clone / "crates" / crate
                directory.mkdir(parents=True, exist_ok=True)
                (directory / f"RUSTSEC-{number}.md").write_text(ADVISORY)
            exceptions = [self.exception(reason='it says "no"', tests_only=True)]
            snapshot = read_clone(clone, datetime.date(2030, 2, 4), {self.SAFE, ("moss", "1.0.0")}, exceptions)
        self.assertEqual(snapshot["snapshot"]["newest"], "RUSTSEC-2030-0011")
        self.assertEqual(snapshot["crates"], ["cork", "moss"])
        self.assertEqual(snapshot["advisories"], [fact(ADVISORY)])
        # One that was added by hand stays, and of a crate that is locked no more it goes.
        later, gone = fact(ADVISORY) | {"id": "RUSTSEC-2030-0099"}, fact(ADVISORY) | {"crate": "bark"}
        self.assertEqual(keep_added(snapshot, {"advisories": [fact(ADVISORY) | {"patched": []}, later, gone]}), [later])
        self.assertEqual(snapshot["advisories"], [fact(ADVISORY), later])
        text = rendered(snapshot)
        self.assertEqual(loaded(text), snapshot)
        for part in ['id = "RUSTSEC-2030-0002", ', "unaffected = []", 'version = "1.1.9"', "date = 2030-02-04\n", "[facts]"]:
            with self.subTest(part=part), self.assertRaises(Malformed):
                loaded(text.replace(part, ""))


def check():
    snapshot, crates = loaded((ROOT / SNAPSHOT).read_text()), locked()
    found, about, page = list(problems(snapshot, crates, tests_only())), snapshot["snapshot"], (ROOT / PAGE).read_text()
    missing = [str(about[key]) for key in ("date", "newest") if str(about[key]) not in page]
    found += [f"{PAGE} does not say that the snapshot is of {name}: change it there" for name in missing]
    for problem in found:
        print(f"advisories: {problem}", file=sys.stderr)
    if found:
        sys.exit(1)
    age = (datetime.date.today() - about["date"]).days
    print(
        f"advisories: {len(crates)} versions are locked, {len(snapshot['exceptions'])} excepted, none else is affected by the "
        f"{len(snapshot['advisories'])} advisories of RustSec as of {about['date']} ({about['newest']}), {age} days ago"
    )


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--read", metavar="CLONE", type=pathlib.Path)
    parser.add_argument("--self-check", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_check:
        unittest.main(argv=[sys.argv[0]])
    try:
        if arguments.read:
            renew(arguments.read)
        check()
    except Malformed as error:
        sys.exit(f"advisories: {error}")


if __name__ == "__main__":
    main()
