#!/usr/bin/env bash
# Provides the rivals of `make bench` and `make figures`: builds Litestream from its Go module into target/rivals,
# installs iperf3, sockperf and qperf from Debian when they are missing, and prints what is available. A rival that is
# not available is named and skipped by the bench; this script does not fail for it.
#
# Arguments name the wanted rivals (litestream, postgres, network); all without arguments.
# LITESTREAM_VERSION selects another version; CARGO_TARGET_DIR another target directory.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
rivals=${CARGO_TARGET_DIR:-$root/target}/rivals
version=${LITESTREAM_VERSION:-v0.5.18}
mkdir -p "$rivals"

build_litestream() {
  if [ "$(cat "$rivals/litestream.version" 2>/dev/null || true)" = "$version" ] && [ -x "$rivals/litestream" ]; then
    echo "Litestream $version: built"
    return
  fi
  if ! command -v go >/dev/null; then
    echo "Litestream: skipped, Go is not installed (https://go.dev/dl, or apt-get install golang)"
    return
  fi
  echo "Litestream $version: building (a few minutes the first time)"
  if GOBIN="$rivals" go install "github.com/benbjohnson/litestream/cmd/litestream@$version" 2>"$rivals/litestream.log"; then
    echo "$version" >"$rivals/litestream.version"
    echo "Litestream $version: built"
  else
    echo "Litestream: skipped, go install failed: $(tail -n 1 "$rivals/litestream.log")"
  fi
}

find_postgres() {
  local bin
  for bin in "${PG_BINDIR:-}" /usr/lib/postgresql/15/bin /usr/lib/postgresql/*/bin; do
    if [ -x "$bin/initdb" ] && [ -x "$bin/pgbench" ]; then
      echo "PostgreSQL: $("$bin/postgres" --version)"
      return
    fi
  done
  echo "PostgreSQL: skipped, not installed (apt-get install postgresql-15)"
}

install_network_tools() {
  local tool log=$rivals/network.log
  for tool in iperf3 sockperf qperf; do
    if command -v "$tool" >/dev/null; then
      echo "$tool: $(command -v "$tool")"
    elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
      echo "$tool: skipped, not installed (apt-get install $tool)"
    elif DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$tool" >"$log" 2>&1 ||
      { apt-get update >"$log" 2>&1 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$tool" >"$log" 2>&1; }; then
      echo "$tool: installed"
    else
      echo "$tool: skipped, apt-get install failed: $(tail -n 1 "$log")"
    fi
  done
}

if [ $# = 0 ]; then
  set -- litestream postgres network
fi
for rival in "$@"; do
  case $rival in
    litestream) build_litestream ;;
    postgres) find_postgres ;;
    network) install_network_tools ;;
    *)
      echo "$0: no rival $rival; there are litestream, postgres and network" >&2
      exit 2
      ;;
  esac
done
