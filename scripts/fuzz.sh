#!/usr/bin/env bash
# Fuzzes every decoder of bytes from files, peers, applications and operators: MINUTES each target, one after the other.
# TARGETS names some (transport net redo log_files instance_files control_requests marker segment http; all when empty).
# What is found lies in fuzz/artifacts/TARGET, and `cargo fuzz run TARGET FILE` repeats it; new inputs are kept in
# fuzz/work/TARGET.
# KEEP=1 adds what is new to the corpus of the repository, minimised.
#
# The fuzzer is cargo-fuzz, which is installed when it is missing. It instruments with flags that the stable compiler
# takes; the decoders hold no unsafe code, so a run without sanitizer finds what can be found, and is faster.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
minutes=${MINUTES:-30}
targets=${TARGETS:-transport net redo log_files instance_files control_requests marker segment http}
# Inputs that are longer find nothing that shorter ones do not.
longest=32768
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz --version '^0.13'
fuzz() { cargo fuzz "$@"; }
flags=(--sanitizer none --debug-assertions)

fuzz build "${flags[@]}"
failed=()
for target in $targets; do
  mkdir -p "fuzz/work/$target"
  echo "== $target, $minutes min"
  # Seconds that one input may take by the clock, for a busy machine is no finding; MB of the whole process, for what one
  # input may allocate is bounded by the target itself.
  nice -n 19 cargo fuzz run "${flags[@]}" "$target" "fuzz/work/$target" "fuzz/corpus/$target" -- \
    -max_total_time=$((minutes * 60)) -max_len=$longest -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
    2>"fuzz/work/$target.log" || failed+=("$target")
  grep -E 'DONE|stat::' "fuzz/work/$target.log" || tail -n 20 "fuzz/work/$target.log"
  if [ "${KEEP:-}" = 1 ]; then
    # As few and as short inputs as reach the same places; what is in the corpus stays.
    fuzz run "${flags[@]}" "$target" "fuzz/corpus/$target" "fuzz/work/$target" -- -set_cover_merge=1 -max_len=4096 2>/dev/null
  fi
done
if [ ${#failed[@]} != 0 ]; then
  echo "fuzz: ${failed[*]} failed; see fuzz/artifacts" >&2
  exit 1
fi
