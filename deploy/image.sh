#!/usr/bin/env bash
# Builds the container image with docker or podman, and prints its tag.
#
#   deploy/image.sh [TAG]        # default: localhost/zlock
#
# ENGINE names the program that builds (default: docker if its daemon runs, else podman), ZLOCK a static program to take instead
# of building one.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

tag="${1:-localhost/zlock}"
engine="$("$here/engine.sh")"
program="${ZLOCK:-$("$here/binary.sh")}"
context="$(mktemp -d)"
trap 'rm -rf "$context"' EXIT
mkdir "$context/data"
cp "$program" "$context/zlock"
printf 'zlock:x:10001:10001::/var/lib/zlock:/zlock\n' >"$context/passwd"
# "zlock 0.1.0 (commit 0123456789ab, level 1)"
read -r _ version _ revision _ < <("$program" --version)
"$engine" build --quiet --file "$here/Dockerfile" --tag "$tag" \
    --build-arg "VERSION=$version" --build-arg "REVISION=${revision%,}" "$context" >&2
printf '%s\n' "$tag"
