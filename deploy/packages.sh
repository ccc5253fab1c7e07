#!/usr/bin/env bash
# Builds the packages for Debian and Ubuntu (.deb) and for Fedora (.rpm), and prints their paths. The program is built by deploy/binary.sh.
#
#   deploy/packages.sh [REVISION]    # default: 1, the first package of this version
#
# Needs `cargo install --locked cargo-deb@3.8.0 cargo-generate-rpm@0.21.1`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

revision="${1:-1}"
program="$(deploy/binary.sh)"
profile="$(dirname "$program")"
triple="$(basename "$(dirname "$profile")")"
target="$(dirname "$(dirname "$profile")")"
read -r _ version _ < <("$program" --version)

# What the program itself writes, and the changelog in Debian's form; Cargo.toml names them below target/release.
extras="$profile/extras"
rm -rf "$extras"
mkdir -p "$extras/man"
"$program" man "$extras/man"
gzip --best --no-name "$extras"/man/*
for shell in bash fish zsh; do
    "$program" completions "$shell" >"$extras/completions.$shell"
done
date="$(git log -1 --format=%cD 2>/dev/null || date --rfc-email)"
printf 'zlock (%s-%s) unstable; urgency=medium\n\n  * The changes are in docs/changelog.md of the sources.\n\n -- %s  %s\n' \
    "$version" "$revision" "$(sed -n 's/^maintainer = "\(.*\)"$/\1/p' crates/zlock/Cargo.toml)" "$date" | gzip --best --no-name >"$extras/changelog.gz"

built=(--target "$triple" --profile dist)
cargo deb --package zlock --no-build --no-strip --quiet "${built[@]}" --deb-revision "$revision" --output "$target/packages/"
cargo generate-rpm --package crates/zlock "${built[@]}" --target-dir "$target" --set-metadata "release = \"$revision\"" \
    --output "$target/packages/" >&2
printf '%s\n' "$target/packages/zlock-$version-$revision".*.rpm
