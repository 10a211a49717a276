#!/usr/bin/env bash
# Measures the connector in real vLLM processes on a CPU: benches/engines/run.sh [--quick] [PART...]; see bench_vllm.py.
# Builds release, installs the engine as scripts/e2e-vllm.sh does. The part `slow` needs root for a loop device and a
# control group. Exit code 1 if a bar is short.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf 'run.sh: %s\n' "$*" >&2; }

source scripts/engines.sh
install_vllm
say "building (release)"
cargo build --quiet --release --locked -p infera-kvd -p kvd-python
built=${CARGO_TARGET_DIR:-target}/release

folder=$(mktemp -d "${TMPDIR:-/tmp}/kvd-bench.XXXXXX")
clean_up() {
  local code=$?
  [ "$code" -ne 0 ] || rm -rf "$folder"
  [ "$code" -eq 0 ] || say "logs are in $folder"
}
trap clean_up EXIT
prepare_run "$folder"
env -u PYTHONHASHSEED PYTHONPATH="$folder/site:$engines" "$environment/bin/python" benches/engines/bench_vllm.py \
  --daemon "$built/infera-kvd" --model "$folder/model" --folder "$folder/run" --python-path "$folder/site" "$@"
