#!/usr/bin/env bash
# Real vLLM processes on a real daemon: cold, warm, shared, killed, from disk, short of memory; see
# tests/engines/e2e_vllm.py. On a CPU, with a tiny seeded model, in some minutes on two cores. Installs the engine once,
# outside the checkout, by the hash of its pins. Needs a Rust toolchain, Python 3.11, gcc and binutils. Logs of a run that
# failed stay where the last lines say.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'e2e-vllm.sh: %s\n' "$*"; }

source scripts/engines.sh
install_vllm
build_for_engines

folder=$(mktemp -d "${TMPDIR:-/tmp}/kvd-vllm.XXXXXX")
clean_up() {
  local code=$?
  [ "$code" -ne 0 ] || rm -rf "$folder"
}
trap clean_up EXIT
prepare_run "$folder"
run_program e2e_vllm "$folder"
