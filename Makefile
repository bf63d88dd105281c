# The project's commands; `make help` prints the texts after `##`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
# Lints, documentation and tests are of one build: the same crates, with the same features.
WORKSPACE := --workspace --all-features

.PHONY: help
help: ## Print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the optimised binary, target/release/saltern
	$(CARGO) build --release -p saltern

.PHONY: lab
lab: ## Build it with target/release/saltern-lab: minions and load for trials, in no package
	$(CARGO) build --release -p saltern -p saltern-lab

# OpenSSL goes into the binary (its static library comes with libssl-dev), for which its place has to
# be said: what pkg-config finds in the system's own directories, it has linked dynamically. The C
# library stays outside: PAM is opened at run time, and that a static program cannot do.
.PHONY: static
static: ## Build the binary with everything in it but the C library, target/static/release/saltern
	OPENSSL_STATIC=1 OPENSSL_LIB_DIR=$$(pkg-config --variable=libdir openssl) \
		OPENSSL_INCLUDE_DIR=$$(pkg-config --variable=includedir openssl) \
		$(CARGO) build --release -p saltern --target-dir target/static
	@ldd target/static/release/saltern
	@if ldd target/static/release/saltern | grep -q 'lib\(ssl\|crypto\)'; then \
		echo "static: OpenSSL is not in the binary" >&2; exit 1; fi

.PHONY: deb
deb: build docs ## Build the Debian package into target/deb
	packaging/deb/build.sh $${SALTERN:-target/release/saltern} target/deb

.PHONY: deb-test
deb-test: ## Boot a clean Debian: install, switch from stock and back, upgrade, purge (root; SALTERN=binary)
	packaging/deb/test.sh $${SALTERN:-target/release/saltern}

.PHONY: reproduce
reproduce: ## Build binary, handbook and packages twice, in two places, and compare the bytes (about 20 minutes of processor)
	packaging/deb/reproduce.sh

.PHONY: image
image: build ## Write a Containerfile into target/image; build it where podman or docker is there
	packaging/image.sh $${SALTERN:-target/release/saltern}

.PHONY: demo
demo: ## Start a master and three minions in .demo/, run real jobs, leave them running
	@CARGO="$(CARGO)" packaging/demo.sh build
	@SALTERN=target/demo/saltern packaging/demo.sh start

.PHONY: demo-stop
demo-stop: ## Stop what `make demo` started
	packaging/demo.sh stop

# What a tier has, tests/run.sh says, and prints what it leaves out.
.PHONY: test
test: ## Everything CI runs: `lint`, dashboards and alerts, all tests, stock Salt end to end included
	@MAKE="$(MAKE)" tests/steps.sh stock $(LINTS) grafana-check doc-tests test-programs built-tests

.PHONY: doc-tests
doc-tests: ## Run the examples that stand in the documentation
	$(CARGO) test $(WORKSPACE) --doc --quiet

.PHONY: test-programs
test-programs: ## Build the tests and the programs that they start
	tests/run.sh --build

.PHONY: built-tests
built-tests: ## Run the tests that `make test-programs` has built
	tests/run.sh --built

.PHONY: all-tests
all-tests: ## Run the tests alone, those that need stock Salt included
	tests/run.sh

.PHONY: test-all
test-all: export SALTERN_TESTS := all
test-all: test bench-check ## `test` with all releases, all seeds and the long forms; the benches' self-check; as root `deb-test`
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) build deb-test; \
		else echo "test-all: left out is deb-test, which only root can run"; fi

.PHONY: check
check: lint unit ## Format, lints, documentation, licences, and the tests that need no stock daemon

LINTS := fmt deny vet docs clippy doc

.PHONY: lint
lint: $(LINTS) ## Format, lints, documentation, licences, the handbook with its links

.PHONY: fmt
fmt: ## Check the formatting (`cargo fmt` repairs it)
	$(CARGO) fmt --all --check

.PHONY: clippy
clippy: ## Check the lints
	$(CARGO) clippy $(WORKSPACE) --all-targets -- -D warnings

# Asks for checked crates as `cargo clippy` does: by its driver, with its arguments. Otherwise cargo
# would check the workspace once more for the documentation.
CHECKED_BY_CLIPPY := RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" \
	CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

# With the examples, because then cargo gives the dependencies the features that clippy and the tests
# give them: without, it compiles 38 of them for this step alone, tokio among them.
.PHONY: doc
doc: ## Build the documentation, warnings are errors
	$(CHECKED_BY_CLIPPY) RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(WORKSPACE) --lib --bins --examples --no-deps \
		--document-private-items

