#!/usr/bin/env bash
# Builds what a release has for the architecture of this machine, and puts it into a new directory: the program with its licences, the
# .deb, the .rpm, the container image, the Helm chart, the OpenAPI document, the list of dependencies (SBOM, in CycloneDX), and the SHA-256
# of each file.
#
#   deploy/artefacts.sh DIRECTORY
#
# Needs docker or podman (deploy/engine.sh), curl, readelf, and `cargo install --locked cargo-auditable@0.7.7 cargo-cyclonedx@0.5.9
# cargo-deb@3.8.0 cargo-generate-rpm@0.21.1`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $# != 1 || -e $1 ]]; then
    printf 'usage: deploy/artefacts.sh DIRECTORY, which must not exist\n' >&2
    exit 2
fi
# Before the build, which takes minutes.
for tool in curl readelf cargo-auditable cargo-cyclonedx cargo-deb cargo-generate-rpm; do
    if ! command -v "$tool" >/dev/null; then
        printf '%s is not installed\n' "$tool" >&2
        exit 1
    fi
done
ENGINE="$(deploy/engine.sh)"
export ENGINE

mkdir -p "$1"
out="$(realpath "$1")"
scratch="$(mktemp -d)"
node=""
# The file of dependencies is written beside the manifest of every crate.
sbom="sbom-$$"
cleanup() {
    if [[ -n $node ]]; then
        kill "$node"
        wait "$node" || true
    fi
    find . -path ./target -prune -o -name "$sbom.json" -exec rm {} +
    rm -rf "$scratch"
}
trap cleanup EXIT

export AUDITABLE=1
program="$(deploy/binary.sh)"
readelf --wide --sections "$program" | grep -q '\.dep-v0' || {
    printf '%s has no list of its dependencies\n' "$program" >&2
    exit 1
}
read -r _ version _ < <("$program" --version)
name="zlock-$version-$(uname -m)"

mkdir "$scratch/$name"
cp "$program" LICENSE NOTICE "$scratch/$name"
tar --create --gzip --file "$out/$name.tar.gz" --directory "$scratch" --sort=name --owner=0 --group=0 --numeric-owner "$name"

deploy/packages.sh | while read -r package; do
    cp "$package" "$out"
done

deploy/chart.sh "$out"

image="$(ZLOCK="$program" deploy/image.sh "localhost/zlock:$version-$(uname -m)")"
"$ENGINE" save "$image" | gzip --no-name >"$out/$name-image.tar.gz"

target="$(basename "$(dirname "$(dirname "$program")")")"
cargo cyclonedx --quiet --format json --spec-version 1.5 --target "$target" --no-build-deps --override-filename "$sbom"
# The names of the crates of this repository begin with the path of the checkout.
sed "s|file://$(pwd -P)/|file:///zlock/|g" "crates/zlock/$sbom.json" >"$out/$name.cdx.json"

"$program" dev --nodes 1 --base-port 0 --data "$scratch/data" -- --admin-socket "$scratch/admin.sock" >"$scratch/log" 2>&1 &
node=$!
curl --silent --show-error --fail --retry 20 --retry-delay 1 --retry-all-errors --unix-socket "$scratch/admin.sock" \
    --output "$out/openapi.json" http://localhost/openapi.json

(cd "$out" && sha256sum -- *) >"$scratch/sums"
mv "$scratch/sums" "$out/SHA256SUMS-$(uname -m)"
ls -l "$out"
