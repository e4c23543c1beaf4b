# make            builds bin/pipetrain and lists the targets
# make demo       trains a small transformer on this machine (about 3 minutes)
# make check      the quick checks, for while you write
# make test       installs what the tests need and runs all checks

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c

GO      ?= go
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Go's own stamp of the commit fails the build where git refuses to read (a clone that another user owns, no git).
VCS     := $(shell git status --porcelain >/dev/null 2>&1 && echo true || echo false)
BUILD   := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(VCS) -ldflags '-s -w -X main.version=$(VERSION)'

FUZZTIME  ?= 20s
BENCHTIME ?= 1s
FOR       ?= 1h
SEED      ?= $(shell date +%s)
FAULTS    ?= 0
COUNT     ?= 6
BENCH     ?= .
BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

.PHONY: all help build chaos demo check test race ptx golden fuzz bench bench-compare lint docs peer mpi test-cuda bench-cuda ci clean

all: build help

help: ## this list
	@echo "targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# $(call need,tool,what to do about it)
define need
@command -v $(1) >/dev/null || { echo "make $@: $(1) is not there: $(2)" >&2; exit 1; }
endef
GET_GO := get Go 1.26 or later from https://go.dev/dl and add its bin folder to PATH

build: ## build bin/pipetrain, one binary, no C compiler, MPI, BLAS or CUDA needed
	$(call need,$(GO),$(GET_GO))
	@mkdir -p bin
	$(BUILD) -o bin/pipetrain ./cmd/pipetrain

demo: build build/go-source.txt ## train 4 stages with 2BP on Go's own source text, and draw the timeline
	bin/pipetrain jobs/examples/demo.toml --set data.path=$(CURDIR)/build/go-source.txt

study: build ## rehearse three schedules on 1 to 8 ranks (two minutes), and end with the page's path
	bin/pipetrain study jobs/studies/rehearsed.toml

pictures: build ## the pictures of README and docs, made anew; needs chromium
	@scripts/pictures.sh

bench-nightly: ## this tree's benchmarks against the baseline that scripts/bench-nightly.sh save made; 9 where one is slower
	@scripts/bench-nightly.sh

# Not a file target on the sources: they change only with Go itself.
build/go-source.txt: scripts/go-source.sh
	$(call need,$(GO),$(GET_GO))
	@scripts/go-source.sh $@

check: ## format, vet, lint, build and the unit tests: no cluster, no launchers, nothing installed
	@scripts/check.sh gofmt vet staticcheck build unit

test: ## install what the tests need, then lint, build, race and all tests
	@scripts/check.sh

race: ## the concurrent packages under the race detector
	$(call need,gcc,apt-get install gcc libc6-dev)
	@scripts/check.sh race

chaos: build ## runs under random faults, for FOR (1h) or FAULTS of them; SEED repeats one
	$(GO) test ./cmd/pipetrain -run '^TestChaos$$' -count=1 -timeout 0 -v -args -chaos $(FOR) -seed $(SEED) -faults $(FAULTS)

lint: ## gofmt, go vet, staticcheck
	@scripts/check.sh gofmt vet staticcheck

ptx: ## compile the CUDA kernels to the PTX that the binary holds; ptxas looks at it where there is one
	$(call need,clang-22,apt-get install clang-22)
	@scripts/ptx.sh && scripts/ptxas-check.sh

golden: ## rewrite the golden files of all packages that have some; then look at git diff
	@packages=$$(grep -rlE --include='*_test.go' 'flag\.Bool\("update"' . | xargs -r -n 1 dirname | sort -u); \
	[ -n "$$packages" ] || { echo "no package has golden files"; exit 0; }; \
	for p in $$packages; do $(GO) test -count=1 $$p -update; done; \
	git status --short -- '*testdata*' docs README.md

fuzz: ## each fuzz target for FUZZTIME (20s)
	@for p in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u); do \
		for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | cut -c 6-); do \
			echo "=== $$p $$f"; $(GO) test $$p -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME); \
		done; \
	done

bench: ## all benchmarks, COUNT (6) times each, into build/bench/<commit>.txt; BENCH=regexp chooses
	@mkdir -p build/bench
	@{ echo "commit: $(VERSION)"; echo "cores: $$(nproc)"; } | tee build/bench/$(COMMIT).txt
	$(GO) test ./... -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -count $(COUNT) -p 1 -timeout 60m | tee -a build/bench/$(COMMIT).txt

bench-compare: ## compare two results of make bench: OLD=file NEW=file
	@[ -n "$(OLD)" ] && [ -n "$(NEW)" ] || { echo "make bench-compare OLD=build/bench/a.txt NEW=build/bench/b.txt; there are:"; ls build/bench 2>/dev/null || echo 'none yet: make bench'; exit 1; }
	$(GO) run $(BENCHSTAT) $(OLD) $(NEW)

docs: ## rewrite the parts of README and docs that come from the code, and check the links
	$(GO) test ./internal/archtest -count=1 -update

peer: ## what the search for schedules is held against: proves the small problems' optima with OR-tools, hours of CPU; ONLY=id chooses
	test -x build/peer/bin/python || python3 -m venv build/peer
	build/peer/bin/pip install -q ortools
	build/peer/bin/python scripts/auto-oracle.py --only "$(ONLY)" schedule/testdata/auto-problems.jsonl

mpi: build ## the transport's conformance suite under mpirun.openmpi and mpirun.mpich
	$(call need,mpirun.openmpi,apt-get install openmpi-bin)
	$(call need,mpirun.mpich,apt-get install mpich)
	$(GO) test ./collectives/... -count=1 -timeout 10m

# What scripts/cuda-check.py runs; it builds nothing itself, so that these can be carried to a machine without Go.
bin/cuda.test: build
	CGO_ENABLED=0 $(GO) test -c -o $@ ./kernels/cuda

test-cuda: build bin/cuda.test ## the GPU backend on this machine's GPU; without one it says so and fails with 77
	@scripts/cuda-check.py --only conformance,parity,memory --out build/cuda/$(COMMIT)-test.json

bench-cuda: build bin/cuda.test ## all checks and measurements on this machine's GPU, into build/cuda/<commit>.json
	@scripts/cuda-check.py --out build/cuda/$(COMMIT).json

ci: ## what the continuous integration runs
	@.ci/run

clean: ## remove bin and build (runs stay)
	rm -rf bin build
