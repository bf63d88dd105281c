#!/usr/bin/env bash
# A private Saltern master with three native minions in .demo/, to look at and to play with.
#
#   packaging/demo.sh build   build the programs for `make demo`, target/demo/saltern and saltern-lab
#   packaging/demo.sh start   start them, run some jobs, leave them running
#   packaging/demo.sh stop    stop them
#
# Nothing outside .demo/ is touched and only 127.0.0.1 is listened on. SALTERN names another binary
# than target/release/saltern (saltern-lab, which has the minions, is beside it), DEMO another directory.
set -euo pipefail
cd "$(dirname "$0")/.."

saltern=$(realpath -m "${SALTERN:-target/release/saltern}")
lab=${saltern%/*}/saltern-lab
demo=$(realpath -m "${DEMO:-.demo}")
minions=(alfa bravo charlie)

die() { echo "demo: $*" >&2; exit 1; }
# shellcheck source=packaging/processes.sh
. packaging/processes.sh

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

stop() {
    [ -e "$demo/pids" ] || die "nothing is running in $demo"
    stop_all "$demo/pids"
}

# Starts a program in the background under a name.
begin() {
    local name="$1"
    shift
    launch "$demo/pids" "$demo/log/$name" "$@"
}

# A first build fails at once, and with a sentence, where something is missing.
build() {
    local missing=()
    command -v "${CARGO:-cargo}" >/dev/null ||
        die "there is no cargo: install Rust from https://rustup.rs"
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    pkg-config --exists openssl 2>/dev/null || missing+=(libssl-dev)
    [ ${#missing[@]} = 0 ] || die "to build, these packages are missing (Debian's names): ${missing[*]}"

    echo "1. Building Saltern in a quick form, target/demo/saltern."
    if [ ! -e target/demo/saltern ]; then
        echo "   The first time that takes about 4 minutes on two cores: some 200 crates, Saltern's own"
        echo "   last. Cargo names each as it compiles it. Later builds take seconds."
    fi
    local began=$SECONDS
    "${CARGO:-cargo}" build --profile demo -p saltern -p saltern-lab --no-default-features
    echo "   Built in $((SECONDS - began)) s."
    echo
    echo "2. Trying it: a master and three minions on 127.0.0.1, then real jobs."
}

configure() {
    rm -rf "$demo"
    mkdir -p "$demo/conf" "$demo/log" "$demo/run"
    publish_port=$(free_port 24505 2)
    ret_port=$(free_port 24506 2)
    metrics_port=$(free_port 25507 2)
    api_port=$(free_port 25508 2)
    # A password for this demo alone; hexadecimal, so that it needs no quotes anywhere.
    api_password=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')
    (umask 077 && echo "demo:$api_password" >"$demo/conf/users")
    cat >"$demo/conf/master" <<END
# The demo's master. An ordinary Salt master configuration.
interface: 127.0.0.1
publish_port: $publish_port
ret_port: $ret_port
saltern_metrics_address: 127.0.0.1:$metrics_port
saltern_api: {port: $api_port}
netapi_enable_clients: [local, local_async, runner, wheel]
external_auth: {file: {'^filename': $demo/conf/users, demo: ['.*', '@runner', '@wheel', '@jobs']}}
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
root_dir: $demo/minions/$id
pki_dir: $demo/minions/$id/pki
cachedir: $demo/minions/$id/cache
acceptance_wait_time: 1
grains: {role: demo, phase: ${#id}}
END
    done
}

# Ends the demo with its logs on screen when the condition does not come to hold: a program has ended, or
# it takes minutes.
wait_for() {
    local what="$1"
    shift
    if wait_while_they_run "$demo/pids" "$what" "$@"; then return 0; fi
    tail -n 20 "$demo"/log/* >&2
    stop
    die "waited in vain for $what"
}

serves() { [ -S "$demo/run/master_event_pub.ipc" ] && takes_connections "$ret_port"; }
# Asking earlier would wait for the answer of a minion that has not subscribed yet.
all_connected() {
    timeout --foreground 30 "$saltern" metrics -c "$demo/conf" |
        grep -qx 'saltern_port_connections{listener="publish",state="open",transport="zeromq"} 3'
}
all_answer() {
    [ "$(timeout --foreground 30 "$saltern" cmd -c "$demo/conf" -t 1 '*' test.ping | grep -c True)" = 3 ]
}

start() {
    local program
    for program in "$saltern" "$lab"; do
        [ -x "$program" ] || die "$program is missing: run 'make lab'"
    done
    if [ -e "$demo/pids" ]; then stop; fi
    configure
    shown=$(realpath --relative-to=. "$demo/conf")

    local began=$SECONDS
    echo "Starting a master on 127.0.0.1:$publish_port and :$ret_port, and ${#minions[@]} minions"
    begin master "$saltern" master -c "$demo/conf"
    wait_for "the master to serve" serves
    local id
    for id in "${minions[@]}"; do
        begin "$id" "$lab" minion -c "$demo/minions/$id"
    done
    wait_for "all minions to connect" all_connected
    wait_for "all minions to answer" all_answer

    show '*' test.ping
    show alfa cmd.run 'uname -srm; uptime -p'
    # shellcheck disable=SC2016  # the minions' shells put their own names in
    show -L alfa,charlie cmd.run 'sleep 1; echo "done on $(hostname)"'
    show '*' grains.get role
    local login=(-d username=demo -d eauth=file -d "password=$api_password")
    local call=(-d client=local -d 'tgt=*' -d fun=test.ping)
    echo
    echo "The HTTP API, with the user and password of this demo:"
    echo "\$ curl -s http://127.0.0.1:$api_port/run ${login[*]} -d client=local -d 'tgt=*' -d fun=test.ping"
    if command -v curl >/dev/null; then
        curl -sS "http://127.0.0.1:$api_port/run" "${login[@]}" "${call[@]}"
        echo
    fi

    echo
    echo "The console: http://127.0.0.1:$api_port/console/ (user demo, password $api_password)"

    cat <<END

That took $((SECONDS - began)) s. The master and the minions keep running. Try:
  $(realpath --relative-to=. "$saltern") cmd -c $shown '*' cmd.run 'df -h /'
  salt -c $shown '*' test.ping            (stock Salt's own command, if you have it)
The logs are in $(realpath --relative-to=. "$demo")/log. Stop everything with: make demo-stop
END
}

case "${1:-}" in
build) build ;;
start) start ;;
stop) stop && echo "demo: stopped" ;;
*) die "say build, start or stop" ;;
esac
