#!/usr/bin/env bash
# The sqlite3 command line, with the extension loaded by `.load`: cli.sh EXTENSION DATABASE
set -euo pipefail

extension=$1
database=$2

say() { sqlite3 -batch :memory: ".load $extension" ".open $database" ".timeout 5000" "$@"; }
check() {
  [ "$2" = "$3" ] || { echo "cli: $1: expected '$3', got '$2'" >&2; exit 1; }
}

check role "$(say 'SELECT standfast_role();')" primary
before=$(say 'SELECT standfast_scn();')
say 'INSERT INTO t VALUES(101);'
after=$(say 'SELECT standfast_scn();')
[ "$after" -gt "$before" ] || { echo "cli: the commit was not captured: SCN $before, then $after" >&2; exit 1; }
check pragma "$(say 'PRAGMA standfast_commit_write;')" wait,immediate
check name "$(say '.vfsname' | head -n 1)" standfast/unix
if message=$(say 'PRAGMA journal_mode=delete;' 2>&1); then
  echo "cli: leaving WAL mode was allowed" >&2
  exit 1
fi
check refusal "$(grep -c 'standfast unprotect' <<<"$message")" 1
check rows "$(say 'SELECT count(*) FROM t WHERE x = 101;')" 1
# Standfast does not serve an unprotected database.
check plain "$(sqlite3 -batch :memory: ".load $extension" 'SELECT standfast_role() IS NULL;')" 1

# The connection that loads the extension was opened before, so it stays without the VFS and reports that.
late=$(sqlite3 -batch "$database" ".load $extension" 'SELECT standfast_role();' 2>&1)
check late "$(grep -c '^unprotected: opened before the extension was loaded' <<<"$late")" 1
check warning "$(grep -c 'standfast: this connection to .* is unprotected' <<<"$late")" 1
