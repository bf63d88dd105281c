#!/usr/bin/env bash
# Runs the end-to-end tests, several at once; arguments choose among them by name.
#
# Beside other tests on two cores a stock daemon now and then misses a deadline of its own. What fails
# is shown in full, and a few such tests run once more, alone: the run passes only if each of them
# does, and names them at its end, for a test that fails in company is a fault to be mended. Who says
# that something acknowledged was lost is never asked again.
set -euo pipefail
cd "$(dirname "$0")/.."

CARGO=${CARGO:-cargo}
RERUN_AT_MOST=3
NEVER_AGAIN='^(durability|kill|torn)::'

# Most of its time a test waits for stock's processes: more of them than cores, and not many more.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-3} RUST_BACKTRACE=0

disk=$(mktemp -d)
log=$(mktemp)
trap 'rm -f "$log"; rmdir "$disk" 2>/dev/null || true' EXIT
if mount -t tmpfs -o size=1m tmpfs "$disk" 2>/dev/null; then
    umount "$disk"
else
    echo "no right to mount: what only a small disk can show is left out"
    export SALTERN_TESTS_WITHOUT_DISKS=1
fi

"$CARGO" build -p saltern --features fault-injection
if "$CARGO" test -p saltern-tests --test e2e -- "$@" 2>&1 | tee "$log"; then
    exit 0
fi

# libtest's last list, after the tests' own output, which may hold anything.
mapfile -t failed < <(tac "$log" | awk '/^failures:$/ { exit } /^    [a-z0-9_]+(::[a-z0-9_]+)+$/ { print $1 }')
if ! grep -q '^test result: FAILED' "$log" || ((${#failed[@]} == 0 || ${#failed[@]} > RERUN_AT_MOST)) ||
    printf '%s\n' "${failed[@]}" | grep -qE "$NEVER_AGAIN"; then
    echo "e2e: ${#failed[@]} tests failed" >&2
    exit 1
fi
for name in "${failed[@]}"; do
    echo
    echo "e2e: $name once more, alone"
    RUST_TEST_THREADS=1 "$CARGO" test -p saltern-tests --test e2e -- --exact "$name"
done
echo
printf 'e2e: failed beside others, passed alone, to be mended: %s\n' "${failed[@]}"
