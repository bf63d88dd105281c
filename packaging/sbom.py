#!/usr/bin/env python3
"""Writes the list of all crates that are in the program, as CycloneDX 1.5, to standard output.

    packaging/sbom.py VERSION TARGET

TARGET is a triple of Rust or of Debian.

From `cargo metadata` alone, without network; the same sources give the same bytes. Crates of tests
and those that only build others are left out: they are not in the program.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = "saltern"

# Rust's names of what Debian's tools name otherwise.
TRIPLES = {
    "x86_64-linux-gnu": "x86_64-unknown-linux-gnu",
    "aarch64-linux-gnu": "aarch64-unknown-linux-gnu",
}


def metadata(target):
    cargo = os.environ.get("CARGO") or shutil.which("cargo") or os.path.expanduser("~/.cargo/bin/cargo")
    command = [cargo, "metadata", "--format-version=1", "--locked", "--offline"]
    command += ["--filter-platform", TRIPLES.get(target, target), "--manifest-path", str(ROOT / "src" / PROGRAM / "Cargo.toml")]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def used(node):
    """The crates that are linked into the crate of a node."""
    for dependency in node["deps"]:
        if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
            yield dependency["pkg"]


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def reachable(program, nodes, packages):
    seen, waiting = set(), [program]
    while waiting:
        found = waiting.pop()
        if found in seen or is_macro(packages[found]):
            continue
        seen.add(found)
        waiting += used(nodes[found])
    return seen


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, hashes):
    name, version = package["name"], package["version"]
    entry = {"type": "library", "bom-ref": reference(package), "name": name, "version": version}
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["source"]:
        entry["purl"] = reference(package)
    if (name, version) in hashes:
        entry["hashes"] = [{"alg": "SHA-256", "content": hashes[name, version]}]
    return entry


def hashes_of_lock():
    """The hashes of crates of the registry, as Cargo.lock has them."""
    hashes, entry = {}, {}
    for line in (ROOT / "Cargo.lock").read_text().splitlines():
        name, _, value = line.partition(" = ")
        if line == "[[package]]":
            entry = {}
        elif name in ("name", "version", "checksum"):
            entry[name] = value.strip('"')
            if name == "checksum":
                hashes[entry["name"], entry["version"]] = entry["checksum"]
    return hashes


def main():
    version, target = sys.argv[1:]
    found = metadata(target)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    (program,) = [package["id"] for package in found["packages"] if package["name"] == PROGRAM]
    linked = reachable(program, nodes, packages)
    libraries = sorted(linked - {program}, key=lambda one: reference(packages[one]))
    hashes = hashes_of_lock()
    depends = [
        {
            "ref": reference(packages[one]),
            "dependsOn": sorted({reference(packages[other]) for other in used(nodes[one]) if other in linked}),
        }
        for one in [program, *libraries]
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": reference(packages[program]),
                "name": PROGRAM,
                "version": version,
            }
        },
        "components": [component(packages[one], hashes) for one in libraries],
        "dependencies": depends,
    }
    json.dump(document, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
