# make run   on a fresh clone: installs, fetches the base model and grows generation 1 from 0
# make test  the same environment, then every check and every test
# make env | check | bench   their parts

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: env run check test bench

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# For example an index of CPU-only builds: make env PIP_OPTIONS="--extra-index-url URL"
PIP_OPTIONS ?=
GENERATION ?= 0
# Test files run side by side in this many processes.
WORKERS ?= 2

env: $(VENV)/.installed

# torch comes first and under its pin, so that no later step can trade its build for another.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "macaron-loop needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_OPTIONS) -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet $(PIP_OPTIONS) -c constraints.txt -e ".[dev]"
	touch $@

run: env
	$(BIN)/macaron-loop run --generation $(GENERATION)

check: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	export MACARON_DATABASE_URL="sqlite:///$$folder/check.db"; \
	$(BIN)/alembic upgrade head && $(BIN)/alembic check

test: check
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile

bench: env
	for script in engine overhead; do $(BIN)/python -m benchmarks.$$script; done
