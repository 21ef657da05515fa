#!/usr/bin/env bash
# Fails when a file contains fault points: scripts/no-faults.sh FILE...
set -euo pipefail

with=()
for file in "$@"; do
  test -e "$file" || { echo "no-faults: $file is missing" >&2; exit 1; }
  if grep -qaE 'STANDFAST_FAULT|STANDFAST_ACK_DELAY_US' "$file"; then with+=("$file"); fi
done
if [ ${#with[@]} != 0 ]; then
  echo "no-faults: has fault points, which only tests may have: ${with[*]}" >&2
  exit 1
fi
