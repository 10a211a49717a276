#!/usr/bin/env bash
# An upgrade from an earlier build's state, and back: builds the daemon and the test client of that revision beside this
# checkout's, and lets the two builds take over from each other, over stops and kills, over memory and disk, while engines
# of both go on (tests/tests/upgrade_builds.rs). Exit code 0 only if everything that had to be found was found and no byte
# was wrong. The earlier build stays in target/upgrade for the next run: a minute or two the first time, then seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'e2e-upgrade.sh: %s\n' "$*"; }

# The first landed build whose memory outlives it. Its state is what tests/golden/state holds.
revision=00f8db4
if_there=
write_state=

usage() {
  echo "usage: e2e-upgrade.sh [--if-there] [--write-state] [REVISION]"
  echo
  echo "  REVISION       the earlier build; $revision if none is given"
  echo "  --if-there     ends well, and says so, where the history does not reach back so far"
  echo "  --write-state  has that build leave tests/golden/state anew, and does nothing else"
}

while [ $# -gt 0 ]; do
  case $1 in
    --if-there) if_there=1 ;;
    --write-state) write_state=1 ;;
    --help | -h) usage; exit ;;
    -*) usage; exit 2 ;;
    *) revision=$1 ;;
  esac
  shift
done

if ! commit=$(git rev-parse --verify --quiet "$revision^{commit}" 2>/dev/null); then
  say "no commit $revision here (a shallow clone? git fetch --unshallow)"
  [ -n "$if_there" ] || exit 2
  say "no build was compared: that tests/golden/state is taken over (tests/tests/upgrade.rs) is all the proof there is"
  exit 0
fi

# A folder and a target folder of its own: cargo tells crates apart by their place in the workspace, so two checkouts in one
# target folder take each other's.
folder=$PWD/target/upgrade/$commit
if [ ! -d "$folder/source" ]; then
  rm -rf "$folder/source.new"
  mkdir -p "$folder/source.new"
  git archive "$commit" | tar -x -C "$folder/source.new"
  mv "$folder/source.new" "$folder/source"
fi
say "building $revision"
# Of what takes long to build nothing is needed here: the checks stay on.
(cd "$folder/source" && CARGO_TARGET_DIR=$folder/target cargo build --quiet --locked --config profile.dev.debug=0 \
  --config 'profile.dev.package."*".opt-level=0' -p infera-kvd -p kvd-tests --bins)
export KVD_PREVIOUS=$folder/target/debug

if [ -n "$write_state" ]; then
  say "$revision leaves tests/golden/state"
  cargo build --quiet --locked -p kvd-tests --bins
  rm -rf tests/golden/state/disk tests/golden/state/kvd-*
  KVD_STATE=$PWD/tests/golden/state cargo test --quiet --locked -p kvd-tests --test upgrade -- --ignored
  exit
fi

say "building this checkout"
cargo build --quiet --locked -p infera-kvd -p kvd-tests --bins
say "$revision and this checkout take over from each other"
cargo test --quiet --locked -p kvd-tests --test upgrade_builds -- --ignored --nocapture
