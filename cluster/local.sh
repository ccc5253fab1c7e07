#!/usr/bin/env bash
# A cluster of three separately started nodes on this machine, from node1.toml to node3.toml beside this script.
#   cluster/local.sh start [NODE...]    starts the nodes that do not run, and waits until they serve; builds the program first
#   cluster/local.sh stop [NODE...]     stops them cleanly
#   cluster/local.sh status             says which run, and what each thinks of the cluster
# ZLOCK is the program, ZLOCK_CLUSTER the directory of node1.toml to node3.toml, ZLOCK_RUN that of logs and process ids.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

config=${ZLOCK_CLUSTER:-cluster}
run=${ZLOCK_RUN:-zlock-data/cluster}
# Wherever cargo builds: its own configuration may say so, too.
built() {
    cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
}
program=${ZLOCK:-$(built)/release/zlock}
# How long nodes may take to serve, in tenths of a second.
patience=300

# The process id in a node's file, when that process still is this node.
pid_of() {
    local pid
    pid=$(cat "$run/node$1.pid" 2>/dev/null) || return 1
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$config/node$1.toml" && echo "$pid"
}

http_of() {
    sed -n "s/.*id = $1,.*http_addr = \"\([^\"]*\)\".*/\1/p" "$config/node$1.toml"
}

# Whether a node answers so: /livez when it serves, /readyz when it has a quorum and has caught up.
answers() {
    curl -sf -o /dev/null --max-time 2 "http://$(http_of "$1")$2"
}

# Waits until a node answers so. One that has ended does not.
wait_for() {
    local node=$1 path=$2 tenth pid
    for ((tenth = 0; tenth < patience; tenth++)); do
        # Not by its command line, which it does not have yet in its first moment.
        if ! pid=$(cat "$run/node$node.pid") || ! kill -0 "$pid" 2>/dev/null; then
            echo "node $node has ended. The end of its log, $run/node$node.log:" >&2
            tail -n 5 "$run/node$node.log" >&2 || true
            return 1
        fi
        if answers "$node" "$path"; then
            return 0
        fi
        sleep 0.1
    done
    echo "node $node does not answer $path; its log is $run/node$node.log" >&2
    return 1
}

running() {
    local node count=0
    for node in 1 2 3; do
        if pid_of "$node" >/dev/null; then
            count=$((count + 1))
        fi
    done
    echo "$count"
}

start() {
    local node path=/livez failed=0
    [[ -n "${ZLOCK:-}" ]] || cargo build --release --quiet -p zlock
    mkdir -p "$run"
    for node in "$@"; do
        if pid_of "$node" >/dev/null; then
            echo "node $node runs already"
            continue
        fi
        nohup "$program" serve --config "$config/node$node.toml" </dev/null >>"$run/node$node.log" 2>&1 &
        echo $! >"$run/node$node.pid"
        echo "node $node: http://$(http_of "$node"), pid $!, log $run/node$node.log"
    done
    for node in "$@"; do
        wait_for "$node" "$path" || failed=1
    done
    if [[ $failed == 1 ]]; then
        return 1
    fi
    # New data directories found a cluster when all are there; a cluster that exists needs two.
    if [[ $(running) == 3 ]]; then
        for node in "$@"; do
            wait_for "$node" /readyz || return 1
        done
        echo "the nodes are ready"
    else
        echo "the nodes run; the cluster serves when the others do too: a new one needs all three, an old one two"
    fi
}

stop() {
    local pid node
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
    local pid node
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
        sed -n '2,6s/^# *//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac
