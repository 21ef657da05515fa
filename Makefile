# Thin: every target is a script or one cargo command that can be run by itself. `make` lists them.

# Where rustup puts cargo; a shell that was open during its installation does not have it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
# Temporary databases must be on a disk; /tmp is memory on newer Debian.
export TMPDIR := $(or $(TMPDIR),/var/tmp)
target := $(or $(CARGO_TARGET_DIR),target)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

build: ## the binaries with fault points, for tests and campaigns, in target/release
	@scripts/setup.sh build
	cargo build --release --workspace --locked

package: ## what is installed, in target/package: programs without fault points, unit, manual pages, list of materials
	@scripts/setup.sh build
	@scripts/package.sh

demo: ## kill the primary under load, fail over, and count what was lost; under a minute after the build
	@scripts/setup.sh demo
	@demo/run

test: ## everything that CI runs
	@scripts/setup.sh test
	@scripts/test.sh

bench: ## speed beside stock SQLite, Litestream and PostgreSQL; results in target/bench.json
	@scripts/setup.sh bench
	@scripts/bench.sh

figures: ## the table of bars and aims [GROUP=commit,apply,log,kill,power,promise,idle,net,transport,instruments,trust,roles] [COUNT=n]; results in target/figures.json
	@scripts/setup.sh bench
	@GROUP="$(GROUP)" COUNT="$(COUNT)" scripts/figures.sh

campaign-kill: ## kill -9 of applications and instances at random [COUNT=200]
	@scripts/setup.sh build
	cargo build --release --workspace --locked
	$(target)/release/standfast-campaign kill --cycles $(or $(COUNT),200)

campaign-power: ## power loss in the simulator, at random and at every sync boundary [COUNT=2000]
	@scripts/setup.sh build
	cargo build --release --workspace --locked
	$(target)/release/standfast-campaign power --seeds $(or $(COUNT),2000) --boundaries

campaign-arbitration: ## fast-start failover in simulated time, with each kind of arbiter [COUNT=10000]
	@scripts/setup.sh build
	cargo build --release --workspace --locked
	$(target)/release/standfast-campaign arbitration --seeds $(or $(COUNT),10000)

campaign-faults: ## standbys, disks and links that fail, in every mode of transport [COUNT=20]
	@scripts/setup.sh build
	cargo build --release --workspace --locked
	$(target)/release/standfast-campaign faults --count $(or $(COUNT),20)

campaign-differential: ## random programs on stock SQLite and through the VFS, [COUNT=200 with each SQLite]
	@scripts/setup.sh test
	@scripts/sqlites.sh
	cargo build --release --workspace --locked
	$(target)/release/standfast-campaign differential --programs $(or $(COUNT),200)

campaign-isolation: ## a fault in one of 40 databases under load, and what the others notice [FAULTS=a,b,...]
	@scripts/setup.sh build
	cargo build --release --workspace --locked
	$(target)/release/standfast-campaign isolation $(if $(FAULTS),--faults $(FAULTS))

foreign: ## test suites of others on protected databases: CPython's sqlite3, DBD::SQLite, sqlite3-ruby, better-sqlite3, SQLite's
	@scripts/setup.sh foreign
	cargo build --release --workspace --locked
	@tests/foreign/run

fuzz: ## all decoders of bytes from files, peers and operators [MINUTES=30 each] [TARGETS="transport redo"]
	@scripts/setup.sh build
	@MINUTES="$(MINUTES)" TARGETS="$(TARGETS)" scripts/fuzz.sh

.PHONY: help build package demo test bench figures campaign-kill campaign-power campaign-faults campaign-differential campaign-isolation foreign fuzz
