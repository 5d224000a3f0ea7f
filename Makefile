# The front door. `make help` says what each target does; the first words of a target's comment are its help.

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help deps build deb programs reproducible-test dist-test package-test libvirt-test restricted-test benches demo test unit isolation-test stall-test fuzz sim sim-mutants policy-sim burst-sim bench-instructions guest-test guest-fio guest-tls guest-unit uml-test faults crash-test upgrade-test migrate picture resize lab-test interop fault-table api-test api-load soak bench-fastpath bench-scale bench-policies bench-native bench-burst bench-mptcp qemu qemu-test lint fmt deny references api-reference images clean

CARGO ?= cargo
BIN := $(or $(CARGO_TARGET_DIR),target)/release
# Release programs name fixed folders in place of this clone, crates.io's sources and the target directory. So the same commit gives
# the same programs in any folder.
CARGO_HOME ?= $(HOME)/.cargo
fixed = "--remap-path-prefix=$(1)=/usr/src/$(2)"
BUILD := $(CARGO) build --release --locked --config 'build.rustflags=[$(call fixed,$(CURDIR),vhost-blk-mpath), \
  $(call fixed,$(CARGO_HOME)/registry/src,crates), $(call fixed,$(or $(CARGO_TARGET_DIR),$(CURDIR)/target),vhost-blk-mpath/target)]'
# How long `make soak` runs, and each target of `make fuzz`.
SECONDS ?= 60
# Options of `make bench-scale`, as in '--only idle'; `scale --help` lists them.
SCALE_ARGS ?=
# Options of `make bench-policies`, as in '--only a,c'; `policies --help` lists them.
POLICIES_ARGS ?=
# Options of `make bench-native`, as in '--rounds 3'; `native --help` lists them.
NATIVE_ARGS ?=
# Options of `make bench-burst`, as in '--only guests'; `burst --help` lists them.
BURST_ARGS ?=
# Options of `make bench-mptcp`, as in '--only a,d'; `mptcp --help` lists them.
MPTCP_ARGS ?=
# An option of `make bench-instructions`: '--write' records the baseline, '--flows' prints the table of schedulers.
INSTRUCTIONS_ARGS ?=
# Options of `make guest-unit`, as in '--reference'; `guest-tests/unit/run --help` lists them.
UNIT_ARGS ?=
# A checkout of kvm-unit-tests to build the tests of `make guest-unit` in, in place of their own runtime.
KVM_UNIT_TESTS ?=
# Options of `make api-test`, as in '--seed 7 --examples 300'.
API_TEST_ARGS ?=
SCHEMATHESIS := 4.32.5
RICH := 14.2.0
# Options of `make crash-test`, as in '--kills 5 --seed 7'.
CRASH_ARGS ?=
# A directory with programs for guests to run on, in place of a release build.
MPATH_BIN ?=
PROGRAMS := $(if $(MPATH_BIN),,build)
# How many runs `make sim` makes.
SEEDS ?= 2000

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  ACCEL=kvm|tcg overrides the accelerator of guests; by default KVM where a probe boot succeeds, TCG otherwise."

deps: ## install what building and testing need (Debian packages; says what; asks for Rust if it is missing or old)
	@scripts/deps.sh build guest

build: ## build the daemon, the target, mpathctl and vublk-bench (release)
	@scripts/deps.sh build
	$(BUILD) --bin vhost-blk-mpath --bin mpath-target --bin mpathctl --bin vublk-bench

# Nothing is built if MPATH_BIN has the programs. Without -p, features are those of `build`, and its libraries are used again.
programs: $(PROGRAMS)
	$(if $(MPATH_BIN),,$(BUILD) --bin mpath-manual)

deb: programs ## make the Debian package, and print its path (MPATH_BIN=dir packs the programs there)
	@scripts/deps.sh deb
	scripts/package $(or $(MPATH_BIN),$(BIN))

reproducible-test: ## make the package of the last commit twice, in two folders, and compare (two release builds)
	@scripts/deps.sh build deb
	scripts/reproducible-test

