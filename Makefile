# make serve      run the server (environment in .venv, made on first use)
# make test       the whole test suite; needs Docker, or root to start an engine for the run
# make check      formatting, lint, types, contract, minimum Python of the guest
# make generate   code from protos/
# make parts      install what the tests run of other projects (done by test and bench)
# make bench      measurements against peers
# make fuzz       the coverage-guided fuzzers, FUZZ_SECONDS each
# make lock       pin the dependencies again
# make clean      remove what the targets above made here

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# The first interpreter that is new enough; `make PYTHON=... serve` names another.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PROJECTS := pyproject.toml clients/python/pyproject.toml
ENGINE := tests/support/engine
IMAGES := tests/support/images/build
# Programs of others that the tests and the benchmarks run for real, each in a folder of the user's cache.
PARTS := mcp-servers agentscope
GUEST := service/workspaced_guest
GO_MODULES := clients/go clients/go/eino examples

SERVE_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
FUZZ_SECONDS ?= 60
# The newest that each interpreter has a build of.
ATHERIS := "atheris==3.1.0; python_version >= '3.12'" "atheris==3.0.0; python_version < '3.12'"

export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPATH :=

.PHONY: help serve setup test check generate images parts bench fuzz lock clean

help:
	@sed -n '/^# make/s/^# //p' Makefile

serve: $(STAMPS)/server
	exec workspaced serve $(SERVE_ARGS)

setup: $(STAMPS)/develop

test: parts $(STAMPS)/typescript
	$(ENGINE) run bash -euo pipefail -c '$(IMAGES) && exec pytest $(PYTEST_ARGS)'

images:
	$(ENGINE) run $(IMAGES)

parts: $(STAMPS)/develop
	for part in $(PARTS); do tests/support/parts/install "$$part" >/dev/null; done

check: $(STAMPS)/develop $(STAMPS)/typescript
	ruff check .
	ruff format --check .
	mypy
	mypy --python-version 3.10 clients/python $(GUEST)
	vermin --quiet --target=3.9- --violations --no-tips --backport typing $(GUEST)
	protos/check
	for module in $(GO_MODULES); do ( cd "$$module" && go vet ./... && "$$(go -C $(CURDIR)/clients/go tool -n staticcheck)" ./... ); done
	npm --prefix clients/typescript run --silent check
	pytest --quiet tests/unit/test_repository.py

generate: $(STAMPS)/develop $(STAMPS)/typescript
	protos/generate

bench: parts $(STAMPS)/typescript
	$(ENGINE) run bash -euo pipefail -c '$(IMAGES) bookworm agents agentscope && exec python -m benchmarks $(BENCH_ARGS)'

# atheris is only for this, and is not built for every interpreter that the rest supports: hence not in the lock.
fuzz: $(STAMPS)/develop
	python -c 'import atheris' 2>/dev/null || pip install --quiet $(ATHERIS)
	for target in tests/fuzz/fuzz_*.py; do \
		echo "== $$target"; \
		python -m "tests.fuzz.$$(basename "$$target" .py)" -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1; \
	done

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo 'Python 3.11 or newer, with the venv module, is needed (on Debian: python3 and python3-venv)' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

# Every distribution is pinned by hash, so nothing is resolved here and a damaged cache is noticed.
$(STAMPS)/server $(STAMPS)/develop: $(STAMPS)/%: requirements/%.lock $(PROJECTS) | $(BIN)/python
	pip install --no-deps --require-hashes --requirement requirements/$*.lock
	pip install --quiet --no-deps --no-build-isolation --editable clients/python --editable .
	mkdir -p $(STAMPS)
	touch $@

$(STAMPS)/typescript: clients/typescript/package-lock.json
	npm --prefix clients/typescript ci --no-fund --no-audit
	mkdir -p $(STAMPS)
	touch $@

# Keeps the pins that still fit; `make lock LOCK_ARGS=--upgrade` moves them all.
LOCK_ARGS ?=
lock: $(STAMPS)/develop
	$(PYTHON) -m venv $(VENV)/uv && $(VENV)/uv/bin/pip install --quiet uv
	for pair in server:build develop:develop; do \
		$(VENV)/uv/bin/uv pip compile pyproject.toml --quiet --group "$${pair#*:}" --output-file "requirements/$${pair%:*}.lock" \
			--universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
			--no-emit-package workspaced $(LOCK_ARGS); \
	done
	for part in $(PARTS); do \
		( cd "tests/support/parts/$$part" && $(CURDIR)/$(VENV)/uv/bin/uv pip compile requirements.in --quiet --output-file requirements.lock \
			--universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links $(LOCK_ARGS) ); \
	done

clean:
	rm -rf $(VENV) build dist clients/python/dist .mypy_cache .pytest_cache .ruff_cache .hypothesis benchmarks/results
	find clients service tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
