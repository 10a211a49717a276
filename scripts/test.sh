#!/usr/bin/env bash
# Everything that CI runs. Works on a fresh Debian 12 with a Rust toolchain: installs what is missing, then calls
# `cargo xtask ci`, whose last line counts the steps. Some safety cases need root (namespaces, control groups, another
# user) and fail without it; nothing is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The version that the suite is known to run under; any that is already there is taken.
nextest_version=0.9.143

say() { printf 'test.sh: %s\n' "$*"; }

source scripts/packages.sh
source scripts/engines.sh
want git git
want cc gcc libc6-dev
want c++ g++
want nm binutils
want valgrind valgrind libc6-dbg
want_router
want python3 python3
want unshare util-linux
want systemd-analyze systemd
want systemd-sysusers systemd
# Parts for the disk tier.
want losetup mount
want mkfs.ext4 e2fsprogs
want mkfs.xfs xfsprogs
want qemu-storage-daemon qemu-utils
want fusermount3 fuse3
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
want_engines
install_missing

command -v cargo >/dev/null || { say "no cargo: install the Rust toolchain first"; exit 1; }
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
if ! cargo nextest --version >/dev/null 2>&1; then
  say "building cargo-nextest $nextest_version (once, some minutes)"
  cargo install --quiet --locked --version "$nextest_version" cargo-nextest
fi
[ "$(id -u)" -eq 0 ] || say "not root: the safety cases that need namespaces or control groups will fail"

exec cargo xtask ci
