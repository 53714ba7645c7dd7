# `make demo` and `make test` need Python 3.11 or newer and a package index; all else they set up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# uv reads UV_FIND_LINKS where pip reads PIP_FIND_LINKS: pass on what a machine has set for pip.
UV := UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" $(BIN)/uv
EXTRAS := audio scale dev

.PHONY: help demo test test-slow lint bench setup setup-all constraints clean
.DEFAULT_GOAL := help

help: ## Show the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(VENV)/.core ## Build every corpus from data/demo into data/store.
	$(BIN)/earmark demo

test: $(VENV)/.dev ## Run the fast tests.
	$(BIN)/python -m pytest -n auto

test-slow: $(VENV)/.dev ## Run the slow tests: kills, large inputs, real servers.
	$(BIN)/python -m pytest -m slow --timeout 1800

lint: $(VENV)/.dev ## Check style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev ## Run the benchmarks; tests/benchmarks/RESULTS.md holds earlier figures.
	$(BIN)/python -m tests.benchmarks.bench_pairs
	$(BIN)/python -m tests.benchmarks.bench_annotation

setup: $(VENV)/.dev ## Install the core and what tests need.

setup-all: $(VENV)/.dev ## Install every extra that runs without a GPU (gigabytes: torch).
	$(UV) pip install -q -p $(VENV) -c constraints.txt -e '.[audio,scale,dev]'

constraints: $(BIN)/uv ## Renew the pinned versions.
	$(UV) pip compile pyproject.toml $(foreach extra,$(EXTRAS),--extra $(extra)) --upgrade --no-annotate --no-header -q -o constraints.txt
	sed -i -E 's/^(torch==[0-9.]+)\+.*/\1/' constraints.txt

clean: ## Remove the virtual environment and caches; the store stays.
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Earmark needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check uv

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) pip install -q -p $(VENV) -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) pip install -q -p $(VENV) -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.core $@
