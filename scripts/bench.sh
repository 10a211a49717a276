#!/usr/bin/env bash
# Measures a suite of bars: scripts/bench.sh <suite> [--quick]. Builds release, runs, and ends with a line for each bar:
# BAR <id> <value> <bound> ok|short. Exit code 1 if any is short. Suites: l2, l3, router. The suite l3 compares with peers:
# what of them cannot be had here is said, and its bars are short. The suite router compares with nginx.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'bench.sh: %s\n' "$*" >&2; }

if [ $# -eq 0 ]; then
  say "usage: scripts/bench.sh <suite> [--quick]; suites: l2, l3, router"
  exit 2
fi
source scripts/packages.sh
want_daemon
[ "$1" != l3 ] || want fio fio
binaries=(--bin kvd-bench)
if [ "$1" = router ]; then
  # Debian keeps nginx where only administrators look. Its package serves port 80; what is measured is another process.
  PATH=$PATH:/usr/sbin
  want nginx nginx
  want_router
  binaries+=(--bin infera-router)
else
  binaries+=(--bin infera-kvd)
fi
install_missing
command -v cargo >/dev/null || { say "no cargo: install the Rust toolchain first"; exit 1; }
target=${CARGO_TARGET_DIR:-$PWD/target}

# foyer, in a process that has it as a library.
build_foyer() {
  local folder=$target/peers
  cargo build --release --locked --manifest-path benches/peers/Cargo.toml --target-dir "$folder" || return 1
  export KVD_BENCH_FOYER=$folder/release/kvd-peers
}

# raw_block of LMCache: its sources and its Rust extension, in an environment of their own; nothing else of it. Outside
# the checkout, whose settings for cargo are not meant for it.
build_raw_block() {
  local version=0.5.6
  local folder=${XDG_CACHE_HOME:-$HOME/.cache}/infera-kvd-bench/raw-block-$version
  if [ ! -e "$folder/complete" ]; then
    command -v python3 >/dev/null || return 1
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    python3 -m venv "$folder" || return 1
    local pip=("$folder/bin/pip" --quiet --disable-pip-version-check)
    "${pip[@]}" install 'setuptools>=77,<81' 'setuptools_scm>=8' wheel packaging || return 1
    NO_NATIVE_EXT=1 "${pip[@]}" download --no-deps --no-build-isolation --no-binary :all: \
      --dest "$folder" "lmcache==$version" || return 1
    mkdir "$folder/sources"
    tar -xf "$folder"/lmcache-*.tar.gz -C "$folder/sources" --strip-components 1 || return 1
    "${pip[@]}" install "$folder/sources/rust/raw_block" || return 1
    touch "$folder/complete"
  fi
  cat >"$folder/raw_block" <<RUN
#!/bin/sh
exec "$folder/bin/python" "$PWD/benches/peers/raw_block.py" "$folder/sources" "\$@"
RUN
  chmod +x "$folder/raw_block"
  export KVD_BENCH_RAW_BLOCK=$folder/raw_block
}

say "building (release)"
cargo build --release --locked "${binaries[@]}"
if [ "$1" = l3 ]; then
  build_foyer >&2 || say "foyer cannot be built here: its bars will be short"
  build_raw_block >&2 || say "raw_block of LMCache cannot be had here: its bars will be short"
fi
exec "$target/release/kvd-bench" "$@"
