#!/usr/bin/env bash
# Fuzzes every decoder of bytes from files, peers, applications and operators: each target for MINUTES, one after the
# other. TARGETS selects some (transport net redo log_files instance_files control_requests marker segment http; all
# when empty). Findings are written to fuzz/artifacts/TARGET, and `cargo fuzz run TARGET FILE` repeats one; new inputs
# are kept in fuzz/work/TARGET.
# KEEP=1 minimises the new inputs and adds them to the corpus of the repository.
#
# The fuzzer is cargo-fuzz, which is installed when it is missing. It instruments with flags that the stable compiler
# accepts. The decoders contain no unsafe code, so a run without sanitizers finds the same errors and is faster.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
minutes=${MINUTES:-30}
targets=${TARGETS:-transport net redo log_files instance_files control_requests marker segment http}
# Longer inputs find nothing that shorter ones do not.
longest=32768
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz --version '^0.13'
fuzz() { cargo fuzz "$@"; }
flags=(--sanitizer none --debug-assertions)

fuzz build "${flags[@]}"
failed=()
for target in $targets; do
  mkdir -p "fuzz/work/$target"
  echo "== $target, $minutes min"
  # -timeout: seconds of wall time per input, generous because a busy machine is no finding. -rss_limit_mb: MB of the
  # whole process; the target itself limits what one input may allocate.
  nice -n 19 cargo fuzz run "${flags[@]}" "$target" "fuzz/work/$target" "fuzz/corpus/$target" -- \
    -max_total_time=$((minutes * 60)) -max_len=$longest -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
    2>"fuzz/work/$target.log" || failed+=("$target")
  grep -E 'DONE|stat::' "fuzz/work/$target.log" || tail -n 20 "fuzz/work/$target.log"
  if [ "${KEEP:-}" = 1 ]; then
    # Merges as few and as short inputs as give the same coverage; existing inputs of the corpus stay.
    fuzz run "${flags[@]}" "$target" "fuzz/corpus/$target" "fuzz/work/$target" -- -set_cover_merge=1 -max_len=4096 2>/dev/null
  fi
done
if [ ${#failed[@]} != 0 ]; then
  echo "fuzz: ${failed[*]} failed; see fuzz/artifacts" >&2
  exit 1
fi
