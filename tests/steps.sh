#!/usr/bin/env bash
# Makes targets of the Makefile one after the other, up to the first that fails, and prints at the end
# how many seconds each took: what a test run spends its time on.
#
#   tests/steps.sh stock lint all-tests
set -uo pipefail
cd "$(dirname "$0")/.."

took=()
for step in "$@"; do
    began=$SECONDS
    "${MAKE:-make}" --no-print-directory "$step"
    code=$?
    took+=("$step $((SECONDS - began))")
    [ "$code" = 0 ] || break
done
printf 'steps:\n'
printf '    %s s\n' "${took[@]}" "all $SECONDS"
exit "$code"
