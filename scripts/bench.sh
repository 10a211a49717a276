#!/usr/bin/env bash
# Measures a suite of bars: scripts/bench.sh <suite> [--quick]. Builds release, runs, and ends with a line for each bar:
# BAR <id> <value> <bound> ok|short. Exit code 1 if any is short. Suites: l2.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'bench.sh: %s\n' "$*" >&2; }

if [ $# -eq 0 ]; then
  say "usage: scripts/bench.sh <suite> [--quick]; suites: l2"
  exit 2
fi
source scripts/packages.sh
want cc gcc libc6-dev
install_missing
command -v cargo >/dev/null || { say "no cargo: install the Rust toolchain first"; exit 1; }
say "building (release)"
cargo build --release --locked --bin infera-kvd --bin kvd-bench
exec "${CARGO_TARGET_DIR:-target}/release/kvd-bench" "$@"
