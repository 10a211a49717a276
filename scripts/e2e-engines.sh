#!/usr/bin/env bash
# Everything that real engines are tested with and scripts/e2e-vllm.sh has no time for: each tests/engines/e2e_*.py but
# e2e_vllm.py, one after the other. Needs what e2e-vllm.sh needs, 6 GiB of free memory, and root for the cases with another
# user. The last line sums up all programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'e2e-engines.sh: %s\n' "$*"; }

usage() {
  echo "usage: e2e-engines.sh [--only NAME]... [--list]"
  echo
  echo "  --only NAME   only tests/engines/e2e_NAME.py; may be repeated"
  echo "  --list        the names"
}

all=()
for file in tests/engines/e2e_*.py; do
  name=$(basename "$file" .py)
  [ "$name" = e2e_vllm ] || all+=("${name#e2e_}")
done

chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    --only)
      [[ " ${all[*]} " == *" ${2:-} "* && -n ${2:-} ]] || { say "--only takes one of: ${all[*]}"; exit 2; }
      chosen+=("$2")
      shift 2
      ;;
    --list) printf '%s\n' "${all[@]}"; exit ;;
    --help | -h) usage; exit ;;
    *) usage; exit 2 ;;
  esac
done
[ "${#chosen[@]}" -gt 0 ] || chosen=("${all[@]}")

source scripts/engines.sh
source scripts/packages.sh
build_for_engines
folder=$(mktemp -d "${TMPDIR:-/tmp}/kvd-engines.XXXXXX")
passed=0 failed=0
for name in "${chosen[@]}"; do
  say "$name"
  case $name in
    sglang*) install_sglang ;;
    register | router)
      install_vllm
      want_router
      install_missing
      cargo build --quiet --locked -p infera-register -p infera-router
      ;;
    *) install_vllm ;;
  esac
  mkdir "$folder/$name"
  prepare_run "$folder/$name"
  code=0
  run_program "e2e_$name" "$folder/$name" 2>&1 | tee "$folder/$name/out" || code=$?
  if [[ $(tail -n 1 "$folder/$name/out") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
  else
    say "$name ended with exit code $code and no count"
    failed=$((failed + 1))
  fi
done
if [ "$failed" -eq 0 ]; then
  rm -rf "$folder"
else
  say "logs are in $folder"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
