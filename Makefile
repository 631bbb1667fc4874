# One place for every command of the project. Everything it makes stays inside this checkout.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
SHELL := /bin/sh

# The first of these that is Python 3.11 to 3.13 (the versions that the lock file knows wheels for), else plain python3.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$python && exit; \
	done; echo python3)

VENV := .venv
PROTO_VENV := .venv-proto
LOCK_VENV := .venv-lock
RUN := $(VENV)/bin
# Tests at once; ARGS goes to pytest as it is.
WORKERS ?= 3
ARGS ?=

# Caches of the tools, kept inside the checkout too.
export BUF_CACHE_DIR := $(CURDIR)/$(VENV)/cache/buf
export PYRIGHT_PYTHON_CACHE_DIR := $(CURDIR)/$(VENV)/cache/pyright
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help
help: ## Show this help
	@echo "usage: make TARGET [ARGS=...]"
	@echo
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.ready ## Start the coordinator and the shop, run four orders, check the books
	@$(RUN)/python -m shop.demo $(ARGS)

.PHONY: test
test: $(VENV)/.ready ## Run the tests; ARGS="-m timeline" or ARGS="tests/unit -k name" chooses
	@$(RUN)/python -m pytest -n $(WORKERS) $(ARGS)

.PHONY: conformance
conformance: $(VENV)/.ready ## The suites of every port, the barrier and the outbox on all combinations of database and session
	@EVERY_RIG=1 $(RUN)/python -m pytest -n $(WORKERS) tests/conformance $(ARGS)

.PHONY: check
check: check-style check-types check-imports check-protos check-fresh check-tidy ## Everything that can be judged without running sagas
	@echo "check: all good"

.PHONY: check-style
check-style: $(VENV)/.ready ## ruff: rules and format
	@$(RUN)/ruff check --quiet
	@$(RUN)/ruff format --check --quiet || { echo "ruff format: some files are not formatted, 'make format' does it"; exit 1; }

.PHONY: check-types
check-types: $(VENV)/.ready ## mypy and pyright, both strict
	@$(RUN)/mypy
	@$(RUN)/pyright

.PHONY: check-imports
check-imports: $(VENV)/.ready ## import-linter: who may import whom
	@$(RUN)/lint-imports --no-logo --cache-dir $(VENV)/cache/import-linter

.PHONY: check-protos
check-protos: $(VENV)/.ready ## buf: rules and comments of the protos
	@if find proto participants tests/protos -name '*.proto' 2>/dev/null | grep -q .; then $(RUN)/buf lint; fi

.PHONY: check-fresh
check-fresh: $(VENV)/.ready $(PROTO_VENV)/.ready ## Are the generated code and the drawn pages what the sources give?
	@$(PROTO_VENV)/bin/python tools/generate.py --check
	@for tool in tools/draw_*.py; do $(RUN)/python $$tool --check || exit 1; done

.PHONY: check-tidy
check-tidy: $(VENV)/.ready ## Sizes, docstrings, purity of the core
	@$(RUN)/python -m pytest -q tests/test_tidy.py

.PHONY: proto
proto: $(VENV)/.ready $(PROTO_VENV)/.ready ## Generate Python code and stubs from the protos
	@$(PROTO_VENV)/bin/python tools/generate.py

.PHONY: proto-go
proto-go: $(PROTO_VENV)/.ready ## Generate the Go code of participants/go from the protos (needs Go)
	@$(PROTO_VENV)/bin/python tools/generate_go.py

.PHONY: grpcurl
grpcurl: .tools/bin/grpcurl ## Build the grpcurl that the tests and docs/grpcurl.md use (needs Go)

.PHONY: go-participant
go-participant: $(VENV)/.ready ## Build the participant in Go as its tests do (needs Go)
	@$(RUN)/python -c 'from tests.participants.go_points import built; print(built())'

.PHONY: nats-server
nats-server: .tools/bin/nats-server ## Build the NATS server that the outbox's tests use (needs Go)

.PHONY: trace-demo
trace-demo: $(VENV)/.ready ## Three orders of the shop as traces: one goes through, one is undone, one survives a kill
	@$(RUN)/python -m tests.telemetry.demo $(ARGS)