dist-test: programs ## what the package has besides programs: manual pages, completions, alert rules, dashboard, libvirt example
	@scripts/deps.sh dist
	scripts/dist-test

package-test: programs images ## install the package in a Debian of its own, use, upgrade and remove it there, a guest verifying (as root; SUITE=trixie: Debian 13)
	@scripts/deps.sh deb package
	guest-tests/package/run

libvirt-test: programs images ## have libvirtd run the package's example of a domain in a Debian of its own, a guest verifying (as root; SUITE=trixie: Debian 13)
	@scripts/deps.sh deb package
	guest-tests/package/libvirt

restricted-test: ## the daemon's tests of memory, upgrades, sockets and connections under what its unit restricts (as root)
	@scripts/deps.sh build guest package
	guest-tests/package/restricted

benches: build
	$(BUILD) -p vublk-bench

images: ## build the fio guest from Debian's kernel, busybox and fio (cached by its inputs)
	@scripts/deps.sh guest
	images/build

demo: build images ## the main job: a guest on two paths, 30 ms into one of them, every policy live; a table per policy
	scripts/demo

test: ## unit, property and integration tests, then guests with verification, with Linux and without
	@scripts/deps.sh build guest
	@# The guest is fetched while tests are built.
	images/build >/dev/null & $(MAKE) --no-print-directory unit && wait $$!
	@# On the programs of the tests: a release build would compile everything once more. Two guests at a time.
	$(MAKE) --no-print-directory --jobs=2 --output-sync guest-test guest-unit MPATH_BIN=$(abspath $(or $(CARGO_TARGET_DIR),target))/debug

unit: ## unit, property and integration tests only
	@scripts/deps.sh build guest
	CARGO=$(CARGO) scripts/unit-tests

isolation-test: ## what a disk that grows, moves or has a hostile guest costs the others; judged on a quiet machine only
	@scripts/deps.sh build
	CARGO=$(CARGO) scripts/isolation-test

stall-test: ## 20 stalls of the host each by SIGSTOP, a processor quota and a neighbour of a higher priority: the host is blamed (root, in two minutes)
	@scripts/deps.sh build
	$(CARGO) test --workspace --locked --test daemon stalls_of_every_kind -- --ignored --nocapture

fuzz: ## what front-ends, guests, controllers, hosts and files can send, made up by a fuzzer, each target for SECONDS=60
	@scripts/deps.sh build fuzz
	scripts/fuzz $(SECONDS)

sim: ## the whole stack in virtual time: small worlds exhaustively, then random faults, every block checked (SEEDS=2000; replays with --seed)
	@scripts/deps.sh build
	$(BUILD) -p mpath-sim
	$(BIN)/mpath-sim --small
	$(BIN)/mpath-sim --seeds $(SEEDS)

sim-mutants: ## how many runs the simulator needs to find each deliberate bug of mpath-sim/mutants (takes about half an hour)
	@scripts/deps.sh build
	scripts/sim-mutants

policy-sim: ## what each policy makes of modelled paths in virtual time, compared with the bound of any policy, as tables
	@scripts/deps.sh build
	$(BUILD) -p mpath-sim
	$(BIN)/mpath-sim policies

burst-sim: ## bursts against busy flows under each scheduler in virtual time, compared with floor and limit, as tables; its targets, judged
	@scripts/deps.sh build
	$(BUILD) -p mpath-sim
	$(BIN)/mpath-sim bursts

bench-instructions: ## instructions of each part of a request, in a minute; fails on a rise above 3 % (INSTRUCTIONS_ARGS=--write records them)
	@scripts/deps.sh build count
	@# One codegen unit: with more of them, counts depend on the folder of the clone.
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_DEBUG=0 \
	  $(CARGO) build --release --locked -p mpath-sim
	$(BIN)/mpath-sim instructions $(INSTRUCTIONS_ARGS)

guest-test: guest-fio guest-tls uml-test ## guest-fio, guest-tls and uml-test

guest-fio: $(PROGRAMS) images ## the fio suite in a guest over two paths, with verification, while policies are switched
	scripts/guest-test