.PHONY: docs
docs: ## Build the handbook into target/docs; fails for a link, an anchor or a foreign host
	"$$(tests/install-stock.sh --mkdocs)/python" docs/handbook.py

.PHONY: deny
deny: ## Check licences, sources and banned crates of all dependencies
	PATH="$$PATH:$$(tests/install-tools.sh)" $(CARGO) deny --all-features check bans licenses sources

# `cargo vet regenerate exemptions` takes all crates as they are; look at what is new before. It reads the
# manifests of all crates, those of other platforms too, which no build has fetched.
.PHONY: vet
vet: ## Check that each crate and version in Cargo.lock stands in supply-chain, and that no advisory known there affects it
	tests/advisories.py
	$(CARGO) fetch --locked --quiet
	PATH="$$PATH:$$(tests/install-tools.sh)" $(CARGO) vet --locked --frozen

.PHONY: simulate
simulate: ## Simulate SEEDS (2000) whole masters with faults of network, disk and process; SEED=n for one, with its log
	SALTERN_MASTER_SEEDS=$${SEEDS:-2000} $(if $(SEED),SALTERN_MASTER_SEED=$(SEED)) tests/run.sh --success-output=final \
		-E 'test(simulated_master_keeps_its_promises)'

.PHONY: fuzz
fuzz: ## Fuzz each target of docs/fuzzing.md for SECONDS (60) with a new seed; FUZZ=name for one
	SALTERN_FUZZ_SECONDS=$(or $(SECONDS),60) tests/run.sh --success-output immediate \
		-E 'binary(fuzz) & test(/$(FUZZ)/)'

.PHONY: fuzz-coverage
fuzz-coverage: ## The same by libFuzzer, which follows coverage, for SECONDS (60); HOUR=1 for what a target lacks to an hour
	tests/fuzz/coverage.py --seconds $(or $(SECONDS),60) $(if $(HOUR),--hour) $(FUZZ)

# In no tier: each mutant is a build of its crate and a run of its tests.
.PHONY: mutants
mutants: ## Mutate policy, gate and envelope; fails for a mutant that no test finds and tests/mutants.list has not (PACKAGE, FILE, TESTS, SHARD, MINUTES; ONE_BY_ONE=1)
	tests/mutants.py $(if $(PACKAGE),--package $(PACKAGE)) $(if $(FILE),--file '$(FILE)') \
		$(if $(TESTS),--tests '$(TESTS)') $(if $(SHARD),--shard $(SHARD)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(TESTS)$(SHARD)$(ONE_BY_ONE),,--at-once)

.PHONY: unit
unit: ## Run the tests of the crates, and the one that guards the layout
	tests/run.sh -E 'not binary(e2e)'

.PHONY: stock
stock: ## Install stock Salt 3006.28, 3007.15 and 3008.3 for the tests
	tests/install-stock.sh

.PHONY: e2e
e2e: stock ## Run the end-to-end tests against stock Salt
	tests/run.sh -E 'binary(e2e)'

.PHONY: bench
bench: stock lab ## Measure our master and stock 3008.3 side by side; writes tests/bench/results.*
	tests/bench/run.py
	tests/bench/storm.py
	tests/bench/reactor.py
	tests/bench/cli.py
	tests/bench/api.py
	tests/bench/console.py
	tests/bench/sql.py
	tests/bench/member.py
	tests/bench/syndic.py --ping 40 --minions 1000

.PHONY: session
session: stock lab ## Record the README's terminal session anew, docs/session.svg
	docs/session.py

.PHONY: console-shots
console-shots: stock ## Take the pictures of the console in docs/console anew, from its tests in a browser
	SALTERN_CONSOLE_PICTURES=1 tests/run.sh -E 'binary(e2e) & test(/^console::pages::/)'
	docs/console-shots.py

.PHONY: saltgui
saltgui: stock ## Compare what SaltGUI asks with stock's answers; open the pages of a release in a browser (SALTGUI=DIR)
	tests/run.sh -E 'binary(e2e) & (test(/^netapi::corpus::cherrypy_requests_of_saltgui/) | test(/^netapi::gui::/))'

# The seed decides the order of the faults, not what the machine does meanwhile.
.PHONY: chaos
chaos: stock lab ## Kill, freeze and cut off members of a cluster and fail its database over; KILLS, FREEZES, CUTS, FAILOVERS, MINIONS, STOCK, SEED, LENIENT=1
	tests/bench/chaos.py $(if $(KILLS),--kills $(KILLS)) $(if $(FREEZES),--freezes $(FREEZES)) \
		$(if $(CUTS),--cuts $(CUTS)) $(if $(FAILOVERS),--failovers $(FAILOVERS)) \
		$(if $(MINIONS),--minions $(MINIONS)) $(if $(STOCK),--stock $(STOCK)) $(if $(SEED),--seed $(SEED)) \
		$(if $(LENIENT),--lenient)

