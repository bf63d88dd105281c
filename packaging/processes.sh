# shellcheck shell=bash
# Programs that go on in the background of a directory, and are stopped by their ids: what
# packaging/demo.sh and grafana/run.sh share. A file of ids has a line "PID START" for each.
#
# Sourced, not run. It expects a function `die`.

# When a process began, in ticks since the machine did; nothing for one that is there no more.
began_at() { sed -n 's/.*) \([^Z]\)/\1/p' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# The process still is the one that was started: its number may have been given away since.
is_ours() { [ -n "${2:-}" ] && [ "$(began_at "$1")" = "$2" ]; }
is_gone() { ! is_ours "$@"; }

# launch IDS LOG PROGRAM [ARGUMENTS]: starts a program that stop_all ends again.
launch() {
    local ids="$1" log="$2"
    shift 2
    # In a session of its own, so that Ctrl-C in this terminal does not reach it.
    setsid "$@" >"$log" 2>&1 </dev/null &
    echo "$! $(began_at $!)" >>"$ids"
}

# stop_all IDS: asks all of them to end, waits for ten seconds, ends the others.
stop_all() {
    local ids="$1" pid began
    while read -r pid began; do
        if is_ours "$pid" "$began"; then kill "$pid" 2>/dev/null || true; fi
    done <"$ids"
    while read -r pid began; do
        wait_until 200 is_gone "$pid" "$began" || kill -9 "$pid" 2>/dev/null || true
    done <"$ids"
    rm "$ids"
}

takes_connections() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port PORT STEP: the first one from PORT on without a listener.
free_port() {
    local port="$1"
    while takes_connections "$port"; do
        port=$((port + $2))
    done
    echo "$port"
}

# wait_until TIMES CONDITION [ARGUMENTS]: looks at short intervals; fails when it never held.
wait_until() {
    local times="$1"
    shift
    while [ "$times" -gt 0 ]; do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.05
        times=$((times - 1))
    done
    return 1
}