guest-tls: $(PROGRAMS) images ## a guest over paths with TLS, and a port in clear text that is refused
	guest-tests/tls/run

guest-unit: $(PROGRAMS) ## virtio-blk from bare metal, good and bad requests, under QEMU (KVM_UNIT_TESTS=dir; UNIT_ARGS='--reference')
	@scripts/deps.sh unit
	$(MAKE) --no-print-directory -C guest-tests/unit OUT=$(CURDIR)/target/guest-unit KVM_UNIT_TESTS=$(abspath $(KVM_UNIT_TESTS))
	guest-tests/unit/run --build target/guest-unit$(if $(KVM_UNIT_TESTS),/kvm-unit-tests/x86) $(UNIT_ARGS)

uml-test: $(PROGRAMS) ## Linux in user mode on the disk, without QEMU: fio verifies while the policy is switched and a path lost
	@scripts/deps.sh uml
	guest-tests/uml/run

faults: build images ## break path after path under a guest (RST, silence, stopped target) and judge what it notices; 100 flaps leak nothing
	@scripts/deps.sh faults
	guest-tests/faults/run

crash-test: build images ## kill the daemon 50 times under a guest that verifies (CRASH_ARGS='--kills 5 --seed 7'): nothing lost, no error, I/O goes on
	guest-tests/crash/run $(CRASH_ARGS)

upgrade-test: build images ## upgrade the daemon 100 times, to the next version and back, under guests that verify, one path mute (UPGRADE_ARGS='--upgrades 10')
	guest-tests/upgrade/build-next
	@# The files next to a socket are in memory, as those in /run are.
	TMPDIR=/dev/shm DAEMON_BUILDS=$(BIN)/vhost-blk-mpath:target/next-version/release/vhost-blk-mpath UPGRADES=100 \
	  $(CARGO) test --locked -p vhost-blk-mpath --test daemon upgrade::guests_go_on -- --nocapture
	guest-tests/upgrade/run $(UPGRADE_ARGS)

migrate: build images ## move a guest from QEMU to QEMU and from daemon to daemon, there and back, while fio verifies in it
	guest-tests/migrate/run

resize: build images ## have the namespace of a disk grow under a guest that verifies, which has to see it
	guest-tests/resize/run

lab-test: ## the network lab (namespaces, links with rates and loss, MPTCP) tests itself, in less than a minute
	@scripts/deps.sh lab
	guest-tests/lab/self-test

interop: benches ## Linux as the judge: its NVMe/TCP target against this daemon, its initiator against mpath-target, both in guests, with the kernels of Debian 12 and 13, with TLS and authentication too
	@scripts/deps.sh guest
	images/build nvmet
	SUITE=trixie images/build nvmet
	@# For the test that shows what the fence is for.
	RUSTFLAGS='--cfg without_fence' $(CARGO) build --release --locked -p vhost-blk-mpath --target-dir target/without-fence
	guest-tests/interop/run
	guest-tests/interop/run --suite trixie

fault-table: ## stage every fault, and print the condition, event and metric that tell of it
	cargo test --locked -p vhost-blk-mpath --test daemon -- --nocapture every_fault_has

soak: benches ## vublk-bench verify on 4 queues while policy and injection change every 100 ms (SECONDS=60)
	$(BIN)/soak --time $(SECONDS)s

bench-fastpath: benches ## vublk-bench against this daemon and against a null-co export, side by side; writes docs/results/
	@scripts/deps.sh guest
	$(BIN)/fastpath

bench-scale: benches ## what the daemon costs with many disks, virtqueues, paths, requests and I/O threads, in 20 minutes; writes docs/results/ (SCALE_ARGS='--only idle')
	@# The files next to a socket are in memory, as those in /run are.
	TMPDIR=/dev/shm $(BIN)/scale $(SCALE_ARGS)

bench-policies: benches ## every policy against the bound, in four tables, in less than an hour; writes docs/results/ (POLICIES_ARGS='--only a')
	$(BIN)/policies $(POLICIES_ARGS)

