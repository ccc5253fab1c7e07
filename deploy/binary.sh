#!/usr/bin/env bash
# Builds `zlock` as it is released, and prints the path of the program: one file without symbols, which needs no library of
# the system it runs on (Linux). `zlock --version` prints the commit.
#
#   deploy/binary.sh [TARGET]    # default: the target of this machine, for example x86_64-unknown-linux-gnu
#
# Another target needs a C compiler, which is also the linker. For arm64 on Debian: `rustup target add aarch64-unknown-linux-gnu`, the
# packages gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc, and
# deploy/binary.sh aarch64-unknown-linux-gnu.
#
# AUDITABLE=1 lets cargo-auditable build, which writes the list of dependencies into the program for scanners of vulnerabilities. Needs
# `cargo install --locked cargo-auditable@0.7.7`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target="${1:-$(rustc -vV | sed -n 's/^host: //p')}"
# The commit is "unknown" outside of a git checkout, and has "-dirty" behind it if files differ from the commit.
export ZLOCK_COMMIT="${ZLOCK_COMMIT:-$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)}"
cargo=(cargo)
[[ -z ${AUDITABLE:-} ]] || cargo+=(auditable)
# The flag is for programs that run on `target`: without --target, cargo would also build macros and build scripts with it.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" "${cargo[@]}" build --locked --profile dist --config 'profile.dist.strip="symbols"' \
    --target "$target" -p zlock --bin zlock >&2
directory="$(cargo metadata --no-deps --locked --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')"
printf '%s\n' "$directory/$target/dist/zlock"
