#!/usr/bin/env bash
# Makes targets of the Makefile one after the other, up to the first that fails, and prints at the end
# how many seconds each took, and how many of a processor: what a test run spends its time on, and where
# it waits.
#
#   tests/steps.sh stock lint built-tests
set -uo pipefail
cd "$(dirname "$0")/.."

# Seconds of processor time of all that this shell has started and that has ended.
processor() {
    awk -v ticks="$(getconf CLK_TCK)" '{ printf "%d\n", ($16 + $17) / ticks }' "/proc/$$/stat"
}

took=()
for step in "$@"; do
    began=$SECONDS
    used=$(processor)
    "${MAKE:-make}" --no-print-directory "$step"
    code=$?
    took+=("$step $((SECONDS - began)) s, $(($(processor) - used)) s of processor")
    [ "$code" = 0 ] || break
done
printf 'steps:\n'
printf '    %s\n' "${took[@]}" "all $SECONDS s, $(processor) s of processor"
exit "$code"
