#!/usr/bin/env bash
# Packs the Helm chart into a directory, and prints the path of the archive. Equal sources give equal bytes.
#
#   deploy/chart.sh DIRECTORY
set -euo pipefail

if [[ $# != 1 || ! -d $1 ]]; then
    printf 'usage: deploy/chart.sh DIRECTORY\n' >&2
    exit 2
fi
charts="$(dirname "${BASH_SOURCE[0]}")/helm"
archive="$1/zlock-$(sed -n 's/^version: //p' "$charts/zlock/Chart.yaml").tgz"
tar --create --directory "$charts" --sort=name --mtime=@0 --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner zlock |
    gzip --no-name >"$archive"
printf '%s\n' "$archive"
