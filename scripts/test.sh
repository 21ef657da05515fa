#!/usr/bin/env bash
# Runs everything that CI runs, from cheap to expensive; stops at the first step that fails. The last line counts the
# tests. On two cores it takes less than half an hour from a clean checkout.
#
# KILL_CYCLES, FAULTS, POWER_SEEDS and PROGRAMS set the size of the campaigns.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
export STANDFAST_BIN=$target/tested
# Temporary databases must be on a disk; /tmp is in memory on newer Debian.
export TMPDIR=${TMPDIR:-/var/tmp}
build=(--workspace --locked --profile tested)
began=$SECONDS
output=$(mktemp)
beside_output=$(mktemp)
beside=
end() {
  if [ -n "$beside" ]; then kill -- "-$beside" || true; fi
  rm -f "$output" "$beside_output"
}
trap end EXIT
passed=0
skipped=0

step() {
  echo
  echo "== $1"
  shift
  local start=$SECONDS
  "$@" </dev/null
  echo "   ($((SECONDS - start)) s)"
}

# A step that counts as one test.
check() {
  step "$@"
  passed=$((passed + 1))
}

# Runs commands one after the other in the background, beside steps that mostly wait for processes and not for a
# processor.
run_beside() {
  # A process group of its own: whatever its commands have started ends with it.
  set -m
  (for command in "$@"; do $command || exit; done) </dev/null >"$beside_output" 2>&1 &
  beside=$!
  set +m
}

# Waits for the background commands and prints their output.
ran_beside() {
  local code=0
  wait "$beside" || code=$?
  beside=
  cat "$beside_output"
  return $code
}

# The integration tests `b*` mostly wait for processes, so more of them run in parallel than there are processors.
cargo_tests() {
  local all=("${build[@]}" --no-fail-fast)
  {
    cargo test "${all[@]}" --lib --bins --examples --test '[!b]*' \
      && cargo test "${all[@]}" --test 'b*' -- --test-threads $((3 * $(nproc))) \
      && cargo test "${all[@]}" --doc
  } 2>&1 | tee "$output"
}

# Lists executable files named `run*` in the given test directories.
scripts_in() {
  find "$@" -type f -name 'run*' -perm -u+x 2>/dev/null | sort
}

# Every script names its interpreter, and those of bash parse: some are run by hand only.
scripts_parse() {
  local script failed=0
  for script in $(git ls-files --stage | awk '$1 == "100755" { print $4 }'); do
    case $(head -n 1 "$script") in
      '#!'*bash) bash -n "$script" || failed=1 ;;
      '#!'*) ;;
      *)
        echo "$script: the first line does not name an interpreter" >&2
        failed=1
        ;;
    esac
  done
  return $failed
}

check "scripts" scripts_parse
step "format" cargo fmt --all --check
check "documents" scripts/check-docs.py
check "words" scripts/check-words.py
check "structure" scripts/check-structure.py
check "planted faults fit the source" scripts/planted-faults.py --check
step "lints" cargo clippy "${build[@]}" --all-targets -- -D warnings
# One command for programs and tests: features that tests enable (`synthetic` of standfast-live) apply to all that it
# compiles, and two commands with different features would compile most crates twice.
step "build" cargo build "${build[@]}" --lib --bins --tests --examples
check "reference" scripts/reference.py --check
# A campaign in one process without a clock is not disturbed by parallel work.
run_beside "nice -n 5 $STANDFAST_BIN/standfast-campaign power --seeds ${POWER_SEEDS:-150} --boundaries" scripts/sqlites.sh
step "cargo test" cargo_tests
passed=$((passed + $(awk '/^test result: ok/ { sum += $4 } END { print sum + 0 }' "$output")))

# Exit code 77: the test cannot run here, and has printed why.
script_test() {
  "$1" || { [ $? = 77 ] && skipped=$((skipped + 1)); }
}
check "power campaign, SQLites" ran_beside
run_beside "$STANDFAST_BIN/standfast-campaign kill --cycles ${KILL_CYCLES:-20}" \
  "$STANDFAST_BIN/standfast-campaign faults --count ${FAULTS:-1}"
# tests/applications uses what tests/hosts has installed.
for script in $(scripts_in tests/demo tests/hosts) $(scripts_in tests/applications tests/browser tests/supply tests/packaging); do check "$script" script_test "$script"; done
if [ -x scripts/test-e2e ]; then check "end to end" scripts/test-e2e; fi
check "kill and fault campaigns" ran_beside
# States and content only: the figures measure the commit rate of the other databases, on an otherwise idle machine.
check "isolation campaign" "$STANDFAST_BIN/standfast-campaign" isolation --databases 8 --seconds 0.4 --rounds 1 --states-only
check "differential campaign" "$STANDFAST_BIN/standfast-campaign" differential --programs "${PROGRAMS:-4}"
check "demo" demo/run --quick --no-build
# With an asynchronous standby and a cut link, the same demo must find a loss.
loses_something() {
  demo/run --quick --no-build --mode async --cut | tee "$output" || true
  grep -q '^acknowledged .* lost [1-9]' "$output"
}
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null; then check "demo that must lose" loses_something; fi

echo
echo "standfast: $((passed - skipped)) tests passed, 0 failed, $skipped skipped, in $((SECONDS - began)) s"
