# What a developer needs: make demo, make test. Everything is set up by the
# targets themselves; the machine needs Go, make and git.

GO       ?= go
FUZZTIME ?= 60s

# Where git cannot read the tree (no git, a tree of another user, an unpacked
# archive inside another repository) Go cannot stamp a revision and would stop.
ifneq ($(shell git status --porcelain >/dev/null 2>&1 && echo ok),ok)
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)
endif

tool = $(GO) tool -modfile=tools/go.mod

# The race detector needs cgo, and Go turns cgo off where it finds no C compiler.
race = $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

.PHONY: help build demo test check cross bench fuzz fmt clean

help:
	@echo 'make demo   build plimsoll-attest; verify a real session, then sign and verify one of our own'
	@echo 'make test   formatting, vet, staticcheck, tests, cross-builds, module checks'
	@echo 'make bench  all benchmarks'
	@echo 'make fuzz   every fuzz target for FUZZTIME ($(FUZZTIME))'
	@echo 'make fmt    format the Go code'
	@echo 'make clean  remove bin/'

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/plimsoll-attest ./cmd/plimsoll-attest

demo: build
	scripts/demo bin/plimsoll-attest

test: check
	$(if $(race),,@echo 'NOTE: no C compiler, so no cgo: the tests run WITHOUT the race detector')
	$(GO) test $(race) -shuffle=on ./...
	$(MAKE) --no-print-directory cross

check:
	$(GO) mod verify
	$(GO) mod tidy -diff
	@files=$$($(tool) gofumpt -l .) && \
	if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(tool) staticcheck ./...

cross:
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/plimsoll-attest
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build -o /dev/null ./cmd/plimsoll-attest
	GOOS=js GOARCH=wasm $(GO) build ./verify

bench:
	$(GO) test -run='^$$' -bench=. -benchmem ./...

fuzz:
	GO='$(GO)' scripts/fuzz $(FUZZTIME)

fmt:
	$(tool) gofumpt -w .

clean:
	rm -rf bin
