#!/usr/bin/env bash
# Builds the installed files into target/package (or the given directory): programs without fault points, unit, user,
# manual pages, bill of materials. Only the packages that are installed are selected, which excludes fault points: see
# docs/decisions/0059-limits-for-unauthenticated-peers.md.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
out=${1:-$target/package}
cargo build --locked --profile dist -p standfast-cli -p standfast-sqlite-ext -p standfast-preload
scripts/no-faults.sh "$target"/dist/{standfast,libstandfast.so,libstandfast_preload.so}

mkdir -p "$out"/{bin,lib/standfast,lib/systemd/system,lib/sysusers.d,share/man/man1,share/doc/standfast}
install -m 755 "$target/dist/standfast" "$out/bin/"
install -m 644 "$target"/dist/{libstandfast.so,libstandfast_preload.so} "$out/lib/standfast/"
install -m 644 packaging/systemd/standfast@.service "$out/lib/systemd/system/"
install -m 644 packaging/sysusers.d/standfast.conf "$out/lib/sysusers.d/"
install -m 644 LICENSE "$out/share/doc/standfast/"
"$out/bin/standfast" man --output "$out/share/man/man1"
scripts/sbom.py >"$out/share/doc/standfast/sbom.cdx.json"
echo "package: $out; cp -a $out/. /usr/local/ installs it" >&2
