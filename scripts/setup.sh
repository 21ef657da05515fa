#!/usr/bin/env bash
# Makes sure that the Debian packages of a target are installed: scripts/setup.sh build|demo|test|bench|foreign
#
# Installs only what is missing. Installing needs root, or sudo without a password; otherwise the command to run is
# printed. An optional package that cannot be installed is named and skipped.
set -euo pipefail

need=()  # packages without which the target cannot run
like=()  # packages without which it does less

# Adds the package to the list unless the test command succeeds.
wants() {
  local -n list=$1
  local package=$2
  shift 2
  "$@" >/dev/null 2>&1 || list+=("$package")
}
has() { command -v "$1"; }

build() {
  has cargo >/dev/null || { echo "setup: cargo is missing: install Rust from https://rustup.rs" >&2; exit 1; }
  wants need build-essential has cc
  wants need libc6-dev test -e /usr/include/stdlib.h
}

# For the dashboard, tests/browser.
browser() {
  wants like chromium has chromium
  wants like chromium-driver has chromedriver
}

# For tests, Debian packages that no service manager starts: unpacked into a directory of the target, not installed.
# Usage: unpack DIRECTORY PROGRAM WHAT_IS_SKIPPED PACKAGE...
unpack() {
  local to=${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/$1 program=$2 skipped=$3
  shift 3
  if has "$program" >/dev/null || [ -x "$to/bin/$program" ] || ! has apt-get >/dev/null; then
    return
  fi
  local from
  from=$(mktemp -d)
  chmod 755 "$from"
  if (cd "$from" && { apt-get download -qq "$@" || { may_install && "${as_root[@]}" apt-get update -qq && apt-get download -qq "$@"; }; }) \
    >/dev/null 2>&1 </dev/null; then
    mkdir -p "$to/bin" "$to/lib"
    for package in "$from"/*.deb; do
      dpkg-deb -x "$package" "$from/root"
    done
    find "$from/root" -name 'lib*.so*' -exec cp -P {} "$to/lib/" \;
    find "$from/root" -name "$program" -type f -perm -u+x -exec cp {} "$to/bin/" \;
  else
    echo "setup: going on without $1; $skipped are skipped" >&2
  fi
  rm -rf "$from"
}

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
may_install() {
  has apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

case "${1:?build, demo, test, bench or foreign}" in
  build) build ;;
  demo)
    build
    wants need python3 python3 -c 'import sqlite3'
    # Without iproute2 the demo runs on loopback.
    wants like iproute2 has ip
    ;;
  test)
    build
    wants need python3 python3 -c 'import sqlite3'
    wants need sqlite3 has sqlite3
    wants like iproute2 has ip
    # For better-sqlite3, which npm may have to compile against Debian's node headers, and for scripts/sqlites.sh.
    wants like nodejs has node
    wants like npm has npm
    wants like libnode-dev test -d /usr/include/node
    browser
    unpack etcd etcd "tests of etcd" etcd-server
    unpack haproxy haproxy "tests of HAProxy" haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1
    ;;
  foreign)
    build
    wants need python3 /usr/bin/python3 -c 'import sqlite3'
    wants like libdbd-sqlite3-perl perl -MDBD::SQLite -e 1
    # tests/foreign/run compiles sqlite3-ruby.
    wants like curl has curl
    wants like ruby-minitest ruby -rminitest -e 1
    wants like ruby-dev ruby -e 'exit File.exist?(RbConfig::CONFIG["rubyhdrdir"] + "/ruby.h")'
    wants like libsqlite3-dev test -e /usr/include/sqlite3.h
    wants like pkg-config has pkg-config
    # For SQLite's own tests.
    wants like tcl has tclsh
    wants like libsqlite3-tcl bash -c 'tclsh <<<"exit [catch {package require sqlite3}]"'
    # better-sqlite3 is compiled too.
    wants like nodejs has node
    wants like npm has npm
    wants like libnode-dev test -d /usr/include/node
    ;;
  bench)
    build
    browser
    # For scripts/sqlites.sh.
    wants need python3 has python3
    wants like npm has npm
    # bench/rivals.sh builds Litestream from its Go module, which needs a newer Go than that of Debian 12.
    wants like postgresql bash -c 'ls /usr/lib/postgresql/*/bin/initdb'
    ;;
  *)
    echo "usage: scripts/setup.sh build|demo|test|bench|foreign" >&2
    exit 2
    ;;
esac

if [ ${#need[@]} = 0 ] && [ ${#like[@]} = 0 ]; then
  exit 0
fi

install_packages() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >/dev/null </dev/null
}

if ! may_install; then
  if [ ${#need[@]} != 0 ]; then
    echo "setup: missing: ${need[*]}; run as root: apt-get install ${need[*]} ${like[*]}" >&2
    exit 1
  fi
  echo "setup: going on without ${like[*]}; to have them: apt-get install ${like[*]}" >&2
  exit 0
fi

echo "setup: installing ${need[*]} ${like[*]}" >&2
"${as_root[@]}" apt-get update -qq </dev/null || echo "setup: apt-get update failed; trying with the lists that are there" >&2
if [ ${#need[@]} != 0 ]; then
  install_packages "${need[@]}"
fi
for package in "${like[@]}"; do
  if [ "$package" = postgresql ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    # The bench creates its own clusters; a system-wide server is not wanted.
    "${as_root[@]}" mkdir -p /etc/postgresql-common
    echo "create_main_cluster = false" | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
  fi
  install_packages "$package" || echo "setup: going on without $package" >&2
done
