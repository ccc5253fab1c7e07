#!/usr/bin/env bash
# Prints the program that builds and saves images: ENGINE if it is set, else docker if its daemon answers, else podman.
#
#   deploy/engine.sh
set -euo pipefail

if [[ -n ${ENGINE:-} ]]; then
    printf '%s\n' "$ENGINE"
    exit
fi
for engine in docker podman; do
    # `docker version` fails while no daemon answers.
    if "$engine" version >/dev/null 2>&1; then
        printf '%s\n' "$engine"
        exit
    fi
done
printf 'neither docker with its daemon nor podman is here: install one of them, or name another program in ENGINE\n' >&2
exit 1