# Over one machine's cores: it shows that nothing is lost or doubled, not how fast a tree is.
.PHONY: tree-chaos
tree-chaos: stock lab ## Kill the five masters of a tree of three levels at random; KILLS, JOBS, MINIONS, FRAMES=1, SEED
	tests/bench/tree_chaos.py $(if $(KILLS),--kills $(KILLS)) $(if $(JOBS),--jobs $(JOBS)) \
		$(if $(MINIONS),--minions $(MINIONS)) $(if $(FRAMES),--frames) $(if $(SEED),--seed $(SEED))

# With the examples for the same reason as `doc`: nothing is compiled that the tests have not.
.PHONY: bench-check
bench-check: ## Run each bench for a moment with the tests' binary: whether it works, not how fast it is
	$(CARGO) build $(WORKSPACE) --bins --examples
	SALTERN=target/debug/saltern tests/bench/run.py --only saltern --minions 50 --seconds 1 \
		--small-files 20 --megabytes 5 --fleets 100 --out target/bench-check
	SALTERN=target/debug/saltern tests/bench/storm.py --only saltern --minions 50 --watched 10
	SALTERN=target/debug/saltern tests/bench/reactor.py --only saltern --rate 100 --seconds 3 --drain 20
	SALTERN=target/debug/saltern tests/bench/cli.py --only saltern --minions 20 --many 40 --keys 100 \
		--jobs 100 --fleet 100 --returns 200 --rounds 1
	SALTERN=target/debug/saltern tests/bench/api.py --only saltern --clients 4 --seconds 3 --streams 20 \
		--rate 100
	SALTERN=target/debug/saltern tests/bench/console.py --only saltern --minions 200 --jobs 1000 \
		--consoles 3 --swarm 50 --seconds 5 --rounds 1
	SALTERN=target/debug/saltern tests/bench/sql.py --only saltern --minions 20 --seconds 1 --rows 1000 \
		--rounds 2
	SALTERN=target/debug/saltern tests/bench/member.py --only saltern --minions 20 --seconds 1 --kills 1 --lease 30
	SALTERN=target/debug/saltern tests/bench/syndic.py --minions 20 --seconds 2 --rtt 20
	SALTERN=target/debug/saltern tests/bench/syndic.py --minions 20 --outage 3 --rate 100
	SALTERN=target/debug/saltern tests/bench/syndic.py --minions 20 --ping 2 --only saltern --out target/bench-check
	SALTERN=target/debug/saltern tests/bench/soak.py --minutes 2 --warm-up 0.1 --minions 20 --rate 20 --lenient

.PHONY: grafana
grafana: lab ## Start the demo with Prometheus (and Grafana where it is installed) on loopback
	grafana/run.sh start

.PHONY: grafana-stop
grafana-stop: ## Stop what `make grafana` started
	grafana/run.sh stop

.PHONY: grafana-check
grafana-check: ## Check the dashboards against Grafana's types, and what the alert rules do
	grafana/check.py --schema

# With a binary of its own, because no other lets an actor be killed.
.PHONY: story
story: ## Kill each actor of a demo while jobs run, fail if a job does; draws it into grafana/pictures
	tests/install-stock.sh 3008.3
	$(CARGO) build --release -p saltern -p saltern-lab --features saltern/fault-injection --target-dir target/story
	grafana/story.py

.PHONY: hostile
hostile: ## Attack a master with all kinds of hostile peers beside honest minions for 15 minutes
	SALTERN_HOSTILE_SECONDS=$${SALTERN_HOSTILE_SECONDS:-900} tests/run.sh --no-capture -E 'binary(e2e) & test(/^hostile::/)'

.PHONY: soak
soak: stock lab ## Watch our master with everything on for MINUTES (44); fails when it grows
	tests/bench/soak.py --minutes $(or $(MINUTES),44)

.PHONY: clean
clean: ## Remove what was built, and the demo
	for demo in .demo .story; do \
		if [ -e $$demo/watch-pids ]; then DEMO=$$demo grafana/run.sh stop; fi; \
		if [ -e $$demo/pids ]; then DEMO=$$demo packaging/demo.sh stop; fi; \
	done
	$(CARGO) clean
	rm -rf .demo .story
