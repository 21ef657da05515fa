#!/usr/bin/env bash
# Builds the SQLites of the differential campaign and tests/foreign: scripts/sqlites.sh
#
# Each version is a libsqlite3.so in target/sqlite/VERSION, and with blocking locks in target/sqlite/VERSION-setlk.
# Existing ones are kept. The sources come from pinned packages: releases of the crate libsqlite3-sys (tests/sqlite/*,
# and the newest one as in Cargo.lock), and for 3.40.1, which no release contains, an npm package. A version whose
# sources cannot be fetched is named and skipped.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}/sqlite
mkdir -p "$target"
# Parallel tests each run this script; the first one builds the libraries while the others wait.
exec 9>"$target/.lock"
flock 9
options=(-O0 -w -fPIC -shared -DSQLITE_THREADSAFE=1 -DHAVE_USLEEP=1 -DSQLITE_ENABLE_SNAPSHOT=1
  -DSQLITE_ENABLE_DBPAGE_VTAB=1 -DSQLITE_ENABLE_RTREE=1 -DSQLITE_ENABLE_FTS5=1 -DSQLITE_ENABLE_COLUMN_METADATA=1)

# Prints the directory of the libsqlite3-sys sources for the lock file beside a manifest.
of_crate() {
  cargo metadata --locked --format-version 1 --manifest-path "$1" 2>/dev/null \
    | python3 -c 'import json, os, sys
for package in json.load(sys.stdin)["packages"]:
    if package["name"] == "libsqlite3-sys":
        print(os.path.join(os.path.dirname(package["manifest_path"]), "sqlite3"))'
}

# Prints the directory of the sources in better-sqlite3 8.1.0.
of_npm() {
  local place=$target/.sources-3.40.1
  local sum=de365966681a951cd2fd7b76796a683f0ec6458dfa8fc54cf16029d6833ef1d1
  if [ ! -e "$place/sqlite3.c" ]; then
    mkdir -p "$place"
    (cd "$place" && npm pack --silent better-sqlite3@8.1.0 >/dev/null 2>&1) || return 1
    tar -xzf "$place/better-sqlite3-8.1.0.tgz" -C "$place" --strip-components=3 package/deps/sqlite3
  fi
  echo "$sum  $place/sqlite3.c" | sha256sum --check --quiet >&2 || return 1
  echo "$place"
}

# library NAME SOURCES OPTION...: compiles a library unless it exists.
library() {
  local place=$target/$1 sources=$2
  shift 2
  [ -e "$place/libsqlite3.so" ] && return 0
  echo "sqlites: compiling $(basename "$place")" >&2
  mkdir -p "$place"
  cc "${options[@]}" "$@" "-I$sources" "$sources/sqlite3.c" -Wl,-soname,libsqlite3.so.0 -o "$place/new" \
    -lpthread -ldl -lm
  ln -sf libsqlite3.so "$place/libsqlite3.so.0"
  mv "$place/new" "$place/libsqlite3.so"
}

# both SOURCES: builds both variants of one version in parallel.
both() {
  local sources=$1 version
  version=$(sed -n 's/^#define SQLITE_VERSION  *"\(.*\)"/\1/p' "$sources/sqlite3.h")
  library "$version" "$sources" &
  local other=$!
  library "$version-setlk" "$sources" -DSQLITE_ENABLE_SETLK_TIMEOUT=1
  wait "$other"
}

for manifest in "$root"/tests/sqlite/*/Cargo.toml "$root/Cargo.toml"; do
  sources=$(of_crate "$manifest")
  both "$sources"
done
if sources=$(of_npm); then
  both "$sources"
else
  echo "sqlites: no 3.40.1: its sources come with npm, which is not there or cannot fetch them" >&2
fi
