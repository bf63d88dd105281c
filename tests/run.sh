#!/usr/bin/env bash
# Runs tests of the workspace by cargo-nextest; arguments go to it. All crates are built at once with
# all features, so that lints, documentation and tests share one build.
#
#   tests/run.sh                          everything that `make test` runs
#   tests/run.sh -E 'not binary(e2e)'     what needs no stock daemon
#   tests/run.sh -E 'binary(e2e)' jobs::  end-to-end tests by name
#
#   tests/run.sh --build                  builds them, and nothing else
#   tests/run.sh --built                  runs what was built, without cargo
#
# SALTERN_TESTS=all runs what `make test-all` does: the tests of tests/tiers.list too, and the long forms.
# This is the only place that knows of the two tiers; what is left out is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
began=$SECONDS

# What nextest reads instead of asking cargo.
binaries=target/nextest/binaries.json
metadata=target/nextest/metadata.json

build() {
    # Nextest builds only the programs of crates that have tests beside them, which saltern-lab has not.
    # With the examples, because then cargo gives the dependencies the features that the tests give them:
    # without, it compiles rustls, hyper and this whole workspace for this step alone.
    "${CARGO:-cargo}" build --quiet --workspace --all-features --bins --examples
    mkdir -p target/nextest
    "${CARGO:-cargo}" nextest list --cargo-quiet --workspace --all-features \
        --list-type binaries-only --message-format json >"$binaries"
    "${CARGO:-cargo}" metadata --format-version 1 --all-features >"$metadata"
    echo "tests: the programs were built in $((SECONDS - began)) s"
}

PATH=$PATH:$(tests/install-tools.sh)
case ${1:-} in
--build)
    build
    exit
    ;;
--built) shift ;;
*) build ;;
esac

# The sizes of a tier, each unless the environment has one: simulated runs, kills at random moments,
# seconds of attack, releases whose SQL returners are compared, simulated masters, one in how many of
# gitfs' paths is asked for in each environment of each configuration, one in how many forms of the console
# gets each text that would run a script, subscribers that never read, minions of the console's large fleet.
sizes() {
    export SALTERN_SIMULATION_SEEDS=${SALTERN_SIMULATION_SEEDS:-$1}
    export SALTERN_KILLS=${SALTERN_KILLS:-$2}
    export SALTERN_HOSTILE_SECONDS=${SALTERN_HOSTILE_SECONDS:-$3}
    export SALTERN_SQL_RELEASES=${SALTERN_SQL_RELEASES:-$4}
    export SALTERN_MASTER_SEEDS=${SALTERN_MASTER_SEEDS:-$5}
    export SALTERN_GITFS_SHARE=${SALTERN_GITFS_SHARE:-$6}
    export SALTERN_PAYLOAD_SHARE=${SALTERN_PAYLOAD_SHARE:-$7}
    export SALTERN_FROZEN=${SALTERN_FROZEN:-$8}
    export SALTERN_CONSOLE_FLEET=${SALTERN_CONSOLE_FLEET:-$9}
}

left_out() { sed -n 's/^\([a-z][a-z0-9_:/]*\) .*/\1/p' tests/tiers.list; }

# A filter of nextest for them: those of the end-to-end tests, and `binary/test` of others.
left_out_filter() {
    left_out | sed -e 's|^\([^/]*\)$|e2e/\1|' -e 's|\(.*\)/\(.*\)|(binary(\1) \\\& test(=\2))|' | paste -sd '|'
}

tier=()
case ${SALTERN_TESTS:-} in
all)
    sizes 100000 50 900 "3008.3 3007.15 3006.28" 2000 1 1 10000 5000
    echo "tests: all of them, in their long forms"
    ;;
"")
    sizes 5000 5 20 3008.3 200 3 4 1000 1000
    # The same configuration with a filter that holds for every run, also one that has its own.
    config=target/nextest-tier.toml
    mkdir -p target
    sed "s#^\[profile\.default\]\$#&\ndefault-filter = 'not ($(left_out_filter))'#" \
        .config/nextest.toml >"$config"
    grep -q '^default-filter' "$config"
    tier=(--config-file "$config")
    echo "tests: left to \`make test-all\` (SALTERN_TESTS=all) are the long forms of the simulation," \
        "the kills and the attack, and, with what guards each in tests/tiers.list,"
    left_out | sed 's/^/    /'
    ;;
*)
    echo "SALTERN_TESTS is '$SALTERN_TESTS': only 'all' is known" >&2
    exit 2
    ;;
esac
echo "tests: $SALTERN_SIMULATION_SEEDS simulated runs, $SALTERN_MASTER_SEEDS simulated masters, $SALTERN_KILLS random kills," \
    "$SALTERN_HOSTILE_SECONDS s of attack, SQL returners of $SALTERN_SQL_RELEASES," \
    "one in $SALTERN_GITFS_SHARE of gitfs' paths, one in $SALTERN_PAYLOAD_SHARE of the console's forms for each text," \
    "$SALTERN_FROZEN frozen subscribers, $SALTERN_CONSOLE_FLEET minions in the console"

# Of whoever calls: they would change what tests read, or have them write.
unset SALT_CONFIG_DIR
export RUST_BACKTRACE=0

disk=$(mktemp -d)
if mount -t tmpfs -o size=1m tmpfs "$disk" 2>/dev/null; then
    umount "$disk"
else
    echo "no right to mount: what only a small disk can show is left out"
    export SALTERN_TESTS_WITHOUT_DISKS=1
fi
rmdir "$disk"
# Of version 1 of control groups where that has the threads, and else of version 2, as in tests/src/thread_limit.rs.
root=/sys/fs/cgroup/pids
own=$(sed -n 's|^[0-9]*:\([^:]*,\)\{0,1\}pids\(,[^:]*\)\{0,1\}:||p' /proc/self/cgroup)
if [ -z "$own" ]; then
    root=/sys/fs/cgroup
    own=$(sed -n 's|^0::||p' /proc/self/cgroup)
fi
group=
probe=$root/saltern-tests-probe-$$
# In a container the path may be one that its mount does not show: from there, no process could be moved back. Where the
# root is no group, a directory of this name would be a plain one.
if [ -e "$root/cgroup.procs" ] && [ -e "$root$own/cgroup.procs" ] && mkdir "$probe" 2>/dev/null; then
    # A process of its own, which is over by then, is moved, too.
    if [ -e "$probe/pids.max" ] && (echo "$BASHPID" >"$probe/cgroup.procs") 2>/dev/null; then
        group=$root
    fi
    rmdir "$probe" 2>/dev/null || { sleep 0.2 && rmdir "$probe"; } || true
fi
if [ -z "$group" ]; then
    echo "no right to limit threads by a control group: what only that can show is left out"
    export SALTERN_TESTS_WITHOUT_GROUPS=1
fi

exec "${CARGO:-cargo}" nextest run --binaries-metadata "$binaries" --cargo-metadata "$metadata" "${tier[@]}" "$@"
