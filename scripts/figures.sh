#!/usr/bin/env bash
# Measures the table of bars and aims. GROUP names groups
# (commit,apply,log,kill,power,promise,idle,net,transport,instruments,trust,roles; all when empty). COUNT sets the runs per
# speed, the cycles of `kill`, the seeds of `power` and the programs of `promise` with each SQLite; the faults of
# `promise` take another half hour. Results: target/figures.json. Exit code 1 when a bar is missed. Arguments go to
# `standfast-bench figures`. Group net takes ten minutes and needs root: it emulates links, and runs latency tests with
# priority over other programs. Group transport also emulates links, and writes plots to target/figures-transport.html.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
cd "$root"
cargo build --release --workspace --locked >&2
case ",${GROUP:-commit}," in *,commit,*) bench/rivals.sh litestream postgres >&2 ;; esac
case ",${GROUP:-net}," in *,net,* | *,transport,* | *,instruments,*) bench/rivals.sh network >&2 ;; esac
case ",${GROUP:-promise}," in *,promise,*) scripts/sqlites.sh ;; esac
# The cost of the instruments is measured against programs without them.
case ",${GROUP:-instruments}," in *,instruments,*)
  cargo build --release --locked -p standfast-cli -p standfast-sqlite-ext -p standfast-instruments \
    --features standfast-instruments/off \
    --target-dir "$target/uninstrumented" >&2 ;;
esac
export STANDFAST_BROWSER_TEST=${STANDFAST_BROWSER_TEST:-$root/tests/browser/run}
exec "$target/release/standfast-bench" figures ${GROUP:+--group "$GROUP"} ${COUNT:+--count "$COUNT"} \
  --out "$target/figures.json" "$@"
