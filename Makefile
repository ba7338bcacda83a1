# The project's commands. `make` alone lists them. Each one does its own set-up (scripts/setup), so that on a
# fresh Debian or Ubuntu with Rust `make demo` and `make test` work as they are; cargo does the building.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
export PATH := $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

CARGO ?= cargo
PREFIX ?= /usr/local
TARGET := $(or $(CARGO_TARGET_DIR),target)

step = @printf '\n== %s\n' '$(1)'

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## set up, build, then the examples, on GPUs where there are any
	$(call step,set-up)
	@scripts/setup demo
	$(call step,build)
	@$(CARGO) build --release -p rushmem -p rushmem-host -p rushmem-tools --lib --bins --examples
	@scripts/demo "$(TARGET)/release"

.PHONY: test
test: ## set up, then the tests that run without a GPU, of some a part by the day; says how long each step took
	@scripts/test

.PHONY: attack
attack: ## what strangers, other users, kills and random calls do, at length (40 minutes)
	@scripts/setup test
	@scripts/attack

.PHONY: soak
soak: ## fuzz targets, random programs against the promised order, make check-sweep, long attacks (hours)
	@scripts/setup test
	@scripts/soak

.PHONY: check-sweep
check-sweep: ## tests of kernels, examples and Python under RUSHMEM_CHECK, which may report nothing (an hour)
	@scripts/check-sweep

.PHONY: check-cost
check-cost: ## how many times as much processor time each example takes under RUSHMEM_CHECK (minutes)
	@scripts/check-cost

.PHONY: test-all
test-all: export RUSHMEM_TEST_PART = 0
test-all: export RUSHMEM_TEST_COUNTS = all
test-all: test attack ## make test, make attack, and the whole grids that make test takes parts of
	$(call step,the whole grids)
	@scripts/check-device --full
	@scripts/container build --stand-ins
	@scripts/test --conformance
	@scripts/deny bans licenses sources
	@scripts/test-triton
	@scripts/test-torch
	@scripts/test-jax
	@scripts/test-slurm
	@RUSHMEM_TEST_ROUNDS=all $(CARGO) test -p rushmem-host --lib -- order_tests --nocapture
	@RUSHMEM_TEST_ROUNDS=all $(CARGO) test --workspace --exclude rushmem-bootstrap-mpi --features rushmem/cudarc --test programs --test names
	@RUSHMEM_TEST_ROUNDS=all $(CARGO) test -p rushmem --features rushmem/cudarc --test device -- --test-threads 1 collectives:: relays::

.PHONY: outside
outside: ## what users have: packages for crates.io, the texts' code in another crate, the installation (after make test)
	$(call step,packages, and their documentation as on docs.rs)
	@scripts/packages --docs-rs
	$(call step,code of README and docs in a crate outside)
	@scripts/snippets
	$(call step,the installation)
	@scripts/check-install

.PHONY: lint
lint: ## formatting, clippy, documentation, dependency rules, the shape of the tree, device headers under nvcc
	$(call step,set-up)
	@scripts/setup lint
	@scripts/lint

.PHONY: doc
doc: ## the documentation, as HTML: the guide, and the API with all features
	$(call step,the guide)
	@scripts/guide
	$(call step,the API)
	@$(CARGO) doc --no-deps -p rushmem --all-features
	@echo "open $(TARGET)/doc/rushmem/index.html"

.PHONY: install
install: ## make install PREFIX=/usr/local: library, MPI plug-ins, headers, pkg-config and CMake files, tools
	@scripts/install "$(PREFIX)"

.PHONY: install-nvshmem
install-nvshmem: ## make install-nvshmem PREFIX=DIR: nvshmem.h and its libraries, as NVSHMEM lays them out
	@scripts/install-nvshmem "$(PREFIX)"

.PHONY: nvshmem-coverage
nvshmem-coverage: ## our nvshmem.h beside NVSHMEM's, family by family (fetches a wheel for its names)
	@$(CARGO) build -p rushmem-nvshmem
	@scripts/nvshmem-coverage

.PHONY: deb
deb: ## the same as a Debian package: .build/rushmem_*.deb
	@scripts/deb

.PHONY: mpi-plugins
mpi-plugins: ## the MPI bootstrap plug-in, one for each MPI that an mpicc (or MPICC=) stands for
	@scripts/setup mpi
	@scripts/build-mpi-plugin

.PHONY: device
device: ## librushmem_device.a, for kernels that nvcc compiles, and what the runtime carries: target/device
	@scripts/device
	@ls -l "$(TARGET)/device"

.PHONY: gpu-bundle
gpu-bundle: ## one file for a host with GPUs and no Rust: .build/gpu.tar.xz
	@scripts/setup bundle
	@scripts/gpu-bundle

.PHONY: wheel
wheel: ## the Python package, with runtime, headers and tools: .build/wheel/dist/rushmem-*.whl
	@scripts/wheel

.PHONY: bench
bench: ## the host benchmarks, checked against their limits
	$(call step,build)
	@$(CARGO) build --release -p rushmem-host -p rushmem-tools
	$(call step,rushmem-perf host)
	@"$(TARGET)/release/rushmem-perf" host all --check

.PHONY: miri
miri: ## the allocator and the device ring under miri
	$(call step,miri)
	@scripts/miri

.PHONY: clean
clean: ## removes what was built
	@$(CARGO) clean
