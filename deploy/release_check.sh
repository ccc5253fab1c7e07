#!/usr/bin/env bash
# Checks that the files which describe a release agree with its tag. Prints each disagreement, and ends with 1 if there is one.
#
#   deploy/release_check.sh TAG      # for example v0.1.0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $# != 1 ]]; then
    printf 'usage: deploy/release_check.sh TAG\n' >&2
    exit 2
fi
tag="$1"
failed=0
disagree() {
    printf '%s\n' "$1" >&2
    failed=1
}

version="$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)"
[[ $tag == "v$version" ]] || disagree "the tag is $tag, and Cargo.toml has version $version: the tag must be v$version"

chart="$(sed -n 's/^\(version\|appVersion\): //p' deploy/helm/zlock/Chart.yaml)"
[[ $chart == "$version"$'\n'"$version" ]] ||
    disagree "version and appVersion in deploy/helm/zlock/Chart.yaml must both be $version"

entry="$(sed -n 's/^## //p' docs/changelog.md | head -n 1)"
[[ $entry =~ ^"$version, "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] ||
    disagree "the first entry of docs/changelog.md is \"$entry\": it must be \"$version, YEAR-MONTH-DAY\""

level="$(sed -n '/^#\[cfg(not(feature = "next-level"))\]$/{n;s/.*LEVEL_MAX: u16 = \([0-9]*\);$/\1/p}' crates/znode/src/words/level.rs)"
peers="$(sed -n 's/.*VERSIONS: (u16, u16) = (\([0-9]*\), \([0-9]*\));$/\1 to \2/p' crates/replica/src/raft/transport/refusal.rs)"
[[ -n $level && -n $peers ]] || disagree 'the sources have no LEVEL_MAX or no VERSIONS where this script looks for them'
row="$(sed -n '/^| [0-9]/{p;q}' docs/releases.md)"
[[ $row == "| $version | $level | tagged | $peers | "* ]] ||
    disagree "the first row of docs/releases.md is \"$row\": it must begin with \"| $version | $level | tagged | $peers |\""

[[ -d crates/znode/tests/golden/level-$level ]] || disagree "there are no golden files of level $level in crates/znode/tests/golden"

! grep -q 'zlock\.invalid' crates/zlock/Cargo.toml || disagree 'crates/zlock/Cargo.toml has no real address of the maintainers'

((failed == 0)) || exit 1
printf '%s: level %s, messages between nodes %s\n' "$tag" "$level" "$peers"
