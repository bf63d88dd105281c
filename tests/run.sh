#!/usr/bin/env bash
# Runs tests of the workspace by cargo-nextest; arguments go to it. All crates are built at once with
# all features, so that lints, documentation and tests share one build.
#
#   tests/run.sh                          everything
#   tests/run.sh -E 'not binary(e2e)'     what needs no stock daemon
#   tests/run.sh -E 'binary(e2e)' jobs::  end-to-end tests by name
set -euo pipefail
cd "$(dirname "$0")/.."

PATH=$PATH:$(tests/install-tools.sh)
export RUST_BACKTRACE=0

disk=$(mktemp -d)
if mount -t tmpfs -o size=1m tmpfs "$disk" 2>/dev/null; then
    umount "$disk"
else
    echo "no right to mount: what only a small disk can show is left out"
    export SALTERN_TESTS_WITHOUT_DISKS=1
fi
rmdir "$disk"

exec "${CARGO:-cargo}" nextest run --workspace --all-features "$@"