.PHONY: explore
explore: $(VENV)/.ready ## Explore the core: every interleaving of small sagas (some minutes on two cores)
	@$(RUN)/python -m tests.properties.explore $(ARGS)

.PHONY: fault-matrix
fault-matrix: $(VENV)/.ready ## Every fault at every call of the shop's orders and the bank's transfers (three minutes)
	@$(RUN)/python -m amends.testing tests.faults.shop_world:ORDER tests.faults.bank_world:TRANSFER \
		--workers $(WORKERS) $(ARGS)

.PHONY: bench
bench: $(VENV)/.ready ## Measure; prints key=value lines
	@$(RUN)/python -m tests.benchmarks.bench $(ARGS)

.PHONY: bench-list
bench-list: $(VENV)/.ready ## Measure lists of a million sagas on both databases (many minutes the first time, 4 GB of disk)
	@$(RUN)/python -m tests.benchmarks.bench_list $(ARGS)

.PHONY: bench-barrier
bench-barrier: $(VENV)/.ready ## Measure the barrier: one call with and without it, on both databases
	@$(RUN)/python -m tests.benchmarks.bench_barrier $(ARGS)

.PHONY: bench-telemetry
bench-telemetry: $(VENV)/.ready ## Measure what telemetry costs, with a good backend and with bad ones
	@$(RUN)/python -m tests.benchmarks.bench_telemetry $(ARGS)

.PHONY: format
format: $(VENV)/.ready ## Format the code and repair what ruff can
	@$(RUN)/ruff check --quiet --fix-only
	@$(RUN)/ruff format --quiet

.PHONY: lock
lock: $(LOCK_VENV)/.ready ## Resolve the dependencies anew (needs PyPI; all Python versions at once)
	@$(LOCK_VENV)/bin/python tools/lock.py $(ARGS)

.PHONY: clean
clean: ## Remove everything that the targets made, environments included
	@rm -rf $(VENV) $(PROTO_VENV) $(LOCK_VENV) .pytest_tmp .pytest_cache .mypy_cache .ruff_cache .hypothesis .bench .go .tools build dist var
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

GRPCURL_VERSION := v1.9.3
NATS_VERSION := v2.15.2

# What Go fetches and makes for them stays inside this checkout, unless GOCACHE and GOMODCACHE say where it is.
GO_INSTALL = @command -v go >/dev/null || { echo "$(@F) is built by Go, and there is none here: install it, or $(@F) itself" >&2; exit 1; }; \
	GOBIN=$(CURDIR)/.tools/bin CGO_ENABLED=0 GOFLAGS="-modcacherw" GOCACHE=$${GOCACHE:-$(CURDIR)/.go/cache} \
	GOMODCACHE=$${GOMODCACHE:-$(CURDIR)/.go/modules} go install

.tools/bin/nats-server:
	$(GO_INSTALL) -ldflags="-s -w" github.com/nats-io/nats-server/v2@$(NATS_VERSION)

.tools/bin/grpcurl:
	$(GO_INSTALL) -tags=grpcnotrace -ldflags="-s -w -X main.version=$(GRPCURL_VERSION)" github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL_VERSION)

# Asked before anything of ours is read by a Python that could not read it.
define right-python
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	{ echo "amends needs Python 3.11 or newer, but $(PYTHON) is older or missing: install one, or name it: make PYTHON=python3.12" >&2; exit 1; }
endef

$(VENV)/.ready: locks/dev.txt pyproject.toml tools/environment.py
	$(right-python)
	@$(PYTHON) tools/environment.py $(VENV) --lock locks/dev.txt --project

$(PROTO_VENV)/.ready: locks/proto.txt tools/environment.py
	$(right-python)
	@$(PYTHON) tools/environment.py $(PROTO_VENV) --lock locks/proto.txt

$(LOCK_VENV)/.ready: locks/lock.txt tools/environment.py
	$(right-python)
	@$(PYTHON) tools/environment.py $(LOCK_VENV) --lock locks/lock.txt
