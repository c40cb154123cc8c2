# Everything is set up here: Python 3.11+ and make are all that a machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types slow bench bench-gpu clean

demo: $(READY)
	$(BIN)/crossling demo

test: $(READY) lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

slow: $(READY)
	$(BIN)/python -m pytest -m slow

bench: $(READY)
	$(BIN)/python benchmarks/run.py --device cpu

# With whatever Python a GPU machine has: make bench-gpu PYTHON=python3.12
bench-gpu:
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) benchmarks/run.py --device cuda

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crossling needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[offline,dev,track]'
	touch $@

clean:
	rm -rf $(VENV) .crossling demo runs studies .mypy_cache .ruff_cache .pytest_cache
