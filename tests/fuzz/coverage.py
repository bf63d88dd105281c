#!/usr/bin/env python3
"""Fuzzes with feedback by coverage: libFuzzer, on the compiler of the project.

    tests/fuzz/coverage.py --seconds 600                 each target, one after the other
    tests/fuzz/coverage.py --seconds 600 --jobs 2 names  the targets of that name, two at a time
    tests/fuzz/coverage.py --hour                        each for what is missing to an hour of processor time

The build is one of its own (target/fuzz): all crates have counters of the edges that run. What libFuzzer
finds is gathered in target/fuzz/corpus; at the end the least part of it with the same coverage becomes
`found` in the kept corpus, which every `make test` tries. How long each target ran is added up in
tests/fuzz/coverage.json; `--table` prints that for docs/fuzzing.md.

An input that fails, hangs or takes too much memory is left as `crash-…`, `timeout-…` or `oom-…` in the
kept corpus, and the run fails.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "target/fuzz"
KEPT = ROOT / "tests/fuzz/corpus"
RECORD = ROOT / "tests/fuzz/coverage.json"

# As cargo-fuzz sets them, without a sanitizer: what strangers' bytes reach is safe Rust.
FLAGS = [
    "--cfg", "fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
]

MAX_INPUT = 16 << 10
MAX_SECONDS_OF_ONE = 20
MAX_MEMORY_MB = 4096
# Of the kept part of one target. An input that is longer than a sixteenth of it is not kept.
MAX_KEPT = 128 << 10

HOUR = 3600
# Keeps the record whole when targets end together.
RECORDING = threading.Lock()


def build():
    """Builds the targets, and returns the program."""
    host = re.search(r"host: (.*)", subprocess.check_output(["rustc", "-vV"], text=True))[1]
    # With `--target`, build scripts and macros are compiled without the flags.
    out = subprocess.run(
        [os.environ.get("CARGO", "cargo"), "test", "--profile", "fuzz", "--package", "saltern-fuzz", "--no-run",
         "--target", host, "--target-dir", TARGET, "--message-format", "json-render-diagnostics"],
        cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE,
        env={**os.environ, "RUSTFLAGS": " ".join(FLAGS)}).stdout
    built = [json.loads(line) for line in out.splitlines()]
    return next(one["executable"] for one in built if one.get("executable") and one["target"]["name"] == "fuzz")


def targets(program):
    """The paths of all targets by their names."""
    listed = subprocess.check_output([program, "--list"], text=True)
    paths = re.findall(r"^([a-z_:]+): test$", listed, re.M)
    return {path.rsplit("::", 1)[1]: path for path in paths}


def run(program, path, arguments, log):
    """Runs libFuzzer on a target; returns its exit code and its seconds of processor time."""
    with open(log, "a", encoding="utf-8") as out:
        process = subprocess.Popen([program, path, "--exact", "--nocapture", "--", *map(str, arguments)],
                                   cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def fuzz(program, name, path, seconds):
    """Fuzzes a target for seconds, adds to its record, and returns what is wrong."""
    corpus = TARGET / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    (KEPT / name).mkdir(parents=True, exist_ok=True)
    log = TARGET / f"{name}.log"
    log.write_text("")
    code, used = run(program, path, [
        f"-max_total_time={seconds}", f"-max_len={MAX_INPUT}", f"-timeout={MAX_SECONDS_OF_ONE}",
        f"-rss_limit_mb={MAX_MEMORY_MB}", "-print_final_stats=1", f"-artifact_prefix={KEPT / name}/", corpus], log)
    text = log.read_text(errors="replace")
    inputs = re.search(r"number_of_executed_units: (\d+)", text)
    edges = re.findall(r"cov: (\d+) ft: \d+", text)
    kept = keep(program, name, path, corpus, log)
    with RECORDING:
        record = recorded()
        one = record.setdefault(name, {"processor_seconds": 0, "inputs": 0, "edges": 0, "kept": 0})
        one["processor_seconds"] += round(used)
        one["inputs"] += int(inputs[1]) if inputs else 0
        one["edges"] = max(one["edges"], int(edges[-1]) if edges else 0)
        one["kept"] = kept
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(f"coverage: {name}: {used:.0f} s, {inputs[1] if inputs else '?'} inputs, "
          f"{edges[-1] if edges else '?'} edges, {kept} kept", flush=True)
    if code:
        return f"{name}: libFuzzer ended with {code}, see {log}"
    return None


def keep(program, name, path, corpus, log):
    """Writes the least part of what was found into the kept corpus, and returns the number of its inputs."""
    with tempfile.TemporaryDirectory(dir=TARGET) as least:
        code, _ = run(program, path, ["-merge=1", f"-max_len={MAX_INPUT}", least, corpus], log)
        if code:
            raise SystemExit(f"{name}: its corpus could not be merged, see {log}")
        found = sorted((file.read_bytes() for file in pathlib.Path(least).iterdir()), key=lambda one: (len(one), one))
    kept, room = [], MAX_KEPT
    for one in found:
        if len(one) > min(room, MAX_KEPT // 16):
            break
        room -= len(one)
        kept.append(one)
    (KEPT / name / "found").write_text("".join(one.hex() + "\n" for one in kept if one))
    return len(kept)


def recorded():
    """The record of all targets."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def table():
    """Prints the record as docs/fuzzing.md has it."""
    print("| target | processor time | inputs | edges reached | kept |\n|---|---:|---:|---:|---:|")
    for name, one in sorted(recorded().items()):
        print(f"| `{name}` | {one['processor_seconds']} s | {one['inputs']:,} | {one['edges']:,} | {one['kept']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--hour", action="store_true", help="what is missing to an hour of processor time, at most --seconds at once")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        return table()
    program = build()
    paths = targets(program)
    if unknown := set(options.names) - set(paths):
        raise SystemExit(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(paths)}")
    wanted = {name: paths[name] for name in options.names} or paths

    def spent(name):
        return recorded().get(name, {}).get("processor_seconds", 0)

    def seconds(name):
        return min(options.seconds, max(0, HOUR - spent(name))) if options.hour else options.seconds

    # The one that ran least comes first, so that a run that is cut short leaves them alike.
    order = [name for name in sorted(wanted, key=spent) if seconds(name)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        wrong = [one for one in pool.map(lambda name: fuzz(program, name, wanted[name], seconds(name)), order) if one]
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
