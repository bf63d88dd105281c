"""All mutants of a crate in one build, each behind a question at run time (tests/schemata): a second or so a
mutant, where cargo-mutants takes a build. Of each mutant only those tests are run that come by its place.

Called by tests/mutants.py, which lists the mutants, and tries those that cannot be placed so.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

# In the sources and in the program: which mutant is alive, and by which ones a test comes.
MUTANT = "SCHEMATA_MUTANT"
LOG = "SCHEMATA_LOG"

QUESTION = f"""
#[allow(warnings, clippy::all)]
mod __schemata {{
    use std::collections::BTreeSet;
    use std::io::Write as _;
    use std::sync::{{Mutex, OnceLock}};

    static ALIVE: OnceLock<u32> = OnceLock::new();
    static LOG: OnceLock<Option<String>> = OnceLock::new();
    static SEEN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

    /// The one of these that is alive, or 0.
    pub(crate) fn active(ids: &[u32]) -> u32 {{
        let alive = *ALIVE.get_or_init(|| {{
            let given = std::env::var("{MUTANT}").ok();
            given.and_then(|text| text.parse().ok()).unwrap_or(0)
        }});
        if alive != 0 {{
            return if ids.contains(&alive) {{ alive }} else {{ 0 }};
        }}
        if let Some(path) = LOG.get_or_init(|| std::env::var("{LOG}").ok()) {{
            let mut seen = SEEN.lock().unwrap_or_else(|error| error.into_inner());
            for id in ids {{
                if seen.insert(*id) {{
                    let file = std::fs::File::options().append(true).create(true).open(path);
                    let _ = file.and_then(|mut file| writeln!(file, "{{id}}"));
                }}
            }}
        }}
        0
    }}
}}
"""

# Tests that are run at a time: few at first, as most mutants are found by them, and then as many as take as
# long as all before together. A program of tests does not stop at the first that fails.
FIRST, SECONDS = 4, 1.0


class Failed(Exception):
    """Why not even the sources without a mutant can be tried."""


def outcomes(package, listed, tree, environment, restore, end):
    """A dictionary of the numbers of mutants to what became of them; others were not tried.

    `restore` gives the tree its sources back, `end` is when to stop, if ever.
    """
    environment = {**environment, "PROPTEST_MAX_SHRINK_ITERS": "0"}
    tool = built_tool(tree, environment)
    placed, unviable = place(package, listed, tree, environment, restore, tool)
    try:
        tests = built_tests(package, tree, environment)
    finally:
        restore()
    reached = coverage(tests, environment)
    print(f"mutants: {len(placed)} of {len(listed)} in one build, {len(tests)} tests", flush=True)
    found = {number: "does not build" for number in unviable}

    names = {mutant["id"]: mutant["name"] for mutant in listed}

    def attempt(number):
        if end and time.monotonic() > end:
            return None
        how = tried(number, sorted(reached[number]), environment)
        if how == "not found":
            # The table comes at the end, which may be hours away.
            print(f"mutants: not found: {names[number]}", flush=True)
        return how

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, how in zip(placed, pool.map(attempt, placed)):
            if how:
                found[number] = how
    return found


def built_tool(tree, environment):
    manifest = tree / "tests/schemata/Cargo.toml"
    target = environment["CARGO_TARGET_DIR"] + "/schemata"
    command = ["cargo", "build", "--quiet", "--locked", f"--manifest-path={manifest}"]
    subprocess.run(command, check=True, env={**environment, "CARGO_TARGET_DIR": target})
    return target + "/debug/schemata"


def place(package, listed, tree, environment, restore, tool):
    """Puts all mutants into the sources that build there; gives the numbers of these and of the others."""
    library = tree / "src" / package.removeprefix("saltern-") / "src/lib.rs"
    unviable = set()
    while True:
        restore()
        library.write_text(library.read_text() + QUESTION)
        given = json.dumps([one for one in listed if one["id"] not in unviable])
        run = [tool, str(tree)]
        placed = subprocess.run(run, input=given, stdout=subprocess.PIPE, text=True, check=True)
        command = ["cargo", "check", "--quiet", "--package", package, "--lib"]
        check = cargo([*command, "--message-format=json"], tree, environment)
        if check.returncode == 0:
            return sorted(json.loads(placed.stdout)), unviable
        new = guilty(check.stdout, tree) - unviable
        if not new:
            raise Failed(f"{package} does not build with its mutants\n{errors_of(check)}")
        unviable |= new


def cargo(command, tree, environment):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, cwd=tree, env=environment, text=True, **pipes)


def errors_of(run):
    """The errors of a build with --message-format=json: those of the compiler are on its standard output."""
    messages = [json.loads(line).get("message") for line in run.stdout.splitlines()]
    of_compiler = [one["rendered"] for one in messages if one and one.get("level") == "error"]
    return "".join(of_compiler) + run.stderr


def guilty(messages, tree):
    """The mutants in whose lines the compiler finds an error."""
    lines = {}

    def of(span):
        name = span["file_name"]
        if name not in lines:
            lines[name] = lines_of(tree / name)
        at = span["line_start"]
        return {number for begin, end, number in lines[name] if begin <= at <= end}

    found = set()
    for message in map(json.loads, messages.splitlines()):
        message = message.get("message") or {}
        if message.get("level") != "error":
            continue
        # Where the error is, else where it comes from.
        spans = message["spans"] + [span for child in message["children"] for span in child["spans"]]
        of_primary = [of(span) for span in spans if span["is_primary"]]
        of_all = [of(span) for span in spans]
        found |= set().union(*of_primary) or set().union(*of_all)
    return found


def lines_of(path):
    """The first and last line of each mutant in a file."""
    begun, found = {}, []
    text = path.read_text() if path.is_file() else ""
    for at, line in enumerate(text.splitlines(), 1):
        for kind, number in re.findall(r"/\*([BM])(\d+)\*/", line):
            if kind == "B":
                begun[number] = at
            else:
                found.append((begun.pop(number), at, int(number)))
    return found


def built_tests(package, tree, environment):
    """All tests: the program, its directory, and the name."""
    command = ["cargo", "test", "--quiet", "--package", package, "--tests", "--no-run"]
    build = cargo([*command, "--message-format=json"], tree, environment)
    if build.returncode:
        raise Failed(f"the tests of {package} do not build with its mutants\n{errors_of(build)}")
    tests = []
    for artifact in map(json.loads, build.stdout.splitlines()):
        if artifact.get("executable") and artifact["profile"]["test"]:
            place = str(pathlib.Path(artifact["manifest_path"]).parent)
            command = [artifact["executable"], "--list", "--format", "terse"]
            names = cargo(command, place, environment).stdout.splitlines()
            names = [name.removesuffix(": test") for name in names if name.endswith(": test")]
            tests += [(artifact["executable"], place, name) for name in names]
    return tests


def coverage(tests, environment):
    """By mutant: the tests that come by its place, each with its seconds."""
    reached = collections.defaultdict(list)

    def cover(test):
        program, place, name = test
        with tempfile.NamedTemporaryFile(mode="r") as log:
            began = time.monotonic()
            run = cargo([program, "--exact", name], place, {**environment, LOG: log.name})
            if run.returncode:
                raise Failed(f"{name} fails without a mutant\n{run.stdout}")
            return time.monotonic() - began, [int(number) for number in log.read().split()]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for test, (took, numbers) in zip(tests, pool.map(cover, tests)):
            for number in numbers:
                reached[number].append((took, test))
    return reached


def tried(number, tests, environment):
    """What becomes of a mutant with these tests, the quickest first."""
    spent = 0.0
    while tests:
        head, took = [], 0.0
        while tests and (len(head) < FIRST or took + tests[0][0] <= max(spent, SECONDS)):
            took += tests[0][0]
            head.append(tests.pop(0))
        spent += took
        by_program = collections.defaultdict(list)
        for seconds, (program, place, name) in head:
            by_program[program, place].append((seconds, name))
        for (program, place), named in by_program.items():
            limit = 60 + 10 * sum(seconds for seconds, _ in named)
            command = [program, "--exact", *(name for _, name in named)]
            environment = {**environment, MUTANT: str(number)}
            how = ended(command, place, environment, limit)
            if how:
                return how
    return "not found"


def ended(command, place, environment, limit):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(command, cwd=place, env=environment, start_new_session=True, **quiet)
    try:
        return "found" if run.wait(limit) else None
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return "found by hanging"