bench-native: benches ## Linux's own NVMe multipath beside the daemon in one guest, one path 30 ms slower, in 15 minutes; writes docs/results/
	@scripts/deps.sh guest
	@# The kernel of Debian 12 has no queue-depth policy.
	SUITE=trixie images/build nvmet
	SUITE=trixie $(BIN)/native $(NATIVE_ARGS)

bench-burst: benches ## bursts against busy virtqueues under each scheduler, by sockets and by two guests, in less than half an hour; writes docs/results/ (BURST_ARGS='--only k')
	@scripts/deps.sh guest
	images/build
	scripts/awake $(BIN)/burst $(BURST_ARGS)

bench-mptcp: benches ## TCP multipath, MPTCP and both over 1, 2 and 4 links of the lab, unequal, lossy, lost, in 28 minutes; writes docs/results/ (MPTCP_ARGS='--only a')
	@scripts/deps.sh lab
	guest-tests/mptcp/self-test
	scripts/awake $(BIN)/mptcp $(MPTCP_ARGS)

qemu: ## QEMU with the patches of qemu-patches/ on Debian's source packages, for its tests (cached by its inputs, for all clones)
	qemu-patches/build 7.2
	qemu-patches/build 10.0

qemu-test: build images qemu ## the patches' qtest, then docs/qemu.md's example and the fio suite on a disk that is managed by QEMU's monitor alone
	qemu-patches/test

api-test: $(PROGRAMS) ## schemathesis against a live daemon, by its own OpenAPI document, in a minute (installs schemathesis in target/api-test; API_TEST_ARGS='--seed 7')
	@scripts/deps.sh venv lab
	@target/api-test/bin/schemathesis --version 2>/dev/null | grep -q 'version $(SCHEMATHESIS)$$' || { \
	  echo "api-test: installing schemathesis $(SCHEMATHESIS) from PyPI in target/api-test" && \
	  python3 -m venv target/api-test && target/api-test/bin/pip install --quiet schemathesis==$(SCHEMATHESIS); }
	scripts/api-test $(API_TEST_ARGS)

api-load: $(PROGRAMS) ## whether 1000 clients of the API, good and bad, delay a disk more than those of any server, in three minutes on a machine that does nothing else
	scripts/api-load

picture: build images ## docs/images/top.svg: `mpathctl top` beside a guest that reads (installs rich in target/picture)
	@scripts/deps.sh venv picture
	@target/picture/bin/pip show --quiet rich 2>/dev/null || { \
	  python3 -m venv target/picture && target/picture/bin/pip install --quiet rich==$(RICH); }
	target/picture/bin/python scripts/picture-of-top docs/images/top.svg

lint: ## formatting, clippy with warnings as errors, shell, Python and import checks, the language of documents and messages, links and targets
	@scripts/deps.sh build lint
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path vhost-blk-mpath/fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/lint-scripts
	scripts/check-imports
	scripts/check-descriptions
	scripts/check-prose
	scripts/check-links
	scripts/rules --check
	scripts/sim-mutants --dry-run

fmt: ## format the code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path vhost-blk-mpath/fuzz/Cargo.toml

references: ## write docs/openapi.json, dist/config.schema.json, docs/nvme-statuses.md and tables of docs/architecture.md
	scripts/rules
	WRITE_REFERENCES=1 $(CARGO) test --locked -p mpath-config -p mpath-api-server -p nvme-tcp --lib checked_in

api-reference: ## write target/manual/api-reference.md: the API's routes, errors and types, from docs/openapi.json
	@mkdir -p target/manual
	$(CARGO) run --locked -q -p mpath-manual -- target/manual "$$(date -u +%F)"

deny: ## licences, sources and advisories of the dependencies, in seconds (advisories: if their database can be fetched)
	@scripts/deps.sh build
	scripts/deny

clean: ## remove what was built, the guests included, but not QEMU, which other clones use: it says where that is
	$(CARGO) clean
	rm -rf .cache
	@echo "clean: QEMU stays, if it was built: $$(qemu-patches/build --cache)"
