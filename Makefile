# Everything is set up here: Python 3.11+ and make are all that a machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests write and sync thousands of small files: in memory, where 4 GB of it are free for files.
TEMPORARY := $(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 {print "/dev/shm"}')
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint types slow long-run bench bench-gpu docs dist clean

demo: $(READY)
	$(BIN)/crossling demo

# Compiled code is kept even where the environment forbids it: else every process compiles all of src and tests again.
test: $(READY) lint types
	PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT=$(TEMPORARY) $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

slow: $(READY)
	$(BIN)/python -m pytest -m slow

# Hundreds of kills and of damaged files, thousands of bad ones: half an hour. A stopped one continues.
long-run: $(READY)
	$(BIN)/python tests/long_run.py

bench: $(READY)
	$(BIN)/python benchmarks/run.py --device cpu

# With whatever Python a GPU machine has: make bench-gpu PYTHON=python3.12
bench-gpu:
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) benchmarks/run.py --device cuda

# A site in build/site; a link that leads nowhere is an error.
docs: $(READY)
	$(PIP) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# Wheel and sdist in dist/, checked; the wheel then trains a first model in a fresh environment.
dist: $(READY)
	$(PIP) --editable '.[release]'
	rm -rf dist build/lib build/fresh
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/fresh/venv
	build/fresh/venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	build/fresh/venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$$(echo dist/*.whl)[offline]"
	cd build/fresh && venv/bin/crossling demo --quick

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crossling needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable '.[offline,dev,track]'
	touch $@

clean:
	rm -rf $(VENV) .crossling demo runs studies dist build .mypy_cache .ruff_cache .pytest_cache
