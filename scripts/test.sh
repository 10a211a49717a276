#!/usr/bin/env bash
# Everything that CI runs. Works on a fresh Debian 12 with a Rust toolchain: installs what is missing, then calls
# `cargo xtask ci`, whose last line counts the steps. Some safety cases need root (namespaces, control groups, another
# user) and fail without it; nothing is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The version that the suite is known to run under; any that is already there is taken.
nextest_version=0.9.143

say() { printf 'test.sh: %s\n' "$*"; }

# Debian packages, each named only if what it brings is missing.
missing=()
command -v git >/dev/null || missing+=(git)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v python3 >/dev/null || missing+=(python3)
command -v unshare >/dev/null || missing+=(util-linux)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ "${#missing[@]}" -gt 0 ]; then
  say "installing ${missing[*]}"
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { say "please install as root: ${missing[*]}"; exit 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

command -v cargo >/dev/null || { say "no cargo: install the Rust toolchain first"; exit 1; }
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
if ! cargo nextest --version >/dev/null 2>&1; then
  say "building cargo-nextest $nextest_version (once, some minutes)"
  cargo install --quiet --locked --version "$nextest_version" cargo-nextest
fi
[ "$(id -u)" -eq 0 ] || say "not root: the safety cases that need namespaces or control groups will fail"

exec cargo xtask ci
