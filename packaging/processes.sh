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

# one_is_gone IDS: one of these programs has ended.
one_is_gone() {
    local pid began
    while read -r pid began; do
        if is_gone "$pid" "$began"; then return 0; fi
    done <"$1"
    return 1
}

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
    local ids="$1" pid began end=$((SECONDS + 10))
    while read -r pid began; do
        if is_ours "$pid" "$began"; then kill "$pid" 2>/dev/null || true; fi
    done <"$ids"
    while read -r pid began; do
        until is_gone "$pid" "$began"; do
            if [ "$SECONDS" -ge "$end" ]; then
                kill -9 "$pid" 2>/dev/null || true
                break
            fi
            sleep 0.05
        done
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

# wait_while_they_run IDS WHAT CONDITION [ARGUMENTS]: waits until it holds, for three minutes at most, and no longer than
# all of these programs run. It is not asked again once it has held: it may hold only just. Each look has to end by itself.
wait_while_they_run() {
    local ids="$1" what="$2" notice=$((SECONDS + 10)) end=$((SECONDS + 180))
    shift 2
    until "$@" >/dev/null 2>&1; do
        if one_is_gone "$ids" || [ "$SECONDS" -ge "$end" ]; then return 1; fi
        if [ "$SECONDS" -ge "$notice" ]; then
            echo "Still waiting for $what"
            notice=$end
        fi
        sleep 0.05
    done
}
