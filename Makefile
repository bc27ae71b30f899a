# What a developer needs: make demo, make test. Everything is set up by the
# targets themselves; the machine needs Go, make, git and, for sandboxes, node.

GO       ?= go
FUZZTIME ?= 60s

# Where git cannot read the tree (no git, a tree of another user, an unpacked
# archive inside another repository) Go cannot stamp a revision and would stop.
ifneq ($(shell git status --porcelain >/dev/null 2>&1 && echo ok),ok)
novcs = -buildvcs=false
endif

# One set of flags for programs, checks and tests: gVisor is compiled once.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath $(novcs))
static = CGO_ENABLED=0 $(GO)

tool = CGO_ENABLED=0 $(GO) tool -modfile=tools/go.mod

# The race detector needs cgo, and Go turns cgo off where it finds no C compiler.
race = $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

# What links gVisor takes the race detector four more minutes to compile, and what
# starts itself a thousand times takes as long with it: make race.
linux     = $(filter linux,$(shell $(GO) env GOOS))
sandboxed = $(if $(linux),./runner/local ./cmd/plimsoll-run ./cmd/plimsoll-attest ./examples/harness ./examples/harness-python)
others    = $(shell $(GO) list ./... | grep -v -x $(foreach p,$(sandboxed) -,-e '.*/$(p:./%=%)'))

# The published Python client, which a test drives the embedded gateway with.
python = $(if $(linux),$(if $(shell command -v python3),bin/.sdk/bin/python))

.PHONY: help build demo test race check cross bench fuzz fmt clean

help:
	@echo 'make demo   build both programs; run five calls in a sandbox, with the key out of'
	@echo '            reach, and verify what they did; bundle, public key, page in bin/demo'
	@echo 'make test   formatting, vet, staticcheck, tests, cross-builds, module checks'
	@echo 'make race   the tests that make sandboxes, with the race detector too'
	@echo 'make bench  all benchmarks'
	@echo 'make fuzz   every fuzz target for FUZZTIME ($(FUZZTIME))'
	@echo 'make fmt    format the Go code'
	@echo 'make clean  remove bin/'

build:
	$(static) build -o bin/plimsoll-attest ./cmd/plimsoll-attest
	$(if $(linux),$(static) build -o bin/plimsoll-run ./cmd/plimsoll-run)

# The runner is for Linux: elsewhere a run log that was made before is signed.
demo: build
ifneq ($(linux),)
	$(static) run ./examples/sessions --bin bin -o bin/demo
else
	rm -rf bin/demo && mkdir bin/demo
	bin/plimsoll-attest keygen --key bin/demo/harness.key --pub bin/demo/harness.pub --no-passphrase
	bin/plimsoll-attest sign --key bin/demo/harness.key --bundle bin/demo/bundle.jsonl < testdata/runlog/demo.jsonl
	rm bin/demo/harness.key
	bin/plimsoll-attest verify --pub bin/demo/harness.pub --expect-count 3 bin/demo/bundle.jsonl
	bin/plimsoll-attest report --pub bin/demo/harness.pub --expect-count 3 bin/demo/bundle.jsonl -o bin/demo/report.html
endif

test: check $(python)
	$(if $(race),,@echo 'NOTE: no C compiler, so no cgo: the tests run WITHOUT the race detector')
	$(GO) test $(race) -shuffle=on $(others)
	$(if $(python),,@echo 'NOTE: no python3, so the published Python client is NOT run')
	$(if $(sandboxed),PLIMSOLL_TEST_PYTHON=$(abspath $(python)) $(static) test -p 1 -shuffle=on -timeout=20m $(sandboxed))
	$(MAKE) --no-print-directory cross

race:
	$(GO) test -race -p 1 -timeout=30m $(sandboxed)

check:
	$(GO) mod verify
	$(GO) mod tidy -diff
	@files=$$($(tool) gofumpt -l .) && \
	if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi
	$(static) vet ./...
	$(tool) staticcheck ./...

cross:
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/plimsoll-attest
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build -o /dev/null ./cmd/plimsoll-attest
	GOOS=js GOARCH=wasm $(GO) build ./verify

bench:
	$(static) test -run='^$$' -bench=. -benchmem -timeout=60m ./...

bin/.sdk/bin/python: Makefile
	rm -rf bin/.sdk
	python3 -m venv bin/.sdk
	bin/.sdk/bin/pip install --quiet --disable-pip-version-check openshell==0.1.5 || { rm -rf bin/.sdk; exit 1; }
	touch $@

fuzz:
	GO='$(GO)' scripts/fuzz $(FUZZTIME)

fmt:
	$(tool) gofumpt -w .

clean:
	rm -rf bin
