#!/usr/bin/env bash
# The whole thing in some minutes, in three acts: builds infera-kvd, starts it on a socket of its own, lets two processes
# replay a public request trace through it, and shows what it was good for; kills it, starts it again, and shows what
# comes back from disk; then two real engines (vLLM on the CPU, installed once outside the checkout) with a daemon each
# behind infera-router, and why a request goes where. Works on a fresh Debian 12 with a Rust toolchain; installs what is
# missing. An act for which this machine is too small is left out, and that is said. Exit code 0 only if every byte that
# came back was right and everything ended cleanly.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'demo.sh: %s\n' "$*"; }

trace=tests/traces/conversation_1500.jsonl
# Enough for a good share of hits, and the least that still shows hits and evictions.
wanted_mib=2048
least_mib=256
# On disk.
wanted_disk_mib=4096
least_disk_mib=512
# Two engines of some 2.5 GiB each, and what they are installed to.
engines_mib=6144
engines_disk_mib=4096

source scripts/packages.sh
want_daemon
install_missing
command -v cargo >/dev/null || { say "no cargo: install the Rust toolchain first"; exit 1; }

# Memory that is free for the arena, in MiB: the host's, or what a control group leaves of it.
free_mib() {
  local free group limit used
  free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  for group in "/sys/fs/cgroup memory.max memory.current" \
    "/sys/fs/cgroup/memory memory.limit_in_bytes memory.usage_in_bytes"; do
    set -- $group
    if [ -r "$1/$2" ] && [ -r "$1/$3" ]; then
      limit=$(cat "$1/$2") used=$(cat "$1/$3")
      # "max", and numbers of 19 digits, mean that there is no limit.
      if [[ $limit =~ ^[0-9]{1,18}$ ]] && [ $(((limit - used) >> 20)) -lt "$free" ]; then
        free=$(((limit - used) >> 20))
      fi
    fi
  done
  echo "$free"
}

say "building (release)"
cargo build --release --locked --bin infera-kvd --bin kvd-replay
binaries=${CARGO_TARGET_DIR:-target}/release

# A quarter stays for everybody else.
free=$(free_mib)
size_mib=$((free * 3 / 4))
if [ "$size_mib" -ge "$wanted_mib" ]; then
  size_mib=$wanted_mib
elif [ "$size_mib" -ge "$least_mib" ]; then
  say "only $free MiB are free: the arena has $size_mib MiB instead of $wanted_mib, so less is found again"
else
  say "only $free MiB are free; the demo needs $((least_mib * 4 / 3))"
  exit 1
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/kvd-demo.XXXXXX")
daemon=
clean_up() {
  [ -z "$daemon" ] || kill -KILL "$daemon" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

# Half of the disk stays for everybody else.
free_disk=$(($(df --output=avail -k "$folder" | tail -n 1) / 1024))
disk_mib=$((free_disk / 2))
if [ "$disk_mib" -ge "$wanted_disk_mib" ]; then
  disk_mib=$wanted_disk_mib
elif [ "$disk_mib" -lt "$least_disk_mib" ]; then
  say "only $free_disk MiB are free on the disk of $folder: there is no second act (TMPDIR chooses another disk)"
  disk_mib=0
fi

# The trace's 510 seconds pass in a few, so what was promised to a scheduler is kept for one second, not for thirty. Every
# block may go to disk, not only those that were asked for twice: this disk is thrown away, not worn.
mkdir "$folder/disk"
start() {
  "$binaries/infera-kvd" --socket "$folder/kvd.sock" --max-bytes "${size_mib}M" --promise-window 1s \
    --long-path "$folder/disk" --long-bytes "${disk_mib}M" --second-touch=false >>"$folder/log" 2>&1 &
  daemon=$!
}

say "starting infera-kvd with an arena of $size_mib MiB, and $disk_mib MiB on disk"
start
failed=0
say "replaying $trace through two engine processes"
"$binaries/kvd-replay" --socket "$folder/kvd.sock" --trace "$trace" || failed=1

if [ "$disk_mib" -gt 0 ]; then
  say "killing the daemon with SIGKILL, starting it again, and asking for every block of the trace"
  kill -KILL "$daemon" 2>/dev/null || true
  wait "$daemon" 2>/dev/null || true
  start
  "$binaries/kvd-replay" --socket "$folder/kvd.sock" --trace "$trace" --recall || failed=1
fi

kill -TERM "$daemon" 2>/dev/null || true
code=0
wait "$daemon" || code=$?
daemon=
if [ "$code" -ne 0 ]; then
  say "infera-kvd ended with exit code $code"
  failed=1
fi
if [ "$failed" -ne 0 ]; then
  say "FAILED. The daemon's log:"
  cat "$folder/log"
  exit 1
fi
say "every byte was right, every request answered, and the daemon drained"

# Why this machine can't have two engines; nothing if it can.
no_engines() {
  local free free_disk
  free=$(free_mib)
  if [ "$free" -lt "$engines_mib" ]; then
    echo "only $free MiB of memory are free, and two engines take $engines_mib"
    return
  fi
  mkdir -p "$environments"
  free_disk=$(($(df --output=avail -k "$environments" | tail -n 1) / 1024))
  if [ "$free_disk" -lt "$engines_disk_mib" ]; then
    echo "only $free_disk MiB are free on the disk of $environments, and an engine takes $engines_disk_mib (XDG_CACHE_HOME chooses another disk)"
  fi
}

source scripts/engines.sh
reason=$(no_engines)
if [ -n "$reason" ]; then
  say "there is no third act: $reason"
  exit 0
fi
say "third act: two engines behind the router"
want_router
want_engines
install_missing
install_vllm
say "building the router (release)"
cargo build --release --locked -p infera-kvd -p kvdctl -p infera-router -p infera-register -p kvd-python
built=$binaries
mkdir "$folder/router"
prepare_run "$folder/router"
if ! run_program show_router "$folder/router"; then
  kept=$(mktemp -d "${TMPDIR:-/tmp}/kvd-demo-logs.XXXXXX")
  cp "$folder"/router/run/*.log "$kept"
  say "FAILED (see above). The logs of the engines, the router and etcd are in $kept"
  exit 1
fi
say "all three acts went well; their logs and all else that they wrote are removed"
