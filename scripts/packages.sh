# Debian packages that a script needs, each named only if what it brings is missing. To be sourced.
#
#   missing=(); want cc gcc libc6-dev; want git git; install_missing

missing=()

# want COMMAND PACKAGE...: the packages, unless the command is there.
want() {
  command -v "$1" >/dev/null || missing+=("${@:2}")
}

# want_daemon: what it takes to build the daemon: libzmq is C++, libsodium is configured and made, the etcd client compiles
# interface files.
want_daemon() {
  want cc gcc libc6-dev
  want c++ g++
  want make make
  want protoc protobuf-compiler
  [ -e /usr/include/google/protobuf/descriptor.proto ] || missing+=(libprotobuf-dev)
}

# want_router: what it takes to build the router and to test it.
want_router() {
  want_daemon
  want etcd etcd-server
}

# Installs what `want` found missing; the caller defines `say`.
install_missing() {
  [ "${#missing[@]}" -gt 0 ] || return 0
  say "installing ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { say "please install as root: ${missing[*]}"; exit 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  missing=()
}
