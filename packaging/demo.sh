#!/usr/bin/env bash
# A private Saltern master with three native minions in .demo/, to look at and to play with.
#
#   packaging/demo.sh start   start them, run some jobs, leave them running
#   packaging/demo.sh stop    stop them
#
# Nothing outside .demo/ is touched and only 127.0.0.1 is listened on. SALTERN names another binary
# than target/release/saltern, DEMO another directory.
set -euo pipefail
cd "$(dirname "$0")/.."

saltern=$(realpath "${SALTERN:-target/release/saltern}")
demo=$(realpath -m "${DEMO:-.demo}")
minions=(alfa bravo charlie)

die() { echo "demo: $*" >&2; exit 1; }

# Runs a command and shows it the way one would type it.
show() {
    echo
    local word line=""
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9.,_-]*) line+=" '$word'" ;;
        *) line+=" $word" ;;
        esac
    done
    echo "\$ saltern cmd -c $shown$line"
    "$saltern" cmd -c "$demo/conf" "$@"
}

# The process still is the one that was started: its number may have been given away since.
is_ours() {
    [ "$(readlink "/proc/$1/exe" 2>/dev/null)" = "$2" ]
}

stop() {
    [ -e "$demo/pids" ] || die "nothing is running in $demo"
    local pid program
    while read -r pid program; do
        if is_ours "$pid" "$program"; then kill "$pid"; fi
    done <"$demo/pids"
    while read -r pid program; do
        for _ in {1..100}; do
            is_ours "$pid" "$program" || break
            sleep 0.05
        done
        if is_ours "$pid" "$program"; then kill -9 "$pid"; fi
    done <"$demo/pids"
    rm "$demo/pids"
}

# Starts a program in the background; it is stopped again by the file of process ids.
launch() {
    local name="$1"
    shift
    # In a session of its own, so that Ctrl-C in this terminal does not reach it.
    setsid "$saltern" "$@" >"$demo/log/$name" 2>&1 </dev/null &
    echo "$! $saltern" >>"$demo/pids"
}

free_port() {
    local port="$1"
    while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        port=$((port + 2))
    done
    echo "$port"
}

configure() {
    rm -rf "$demo"
    mkdir -p "$demo/conf" "$demo/log" "$demo/run"
    publish_port=$(free_port 24505)
    ret_port=$(free_port 24506)
    metrics_port=$(free_port 25507)
    cat >"$demo/conf/master" <<END
# The demo's master. An ordinary Salt master configuration.
interface: 127.0.0.1
publish_port: $publish_port
ret_port: $ret_port
saltern_metrics_address: 127.0.0.1:$metrics_port
user: $(id -un)
root_dir: $demo
pki_dir: $demo/pki
cachedir: $demo/cache
sock_dir: $demo/run
pidfile: $demo/run/master.pid
log_file: $demo/log/master.log
# Only here: every minion that asks is let in.
auto_accept: True
END
    local id
    for id in "${minions[@]}"; do
        mkdir -p "$demo/minions/$id"
        cat >"$demo/minions/$id/minion" <<END
id: $id
master: 127.0.0.1
master_port: $ret_port
user: $(id -un)
root_dir: $demo/minions/$id
pki_dir: $demo/minions/$id/pki
cachedir: $demo/minions/$id/cache
sock_dir: $demo/minions/$id/run
log_file: $demo/minions/$id/log
acceptance_wait_time: 1
grains: {role: demo, phase: ${#id}}
END
    done
}

# Looks at short intervals until the condition holds.
wait_for() {
    local what="$1"
    shift
    for _ in {1..200}; do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.05
    done
    tail -n 20 "$demo"/log/* >&2
    stop
    die "waited in vain for $what"
}

serves() { [ -S "$demo/run/master_event_pub.ipc" ] && (: <"/dev/tcp/127.0.0.1/$ret_port"); }
# Asking earlier would wait for the answer of a minion that has not subscribed yet.
all_connected() {
    "$saltern" metrics -c "$demo/conf" |
        grep -qx 'saltern_port_connections{listener="publish",state="open",transport="zeromq"} 3'
}
all_answer() { [ "$("$saltern" cmd -c "$demo/conf" -t 1 '*' test.ping | grep -c True)" = 3 ]; }

start() {
    [ -x "$saltern" ] || die "$saltern is missing: run 'make build'"
    if [ -e "$demo/pids" ]; then stop; fi
    configure
    shown=$(realpath --relative-to=. "$demo/conf")

    local began=$SECONDS
    echo "Starting a master on 127.0.0.1:$publish_port and :$ret_port, and ${#minions[@]} minions"
    launch master master -c "$demo/conf"
    wait_for "the master to serve" serves
    local id
    for id in "${minions[@]}"; do
        launch "$id" minion -c "$demo/minions/$id"
    done
    wait_for "all minions to connect" all_connected
    wait_for "all minions to answer" all_answer

    show '*' test.ping
    show alfa cmd.run 'uname -srm; uptime -p'
    show -L alfa,charlie cmd.run 'sleep 1; echo "done on $(hostname)"'
    show '*' grains.get role

    cat <<END

That took $((SECONDS - began)) s. The master and the minions keep running. Try:
  $(realpath --relative-to=. "$saltern") cmd -c $shown '*' cmd.run 'df -h /'
  salt -c $shown '*' test.ping            (stock Salt's own command, if you have it)
The logs are in $(realpath --relative-to=. "$demo")/log. Stop everything with: make demo-stop
END
}

case "${1:-}" in
start) start ;;
stop) stop && echo "demo: stopped" ;;
*) die "say start or stop" ;;
esac
