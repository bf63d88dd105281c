#!/usr/bin/env bash
# Makes targets of the Makefile one after the other, up to the first that fails, and prints at the end
# how many seconds each took, and how many of a processor: what a test run spends its time on, and where
# it waits. `a+b+c` makes a, and beside it, with what a leaves of the processors, b and c, whose output
# comes when both have ended.
#
#   tests/steps.sh stock fmt tests+clippy+doc
set -uo pipefail
cd "$(dirname "$0")/.."

# Seconds of processor time of all that this shell has started and that has ended.
processor() {
    awk -v ticks="$(getconf CLK_TCK)" '{ printf "%d\n", ($16 + $17) / ticks }' "/proc/$$/stat"
}

make_step() {
    local first=${1%%+*} beside=0 code output
    if [ "$first" != "$1" ]; then
        IFS=+ read -ra others <<<"${1#*+}"
        output=$(mktemp)
        nice -n 19 tests/steps.sh "${others[@]}" >"$output" 2>&1 &
        beside=$!
    fi
    "${MAKE:-make}" --no-print-directory "$first"
    code=$?
    if [ "$beside" != 0 ]; then
        wait "$beside" || code=$?
        cat "$output"
        rm "$output"
    fi
    return "$code"
}

took=()
for step in "$@"; do
    began=$SECONDS
    used=$(processor)
    make_step "$step"
    code=$?
    took+=("$step $((SECONDS - began)) s, $(($(processor) - used)) s of processor")
    [ "$code" = 0 ] || break
done
printf 'steps:\n'
printf '    %s\n' "${took[@]}" "all $SECONDS s, $(processor) s of processor"
exit "$code"
