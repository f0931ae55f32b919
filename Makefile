# Everything works from nothing: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

.PHONY: demo demo-cluster test test-all docs bench lint format clean

# The main job on an embedded panel; says where its picture is.
demo: $(VENV)/.demo
	$(BIN)/onesided demo

# A Ray cluster of three nodes on this machine fits a panel; a node is killed on the way, and the result agrees.
demo-cluster: $(VENV)/.cluster
	RAY_DEDUP_LOGS=0 $(BIN)/python examples/cluster.py

# Doctests and every block of the README and the documentation included. What needs PyTorch, Triton or Ray is skipped
# where they are not installed, and says so.
test: $(VENV)/.dev
	$(BIN)/python -m pytest

# The whole suite: PyTorch, Triton (on Linux) and Ray are installed, which takes gigabytes where wheels bring CUDA.
test-all: $(VENV)/.dev-all
	$(BIN)/python -m pytest

# The documentation as a site, in site/: warnings are errors. Pages need no network, nor a server but for the search.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html; with search: $(BIN)/python -m http.server --directory site"

# What passes cost beside yardsticks measured in the same run; minutes, best on a machine with nothing else to do.
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/row_pass.py
	$(BIN)/python benchmarks/variational_pass.py
	$(BIN)/python benchmarks/pair_moments.py

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis onesided-demo.png

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[report]'
	touch $@

$(VENV)/.cluster: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[cluster]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[dev]'
	touch $@ $(VENV)/.demo

$(VENV)/.dev-all: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[dev-all]'
	touch $@ $(VENV)/.dev $(VENV)/.demo $(VENV)/.cluster

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
