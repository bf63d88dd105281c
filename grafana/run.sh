#!/usr/bin/env bash
# The demo with Prometheus and, where it is installed, Grafana, all on 127.0.0.1 and in .demo/.
#
#   grafana/run.sh start   start them, leave them running
#   grafana/run.sh stop    stop them
#
# DEMO names another directory, SCRAPE another interval.
set -euo pipefail
cd "$(dirname "$0")/.."

demo=$(realpath -m "${DEMO:-.demo}")
pids="$demo/watch-pids"

die() { echo "grafana: $*" >&2; exit 1; }

# shellcheck source=packaging/processes.sh
. packaging/processes.sh

stop() { if [ -e "$pids" ]; then stop_all "$pids"; fi; }

# begin NAME PORT PROGRAM [ARGUMENTS]: starts what then listens on the port.
begin() {
    local name="$1" port="$2"
    shift 2
    launch "$pids" "$demo/log/$name" "$@"
    wait_while_they_run "$pids" "127.0.0.1:$port" takes_connections "$port" ||
        die "$name does not listen on 127.0.0.1:$port; see $demo/log/$name"
}

start() {
    local prometheus
    prometheus=$(tests/install-stock.sh --prometheus)/prometheus
    stop
    packaging/demo.sh start
    local address watch port grafana_port scrape=${SCRAPE:-5s}
    address=$(sed -n 's/^saltern_metrics_address: //p' "$demo/conf/master")
    watch="$demo/watch"
    rm -rf "$watch"
    mkdir -p "$watch"
    cp grafana/alerts.yml "$watch/alerts.yml"
    sed -e "s/127.0.0.1:4507/$address/" -e "s/15s/$scrape/" grafana/prometheus.yml >"$watch/prometheus.yml"
    port=$(free_port 29090 1)
    begin prometheus "$port" "$prometheus" --config.file="$watch/prometheus.yml" \
        --storage.tsdb.path="$watch/prometheus" --web.listen-address="127.0.0.1:$port"
    echo "127.0.0.1:$port" >"$watch/address"
    echo
    echo "Prometheus: http://127.0.0.1:$port"
    if command -v grafana >/dev/null; then
        grafana_port=$(free_port 23000 1)
        export SALTERN_PROMETHEUS="http://127.0.0.1:$port" SALTERN_DASHBOARDS="$PWD/grafana/dashboards"
        GF_SERVER_HTTP_ADDR=127.0.0.1 GF_SERVER_HTTP_PORT=$grafana_port \
            GF_PATHS_DATA="$watch/grafana" GF_PATHS_LOGS="$demo/log" \
            GF_PATHS_PROVISIONING="$PWD/grafana/provisioning" \
            GF_AUTH_ANONYMOUS_ENABLED=true GF_ANALYTICS_REPORTING_ENABLED=false \
            GF_ANALYTICS_CHECK_FOR_UPDATES=false \
            begin grafana "$grafana_port" grafana server --homepath "${GRAFANA_HOME:-/usr/share/grafana}"
        echo "Grafana:    http://127.0.0.1:$grafana_port/d/saltern-overview"
    else
        echo "Grafana is not installed: Prometheus' own pages show the same data. See grafana/README.md"
    fi
    echo "Stop everything with: make grafana-stop"
}

case "${1:-}" in
start) start ;;
stop) stop && packaging/demo.sh stop && echo "grafana: stopped" ;;
*) die "say start or stop" ;;
esac
