#!/usr/bin/env bash
# A cluster of three separately started nodes on this machine, from node1.toml to node3.toml beside this script.
#   cluster/local.sh start [NODE...]    starts the nodes that do not run; builds the program first
#   cluster/local.sh stop [NODE...]     stops them cleanly
#   cluster/local.sh status             says which run, and what each thinks of the cluster
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=zlock-data/cluster
program=${ZLOCK:-${CARGO_TARGET_DIR:-target}/release/zlock}

# The process id in a node's file, when that process still is this node.
pid_of() {
    local pid
    pid=$(cat "$run/node$1.pid" 2>/dev/null) || return 1
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q "cluster/node$1.toml" && echo "$pid"
}

http_of() {
    sed -n "s/.*id = $1,.*http_addr = \"\([^\"]*\)\".*/\1/p" "cluster/node$1.toml"
}

start() {
    [[ -n "${ZLOCK:-}" ]] || cargo build --release --quiet -p zlock
    mkdir -p "$run"
    for node in "$@"; do
        if pid_of "$node" >/dev/null; then
            echo "node $node runs already"
            continue
        fi
        nohup "$program" serve --config "cluster/node$node.toml" </dev/null >>"$run/node$node.log" 2>&1 &
        echo $! >"$run/node$node.pid"
        echo "node $node: http://$(http_of "$node"), pid $!, log $run/node$node.log"
    done
}

stop() {
    local pid
    for node in "$@"; do
        if pid=$(pid_of "$node"); then
            kill -TERM "$pid"
        fi
    done
    for node in "$@"; do
        while pid=$(pid_of "$node"); do
            sleep 0.1
        done
        rm -f "$run/node$node.pid"
        echo "node $node is stopped"
    done
}

status() {
    local pid
    for node in 1 2 3; do
        if pid=$(pid_of "$node"); then
            echo "node $node runs, pid $pid: $(curl -s --max-time 2 "http://$(http_of "$node")/v1/cluster" || echo "no answer")"
        else
            echo "node $node does not run"
        fi
    done
}

command=${1:-}
shift || true
[[ $# -gt 0 ]] || set -- 1 2 3
case "$command" in
    start | stop) "$command" "$@" ;;
    status) status ;;
    *)
        sed -n '2,5s/^# *//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac
