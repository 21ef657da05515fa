#!/usr/bin/env bash
# Runs the whole comparison: builds in release mode, provides the rivals, measures, and writes the results to
# target/bench.json. Arguments go to `standfast-bench commit`, for example: scripts/bench.sh --clients 40 --rounds 1
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
cd "$root"
cargo build --release --workspace --locked >&2
bench/rivals.sh litestream postgres >&2
exec "$target/release/standfast-bench" commit --out "$target/bench.json" "$@"
